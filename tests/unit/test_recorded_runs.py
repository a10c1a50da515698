"""The recordings in `tests/data/runs` are what their script makes, small, and judged by perfguard as they say."""

from __future__ import annotations

import pytest

from perfguard.config import load_config
from perfguard.gate.show import show_run
from tests.recorded_runs import DATA, record_paired, record_rounds

MAKERS = {"paired": record_paired, "rounds": record_rounds}


@pytest.mark.parametrize("name", MAKERS)
def test_they_are_what_their_script_makes(tmp_path, name):
    made = MAKERS[name](tmp_path / name)
    assert {path.name: path.read_bytes() for path in made.iterdir()} == {
        path.name: path.read_bytes() for path in (DATA / name).iterdir()
    }


def test_they_are_small():
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 230_000


@pytest.mark.parametrize(("name", "verdict", "code"), [("paired", "regressed", 1), ("rounds", "measured", 0)])
def test_show_judges_them_as_they_were_judged(tmp_path, name, verdict, code):
    shown = show_run(load_config(tmp_path, {}, {}), DATA / name)
    assert (shown.verdict, shown.exit_code) == (verdict, code)
