"""What a run is to do: workers, batches, goal, patience."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfguard.errors import UsageError
from perfguard.hetero.policies import BatchLimits
from perfguard.records.training import Tail
from perfguard.units import format_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A worker, as the coordinator knows it."""

    name: str
    group: str  # Workers of a group are alike, and a policy treats them so
    makes_losses: bool = True  # Whether it computes losses, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """When a run ends."""

    epochs: int
    target_loss: float | None = None  # Mean over all examples
    time_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When a worker that does not answer is no longer waited for."""

    floor_s: float = 30.0  # Before that no range is late
    factor: float = 10.0  # Times what the range would take at the group's best speed so far


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What a run is to do."""

    examples: int
    members: Sequence[Member]
    limits: Mapping[str, BatchLimits]  # By group
    loss_batch: int  # Examples of a range whose loss is computed
    goal: Goal
    learning_rate: float
    reference_batch: int | None = None  # The learning rate grows with the batch over this one; None: it does not
    pieces: Mapping[str, int] = field(
        default_factory=dict
    )  # By group: updates that a range is split into, 1 by default
    tail: Tail = Tail.SHORT
    patience: Patience = Patience()

    def __post_init__(self) -> None:
        if self.examples < 1:
            raise UsageError("there is no example to train on")
        groups = {member.group for member in self.members}
        if not groups or groups - set(self.limits):
            raise UsageError(f"batches are needed for each group of workers: {', '.join(sorted(groups)) or 'none'}")
        if not any(member.makes_losses for member in self.members):
            raise UsageError("no worker computes losses")
        for group in sorted(groups):
            if self.limits[group].minimum > self.examples:
                raise UsageError(
                    f"the smallest batch of {group}, {self.limits[group].minimum}, is larger than the data "
                    f"({format_count(self.examples, 'example')}); give more, or this group a smaller batch in a file "
                    "of settings"
                )

    def rate_of(self, batch: float) -> float:
        """The learning rate of an update from so many examples."""
        return self.learning_rate * (batch / self.reference_batch if self.reference_batch else 1.0)
