"""A gate from the command to its result, its arms and measuring faked: the machine is looked at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perfguard.config import Config, LoadedConfig
from perfguard.gate.choose import default_gate
from perfguard.gate.paired import compare_arms as paired
from perfguard.host import lock
from perfguard.host import probe as host
from perfguard.records.facts import Severity, fact
from perfguard.records.plan import ArmSpec, Plan
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.runner import measuring
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.blocks.calibrate import ArmReport
from perfguard.runner.session import Request
from tests.git_repositories import init_repository

READY = {
    "interpreter": {"executable": "/py", "version": "3.12.4"},
    "software": {"torch_version": "2.8.0", "python_version": "3.12.4"},
}


@pytest.fixture(autouse=True)
def _lock_of_its_own(monkeypatch, tmp_path):
    """A run beside it, measured by another test, holds the host's lock."""
    monkeypatch.setattr(lock, "lock_path", lambda: tmp_path / "lock")


@pytest.fixture
def analyses(monkeypatch):
    """How often the machine was read."""
    counted = []
    read = host.read_fingerprint

    def counting(*arguments, **options):
        counted.append(arguments)
        return read(*arguments, **options)

    monkeypatch.setattr(host, "read_fingerprint", counting)
    return counted


@pytest.fixture
def fake_arms(monkeypatch):
    def start_arms(session, specs, place=None):
        return SimpleNamespace(), {
            role: SimpleNamespace(
                spec=ArmSpec(text="dir:."), source_id="s", commit=None, interpreter="python", tree=None
            )
            for role in specs
        }

    def calibrate(session, starter, arms, **_):
        for role, arm in arms.items():
            measuring._introduce(session, role, arm, ArmReport(ready=READY))
        return Plan(cases=(), settings=session.settings)

    monkeypatch.setattr(paired, "start_arms", start_arms)
    monkeypatch.setattr(paired, "prove_identity", lambda session, arms: None)
    monkeypatch.setattr(paired, "calibrate", calibrate)


@pytest.fixture
def request_of(tmp_path, monkeypatch):
    project = init_repository(tmp_path / "project", monkeypatch)

    def make(**fields):
        loaded = LoadedConfig(config=Config(suite="tiny", seed=5), origins={}, project=project)
        cases = (Case(benchmark="tiny.sum", target="bench.py:sum"),)
        known = {"command": "gate", "arguments": (), "suite": "tiny", "cases": cases, "budget_s": 60.0, "inherited": {}}
        return Request(loaded=loaded, **{**known, **fields})

    return make


def test_the_machine_is_looked_at_once_a_gate(analyses, fake_arms, request_of):
    result = default_gate(request_of(), parse_arm("dir:."))
    assert len(analyses) == 1
    assert result.arms[Arm.CANDIDATE.value].stack_id.startswith("torch2.8.0-py3.12-")


def test_a_note_is_said_once_whatever_its_severity(fake_arms, request_of):
    twice = (fact("a.note", block=1), fact("a.note", severity=Severity.NOTABLE, block=1), fact("a.note", block=2))
    result = default_gate(request_of(notes=twice), parse_arm("dir:."))
    assert [note for note in result.notes if note.code == "a.note"] == [twice[0], twice[2]]
    assert [note.code for note in result.notes][-1] == "rate.not_calibrated"
    assert result.error_rate == result.notes[-1]
