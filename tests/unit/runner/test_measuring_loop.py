"""The measuring loop with scripted workers in place of processes: what is measured, in which order, and how long."""

from __future__ import annotations

from itertools import groupby

import pytest
from msgspec.structs import force_setattr

from perfguard.records.events import BlockFinished, BlockStarted, CaseFinished, ControlTimed, SampleTimed, StageStarted
from perfguard.records.facts import fact
from perfguard.records.plan import MeasureSettings
from perfguard.records.run import Arm, CaseFailed, Stage
from perfguard.records.run_data import RunData
from perfguard.records.spec import Phase
from perfguard.runner.blocks import measure
from perfguard.runner.blocks.measure import measure_blocks, plan_block, plan_blocks
from perfguard.runner.process import arm_worker
from perfguard.runner.process.worker_process import WorkerFailure
from tests.changed_values import replace
from tests.measuring_runs import BOTH, SAMPLES, WARMUPS, FakeStarter, FakeWorker, Run


def test_every_case_of_every_block_completes_in_the_drawn_order():
    run = Run(FakeStarter()).go()
    expected = [(b, "xyz"[i]) for b in (0, 1) for i in plan_block(3, index=b, seed=5).case_order]
    assert (run.finished, run.completed()) == (2, expected)
    assert [event.case_ids for event in run.of(BlockStarted)] == [
        tuple(name for block, name in expected if block == b) for b in (0, 1)
    ]
    assert run.all_closed
    assert run.starter.control.is_closed


def test_samples_alternate_strictly_and_start_with_the_drawn_arm():
    run = Run(FakeStarter(), blocks=4).go()
    for (block, name), samples in groupby(run.of(SampleTimed), key=lambda event: (event.block, event.case_id)):
        first = plan_block(3, index=block, seed=5).first_arms["xyz".index(name)]
        second = BOTH[1 - BOTH.index(first)]
        assert [event.arm for event in samples] == [first, second] * (SAMPLES + WARMUPS)
    assert {arm for b in range(4) for arm in plan_block(3, index=b, seed=5).first_arms} == set(BOTH)


def test_warm_ups_are_marked_counted_apart_and_enter_no_data():
    run = Run(FakeStarter(), ["x"], blocks=1, arms=(Arm.CANDIDATE,)).go()
    assert [(event.warmup, event.index) for event in run.of(SampleTimed)] == [
        (True, 0), (True, 1), (False, 0), (False, 1), (False, 2),
    ]  # fmt: skip
    (entry,) = RunData.of(run.events).paired().samples
    assert (len(entry.baseline_s), len(entry.candidate_s)) == (0, SAMPLES)
    assert run.of(BlockFinished)[0].involuntary_switches == SAMPLES


def test_both_arms_get_the_same_seed_loops_and_set_up_order_and_their_own_spin():
    run = Run(FakeStarter(), blocks=1).go()
    baseline, candidate = (run.starter.workers[0, arm].sent for arm in BOTH)
    assert [fields for do, fields in baseline if do == "prepare"] == [f for do, f in candidate if do == "prepare"]
    block = plan_block(3, index=0, seed=5)
    assert [f["case"]["id"] for do, f in baseline if do == "prepare"] == ["xyz"[i] for i in block.setup_order]
    assert {f["seed"] for do, f in baseline if do == "prepare"} == {block.data_seed}
    assert {(f["inner_loops"], f["spin_s"]) for do, f in baseline if do == "bench"} == {(4, 0.0)}
    assert {(f["inner_loops"], f["spin_s"]) for do, f in candidate if do == "bench"} == {(4, 0.5)}


def looks(worker):
    return [(do, fields["seed"]) for do, fields in worker.sent if do in {"vary", "look"}]


