"""`perfguard study profilednn` with real workers: one small part, from the command to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from perfguard.cli import group
from perfguard.profile.runs.profiling import ProfileSize
from perfguard.study import collect, items, profiled
from perfguard.study.collect import stored_items

TINY = "step.lstm_lm[layers=2,hidden=128,sequence=32,batch=16,dtype=fp32,mode=eager]"

SMALL_RETINANET = (
    "step.retinanet_resnext50[image_size=96,classes=91,batch=1,dtype=fp32,memory_format=channels_last,mode=eager]"
)


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    """Runs the command in an empty project, with the LSTM as the only model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(collect, "MODELS", {"lstm": TINY})

    def run(*arguments: str):
        return CliRunner().invoke(group, ["study", "profilednn", *arguments], catch_exceptions=False)

    return run


def test_a_donut_is_measured_once_stored_and_reported(invoke, tmp_path: Path) -> None:
    assert invoke("--parts", "donuts", "--out", "study", "--quiet").exit_code == 0
    (stored,) = stored_items(tmp_path / "study").values()
    assert stored.value.case_id == TINY
    assert sum(s.share for s in stored.value.slices) == pytest.approx(1.0)
    report = json.loads((tmp_path / "study" / "report.json").read_text(encoding="utf-8"))
    outcomes = {shape["claim"]["code"]: shape["outcome"] for shape in report["shapes"]}
    assert outcomes["study.recurrent_primitive"] in {"holds", "does not hold"}
    assert outcomes["study.no_batch_norm"] == "not measured"
    assert (tmp_path / "study" / "report.html").is_file()
    assert (tmp_path / "study" / "report.md").is_file()

    written = (tmp_path / "study" / "evidence" / "donuts-lstm.json").stat().st_mtime_ns
    assert invoke("--parts", "donuts", "--out", "study", "--budget", "0").exit_code == 0
    assert (tmp_path / "study" / "evidence" / "donuts-lstm.json").stat().st_mtime_ns == written


@pytest.mark.long
def test_phases_are_compared_with_few_and_many_classes(invoke, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(collect, "PHASES_CASE", SMALL_RETINANET)
    monkeypatch.setattr(profiled, "_PHASES_SIZE", ProfileSize(processes=1, steps=1, where=False))
    assert invoke("--parts", "phases", "--out", "study", "--quiet").exit_code == 0
    value = stored_items(tmp_path / "study")["phases-classes"].value
    assert [phase.phase for phase in value.phases] == ["backbone", "head", "loss", "forward", "backward"]
    assert all(phase.few_s > 0 and phase.many_s > 0 for phase in value.phases)
    assert 0 < value.loss_backward_share < 1


def test_a_toggle_is_compared_in_interleaved_blocks(invoke, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "perfguard.toml").write_text("max_blocks = 3\nsamples = 3\n")
    adam = next(toggle for toggle in items.CASE_STUDIES if toggle.name == "optimizer")
    monkeypatch.setattr(collect, "CASE_STUDIES", (adam,))
    invoke("--parts", "cases", "--out", "study", "--budget", "300", "--quiet")
    value = stored_items(tmp_path / "study")["cases-optimizer"].value
    assert (value.case_id, value.is_different) == (adam.case, False)
    assert value.baseline_s > 0
    assert value.candidate_s > 0
