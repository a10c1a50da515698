"""The parent stays light and never imports torch: measured on what a real process has in `sys.modules`."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perfguard
from perfguard.codec import to_json
from perfguard.config import load_config
from perfguard.gate.show import show_run
from tests.recorded_runs import DATA

SOURCE = str(Path(perfguard.__file__).parent.parent)

PROBE = """
import json, os, sys
from perfguard.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code
sys.stdout.flush()
with open(os.environ["REPORT"], "w") as report:
    json.dump({"code": code, "modules": sorted(sys.modules)}, report)
"""
HEAVY = {"torch", "intel_extension_for_pytorch", "textual", "sqlalchemy", "alembic", "litestar", "procrastinate", "mcp"}


@pytest.fixture
def imported(tmp_path):
    """The top-level names that a command leaves imported, after it ended with an expected code."""

    def after(*arguments, code=0, or_else=None):
        report = tmp_path / "report.json"
        done = subprocess.run(
            [sys.executable, "-c", PROBE, *arguments],
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "PYTHONPATH": SOURCE,
                "PYTHONDONTWRITEBYTECODE": "1",
                "REPORT": str(report),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        found = json.loads(report.read_text())
        assert found["code"] in (code, or_else), done.stderr
        return {name.partition(".")[0] for name in found["modules"]}, set(found["modules"])

    return after


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--help",), 0),
        (("--version",), 0),
        (("version",), 0),
        (("list",), 0),
        (("init", "--dry-run"), 0),
        (("list", "--cases", "--format", "json"), 0),
        (("gate", "--help"), 0),
        (("compare", "--help"), 0),
        (("run", "-s", "absent"), 2),
        (("compare", "--baseline", "wrong"), 2),
        (("compare", "-c", "absent"), 5),
        (("gate", "--baseline", "stored"), 3),
        (("baseline", "show"), 0),
        (("bisect", "--good", "v1", "-c", "absent"), 5),
        (("calibrate", "--show"), 0),
        (("plan", "--detect", "2%"), 3),
        (("config", "show", "--origin"), 0),
        (("schema", "result"), 0),
        (("tui",), 2),
        (("watch",), 3),
        (("fingerprint", "--no-software"), 0),
    ],
)
def test_no_parent_command_imports_torch_a_tui_or_a_database(imported, arguments, code):
    packages, modules = imported(*arguments, code=code)
    assert packages.isdisjoint(HEAVY)
    assert not any(name.startswith("perfguard.worker") for name in modules)


def test_doctor_imports_none_of_them_whatever_it_finds(imported):
    packages, _ = imported("doctor", or_else=3)
    assert packages.isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("gate", "--help"), ("compare", "--help"), ("bisect", "--help")]
)
def test_help_imports_nothing_that_computes_or_draws(imported, arguments):
    packages, _ = imported(*arguments)
    assert packages.isdisjoint({"numpy", "scipy", "rich", "pyperf", "psutil", "archspec", "cpuinfo"})


def test_a_finished_run_is_shown_without_the_statistics(imported, tmp_path):
    folder = tmp_path / ".perfguard" / "runs" / "20260102T030400-a"
    shutil.copytree(DATA / "paired", folder)
    result = show_run(load_config(tmp_path, {}, {}), folder)
    (folder / "result.json").write_text(to_json(result), encoding="utf-8")
    packages, _ = imported("show", code=result.exit_code)
    assert packages.isdisjoint({"numpy", "scipy"})


@pytest.mark.parametrize(
    "arguments", [("explain", "regressed"), ("version",), ("completion", "bash"), ("task", "list")]
)
def test_what_reads_no_recording_imports_no_events(imported, arguments):
    _, modules = imported(*arguments)
    assert "perfguard.records.events" not in modules


def test_importing_the_package_is_free():
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import sys, perfguard; print(*(n for n in sys.modules if 'perfguard' in n))"],
        env={"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["perfguard"]


def test_what_help_costs_is_shown(imported, capsys):
    """CPU seconds for the reader of the log; machines differ, so nothing is asserted about them."""
    resource.getrusage(resource.RUSAGE_CHILDREN)
    packages, _ = imported("--help")
    resource.getrusage(resource.RUSAGE_CHILDREN)
    with capsys.disabled():
        pass
    assert "click" in packages
