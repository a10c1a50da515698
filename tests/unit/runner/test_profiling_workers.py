"""What the parent says to a worker that profiles, and what it makes of the answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfguard.records.plan import MeasureSettings
from perfguard.records.protocol import StepKind
from perfguard.records.run import Arm
from perfguard.records.script_settings import SettingUse
from perfguard.records.spec import Case
from perfguard.runner.process.answers import HeldScript, ProfiledStep, RecordedOp, ScriptEnd
from perfguard.runner.process.arm_worker import CaseRefused, ProfilingWorker
from perfguard.runner.process.worker_process import WorkerFailure
from perfguard.runner.profiling.scripts import script_failure
from tests.worker_replies import QueuedReplies, ended, profiled, ready

CPUS = (2, 3)
CASE = Case(benchmark="x", target="bench.py:x")
TRACE, LOG = Path("/traces/0.json.gz"), Path("/traces/0.log")
COST = {"event_s": 1e-6, "own_share": 0.25, "module_s": 4e-6}
PROFILED = profiled(CPUS, "joined", **COST, compile_events={"frames": 1}, logs=["onednn", "mkl"])
ENDED = ended(CPUS, steps=7, exit_code=3, problem="ValueError: no")
END = ScriptEnd(exit_code=3, problem="ValueError: no", detail="Traceback of the script", was_ended=False, steps=7)


@pytest.mark.parametrize(("exit_code", "is_usage"), [(1, False), (2, True)])
def test_a_script_that_may_not_know_its_arguments_is_said_to_have_them_last(exit_code, is_usage):
    end = ScriptEnd(exit_code=exit_code, problem=None, detail="", was_ended=False, steps=0)
    assert ("options of perfguard stand before the script" in str(script_failure(Path("a.py"), end))) is is_usage


class Scripted(QueuedReplies):
    """Gives the answers that it was made with, in their order."""

    def __init__(self, *replies):
        super().__init__()
        self.replies = [ready(CPUS), *replies]
        self.sent = []

    def send(self, do, **fields):
        self.sent.append({"do": do, **fields})


def greeted(*replies):
    process = Scripted(*replies)
    worker = ProfilingWorker(Arm.CANDIDATE, process, MeasureSettings())
    worker.hello({"profile": True}, cpus=CPUS)
    return worker, process


def test_a_profiled_step_is_asked_for_and_read():
    worker, process = greeted(PROFILED)
    step = worker.profile(CASE, StepKind.JOINED, trace=TRACE, log=LOG)
    assert step == ProfiledStep(
        kind=StepKind.JOINED,
        wall_s=0.5,
        thread_s=0.4,
        process_s=0.9,
        minor_faults=3,
        **COST,
        compile_events={"frames": 1},
        logs=("onednn", "mkl"),
    )
    sent = process.sent[-1]
    assert (sent["do"], sent["case"]["id"], sent["kind"]) == ("profile", "x", "joined")
    assert (sent["trace"], sent["log"]) == (str(TRACE), str(LOG))


def test_a_bare_step_has_no_files_and_no_cost():
    worker, process = greeted({**PROFILED, "kind": "bare", **dict.fromkeys(COST)})
    step = worker.profile(CASE, StepKind.BARE)
    assert step.event_s is step.own_share is step.module_s is None
    assert process.sent[-1]["trace"] is process.sent[-1]["log"] is None


def test_what_was_compiled_in_the_set_up_comes_with_it():
    prepared = {"reply": "prepared", "digest": 1.0, "affinity": list(CPUS), "compile_events": {"graph_break: print": 2}}
    worker, _ = greeted(prepared)
    assert worker.prepare(CASE, seed=1, check=False).compile_events == {"graph_break: print": 2}


def test_a_case_that_fails_is_refused():
    worker, _ = greeted({"reply": "failed", "reason": "OSError: disk full", "detail": "", "kind": "error"})
    with pytest.raises(CaseRefused, match="disk full"):
        worker.profile(CASE, StepKind.TRACE, trace=TRACE)


MOVED = {"affinity": [0]}


@pytest.mark.parametrize(
    ("reply", "ask"),
    [
        (PROFILED, lambda worker: worker.profile(CASE, StepKind.BARE)),
        (PROFILED, lambda worker: worker.script_step(StepKind.BARE, timeout_s=1)),
        (ENDED, lambda worker: worker.stop_script(timeout_s=1)),
        (
            {"reply": "replayed", "call_s": 1.0, "reason": None},
            lambda worker: worker.replay(RecordedOp(op="aten::relu", dims=[[2]], types=["float"])),
        ),
        ({"reply": "ceilings", "gemms": [], "streams": []}, lambda worker: worker.ceilings()),
    ],
)
def test_a_worker_that_was_moved_to_other_cpus_is_given_up(reply, ask):
    worker, _ = greeted({**reply, **MOVED})
    with pytest.raises(WorkerFailure, match="moved its process to CPUs"):
        ask(worker)


def test_a_script_is_held_stepped_and_stopped():
    use = {"name": "optimizer", "value": "fused", "changed": 1, "kept": 0, "unable": 0}
    waiting = {"reply": "waiting", "step": 4, "settings": [use], "checks": {"loss_1": 0.5}}
    worker, process = greeted(waiting, PROFILED, {**ENDED, "was_ended": True, "problem": None, "exit_code": 0})
    held = worker.start_script(Path("/code/train.py"), ["--lr", "0.1"], skip=4, timeout_s=9, seed=3)
    assert isinstance(held, HeldScript)
    assert (held.settings, held.checks) == ((SettingUse(**use),), {"loss_1": 0.5})
    assert worker.script_step(StepKind.JOINED, trace=TRACE, log=LOG, timeout_s=9).wall_s == 0.5
    assert worker.stop_script(timeout_s=9).was_ended
    assert [message["do"] for message in process.sent[1:]] == ["script", "step", "stop"]
    assert process.sent[1]["path"] == "/code/train.py"
    assert process.sent[1]["arguments"] == ["--lr", "0.1"]
    assert process.sent[1]["seed"] == 3


def test_a_script_may_end_before_it_is_held():
    worker, _ = greeted(ENDED)
    assert worker.start_script(Path("/code/train.py"), [], skip=4, timeout_s=9) == END


def test_a_script_may_end_in_a_step():
    worker, _ = greeted({"reply": "waiting"}, ENDED)
    worker.start_script(Path("/code/train.py"), [], skip=1, timeout_s=9)
    assert worker.script_step(StepKind.TRACE, trace=TRACE, timeout_s=9) == END


def test_a_whole_script_is_one_step_and_its_end():
    worker, process = greeted(PROFILED, ENDED)
    whole = worker.whole_script(Path("/code/run.py"), ["x"], StepKind.JOINED, trace=TRACE, log=LOG, timeout_s=9)
    assert (whole.step.wall_s, whole.end) == (0.5, END)
    assert process.sent[-1]["do"] == "whole"


def test_an_answer_that_is_not_due_is_the_workers_failure():
    worker, _ = greeted({"reply": "waiting"})
    with pytest.raises(WorkerFailure, match="answered 'waiting' where 'profiled' was due"):
        worker.script_step(StepKind.BARE, timeout_s=9)


def test_a_replayed_op_has_a_time_or_a_reason():
    op = RecordedOp(op="aten::relu", dims=[[2]], types=["float"], strides=[[1]], concrete=[""])
    told = {
        "reply": "replayed",
        "call_s": 1e-6,
        "reason": None,
        "overload": "default",
        "batches": 9,
        "assumed": ["a=1"],
    }
    refused = {"reply": "replayed", "call_s": None, "reason": "it is unknown here"}
    worker, process = greeted(*({**reply, "affinity": list(CPUS)} for reply in (told, refused)))
    first, second = worker.replay(op), worker.replay(op)
    assert (first.call_s, first.overload, first.batches, first.assumed) == (1e-6, "default", 9, ("a=1",))
    assert second.call_s is None
    assert (second.reason.code, second.reason.values) == ("replay.refused", {"error": "it is unknown here"})
    assert process.sent[-1]["op"]["strides"] == [[1]]


def test_ceilings_are_read():
    gemm = {"dtype": "fp32", "size": 512, "call_s": 0.1, "flops_per_s": 2.7e9}
    stream = {"kernel": "triad", "array_bytes": 4096, "call_s": 0.2, "bytes_per_s": 6e9}
    reply = {
        "reply": "ceilings",
        "gemms": [gemm],
        "streams": [stream],
        "cache_bytes": 1024,
        "is_beyond_caches": True,
        "threads": 2,
        "affinity": list(CPUS),
    }
    worker, process = greeted(reply)
    found = worker.ceilings(("fp32",), cache_bytes=1024)
    assert (found.gemms[0].size, found.streams[0].bytes_per_s, found.threads) == (512, 6e9, 2)
    assert process.sent[-1]["dtypes"] == ["fp32"]
