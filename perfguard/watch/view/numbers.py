"""Slices of one case while its run is watched, as compact numbers, and the blocks that they make."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfguard.records.estimate import Estimate
from perfguard.records.events import SliceTimed
from perfguard.records.run import Arm
from perfguard.records.verdict import Policy

if TYPE_CHECKING:
    from perfguard.stats.paired import BlockEffect

_LEVEL = Policy().interval_level


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """One complete block of a case: where it lies in the arrays of slices, and what they come to."""

    number: int
    baseline: slice
    candidate: slice
    baseline_s: float | None
    """Median of the baseline's slices; None where it has none."""
    candidate_s: float | None


class CaseNumbers:
    """Slices of one case in one stage, and the blocks that they make."""

    __slots__ = ("_complete", "_current", "_effects", "_starts", "baseline_s", "blocks", "candidate_s")

    def __init__(self) -> None:
        self.baseline_s = array("d")
        self.candidate_s = array("d")
        self.blocks: list[_Block] = []
        self._current: int | None = None
        self._starts = (0, 0)
        self._complete: _Block | None = None
        self._effects: list[BlockEffect] = []

    def add(self, timed: SliceTimed) -> None:
        """Take a slice that is no warm-up into account."""
        if timed.block != self._current:
            self._current = timed.block
            self._starts = (len(self.baseline_s), len(self.candidate_s))
        (self.baseline_s if timed.arm is Arm.BASELINE else self.candidate_s).append(timed.value_s)

    def complete(self, block: int) -> None:
        """The case's slices of the block are complete; they count once the block ends."""
        if block != self._current:
            return
        baseline = slice(self._starts[0], len(self.baseline_s))
        candidate = slice(self._starts[1], len(self.candidate_s))
        self._complete = _Block(
            number=block,
            baseline=baseline,
            candidate=candidate,
            baseline_s=_median(self.baseline_s[baseline]),
            candidate_s=_median(self.candidate_s[candidate]),
        )

    def finish(self, block: int) -> bool:
        """The block ended; whether it holds this case."""
        complete, self._complete = self._complete, None
        if complete is None or complete.number != block:
            return False
        self.blocks.append(complete)
        return True

    def median_s(self, arm: Arm, voided: Collection[int]) -> float | None:
        """Median over the blocks' medians; over the slices so far before the first block has ended."""
        medians_s = self.block_medians_s(arm, voided)
        return _median(medians_s or (self.baseline_s if arm is Arm.BASELINE else self.candidate_s))

    def block_medians_s(self, arm: Arm, voided: Collection[int]) -> list[float]:
        """Median of an arm in each finished block that holds it and was not voided."""
        kept = [block for block in self.blocks if block.number not in voided]
        found = [block.baseline_s if arm is Arm.BASELINE else block.candidate_s for block in kept]
        return [median_s for median_s in found if median_s is not None]

    def effects(self) -> list[BlockEffect]:
        """What each finished block says; nan where it holds no pair.

        Raises:
            MeasurementError: A slice is no time.
        """
        from perfguard.stats.paired import block_effect

        for block in self.blocks[len(self._effects) :]:
            effect = block_effect(self.baseline_s[block.baseline], self.candidate_s[block.candidate])
            self._effects.append(effect)
        return self._effects

    def estimate(self, voided: Collection[int]) -> Estimate | None:
        """The effect so far, by the gate's estimator; None before two blocks.

        Raises:
            MeasurementError: A slice is no time.
        """
        if len(self.blocks) < 2 or not self.baseline_s:
            return None
        pairs = zip(self.blocks, self.effects(), strict=True)
        kept = [effect for block, effect in pairs if block.number not in voided and not math.isnan(effect.log_ratio)]
        if len(kept) < 2:
            return None
        from perfguard.stats.paired import estimate_paired

        return estimate_paired([effect.log_ratio for effect in kept], _LEVEL, [effect.variance for effect in kept])


def _median(values_s: Sequence[float]) -> float | None:
    return statistics.median(values_s) if values_s else None
