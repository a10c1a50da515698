"""The row and the curves of one case of a run that is watched, computed from the run's data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from perfguard.errors import MeasurementError
from perfguard.records.case_block import CaseBlock
from perfguard.records.estimate import Estimate
from perfguard.records.facts import Fact, Subject, fact
from perfguard.records.run import Arm, CaseFailed
from perfguard.records.run_data import RunData
from perfguard.records.verdict import Outcome, Policy
from perfguard.watch.view.run_view import CaseSeries, CaseState, CaseView

if TYPE_CHECKING:
    from perfguard.stats.paired import BlockEffect

_LEVEL = Policy().interval_level
_NOTHING_COMPARED = "measured"
"""Outcome of runs with one arm."""


class WatchedCase:
    """One case; what its finished blocks come to is kept, so that a screen every second costs little."""

    def __init__(self, case_id: str, data: RunData) -> None:
        self.case_id = case_id
        self._data = data
        self._effects: dict[int, BlockEffect] = {}
        self._medians_s: dict[tuple[int, Arm], float] = {}
        self._estimate: tuple[object, Estimate | None, tuple[Fact, ...]] = (None, None, ())
        self._row: tuple[object, CaseView | None] = (None, None)

    def view(self, name: str, *, is_timed: bool, voided: frozenset[int]) -> CaseView:
        """The case's row; the same object as before where nothing changed.

        Args:
            name: What it is called among the run's cases.
            is_timed: Whether its samples are timed now.
            voided: Blocks that the arm-blind rule leaves out of the effect.
        """
        key = (self._data.revisions[self.case_id], name, is_timed, voided, self._data.end is None)
        known, row = self._row
        if row is None or key != known:
            row = self._drawn(name, is_timed=is_timed, voided=voided)
            self._row = (key, row)
        return row

    def series(self, voided: frozenset[int]) -> CaseSeries:
        """The case's curves, with those of its blocks that are left out of the effect."""
        blocks = self._data.effect_blocks(self.case_id)
        try:
            effects = self._effects_of(blocks) if any(block.baseline_s for block in blocks) else []
        except MeasurementError:  # said in the row
            effects = []
        pairs = [(block.block, effect.log_ratio) for block, effect in effects if not math.isnan(effect.log_ratio)]
        return CaseSeries(
            case_id=self.case_id,
            baseline_s=tuple(chain.from_iterable(block.baseline_s for block in blocks)),
            candidate_s=tuple(chain.from_iterable(block.candidate_s for block in blocks)),
            block_log_ratios=tuple(ratio for _, ratio in pairs),
            blocks=tuple(number for number, _ in pairs),
            voided=voided.intersection(number for number, _ in pairs),
        )

    def _drawn(self, name: str, *, is_timed: bool, voided: frozenset[int]) -> CaseView:
        data, case_id = self._data, self.case_id
        blocks = data.effect_blocks(case_id)
        finished = [block for block in blocks if block.is_finished]
        baseline, candidate = (sum(len(block.of(arm)) for block in blocks) for arm in Arm)
        estimate, obstacles = self._estimated(finished, voided) if baseline else (None, ())
        verdict, failure = data.verdicts.get(case_id), data.failures.get(case_id)
        log_ratio, lower, upper = _effect(self._data, case_id, estimate)
        left_out = sum(block.block in voided for block in finished)
        return CaseView(
            case_id=case_id,
            name=name,
            is_gating=data.start is None or case_id not in data.start.advisory_ids,
            state=self._state(is_timed=is_timed, is_measured=bool(baseline or candidate)),
            blocks=len(finished) - left_out,
            voided=left_out,
            samples=min(baseline, candidate) if baseline else candidate,
            baseline_s=self._median_s(blocks, Arm.BASELINE, voided),
            candidate_s=self._median_s(blocks, Arm.CANDIDATE, voided),
            log_ratio=log_ratio,
            lower=lower,
            upper=upper,
            noise_ratio=estimate.block_sd if estimate else None if baseline else self._noise(finished),
            outcome=verdict.outcome if verdict else data.answers.get(case_id),
            reasons=verdict.reasons if verdict else _why(failure) if failure else obstacles,
            op_counts=data.op_count_changes.get(case_id),
            attribution=data.attributions.get(case_id),
            findings=data.findings.get(case_id, ()),
        )

    def _estimated(
        self, finished: Sequence[CaseBlock], voided: frozenset[int]
    ) -> tuple[Estimate | None, tuple[Fact, ...]]:
        """The effect so far by the gate's estimator, and what forbids one; samples of an open block change nothing."""
        key = ([block.block for block in finished], voided)
        if key != self._estimate[0]:
            try:
                self._estimate = (key, self._paired(finished, voided), ())
            except MeasurementError as error:
                self._estimate = (key, None, (fact("case.unusable_times", error=str(error)),))
        return self._estimate[1], self._estimate[2]

    def _paired(self, finished: Sequence[CaseBlock], voided: Collection[int]) -> Estimate | None:
        """The effect so far; None before two blocks.

        Raises:
            MeasurementError: A sample is no time.
        """
        if len(finished) < 2:
            return None
        from perfguard.stats.paired import estimate_paired

        kept = [effect for block, effect in self._effects_of(finished) if block.block not in voided]
        estimate = estimate_paired([each.log_ratio for each in kept], _LEVEL, [each.variance for each in kept])
        return estimate if estimate.blocks >= 2 else None

    def _effects_of(self, blocks: Iterable[CaseBlock]) -> list[tuple[CaseBlock, BlockEffect]]:
        """What each finished block says; nan where it holds no pair.

        Raises:
            MeasurementError: A sample is no time.
        """
        from perfguard.stats.paired import block_effect

        finished = [block for block in blocks if block.is_finished]
        for block in finished:
            if block.block not in self._effects:
                self._effects[block.block] = block_effect(block.baseline_s, block.candidate_s)
        return [(block, self._effects[block.block]) for block in finished]

    def _median_s(self, blocks: Sequence[CaseBlock], arm: Arm, voided: Collection[int]) -> float | None:
        """Median over the blocks' medians; over the samples so far before the first block has ended."""
        medians_s = self._block_medians_s(blocks, arm, voided)
        values_s = medians_s or list(chain.from_iterable(block.of(arm) for block in blocks))
        return statistics.median(values_s) if values_s else None

    def _block_medians_s(self, blocks: Iterable[CaseBlock], arm: Arm, voided: Collection[int]) -> list[float]:
        found = []
        for block in blocks:
            if block.is_finished and block.block not in voided and block.of(arm):
                key = (block.block, arm)
                if key not in self._medians_s:
                    self._medians_s[key] = statistics.median(block.of(arm))
                found.append(self._medians_s[key])
        return found

    def _noise(self, rounds: Sequence[CaseBlock]) -> float | None:
        """Standard deviation between the rounds of one arm; None with fewer than two."""
        medians_s = self._block_medians_s(rounds, Arm.CANDIDATE, ())
        if len(medians_s) < 2 or min(medians_s) <= 0:
            return None
        return statistics.stdev(math.log(median_s) for median_s in medians_s)

    def _state(self, *, is_timed: bool, is_measured: bool) -> CaseState:
        data, case_id = self._data, self.case_id
        verdict = data.verdicts.get(case_id)
        outcome = verdict.outcome if verdict else data.answers.get(case_id)
        if is_timed:
            return CaseState.MEASURING
        if outcome == Outcome.FAILED.value or (case_id in data.failures and outcome is None):
            return CaseState.FAILED
        if outcome is not None:
            return CaseState.ANSWERED
        if not is_measured:
            return CaseState.WAITING
        has_ended = data.end is not None and data.end.outcome == _NOTHING_COMPARED
        return CaseState.MEASURED if has_ended else CaseState.OPEN


def _why(failed: CaseFailed) -> tuple[Fact, ...]:
    return (replace(failed.reason, subject=Subject(arm=failed.arm.value)),)


def _effect(
    data: RunData, case_id: str, estimate: Estimate | None
) -> tuple[float, float | None, float | None] | tuple[None, None, None]:
    """Effect and interval of the verdict, which later rulings and other stages went into; else the estimate so far."""
    verdict = data.verdicts.get(case_id)
    if verdict is not None and verdict.log_ratio is not None:
        return verdict.log_ratio, verdict.lower, verdict.upper
    if estimate is None:
        return None, None, None
    return estimate.log_ratio, estimate.interval.lower, estimate.interval.upper
