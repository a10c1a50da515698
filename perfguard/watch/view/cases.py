"""What is known of one case while its run is watched, and the row that it makes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection
from dataclasses import dataclass, replace

from perfguard.errors import MeasurementError
from perfguard.records.estimate import Estimate
from perfguard.records.events import CaseFailed, OpsCompared, SliceTimed, VerdictReached
from perfguard.records.facts import Fact, Subject, fact
from perfguard.records.run import Arm, Stage
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import Attribution, CensusChange
from perfguard.records.verdict import Outcome
from perfguard.watch.view.numbers import CaseNumbers
from perfguard.watch.view.run_view import CaseSeries, CaseState, CaseView

_NOT_OF_THE_EFFECT = (Stage.CONFIRMATION, Stage.DRIFT, Stage.DRIFT_CONFIRMATION)
"""Relocated arms and the anchor are other comparisons: their blocks are no part of the case's effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effect:
    """What a row says of the effect."""

    log_ratio: float | None = None
    lower: float | None = None
    upper: float | None = None


class WatchedCase:
    """One case of a run that is watched."""

    def __init__(self, case_id: str, *, is_gating: bool) -> None:
        self.case_id = case_id
        self.is_gating = is_gating
        self.failure: CaseFailed | None = None
        self.verdict: VerdictReached | None = None
        self._answer: str | None = None
        self._census: tuple[CensusChange, ...] | None = None
        self._attribution: Attribution | None = None
        self._ops_file: str | None = None
        self._findings: tuple[Finding, ...] = ()
        self._stages: dict[Stage, CaseNumbers] = {}
        self._estimate: Estimate | None = None
        self._problem: Fact | None = None
        self._is_estimated = False
        self._has_ended = False
        self._view: CaseView | None = None

    @property
    def numbers(self) -> CaseNumbers:
        """Those that its row shows: of the main stage, or of the pairing that followed a stored baseline."""
        found = self._stages.get(Stage.PAIRING) or self._stages.get(Stage.MAIN)
        return found or CaseNumbers()

    @property
    def attribution(self) -> Attribution | None:
        """Which ops are to blame, with the largest differences; None where they were not compared."""
        return self._attribution

    @property
    def ops_file(self) -> str | None:
        """File with all differences."""
        return self._ops_file

    def add_slice(self, timed: SliceTimed, stage: Stage) -> None:
        """Take a slice into account."""
        if stage not in _NOT_OF_THE_EFFECT:
            if stage not in self._stages:
                self._stages[stage], self._is_estimated = CaseNumbers(), False
            self._stages[stage].add(timed)
        self._view = None

    def complete(self, block: int, stage: Stage) -> None:
        """The case's slices of the block are complete."""
        if stage in self._stages:
            self._stages[stage].complete(block)
        self._view = None

    def finish_block(self, block: int, stage: Stage) -> None:
        """A block ended."""
        if stage in self._stages and self._stages[stage].finish(block):
            self.estimate_anew()

    def fail(self, failed: CaseFailed) -> None:
        """It cannot be measured; the first reason counts."""
        self.failure = self.failure or failed
        self._view = None

    def answer(self, outcome: str) -> None:
        """It has its answer at a look."""
        self._answer = outcome
        self._view = None

    def judge(self, verdict: VerdictReached) -> None:
        """It has its verdict."""
        self.verdict = verdict
        self._view = None

    def count(self, changes: tuple[CensusChange, ...]) -> None:
        """What it executes was counted in both arms."""
        self._census = changes
        self._view = None

    def compare_ops(self, compared: OpsCompared) -> None:
        """Its ops were compared."""
        self._attribution, self._ops_file = compared.attribution, compared.file
        self._findings = compared.findings
        self._view = None

    def estimate_anew(self) -> None:
        """Its blocks are others, or other ones are voided."""
        self._is_estimated = False
        self._view = None

    def end_without_comparison(self) -> None:
        """The run has ended, and compares nothing."""
        self._has_ended = True
        self._view = None

    def touch(self) -> None:
        """Whether it is timed now has changed."""
        self._view = None

    def view(self, *, is_timed: bool, voided: Collection[int]) -> CaseView:
        """The case's row; the same object as before where nothing changed.

        Args:
            is_timed: Whether its slices are timed now.
            voided: Blocks that the arm-blind rule leaves out of the effect.
        """
        if self._view is None:
            self._view = self._row(is_timed=is_timed, voided=voided)
        return self._view

    def series(self, voided: frozenset[int]) -> CaseSeries:
        """The case's curves; which of its blocks are left out is told beside them."""
        numbers = self.numbers
        try:
            ratios = [effect.log_ratio for effect in numbers.effects()] if numbers.baseline_s else []
        except MeasurementError:  # said in the row
            ratios = []
        pairs = [(b.number, r) for b, r in zip(numbers.blocks, ratios, strict=False) if not math.isnan(r)]
        return CaseSeries(
            case_id=self.case_id,
            baseline_s=tuple(numbers.baseline_s),
            candidate_s=tuple(numbers.candidate_s),
            block_log_ratios=tuple(ratio for _, ratio in pairs),
            blocks=tuple(number for number, _ in pairs),
            voided=voided.intersection(number for number, _ in pairs),
        )

    def _row(self, *, is_timed: bool, voided: Collection[int]) -> CaseView:
        numbers, verdict = self.numbers, self.verdict
        self._bring_up_to_date(voided)
        is_paired = len(numbers.baseline_s) > 0
        baseline, candidate = len(numbers.baseline_s), len(numbers.candidate_s)
        effect = self._effect()
        left_out = sum(block.number in voided for block in numbers.blocks)
        return CaseView(
            case_id=self.case_id,
            is_gating=self.is_gating,
            state=self._state(is_timed=is_timed),
            blocks=len(numbers.blocks) - left_out,
            voided=left_out,
            slices=min(baseline, candidate) if is_paired else candidate,
            baseline_s=numbers.median_s(Arm.BASELINE, voided),
            candidate_s=numbers.median_s(Arm.CANDIDATE, voided),
            log_ratio=effect.log_ratio,
            lower=effect.lower,
            upper=effect.upper,
            noise_ratio=self._noise(),
            outcome=verdict.outcome if verdict else self._answer,
            reasons=verdict.reasons if verdict else self._obstacles(),
            census=self._census,
            attribution=self._attribution,
            ops_file=self._ops_file,
            findings=self._findings,
        )

    def _bring_up_to_date(self, voided: Collection[int]) -> None:
        """Estimate where blocks were added, which is what costs something; slices of an open block change nothing."""
        if self._is_estimated:
            return
        self._is_estimated = True
        self._estimate, self._problem = None, None
        try:
            self._estimate = self.numbers.estimate(voided)
        except MeasurementError as error:
            self._problem = fact("case.unusable_times", error=str(error))

    def _obstacles(self) -> tuple[Fact, ...]:
        """Why it has no numbers; empty where it has."""
        failed = self.failure
        if failed is not None:
            return (replace(failed.reason, subject=Subject(arm=failed.arm.value)),)
        return (self._problem,) if self._problem else ()

    def _effect(self) -> _Effect:
        """That of the verdict, which later rulings and other stages went into; else the estimate so far."""
        verdict, estimate = self.verdict, self._estimate
        if verdict is not None and verdict.log_ratio is not None:
            return _Effect(log_ratio=verdict.log_ratio, lower=verdict.lower, upper=verdict.upper)
        if estimate is None:
            return _Effect()
        interval = estimate.interval
        return _Effect(log_ratio=estimate.log_ratio, lower=interval.lower, upper=interval.upper)

    def _noise(self) -> float | None:
        """Standard deviation between blocks, or between rounds where there is one arm; None with fewer than two."""
        if self._estimate is not None:
            return self._estimate.block_sd
        medians_s = [] if self.numbers.baseline_s else self.numbers.block_medians_s(Arm.CANDIDATE, ())
        if len(medians_s) < 2 or min(medians_s) <= 0:
            return None
        return statistics.stdev(math.log(median_s) for median_s in medians_s)

    def _state(self, *, is_timed: bool) -> CaseState:
        outcome = self.verdict.outcome if self.verdict else self._answer
        if is_timed:
            return CaseState.MEASURING
        if outcome == Outcome.FAILED.value or (self.failure is not None and outcome is None):
            return CaseState.FAILED
        if outcome is not None:
            return CaseState.ANSWERED
        if not (self.numbers.candidate_s or self.numbers.baseline_s):
            return CaseState.WAITING
        return CaseState.MEASURED if self._has_ended else CaseState.OPEN
