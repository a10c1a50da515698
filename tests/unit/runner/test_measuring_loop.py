"""The measuring loop with scripted workers in place of processes."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest

from perfguard.errors import MeasurementError
from perfguard.model.events import (
    BlockFinished,
    BlockStarted,
    CanaryTimed,
    CaseFailed,
    CaseFinished,
    Noted,
    SliceTimed,
    StageStarted,
)
from perfguard.model.plan import CasePlan, MeasureSettings
from perfguard.model.replay import RunData
from perfguard.model.run import Arm, Stage
from perfguard.model.spec import Case
from perfguard.runner import measure
from perfguard.runner.measure import Measuring, measure_blocks
from perfguard.runner.process import WorkerFailure
from perfguard.runner.schedule import plan_block, plan_blocks

CPUS = (2, 3)
SLICES, WARMUPS = 3, 2
BOTH = (Arm.BASELINE, Arm.CANDIDATE)


class FakeWorker:
    """Answers as a worker does; a fault happens at the command that it is keyed by."""

    def __init__(self, faults=(), on_slice=lambda case: 0.001):
        self.faults = dict(faults)
        self.on_slice = on_slice
        self.sent = []
        self.replies = []
        self.is_closed = False
        self._case, self._left = None, 0

    def send(self, do, **fields):
        assert not self.is_closed
        self.sent.append((do, fields))
        case = fields.get("case", {}).get("id", self._case)
        fault = self.faults.get((do, case))
        if fault is not None:
            self.replies.append(fault)
            return
        getattr(self, f"_{do}")(case, fields)

    def receive(self, timeout_s):
        assert timeout_s > 0
        assert self.replies, f"the loop waits for an answer to {self.sent[-1:]}, but none is due"
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def close(self):
        self.is_closed = True

    def _hello(self, case, fields):
        self.replies.append({"reply": "ready", "affinity_before": list(CPUS), "affinity_after": list(CPUS)})

    def _prepare(self, case, fields):
        self.replies.append({"reply": "prepared", "digest": 1.5, "affinity": list(CPUS)})

    def _bench(self, case, fields):
        self._case, self._left = case, SLICES + WARMUPS
        self.replies.append({"reply": "waiting"})

    def _go(self, case, fields):
        self._left -= 1
        self.replies.append(
            {
                "reply": "slice",
                "value_s": self.on_slice(case),
                "cpu_s": 0.001,
                "minor_faults": 0,
                "involuntary_switches": 1,
                "iterations": 4,
                "affinity": list(CPUS),
            }
        )
        self.replies.append({"reply": "waiting" if self._left else "benched"})

    def _skip(self, case, fields):
        self.replies.append({"reply": "failed", "reason": "the parent took the case back", "detail": ""})


class FakeCanary(FakeWorker):
    def __init__(self):
        super().__init__()
        self.replies = [{"reply": "ready"}]

    def _go(self, case, fields):
        self.replies.append({"reply": "slice", "value_s": 0.002})


class FakeStarter:
    """Hands out fake workers; `faults` are by block and arm."""

    def __init__(self, faults=None, canary=None, on_slice=lambda case: 0.001):
        self.faults, self.on_slice = faults or {}, on_slice
        self.canary = canary or FakeCanary()
        self.workers = {}

    def start(self, arm, block, *, calibrate):
        assert not calibrate
        fault = self.faults.get((block.index, arm), {})
        if isinstance(fault, BaseException):
            raise fault
        self.workers[block.index, arm] = FakeWorker(fault, self.on_slice)
        return self.workers[block.index, arm]

    def start_canary(self):
        if isinstance(self.canary, BaseException):
            raise self.canary
        return self.canary


def refusal(reason="ValueError: no", kind="error"):
    return {"reply": "failed", "reason": reason, "detail": "traceback", "kind": kind}


def plan_of(name):
    case = Case(benchmark=name, target=f"bench.py:{name}")
    return CasePlan(case=case, inner_loops=4, iteration_s=0.001, spin_s=(0.0, 0.5))


class Run:
    def __init__(self, starter, names=("x", "y", "z"), *, blocks=2, arms=BOTH, stop=None, emit=None, budget_s=1e9):
        self.starter, self.events = starter, []
        self.plans = [plan_of(name) for name in names]
        settings = MeasureSettings(slices=SLICES, warmups=WARMUPS, max_blocks=blocks, budget_s=budget_s)
        self.measuring = Measuring(
            starter=starter,
            emit=lambda event: (self.events.append(event), emit(event) if emit else None),
            should_stop=lambda: bool(stop and stop(self.events)),
            settings=settings,
            cpus=CPUS,
            arms=arms,
        )

    def go(self):
        try:
            self.finished = measure_blocks(plan_blocks(len(self.plans), seed=5), self.plans, self.measuring)
        finally:
            self.all_closed = all(worker.is_closed for worker in self.starter.workers.values())
        return self

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def completed(self):
        return [(event.block, event.case_id) for event in self.of(CaseFinished)]


def test_every_case_of_every_block_completes_in_the_drawn_order():
    run = Run(FakeStarter()).go()
    expected = [(b, "xyz"[i]) for b in (0, 1) for i in plan_block(3, index=b, seed=5).case_order]
    assert (run.finished, run.completed()) == (2, expected)
    assert [event.case_ids for event in run.of(BlockStarted)] == [
        tuple(name for block, name in expected if block == b) for b in (0, 1)
    ]
    assert run.all_closed
    assert run.starter.canary.is_closed


def test_slices_alternate_strictly_and_start_with_the_drawn_arm():
    run = Run(FakeStarter(), blocks=4).go()
    for (block, name), slices in groupby(run.of(SliceTimed), key=lambda event: (event.block, event.case_id)):
        first = plan_block(3, index=block, seed=5).first_arms["xyz".index(name)]
        second = BOTH[1 - BOTH.index(first)]
        assert [event.arm for event in slices] == [first, second] * (SLICES + WARMUPS)
    assert {arm for b in range(4) for arm in plan_block(3, index=b, seed=5).first_arms} == set(BOTH)


def test_warm_ups_are_marked_counted_apart_and_enter_no_data():
    run = Run(FakeStarter(), ["x"], blocks=1, arms=(Arm.CANDIDATE,)).go()
    assert [(event.warmup, event.index) for event in run.of(SliceTimed)] == [
        (True, 0), (True, 1), (False, 0), (False, 1), (False, 2),
    ]  # fmt: skip
    (entry,) = RunData.of(run.events).paired().slices
    assert (len(entry.baseline_s), len(entry.candidate_s)) == (0, SLICES)
    assert run.of(BlockFinished)[0].involuntary_switches == SLICES


def test_both_arms_get_the_same_seed_loops_and_set_up_order_and_their_own_spin():
    run = Run(FakeStarter(), blocks=1).go()
    baseline, candidate = (run.starter.workers[0, arm].sent for arm in BOTH)
    assert [fields for do, fields in baseline if do == "prepare"] == [f for do, f in candidate if do == "prepare"]
    block = plan_block(3, index=0, seed=5)
    assert [f["case"]["id"] for do, f in baseline if do == "prepare"] == ["xyz"[i] for i in block.setup_order]
    assert {f["seed"] for do, f in baseline if do == "prepare"} == {block.data_seed}
    assert {(f["inner_loops"], f["spin_s"]) for do, f in baseline if do == "bench"} == {(4, 0.0)}
    assert {(f["inner_loops"], f["spin_s"]) for do, f in candidate if do == "bench"} == {(4, 0.5)}


@pytest.mark.parametrize("arm", BOTH)
@pytest.mark.parametrize("command", ["prepare", "bench", "go"])
def test_a_refused_case_is_dropped_alone_and_the_block_goes_on(arm, command):
    run = Run(FakeStarter({(0, arm): {(command, "y"): refusal()}})).go()
    (failed,) = run.of(CaseFailed)
    assert (failed.case_id, failed.arm, failed.reason, failed.missing) == ("y", arm, "ValueError: no", False)
    assert sorted(run.completed()) == [(0, "x"), (0, "z"), (1, "x"), (1, "z")]
    assert all("y" not in event.case_ids for event in run.of(BlockStarted)[1:])
    assert run.all_closed


@pytest.mark.parametrize("arm", BOTH)
def test_a_refusal_after_the_last_slice_is_that_cases_failure(arm):
    class Late(FakeWorker):
        def _go(self, case, fields):
            super()._go(case, fields)
            if case == "y" and self._left == 0:
                self.replies[-1] = refusal("the loss is nan")

    starter = FakeStarter()
    start = starter.start

    def start_late(role, block, *, calibrate):
        start(role, block, calibrate=calibrate)
        if role is arm:
            starter.workers[block.index, role] = Late()
        return starter.workers[block.index, role]

    starter.start = start_late
    run = Run(starter).go()
    assert [failed.reason for failed in run.of(CaseFailed)] == ["the loss is nan"]
    assert sorted(run.completed()) == [(0, "x"), (0, "z"), (1, "x"), (1, "z")]


def test_a_case_that_the_arm_does_not_have_is_missing():
    run = Run(FakeStarter({(0, Arm.BASELINE): {("prepare", "y"): refusal(kind="missing")}})).go()
    assert [failed.missing for failed in run.of(CaseFailed)] == [True]


@pytest.mark.parametrize("arm", BOTH)
@pytest.mark.parametrize("command", ["prepare", "bench", "go"])
def test_a_crash_drops_the_open_case_and_the_next_block_goes_on_without_it(arm, command):
    crash = WorkerFailure("the worker crashed with SIGSEGV", "last words")
    run = Run(FakeStarter({(0, arm): {(command, "y"): crash}})).go()
    (failed,) = run.of(CaseFailed)
    assert (failed.case_id, failed.arm, failed.reason, failed.detail) == ("y", arm, crash.reason, crash.detail)
    assert sorted(name for block, name in run.completed() if block == 1) == ["x", "z"]
    assert [event.block for event in run.of(BlockFinished)] == [0, 1]
    assert run.all_closed


def test_an_answer_out_of_turn_is_a_failure_of_the_worker():
    run = Run(FakeStarter({(0, Arm.BASELINE): {("prepare", "y"): {"reply": "benched"}}})).go()
    assert run.of(CaseFailed)[0].reason == "the worker answered 'benched' where 'prepared' was due"


@pytest.mark.parametrize("command", ["prepare", "go"])
def test_a_benchmark_that_moves_its_worker_to_other_cpus_fails(command):
    moved = {
        "prepare": {"reply": "prepared", "digest": 1.0, "affinity": [7]},
        "go": {"reply": "slice", "affinity": [7]},
    }
    run = Run(FakeStarter({(0, Arm.CANDIDATE): {(command, "y"): moved[command]}})).go()
    assert "moved its process to CPUs [7] instead of [2, 3]" in run.of(CaseFailed)[0].reason


@pytest.mark.parametrize("moment", ["affinity_before", "affinity_after"])
def test_an_arm_whose_imports_shrink_the_mask_cannot_be_measured(moment):
    ready = {"reply": "ready", "affinity_before": list(CPUS), "affinity_after": list(CPUS), moment: [2]}
    faults = {(block, Arm.CANDIDATE): {("hello", None): ready} for block in range(3)}
    run = Run(FakeStarter(faults))
    with pytest.raises(MeasurementError, match=r"CPUs \[2\] instead of \[2, 3\].*OMP_PROC_BIND"):
        run.go()
    assert run.all_closed


def test_one_failed_start_costs_a_block_and_two_in_a_row_end_the_run():
    fault = {("hello", None): WorkerFailure("no answer")}
    once = Run(FakeStarter({(0, Arm.BASELINE): fault})).go()
    assert {block for block, _ in once.completed()} == {1}
    assert once.of(Noted)[0].text == "baseline worker did not start: no answer"
    twice = Run(FakeStarter({(0, Arm.BASELINE): fault, (1, Arm.BASELINE): fault}))
    with pytest.raises(MeasurementError, match="workers of the baseline cannot be started: no answer"):
        twice.go()
    assert twice.all_closed


def test_when_no_case_is_left_the_run_ends():
    run = Run(FakeStarter({(0, Arm.BASELINE): {("prepare", "x"): refusal()}}), ["x"], blocks=5).go()
    assert (len(run.of(BlockFinished)), run.completed()) == (1, [])


@pytest.mark.parametrize("fault", [MeasurementError("no such interpreter"), WorkerFailure("died")])
def test_without_a_canary_the_run_goes_on_and_says_so(fault):
    run = Run(FakeStarter(canary=fault)).go()
    assert len(run.completed()) == 6
    assert run.of(CanaryTimed) == []
    assert [note.text for note in run.of(Noted)] == [f"no canary: {fault}"]


def test_a_canary_that_says_nothing_at_first_is_closed_and_noted():
    canary = FakeCanary()
    canary.replies = [WorkerFailure("no answer")]
    run = Run(FakeStarter(canary=canary)).go()
    assert canary.is_closed
    assert len(run.completed()) == 6


def test_the_canary_runs_after_every_case():
    run = Run(FakeStarter(), blocks=1).go()
    kinds = [type(event) for event in run.events if isinstance(event, (CaseFinished, CanaryTimed))]
    assert kinds == [CaseFinished, CanaryTimed] * 3


def test_asked_to_stop_it_ends_after_the_case_and_keeps_it():
    run = Run(FakeStarter(), stop=lambda events: any(isinstance(event, CaseFinished) for event in events)).go()
    assert len(run.completed()) == 1
    assert run.finished == 0
    assert len(RunData.of(run.events).paired().slices) == 1
    assert run.all_closed


class Clock:
    """Time that passes only in slices."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_the_budget_is_kept_by_starting_no_block_that_would_not_fit(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)

    def second_of_work(case):
        clock.now += 1.0
        return 1.0

    run = Run(FakeStarter(on_slice=second_of_work), ["x"], blocks=100, budget_s=45.0).go()
    assert [event.duration_s for event in run.of(BlockFinished)] == [10.0] * 4
    assert clock.now == 140.0


