"""How many examples a worker gets next: fixed batches (Hogbatch), and batches that follow the share of updates.

A policy sees how many updates each group of workers has made, and answers for the group that asks. Workers of one group
are alike: the processes of the CPU, or one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from perfguard.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Examples of one request of a group."""

    initial: int
    minimum: int
    maximum: int

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.initial <= self.maximum:
            raise UsageError(
                f"batch = {self.initial}, minimum = {self.minimum}, maximum = {self.maximum}: "
                "minimum must be at least 1, maximum no less than minimum, and batch between the two"
            )

    def clamp(self, batch: float) -> int:
        """The nearest batch within the limits."""
        return int(min(max(batch, self.minimum), self.maximum))


class BatchPolicy(Protocol):
    """Decides batches; told of each request after the updates before it are counted."""

    def next_batch(self, group: str, updates: Mapping[str, int]) -> int:
        """Examples for the group that asks; `updates` since the run began, of all groups that have workers left."""

    def resume(self, batches: Mapping[str, int], updates: Mapping[str, int]) -> None:
        """Go on from the last batches of an earlier run, which had made these updates."""


@dataclass(slots=True)
class FixedBatches:
    """Each group keeps its batch: CPU only, large batch only, and CPU+GPU Hogbatch, by the groups that there are."""

    limits: Mapping[str, BatchLimits]

    def next_batch(self, group: str, updates: Mapping[str, int]) -> int:  # noqa: ARG002 - whatever the others do
        """The initial batch."""
        return self.limits[group].initial

    def resume(self, batches: Mapping[str, int], updates: Mapping[str, int]) -> None:
        """There is no state."""


@dataclass(slots=True)
class AdaptiveBatches:
    """Adaptive Hogbatch: the group with the fewest updates gets smaller batches, the one with the most larger ones.

    `beta` is what an update of a discounted group counts, since lock-free updates overwrite parts of each other.

    Source: arXiv:2004.08771 describes the rule; its constants are not in the abstract or the released code. Smaller
    batches for the group that lags are confirmed by the authors' later code (YMA33/HeteroGPU).
    """

    limits: Mapping[str, BatchLimits]
    alpha: float = 2.0  # Factor of one change
    beta: float = 1.0  # Weight of an update of the groups in `discounted`
    discounted: frozenset[str] = frozenset()
    batches: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        if not self.alpha > 1 or not 0 < self.beta <= 1:
            raise UsageError(f"alpha {self.alpha:g} must be above 1, and beta {self.beta:g} above 0 and at most 1")
        self.batches = {group: limits.initial for group, limits in self.limits.items()}

    def next_batch(self, group: str, updates: Mapping[str, int]) -> int:
        """A batch divided or multiplied by alpha, where the group is the last or the first by updates."""
        weighed = {name: count * (self.beta if name in self.discounted else 1.0) for name, count in updates.items()}
        others = [count for name, count in weighed.items() if name != group]
        batch, limits = self.batches[group], self.limits[group]
        if others and weighed[group] < min(others):
            batch /= self.alpha
        elif others and weighed[group] > max(others):
            batch *= self.alpha
        self.batches[group] = min(max(batch, limits.minimum), limits.maximum)  # whole ones might never grow
        return limits.clamp(batch)

    def resume(self, batches: Mapping[str, int], updates: Mapping[str, int]) -> None:  # noqa: ARG002 - counted anew
        """Go on with the batches."""
        self.batches |= _known(batches, self.limits)


@dataclass(slots=True)
class AdditiveBatches:
    """The successor's rule: after each period, `step` examples less for groups below the mean share, more above it.

    Source: YMA33/HeteroGPU (arXiv:2110.07029), there with a step of 32 and one period a merge of the replicas.
    """

    limits: Mapping[str, BatchLimits]
    step: int = 32
    period: int = 100  # Updates of all groups together
    batches: dict[str, int] = field(init=False)
    counted: dict[str, int] = field(init=False)  # Updates at the end of the last period

    def __post_init__(self) -> None:
        if self.step < 1 or self.period < 1:
            raise UsageError(f"step {self.step} and period {self.period} must be 1 or more")
        self.batches = {group: limits.initial for group, limits in self.limits.items()}
        self.counted = dict.fromkeys(self.limits, 0)

    def next_batch(self, group: str, updates: Mapping[str, int]) -> int:
        """The batch of this period."""
        made = {name: count - self.counted[name] for name, count in updates.items()}
        total = sum(made.values())
        if total >= self.period:
            self.counted |= updates
            for name, count in made.items():
                difference = count * len(made) - total  # against the mean share, in whole numbers
                sign = (difference > 0) - (difference < 0)
                self.batches[name] = self.limits[name].clamp(self.batches[name] + sign * self.step)
        return self.batches[group]

    def resume(self, batches: Mapping[str, int], updates: Mapping[str, int]) -> None:
        """Go on with the batches, at the beginning of a period."""
        self.batches |= _known(batches, self.limits)
        self.counted |= {group: updates[group] for group in self.counted}


def _known(batches: Mapping[str, int], limits: Mapping[str, BatchLimits]) -> dict[str, int]:
    return {group: limits[group].clamp(batch) for group, batch in batches.items() if group in limits}
