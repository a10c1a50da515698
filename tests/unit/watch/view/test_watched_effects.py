"""The effect of a case while its run goes on is the one that the gate would estimate from the same blocks."""

from __future__ import annotations

import random

import pytest

from perfguard.gate.rules.compare import compare_paired
from perfguard.records import events as happened
from perfguard.records.facts import fact
from perfguard.records.run import Arm, Stage
from perfguard.records.run_data import RunData
from perfguard.records.spec import Case
from perfguard.records.verdict import Policy
from perfguard.watch.sources.event_tail import SeenEvent
from perfguard.watch.view.run import WatchedRun
from perfguard.watch.view.run_view import RunState

CASE_IDS = ("a", "b")


class Run:
    """A run in the making, watched and judged."""

    def __init__(self, *, mode: str = "paired") -> None:
        self.watched, self.data, self.random = WatchedRun(), RunData(), random.Random(3)
        self.emit(
            happened.RunStarted(
                run_id="r", schema=1, mode=mode, suite="s", case_ids=CASE_IDS, command=("perfguard",), budget_s=100.0
            )
        )

    def emit(self, event: happened.Event) -> None:
        self.watched.add(SeenEvent(seq=-1, t_wall=1.0, t_mono=1.0, event=event))
        self.data.add(event)

    def block(self, number: int, *, cases=CASE_IDS, arms=tuple(Arm), steal=0.0, samples=5, finished=True) -> None:
        self.emit(happened.BlockStarted(block=number, hash_seed=1, data_seed=1, case_ids=cases))
        for case_id in cases:
            for index in range(samples):
                for arm in arms:
                    self.sample(number, case_id, arm, index)
            self.emit(happened.CaseFinished(block=number, case_id=case_id, baseline_digest=None, candidate_digest=None))
            self.emit(happened.ControlTimed(block=number, value_s=0.002))
        if finished:
            self.emit(
                happened.BlockFinished(
                    block=number, started_at=0.0, duration_s=2.0, steal_ratio=steal, involuntary_switches=0
                )
            )

    def sample(self, block: int, case_id: str, arm: Arm, index: int, *, warmup: bool = False) -> None:
        slower = 1.04 if arm is Arm.CANDIDATE and case_id == "a" else 1.0
        self.emit(
            happened.SampleTimed(
                block=block, case_id=case_id, arm=arm, index=index, warmup=warmup,
                value_s=0.01 * slower * self.random.lognormvariate(0.0, 0.02), cpu_s=0.01, minor_faults=0,
                involuntary_switches=0,
            )
        )  # fmt: skip

    def row(self, case_id: str):
        view = self.watched.view(state=RunState.MEASURING, now_wall=1.0, rounds_planned=None, problems=())
        return next(case for case in view.cases if case.case_id == case_id)

    def judged(self, case_id: str, stage: Stage = Stage.MAIN):
        cases = [Case(benchmark=name, target="") for name in CASE_IDS]
        compared = compare_paired(self.data.paired(stage), cases, Policy())
        return next(comparison for comparison in compared if comparison.case_id == case_id)


def assert_alike(row, comparison) -> None:
    estimate = comparison.estimate
    assert (row.log_ratio, row.lower, row.upper, row.noise_ratio) == (
        estimate.log_ratio, estimate.interval.lower, estimate.interval.upper, estimate.block_sd,
    )  # fmt: skip
    assert (row.baseline_s, row.candidate_s) == (comparison.baseline_median_s, comparison.candidate_median_s)


@pytest.mark.parametrize("blocks", [2, 5, 13])
def test_it_is_the_gates_own_estimate(blocks):
    run = Run()
    for number in range(blocks):
        run.block(number)
    for case_id in CASE_IDS:
        assert_alike(run.row(case_id), run.judged(case_id))
    assert run.row("a").log_ratio == pytest.approx(0.039, abs=0.02)


def test_blocks_that_the_gate_voids_are_left_out_as_soon_as_it_would():
    run = Run()
    for number in range(6):
        run.block(number)
    quiet = run.row("a")
    run.block(6, steal=0.5)
    assert_alike(run.row("a"), run.judged("a"))
    assert run.judged("a").blocks_voided == 1
    row = run.row("a")
    assert (row.log_ratio, row.blocks, row.voided) == (quiet.log_ratio, 6, 1)