def test_pauses_spread_the_blocks_and_end_when_the_user_does(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    run = Run(FakeStarter(), ["x"], blocks=3, stop=lambda _: clock.now > 130)
    object.__setattr__(run.measuring, "pause_s", 20.0)
    run.go()
    assert [round(event.started_at) for event in run.of(BlockFinished)] == [100, 120]


@pytest.mark.parametrize("moment", [BlockStarted, SliceTimed, CanaryTimed, CaseFinished, BlockFinished])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MeasurementError])
def test_workers_and_canary_are_closed_whatever_happens(moment, error):
    def emit(event):
        if isinstance(event, moment):
            raise error("from the observer")

    run = Run(FakeStarter(), emit=emit)
    with pytest.raises(error, match="from the observer"):
        run.go()
    assert run.all_closed
    assert run.starter.canary.is_closed


def test_an_interrupt_while_the_canary_starts_leaves_no_canary():
    canary = FakeCanary()
    canary.replies = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        Run(FakeStarter(canary=canary)).go()
    assert canary.is_closed


def test_an_interrupt_in_a_slice_asks_nothing_more_of_the_workers():
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

    def start_stubborn(arm, block, *, calibrate):
        worker = start(arm, block, calibrate=calibrate)
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


def test_a_case_that_has_its_answer_is_measured_no_further():
    answers = iter([frozenset(), frozenset({"y"}), frozenset({"y"}), frozenset({"x", "y"})])
    run = Run(FakeStarter(), blocks=4)
    run.measuring = replace(run.measuring, answered=lambda: next(answers))
    run.go()
    assert [sorted(name for b, name in run.completed() if b == block) for block in range(4)] == [
        ["x", "y", "z"],
        ["x", "y", "z"],
        ["x", "z"],
        ["x", "z"],
    ]
    assert run.of(CaseFailed) == []


