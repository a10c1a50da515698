"""A shard's clone on a host, and why a gate gave no verdict."""

from __future__ import annotations

import json
import subprocess

import pytest

from perfguard.fleet import measuring
from perfguard.fleet.measuring import checked_out, gate_arguments, measure
from perfguard.records.facts import fact
from perfguard.records.fleet import Attempt
from tests.changed_values import replace
from tests.fleet_hosts import WORK


@pytest.fixture
def work(tmp_path):
    path = tmp_path / "repository"
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(path))
    git(path, "commit", "--quiet", "--allow-empty", "-m", "first")
    head = git(path, "rev-parse", "HEAD")
    return replace(WORK, repository=str(path), baseline=head, candidate=head)


def git(path, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *identity, *arguments], cwd=path, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def measured(work, folder, *, gate, monkeypatch):
    """What a shard gives whose gate writes something and ends with a code."""

    def fake(attempt, tree, said, environment):
        out, err, code = gate
        said.with_suffix(".json").write_text(out)
        said.with_suffix(".err").write_text(err)
        return code

    monkeypatch.setattr(measuring, "_gate", fake)
    attempt = Attempt(shard_id=1, number=1, token="t", lease_s=60.0, machine_class="lab", work=work, patterns=())
    return measure(attempt, host="h", folder=folder, environment={})


def test_a_gate_waits_for_whoever_measures_on_the_host(work):
    attempt = Attempt(shard_id=1, number=1, token="t", lease_s=60.0, machine_class="lab", work=work, patterns=())
    assert "--wait" in gate_arguments(attempt)


def test_a_clone_that_was_cut_off_is_repaired(work, tmp_path):
    folder = tmp_path / "clones"
    clone = checked_out(work, folder)
    (clone / ".git" / "HEAD").unlink()
    (clone / ".git" / "config").write_text("")
    assert git(checked_out(work, folder), "rev-parse", "HEAD") == work.candidate


def test_the_reason_is_that_of_the_failed_case(work, tmp_path, monkeypatch):
    reason = {"code": "case.raised", "severity": "info", "subject": {}, "values": {"error": "no"}}
    verdicts = [{"outcome": "pass", "reasons": []}, {"outcome": "failed", "reasons": [reason]}]
    result = json.dumps({"gate": {"reasons": [], "verdicts": verdicts}})
    found = measured(work, tmp_path, gate=(result, "progress", 3), monkeypatch=monkeypatch)
    assert (found.problem, found.is_final, found.is_hosts) == (fact("case.raised", error="no"), False, False)


def test_without_a_result_the_reason_is_the_last_line(work, tmp_path, monkeypatch):
    found = measured(work, tmp_path, gate=("", "one\nperfguard: no such suite\n", 2), monkeypatch=monkeypatch)
    assert (found.problem.code, found.problem.values["text"]) == ("fleet.gate_failed", "perfguard: no such suite")
    assert found.is_final


def test_a_full_disk_is_the_hosts_fault(work, tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "_LEAST_FREE", 1 << 62)
    found = measured(work, tmp_path, gate=("", "No space left on device", 3), monkeypatch=monkeypatch)
    assert (found.problem.code, found.is_hosts) == ("fleet.full", True)
    assert measured(replace(work, repository="/nowhere"), tmp_path, gate=("", "", 0), monkeypatch=monkeypatch).is_hosts