def test_a_case_that_a_block_did_not_complete_is_not_changed_by_it():
    run = Run()
    for number in range(3):
        run.block(number)
    before = run.row("a")
    run.emit(happened.BlockStarted(block=3, hash_seed=1, data_seed=1, case_ids=CASE_IDS))
    run.sample(3, "a", Arm.BASELINE, 0)
    run.block(4, cases=("b",))
    assert_alike(run.row("a"), run.judged("a"))
    assert (run.row("a").log_ratio, run.row("a").blocks) == (before.log_ratio, before.blocks)


def test_warm_ups_and_blocks_that_never_ended_count_for_nothing():
    run = Run()
    for number in range(3):
        run.block(number)
    before = run.row("a")
    run.emit(happened.BlockStarted(block=3, hash_seed=1, data_seed=1, case_ids=CASE_IDS))
    run.sample(3, "a", Arm.BASELINE, 0, warmup=True)
    assert run.row("a").samples == before.samples
    run.block(4, finished=False)
    run.block(5)
    assert_alike(run.row("a"), run.judged("a"))


def test_relocated_arms_and_the_anchor_are_other_comparisons():
    run = Run()
    for number in range(3):
        run.block(number)
    before = run.row("a")
    for stage, number in ((Stage.CONFIRMATION, 3), (Stage.DRIFT, 4), (Stage.DRIFT_CONFIRMATION, 5)):
        run.emit(happened.StageStarted(stage=stage, case_ids=("a",)))
        run.block(number, cases=("a",))
    after = run.row("a")
    assert (after.log_ratio, after.blocks, after.samples) == (before.log_ratio, before.blocks, before.samples)


def test_open_cases_of_a_stored_baseline_show_their_pairing():
    run = Run(mode="rounds")
    for number in range(3):
        run.block(number, arms=(Arm.CANDIDATE,))
    assert (run.row("a").baseline_s, run.row("a").log_ratio, run.row("a").samples) == (None, None, 15)
    run.emit(happened.StageStarted(stage=Stage.PAIRING, case_ids=("a",)))
    for number in range(3, 6):
        run.block(number, cases=("a",))
    assert_alike(run.row("a"), run.judged("a", Stage.PAIRING))
    assert (run.row("b").baseline_s, run.row("b").blocks) == (None, 3)


def test_a_failure_while_flags_are_confirmed_is_none_of_the_case():
    run = Run()
    run.block(0)
    run.emit(happened.StageStarted(stage=Stage.CONFIRMATION, case_ids=("a",)))
    failed = happened.CaseFailed(
        case_id="a", arm=Arm.CANDIDATE, missing=False, reason=fact("case.raised", error="gone"), detail=""
    )
    run.emit(failed)
    assert (run.row("a").state.value, run.row("a").reasons) == ("open", ())
    run.emit(happened.StageStarted(stage=Stage.MAIN, case_ids=("a",)))
    run.emit(failed)
    assert run.row("a").state.value == "failed"
    assert run.row("a").reasons == (fact("case.raised", arm="candidate", error="gone"),)


def test_the_host_is_told_by_its_last_block_and_control_workload():
    run = Run()
    run.block(0, steal=0.01)
    run.block(1, steal=0.03)
    run.emit(happened.ControlTimed(block=2, value_s=0.0024))
    view = run.watched.view(state=RunState.MEASURING, now_wall=1.0, rounds_planned=None, problems=())
    assert view.steal_ratio == 0.03
    assert view.control_ratio == pytest.approx(0.2)


def test_planned_blocks_are_said_once_the_first_one_has_ended():
    run = Run()

    def planned():
        return run.watched.view(
            state=RunState.MEASURING, now_wall=1.0, rounds_planned=None, problems=()
        ).progress.blocks_planned

    assert planned() is None
    run.block(0)
    run.emit(happened.AnalysesPlanned(blocks=2))
    assert planned() == 2
    for number in range(1, 4):
        run.block(number)
    assert planned() == 4
