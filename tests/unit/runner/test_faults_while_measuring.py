"""The measuring loop when workers refuse, crash, lie or are interrupted."""

from __future__ import annotations

import pytest

from perfguard.errors import MeasurementError
from perfguard.records.events import BlockFinished, BlockStarted, CaseFinished, ControlTimed, Noted, SampleTimed
from perfguard.records.facts import fact
from perfguard.records.run import Arm, CaseFailed
from perfguard.runner.process.worker_process import WorkerFailure
from tests.measuring_runs import BOTH, CPUS, FakeControl, FakeStarter, FakeWorker, Run, refusal
from tests.worker_replies import ready


@pytest.mark.parametrize("arm", BOTH)
@pytest.mark.parametrize("command", ["prepare", "bench", "go"])
def test_a_refused_case_is_dropped_alone_and_the_block_goes_on(arm, command):
    run = Run(FakeStarter({(0, arm): {(command, "y"): refusal()}})).go()
    (failed,) = run.of(CaseFailed)
    assert (failed.case_id, failed.arm, failed.reason, failed.missing) == (
        "y",
        arm,
        fact("case.raised", error="ValueError: no"),
        False,
    )
    assert sorted(run.completed()) == [(0, "x"), (0, "z"), (1, "x"), (1, "z")]
    assert all("y" not in event.case_ids for event in run.of(BlockStarted)[1:])
    assert run.all_closed


@pytest.mark.parametrize("arm", BOTH)
def test_a_refusal_after_the_last_sample_is_that_cases_failure(arm):
    class Late(FakeWorker):
        def _hand_back(self):
            super()._hand_back()
            if self._case == "y" and self._left == 0:
                self.replies[-1] = refusal("the loss is nan")

    starter = FakeStarter()
    start = starter.start

    def start_late(role, block, settings):
        start(role, block, settings)
        if role is arm:
            starter.workers[block.index, role] = Late()
        return starter.workers[block.index, role]

    starter.start = start_late
    run = Run(starter).go()
    assert [failed.reason for failed in run.of(CaseFailed)] == [fact("case.raised", error="the loss is nan")]
    assert sorted(run.completed()) == [(0, "x"), (0, "z"), (1, "x"), (1, "z")]


def test_a_case_that_the_arm_does_not_have_is_missing():
    run = Run(FakeStarter({(0, Arm.BASELINE): {("prepare", "y"): refusal(kind="missing")}})).go()
    assert [(failed.missing, failed.reason.code) for failed in run.of(CaseFailed)] == [(True, "case.missing")]


@pytest.mark.parametrize("arm", BOTH)
@pytest.mark.parametrize("command", ["prepare", "bench", "go"])
def test_a_crash_drops_the_open_case_and_the_next_block_goes_on_without_it(arm, command):
    crash = WorkerFailure("it crashed", "last words", found=fact("case.crashed", signal="SIGSEGV"))
    run = Run(FakeStarter({(0, arm): {(command, "y"): crash}})).go()
    (failed,) = run.of(CaseFailed)
    assert (failed.case_id, failed.arm, failed.reason, failed.detail) == ("y", arm, crash.found, crash.detail)
    assert sorted(name for block, name in run.completed() if block == 1) == ["x", "z"]
    assert [event.block for event in run.of(BlockFinished)] == [0, 1]
    assert run.all_closed


def test_an_answer_out_of_turn_is_a_failure_of_the_worker():
    run = Run(FakeStarter({(0, Arm.BASELINE): {("prepare", "y"): {"reply": "benched"}}})).go()
    assert run.of(CaseFailed)[0].reason.code == "case.worker_failed"


@pytest.mark.parametrize("command", ["prepare", "go"])
def test_a_benchmark_that_moves_its_worker_to_other_cpus_fails(command):
    moved = {
        "prepare": {"reply": "prepared", "digest": 1.0, "affinity": [7]},
        "go": {"reply": "sample", "affinity": [7]},
    }
    run = Run(FakeStarter({(0, Arm.CANDIDATE): {(command, "y"): moved[command]}})).go()
    assert run.of(CaseFailed)[0].reason == fact("case.moved_cpus", cpus="7", expected_cpus="2-3")