def test_one_sample_of_each_case_has_inputs_of_its_own_and_is_looked_at_in_both_arms():
    run = Run(FakeStarter(), blocks=1).go()
    baseline, candidate = (looks(run.starter.workers[0, arm]) for arm in BOTH)
    assert baseline == candidate
    assert [do for do, _ in baseline] == ["vary", "look"] * 3
    assert len({seed for _, seed in baseline}) == 6
    for finished in run.of(CaseFinished):
        assert finished.baseline_checks == finished.candidate_checks == {"timed_result": 2.5}
        assert finished.is_varied


def test_the_sample_that_is_looked_at_is_no_warm_up_and_another_each_time():
    positions = {measure.unforeseeable_look(MeasureSettings(samples=5, warmups=2)).position for _ in range(200)}
    assert positions == set(range(2, 7))


def test_a_single_arm_is_not_looked_at():
    run = Run(FakeStarter(), blocks=1, arms=(Arm.CANDIDATE,)).go()
    assert looks(run.starter.workers[0, Arm.CANDIDATE]) == []
    assert {finished.is_varied for finished in run.of(CaseFinished)} == {None}


def test_where_one_arm_alone_can_draw_its_inputs_anew_nothing_is_compared():
    starter = FakeStarter()
    start = starter.start

    def start_unlike(arm, block, settings):
        worker = start(arm, block, settings)
        worker.is_varied = arm is Arm.CANDIDATE
        return worker

    starter.start = start_unlike
    (finished,) = Run(starter, ["x"], blocks=1).go().of(CaseFinished)
    assert (finished.is_varied, finished.baseline_checks, finished.candidate_checks) == (False, {}, {})


def test_a_candidate_that_says_nothing_of_a_timed_call_has_failed():
    class Silent(FakeWorker):
        def _look(self, case, fields):
            super()._look(case, fields)
            self.replies[0]["checks"] = {}

    starter = FakeStarter()
    start = starter.start

    def start_silent(arm, block, settings):
        if arm is Arm.BASELINE:
            return start(arm, block, settings)
        starter.workers[block.index, arm] = Silent()
        return starter.workers[block.index, arm]

    starter.start = start_silent
    run = Run(starter, ["x"], blocks=1).go()
    assert [(failed.arm, failed.reason.code) for failed in run.of(CaseFailed)] == [
        (Arm.CANDIDATE, "case.look_unanswered")
    ]
    assert run.completed() == []


def test_the_cpu_clock_beside_a_sample_is_that_of_the_worker_alone(monkeypatch):
    """What it starts counts neither in what it claims nor here, or every pool of processes would be accused."""
    asked = []
    monkeypatch.setattr(FakeWorker, "pid", 7)
    monkeypatch.setattr(FakeWorker, "processes", lambda self: (7, 8, 9))
    monkeypatch.setattr(arm_worker, "read_cpu_clocks", lambda processes: asked.append(tuple(processes)) or {7: 1.0})
    run = Run(FakeStarter(), ["x"], blocks=1).go()
    assert set(asked) == {(7,)}
    assert {event.parent_cpu_s for event in run.of(SampleTimed)} == {0.0}


@pytest.mark.parametrize(("phase", "checks"), [(Phase.FORWARD, {"timed_result": 2.5}), (Phase.STEP, {})])
def test_where_inputs_stay_only_a_call_without_a_state_returns_the_same(monkeypatch, phase, checks):
    monkeypatch.setattr(FakeWorker, "is_varied", False)
    run = Run(FakeStarter(), ["x"], blocks=1)
    run.plans = [replace(plan, case=replace(plan.case, phase=phase)) for plan in run.plans]
    (finished,) = run.go().of(CaseFinished)
    assert (finished.is_varied, finished.baseline_checks, finished.candidate_checks) == (False, checks, checks)


def test_the_control_workload_runs_after_every_case():
    run = Run(FakeStarter(), blocks=1).go()
    kinds = [type(event) for event in run.events if isinstance(event, (CaseFinished, ControlTimed))]
    assert kinds == [CaseFinished, ControlTimed] * 3


