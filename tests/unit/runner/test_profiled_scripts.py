"""Profiling a user's script with a scripted worker in place of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfguard.errors import MeasurementError
from perfguard.records.plan import MeasureSettings
from perfguard.runner.process.worker_process import WorkerFailure
from perfguard.runner.profiling.scripts import Script, ScriptProfiling, profile_script
from tests.worker_replies import QueuedReplies, ended, profiled, ready

CPUS = (2,)
WAITING = {"reply": "waiting", "step": 3}


class FakeWorker(QueuedReplies):
    """A worker whose script makes `steps` optimizer steps."""

    def __init__(self, steps, *, problem=None):
        super().__init__()
        self.left, self.steps, self.problem = steps, steps, problem
        self.kinds, self.sent = [], []

    def send(self, do, **fields):
        self.sent.append(do)
        if do == "hello":
            self.replies.append(ready(CPUS))
        elif do == "script":
            self.left -= fields["skip"]
            self.replies.append(WAITING if self.left >= 0 and self.steps else self._end())
        elif do == "step":
            self.left -= 1
            self.replies.append(self._profiled(fields["kind"]) if self.left >= 0 else self._end())
        elif do == "whole":
            self.replies += [self._profiled(fields["kind"]), self._end()]
        else:
            self.replies.append(self._end())

    def _end(self):
        return ended(CPUS, steps=self.steps, problem=self.problem, exit_code=1 if self.problem else 0)

    def _profiled(self, kind):
        self.kinds.append(kind)
        return profiled(CPUS, kind)

    def close(self):
        self.sent.append("close")


class FakeStarter:
    def __init__(self, *workers):
        self.left, self.workers = list(workers), workers

    def start(self, arm, block, settings):
        return self.left.pop(0)


class DyingWorker(FakeWorker):
    """A worker that dies when it is asked for a step after so many."""

    def __init__(self, steps, *, after):
        super().__init__(steps)
        self.after = after

    def send(self, do, **fields):
        if do == "step" and len(self.kinds) == self.after:
            raise WorkerFailure("the worker was killed by SIGKILL")
        super().send(do, **fields)


def profile(tmp_path, *workers, processes=1, steps=2, skip=3, should_stop=lambda: False):
    starter = FakeStarter(*workers)
    script = Script(path=Path("/project/train.py"), arguments=("--fast",), skip=skip, steps=steps, timeout_s=60.0)
    return profile_script(
        script,
        ScriptProfiling(
            starter=starter,
            settings=MeasureSettings(seed=7),
            cpus=CPUS,
            folder=tmp_path / "profiles" / "train",
            processes=processes,
            should_stop=should_stop,
            progress=lambda _: None,
        ),
    )


def test_bare_and_traced_steps_alternate_and_the_script_is_ended(tmp_path):
    worker = FakeWorker(100)
    found = profile(tmp_path, worker)
    assert worker.kinds == ["bare", "trace", "joined", "where", "bare", "trace"]
    assert worker.sent[-2:] == ["stop", "close"]
    (record,) = found.processes
    assert (len(record.bare), len(record.traced)) == (2, 2)
    assert record.joined is not None
    assert record.joined.log is not None


def test_only_the_first_process_takes_the_op_counts(tmp_path):
    second = FakeWorker(100)
    found = profile(tmp_path, FakeWorker(100), second, processes=2)
    assert second.kinds == ["bare", "trace", "bare", "trace"]
    assert [record.joined is not None for record in found.processes] == [True, False]


def test_a_script_that_ends_early_keeps_the_steps_that_were_seen(tmp_path):
    found = profile(tmp_path, FakeWorker(3 + 4))
    (record,) = found.processes
    assert len(record.traced) == 1
    assert record.where is not None
    (note,) = found.notes
    assert note == (
        "the script ended after 7 optimizer steps, so 1 of its steps was profiled instead of 2; let it make more, or "
        "lower --skip or --steps"
    )


def test_what_a_script_that_ends_early_does_not_tell_is_said(tmp_path):
    found = profile(tmp_path, FakeWorker(3 + 2))
    assert "instead of 2; library calls and source lines are not shown; let it make more" in found.notes[0]


def test_steps_that_were_seen_are_kept_where_the_script_fails_later(tmp_path):
    unused = FakeWorker(100)
    found = profile(tmp_path, FakeWorker(3 + 5, problem="ValueError: no"), unused, processes=2)
    (record,) = found.processes
    assert len(record.traced) == 1
    assert found.failure.startswith("/project/train.py failed: ValueError: no\n")
    (note,) = found.notes
    assert note == "the script failed after 8 optimizer steps, so 1 of its steps was profiled instead of 2"
    assert unused.sent == []


def test_steps_that_were_seen_are_kept_where_the_worker_dies(tmp_path):
    found = profile(tmp_path, DyingWorker(100, after=3))
    (record,) = found.processes
    assert len(record.traced) == 1
    assert found.failure.startswith("/project/train.py cannot be profiled: ")


def test_an_interrupt_ends_the_script_after_the_step_at_hand(tmp_path):
    worker = FakeWorker(100)
    found = profile(tmp_path, worker, should_stop=lambda: len(worker.kinds) == 2)
    assert worker.kinds == ["bare", "trace"]
    assert worker.sent[-2:] == ["stop", "close"]
    assert len(found.processes) == 1


def test_a_script_without_optimizer_steps_is_profiled_as_a_whole(tmp_path):
    again = FakeWorker(0)
    found = profile(tmp_path, FakeWorker(0), again)
    assert found.is_whole
    assert again.kinds == ["joined"]
    (record,) = found.processes
    assert len(record.traced) == 1


def test_a_script_with_too_few_steps_is_told_what_to_change(tmp_path):
    with pytest.raises(MeasurementError, match=r"made 2 optimizer steps and ended before step 3 .* lower --skip"):
        profile(tmp_path, FakeWorker(2))


def test_a_script_that_ends_before_its_first_profile_is_told_so(tmp_path):
    with pytest.raises(MeasurementError, match="ended before one of its steps was profiled"):
        profile(tmp_path, FakeWorker(3 + 1))


def test_a_script_that_raises_gives_its_sentence_and_traceback(tmp_path):
    with pytest.raises(MeasurementError, match=r"train\.py failed: ValueError: no\nTraceback of the script"):
        profile(tmp_path, FakeWorker(0, problem="ValueError: no"))
