"""Ops alone, by a worker with scripted answers that may be lost."""

from __future__ import annotations

import pytest

from perfguard.errors import MeasurementError
from perfguard.records.facts import fact
from perfguard.records.plan import MeasureSettings
from perfguard.records.run import Arm
from perfguard.runner.process.answers import RecordedOp
from perfguard.runner.process.worker_process import WorkerFailure
from perfguard.runner.profiling.replays import OUT_OF_TIME, Replaying, replay_ops
from tests.worker_replies import ready

CPUS = (1,)
MASK = list(CPUS)
CEILINGS = {
    "reply": "ceilings",
    "gemms": [{"dtype": "fp32", "size": 512, "call_s": 0.1, "flops_per_s": 2.7e9}],
    "streams": [],
    "cache_bytes": 0,
    "is_beyond_caches": True,
    "threads": 1,
    "affinity": MASK,
}
REFUSED = {"reply": "failed", "reason": "OSError: no", "detail": "", "kind": "error"}


class Workers:
    """Starts workers; each op is answered by its own entry, and a crash ends the worker."""

    def __init__(self, answers, *, ceilings=CEILINGS, affinity=MASK):
        self.answers = answers
        self.ceilings = ceilings
        self.affinity = affinity
        self.started = []
        self.closed = 0

    def start(self, arm, block, settings):
        assert settings is None
        self.started.append(arm)
        return Scripted(self)

    def start_control(self):
        raise NotImplementedError


class Scripted:
    def __init__(self, workers):
        self.workers = workers
        self.command = {}

    def send(self, do, **fields):
        self.command = {"do": do, **fields}

    def receive(self, timeout_s):
        do = self.command["do"]
        if do == "hello":
            assert self.command["job"]["profile"]
            return ready(self.workers.affinity)
        answer = self.workers.ceilings if do == "ceilings" else self.workers.answers[self.command["op"]["op"]]
        if answer is None:
            raise WorkerFailure("the worker crashed with SIGSEGV")
        if isinstance(answer, float):
            return {"reply": "replayed", "call_s": answer, "reason": None, "affinity": MASK}
        return answer

    def close(self):
        self.workers.closed += 1


def replays(workers, *, dtypes=(), **settings):
    ops = [RecordedOp(op=name, dims=[[2]], types=["float"]) for name in workers.answers]
    known = {"budget_s": 100.0, **settings}
    replaying = Replaying(starter=workers, settings=MeasureSettings(), cpus=CPUS, arm=Arm.BASELINE, **known)
    return replay_ops(ops, dtypes, replaying)


def test_one_worker_of_the_arm_replays_all_ops_in_order():
    workers = Workers({"a": 1.0, "b": 2.0})
    found = replays(workers, dtypes=("fp32",))
    assert [op.call_s for op in found.ops] == [1.0, 2.0]
    assert found.ceilings.gemms[0].flops_per_s == 2.7e9
    assert (workers.started, workers.closed) == ([Arm.BASELINE], 1)


def test_ceilings_are_not_measured_where_nothing_is_computed():
    assert replays(Workers({"a": 1.0}, ceilings=None)).ceilings is None


def test_an_op_that_ends_its_worker_has_that_as_its_reason_and_the_others_go_on():
    workers = Workers({"a": 1.0, "b": None, "c": 3.0})
    found = replays(workers)
    assert [op.call_s for op in found.ops] == [1.0, None, 3.0]
    assert found.ops[1].reason.code == "replay.crashed"
    assert "SIGSEGV" in found.ops[1].reason.values["error"]
    assert (len(workers.started), workers.closed) == (2, 2)


def test_workers_that_are_lost_again_and_again_end_the_replays():
    workers = Workers(dict.fromkeys("abcdef"))
    found = replays(workers)
    assert len(workers.started) == 3
    assert all(op.call_s is None for op in found.ops)
    assert found.ops[-1].reason == fact("replay.workers_lost", workers=3)


def test_an_op_that_is_refused_keeps_its_worker():
    workers = Workers({"a": REFUSED, "b": 2.0})
    found = replays(workers)
    assert (found.ops[0].reason, found.ops[1].call_s) == (fact("replay.refused", error="OSError: no"), 2.0)
    assert len(workers.started) == 1


@pytest.mark.parametrize("answer", [None, REFUSED])
def test_ceilings_that_fail_are_noted_and_the_ops_are_replayed(answer):
    found = replays(Workers({"a": 1.0}, ceilings=answer), dtypes=("fp32",))
    assert found.ceilings is None
    assert [note.code for note in found.notes] == ["projection.no_ceilings"]
    assert found.ops[0].call_s == 1.0


def test_ops_after_the_budget_have_no_time_left():
    seconds = iter(range(100))
    found = replays(Workers({"a": 1.0, "b": 1.0, "c": 1.0}), budget_s=3.0, clock=lambda: float(next(seconds)))
    assert [op.reason for op in found.ops] == [None, None, OUT_OF_TIME]


def test_an_interrupt_ends_the_replays_and_starts_nothing():
    workers = Workers({"a": 1.0})
    found = replays(workers, dtypes=("fp32",), should_stop=lambda: True)
    assert (found.ops[0].call_s, found.ceilings, workers.started) == (None, None, [])


def test_a_worker_that_cannot_be_started_is_an_error_and_closed():
    workers = Workers({"a": 1.0}, affinity=[0, 1])
    with pytest.raises(MeasurementError, match="cannot be started"):
        replays(workers)
    assert workers.closed == 1