def test_asked_to_stop_it_ends_after_the_case_and_keeps_it():
    run = Run(FakeStarter(), stop=lambda events: any(isinstance(event, CaseFinished) for event in events)).go()
    assert len(run.completed()) == 1
    assert run.finished == 0
    assert len(RunData.of(run.events).paired().samples) == 1
    assert run.all_closed


def test_foreign_load_is_that_of_what_is_measured_not_of_servers_that_are_replaced(monkeypatch):
    starter, read, between = FakeStarter(), [], []

    def read_load():
        read.append(len(starter.workers))
        return len(read)

    monkeypatch.setattr(measure, "read_load", read_load)
    monkeypatch.setattr(measure, "foreign_load", lambda before, after, **_: between.append((before, after)))
    Run(starter, ["x"], blocks=2).go()
    started_when = [read[number - 1] for number, _ in between]
    assert started_when == [2, 4]  # both workers of the block had started


class Clock:
    """Time that passes only in samples."""

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


@pytest.mark.parametrize(("least_blocks", "finished"), [(4, 4), (5, 5), (6, 4)])
def test_only_the_last_block_that_a_verdict_needs_exceeds_the_budget(monkeypatch, least_blocks, finished):
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)

    def second_of_work(case):
        clock.now += 1.0
        return 1.0

    starter = FakeStarter(on_slice=second_of_work)
    run = Run(starter, ["x"], blocks=100, budget_s=45.0, least_blocks=least_blocks).go()
    assert run.finished == finished


def test_a_case_that_goes_on_long_after_the_budget_has_failed(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)

    def work(case):
        clock.now += 30.0 if case == "x" else 0.25
        return 1.0

    run = Run(FakeStarter(on_slice=work), ["x", "y"], blocks=9, budget_s=20.0).go()
    assert [(failed.case_id, failed.reason) for failed in run.of(CaseFailed)] == [
        ("x", fact("case.overdue", budget_s=20.0))
    ]
    assert clock.now - 100.0 <= 2 * 20.0 + 60.0 + 30.0 + 10.0


def test_each_case_tells_what_it_took_of_its_block(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)

    def work(case):
        clock.now += 1.0 if case == "x" else 0.25
        return 1.0

    run = Run(FakeStarter(on_slice=work), ["x", "y"], blocks=2).go()
    pairs = 2 * (SAMPLES + WARMUPS)
    assert [{e.case_id: e.wall_s for e in run.of(CaseFinished) if e.block == b} for b in (0, 1)] == [
        {"x": pairs * 1.0, "y": pairs * 0.25}
    ] * 2


def test_pauses_spread_the_blocks_and_end_when_the_user_does(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    run = Run(FakeStarter(), ["x"], blocks=3, stop=lambda _: clock.now > 130)
    force_setattr(run.measuring, "pause_s", 20.0)
    run.go()
    assert [round(event.started_at) for event in run.of(BlockFinished)] == [100, 120]


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
    assert [entry.block for entry in data.paired().samples] == [0]
    assert [entry.block for entry in data.paired(Stage.CONFIRMATION).samples] == [1]
    assert (data.blocks_of(Stage.MAIN), data.blocks_of(Stage.CONFIRMATION), data.next_block) == (1, 1, 2)


def test_a_failure_while_confirming_does_not_undo_what_was_measured():
    run = Run(FakeStarter(), ["x"], blocks=1).go()
    failure = CaseFailed(
        case_id="x", arm=Arm.CANDIDATE, missing=False, reason=fact("case.raised", error="gone"), detail=""
    )
    data = RunData.of([*run.events, StageStarted(stage=Stage.CONFIRMATION, case_ids=("x",)), failure])
    assert data.paired().failures == ()
    assert [entry.reason for entry in data.paired(Stage.CONFIRMATION).failures] == [fact("case.raised", error="gone")]


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