def test_the_run_ends_when_every_case_has_its_answer():
    run = Run(FakeStarter(), blocks=9)
    run.measuring = replace(run.measuring, answered=lambda: frozenset("xyz"))
    assert run.go().finished == 1


def test_a_block_that_did_not_finish_is_not_looked_at():
    asked = []
    fault = WorkerFailure("gone", "")
    run = Run(FakeStarter({(0, Arm.BASELINE): {("hello", None): fault}}), blocks=2)
    run.measuring = replace(run.measuring, answered=lambda: asked.append(1) or frozenset())
    run.go()
    assert len(asked) == run.finished


def test_blocks_of_a_later_stage_are_no_evidence_of_the_first():
    run = Run(FakeStarter(), ["x"], blocks=1).go()
    later = Run(FakeStarter(), ["x"], blocks=1)
    finished = measure_blocks(plan_blocks(1, seed=5, first=1), later.plans, later.measuring)
    data = RunData.of([*run.events, StageStarted(stage=Stage.CONFIRMATION, case_ids=("x",)), *later.events])
    assert finished == 1
    assert [entry.block for entry in data.paired().slices] == [0]
    assert [entry.block for entry in data.paired(Stage.CONFIRMATION).slices] == [1]
    assert (data.blocks_of(Stage.MAIN), data.blocks_of(Stage.CONFIRMATION), data.next_block) == (1, 1, 2)


def test_a_failure_while_confirming_does_not_undo_what_was_measured():
    run = Run(FakeStarter(), ["x"], blocks=1).go()
    failure = CaseFailed(case_id="x", arm=Arm.CANDIDATE, missing=False, reason="gone", detail="")
    data = RunData.of([*run.events, StageStarted(stage=Stage.CONFIRMATION, case_ids=("x",)), failure])
    assert data.paired().failures == ()
    assert [entry.reason for entry in data.paired(Stage.CONFIRMATION).failures] == ["gone"]


def test_blocks_that_got_shorter_are_counted_on_as_such(monkeypatch):
    """Blocks last 10 s with two cases and 4 s with one; 17 s hold one of the first and one of the second kind."""
    clock = [0.0]
    monkeypatch.setattr(measure.time, "monotonic", lambda: clock[0])

    def tick(event):
        if isinstance(event, CaseFinished):
            clock[0] += 6.0 if event.case_id == "y" else 4.0

    run = Run(FakeStarter(), ["x", "y"], blocks=9, budget_s=23.0, emit=tick)
    answers = iter([frozenset({"y"})] * 9)
    run.measuring = replace(run.measuring, answered=lambda: next(answers))
    run.go()
    assert run.finished == 4
