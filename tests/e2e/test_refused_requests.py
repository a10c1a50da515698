"""Projects and folders with which nothing can be done: one sentence, an exit code, no traceback; no torch."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perfguard.cli.commands.baselines import baseline_command
from perfguard.errors import HostUnfitError
from perfguard.gate.stored import update
from perfguard.host.lock import host_lock, lock_path
from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import CheckResult, CheckStatus


def test_a_wrong_configuration_names_file_and_key(project):
    project.write("perfguard.toml", "samplez = 3")
    done = project.run("list")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{project.path / 'perfguard.toml'}: unknown key 'samplez'; did you mean 'samples'?" in done.stderr


def test_benchmarks_that_cannot_be_imported_are_shown_with_their_traceback(project):
    project.write("bench_broken.py", "raise ValueError('not importable')")
    done = project.run("list")
    assert (done.returncode, done.stdout) == (2, "")
    assert "bench_broken.py cannot be imported" in done.stderr
    assert "ValueError: not importable" in done.stderr


def test_a_working_directory_that_is_gone_gives_a_sentence(project, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["/bin/sh", "-c", f"cd {gone} && rmdir {gone} && exec {sys.executable} -m perfguard list"],
        env=project.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "the working directory is gone" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_that_no_file_can_have_give_a_sentence(project):
    for arguments in (("show", "x" * 300), ("compare", "--baseline", "dir:" + "a" * 5000)):
        done = project.run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "a name is too long" in done.stderr
    done = project.run("compare", "--baseline", "env:A=\udcff")
    assert (done.returncode, "no text" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_a_revision_that_git_does_not_know_is_said_while_another_run_holds_the_host(project):
    with host_lock(Path(project.environment["TMPDIR"]) / lock_path().name):
        done = project.run("gate", "--baseline", "nowhere")
        assert (done.returncode, "git knows no revision 'nowhere'" in done.stderr) == (2, True)
        assert project.run("gate", "--baseline", "HEAD").returncode == 3


def test_a_request_that_is_refused_leaves_no_run(project):
    done = project.run("compare", "--baseline", "env:A=1", "--candidate", "git:nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert not list(project.path.glob(".perfguard/runs/*"))
    assert "no run is recorded" in project.run("show").stderr


def test_a_baseline_waits_for_the_host_before_it_judges_it_and_an_unfit_one_leaves_no_run(project, monkeypatch):
    monkeypatch.chdir(project.path)
    monkeypatch.setattr(tempfile, "tempdir", project.environment["TMPDIR"])
    load = CheckResult(id="load", status=CheckStatus.FAIL, observed=fact("doctor.none"), why=fact("doctor.none"))
    asked = []

    def check(*_):
        with pytest.raises(HostUnfitError), host_lock():
            pass
        asked.append(True)
        return (load,)

    monkeypatch.setattr(update, "check_host", check)
    with pytest.raises(HostUnfitError, match=r"\(load\)"):
        baseline_command(["update", "--suite", "tiny"], standalone_mode=False)
    assert asked
    assert not list(project.path.glob(".perfguard/runs/*"))
