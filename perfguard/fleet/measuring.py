"""A shard on this host: a clone of the repository, `perfguard gate` in it, and the run that it left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from perfguard.codec import from_builtins
from perfguard.errors import ArmError, ExitCode, MeasurementError, StoreError
from perfguard.history.recording import measured_run
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.fleet import Attempt, Delivery, GateWork
from perfguard.records.verdict import Outcome
from perfguard.runner.arms.git import run_git
from perfguard.runner.process.launching import launched

_ANSWERS = (ExitCode.PASS, ExitCode.REGRESSION, ExitCode.INCONCLUSIVE)
_HOPELESS = (ExitCode.USAGE, ExitCode.NOTHING_SELECTED)
"""Exit codes that every other host would end with, too."""
_FETCH_S = 1800.0
_LEAST_FREE = 200 << 20  # Bytes; checkouts and a run need some
_LONGEST = 300  # Characters of what a gate said last


def measure(attempt: Attempt, *, host: str, folder: Path, environment: Mapping[str, str]) -> Delivery:
    """Measure a shard within its lease, in a clone below `folder`; a failure is a delivery, too.

    Raises:
        KeyboardInterrupt: The user ended it; nothing goes on.
    """
    of = Delivery(shard_id=attempt.shard_id, attempt=attempt.number, token=attempt.token, host=host)
    try:
        tree = checked_out(attempt.work, folder)
        said = folder / f"shard-{attempt.shard_id}"
        exit_code = _gate(attempt, tree / attempt.work.folder, said, environment)
    except (ArmError, MeasurementError, OSError) as error:
        full = _full(folder)
        return replace(of, problem=full or _failed(str(error)), is_hosts=full is not None)
    if exit_code is None:
        return replace(of, problem=fact("fleet.took_too_long", severity=Severity.NOTABLE, lease_s=attempt.lease_s))
    try:
        if exit_code not in _ANSWERS:
            full, is_final = _full(folder), exit_code in _HOPELESS
            problem = full or _reason_in(said, exit_code)
            return replace(of, problem=problem, exit_code=exit_code, is_final=is_final, is_hosts=full is not None)
        run_id = json.loads(said.with_suffix(".json").read_bytes())["run_id"]
        runs = tree / attempt.work.folder / ".perfguard" / "runs"
        return replace(of, exit_code=exit_code, measured=measured_run(runs / run_id, attempt.work.project))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return replace(of, problem=_failed(f"its result cannot be read: {error}"))
    finally:
        for suffix in (".json", ".err"):
            said.with_suffix(suffix).unlink(missing_ok=True)


def _reason_in(said: Path, exit_code: int) -> Fact:
    """What the gate says of itself, else its last line."""
    try:
        gate = json.loads(said.with_suffix(".json").read_bytes())["gate"]
        failed = [verdict for verdict in gate["verdicts"] if verdict["outcome"] == Outcome.FAILED.value]
        return from_builtins(next(each for part in (*failed, gate) for each in part["reasons"]), Fact, source="a gate")
    except (StoreError, OSError, ValueError, KeyError, TypeError, StopIteration):
        text = said.with_suffix(".err").read_text(encoding="utf-8", errors="replace").strip()
        return _failed((text.splitlines() or ["it said nothing"])[-1][-_LONGEST:], exit_code=exit_code)


def _full(folder: Path) -> Fact | None:
    """That nothing more can be written on this host; None where there is room."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        free = 0
    return None if free >= _LEAST_FREE else fact("fleet.full", folder=str(folder), free_bytes=free)


def _failed(text: str, *, exit_code: int | None = None) -> Fact:
    return fact("fleet.gate_failed", severity=Severity.NOTABLE, text=text, exit_code=exit_code)


def checked_out(work: GateWork, folder: Path) -> Path:
    """The candidate's commit in this host's clone of the repository.

    Raises:
        ArmError: The repository cannot be cloned, or lacks a commit.
    """
    clone = folder / hashlib.sha256(work.repository.encode()).hexdigest()[:16]
    clone.mkdir(parents=True, exist_ok=True)
    run_git(clone, "init", "--quiet")  # also repairs one that was cut off
    run_git(clone, "config", "remote.origin.url", work.repository)
    for commit in (work.baseline, work.candidate):
        if not _has(clone, commit):
            with contextlib.suppress(ArmError):  # servers may refuse single commits; branches hold them then
                run_git(clone, "fetch", "--quiet", "origin", commit, timeout_s=_FETCH_S)
            if not _has(clone, commit):
                every = ("--tags", "origin", "+refs/heads/*:refs/remotes/origin/*")
                run_git(clone, "fetch", "--quiet", *every, timeout_s=_FETCH_S)
    for commit in (work.baseline, work.candidate):
        if not _has(clone, commit):
            raise ArmError(f"{work.repository} has no commit {commit}; push it first")
    run_git(clone, "checkout", "--quiet", "--force", "--detach", work.candidate)
    run_git(clone, "clean", "--quiet", "-ffdx", "-e", ".perfguard")
    return clone


def _has(clone: Path, commit: str) -> bool:
    try:
        run_git(clone, "cat-file", "-e", f"{commit}^{{commit}}")
    except ArmError:
        return False
    return True


def gate_arguments(attempt: Attempt) -> list[str]:
    """The arguments of perfguard that measure a shard."""
    work = attempt.work
    chosen = [part for pattern in attempt.patterns for part in ("-c", pattern)]
    suite = ["--suite", work.suite] if work.suite else []
    budget = ["--budget", f"{work.budget_s:g}"]
    wanted = ["--baseline", f"git:{work.baseline}", *suite, *chosen, *budget, *work.arguments]
    return ["gate", *wanted, "--wait", "--format", "json"]  # the lease ends a wait that takes too long


def _gate(attempt: Attempt, folder: Path, said: Path, environment: Mapping[str, str]) -> int | None:
    """Exit code of the gate; None where the lease ended first.

    The caller sleeps meanwhile: nothing of it runs beside the measurement.
    """
    command = launched([sys.executable, "-I", "-m", "perfguard", *gate_arguments(attempt)], is_tied=True)
    # `-I`: the working directory is the candidate's checkout, which may hold a `perfguard` of its own.
    # The history is the fleet's, which takes the run with its shard.
    variables = {**environment, "PERFGUARD_DATABASE": "off"}
    with said.with_suffix(".json").open("wb") as out, said.with_suffix(".err").open("wb") as err:
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
    with _ended_at_last(process):
        return process.wait() if _sleep_until_end(process.pid, attempt.lease_s) else None


def _sleep_until_end(pid: int, seconds: float) -> bool:
    """Whether a process ended in time. `Popen.wait` would wake up twenty times a second."""
    handle = os.pidfd_open(pid)
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


@contextlib.contextmanager
def _ended_at_last(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