@pytest.mark.parametrize("moment", ["affinity_before", "affinity_after"])
def test_an_arm_whose_imports_shrink_the_mask_cannot_be_measured(moment):
    shrunk = ready(CPUS, **{moment: [2]})
    faults = {(block, Arm.CANDIDATE): {("hello", None): shrunk} for block in range(3)}
    run = Run(FakeStarter(faults))
    with pytest.raises(MeasurementError, match=r"CPUs \[2\] instead of \[2, 3\].*OMP_PROC_BIND"):
        run.go()
    assert run.all_closed


def test_one_failed_start_costs_a_block_and_two_in_a_row_end_the_run():
    fault = {("hello", None): WorkerFailure("no answer")}
    once = Run(FakeStarter({(0, Arm.BASELINE): fault})).go()
    assert {block for block, _ in once.completed()} == {1}
    assert once.of(Noted)[0].fact.values == {"error": "no answer"}
    assert once.of(Noted)[0].fact.code == "arms.worker_not_started"
    twice = Run(FakeStarter({(0, Arm.BASELINE): fault, (1, Arm.BASELINE): fault}))
    with pytest.raises(MeasurementError, match="workers of the baseline cannot be started: no answer"):
        twice.go()
    assert twice.all_closed


def test_when_no_case_is_left_the_run_ends():
    run = Run(FakeStarter({(0, Arm.BASELINE): {("prepare", "x"): refusal()}}), ["x"], blocks=5).go()
    assert (len(run.of(BlockFinished)), run.completed()) == (1, [])


@pytest.mark.parametrize("fault", [MeasurementError("no such interpreter"), WorkerFailure("died")])
def test_without_a_control_workload_the_run_goes_on_and_says_so(fault):
    run = Run(FakeStarter(control=fault)).go()
    assert len(run.completed()) == 6
    assert run.of(ControlTimed) == []
    assert [(note.fact.code, note.fact.values) for note in run.of(Noted)] == [
        ("control.missing", {"error": str(fault)})
    ]


def test_a_control_workload_that_says_nothing_at_first_is_closed_and_noted():
    control = FakeControl()
    control.replies = [WorkerFailure("no answer")]
    run = Run(FakeStarter(control=control)).go()
    assert control.is_closed
    assert len(run.completed()) == 6


@pytest.mark.parametrize("moment", [BlockStarted, SampleTimed, ControlTimed, CaseFinished, BlockFinished])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MeasurementError])
def test_workers_and_control_workload_are_closed_whatever_happens(moment, error):
    def emit(event):
        if isinstance(event, moment):
            raise error("from the observer")

    run = Run(FakeStarter(), emit=emit)
    with pytest.raises(error, match="from the observer"):
        run.go()
    assert run.all_closed
    assert run.starter.control.is_closed


def test_an_interrupt_while_the_control_workload_starts_leaves_no_control_workload():
    control = FakeControl()
    control.replies = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        Run(FakeStarter(control=control)).go()
    assert control.is_closed


def test_an_interrupt_in_a_sample_asks_nothing_more_of_the_workers():
    """The other worker may be a minute from its next answer."""
    run = Run(FakeStarter({(0, arm): {("go", "x"): KeyboardInterrupt()} for arm in BOTH}), ["x"])
    with pytest.raises(KeyboardInterrupt):
        run.go()
    assert all(worker.sent[-1][0] in ("go", "bench") for worker in run.starter.workers.values())
    assert run.all_closed


def test_every_worker_is_closed_although_closing_another_is_interrupted():
    starter = FakeStarter()
    run = Run(starter, blocks=1)
    start = starter.start

    def start_stubborn(arm, block, settings):
        worker = start(arm, block, settings)
        if arm is Arm.CANDIDATE:

            def close():
                worker.is_closed = True
                raise KeyboardInterrupt

            worker.close = close
        return worker

    starter.start = start_stubborn
    with pytest.raises(KeyboardInterrupt):
        run.go()
    assert run.all_closed
