"""What the coordinator reports of a run, for whoever follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfguard.hetero.messages import Range
from perfguard.records.training import Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded:
    """All examples were trained on once, and the loss is known."""

    epoch: int  # 0 is the loss before any update
    at_s: float  # Since the run began
    train_s: float
    trained_s: float  # All training since the run began, without losses
    loss_s: float
    loss: float  # Mean over all examples
    updates: Mapping[str, int]  # By group, since the run began


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChanged:
    """A group gets batches of another size."""

    at_s: float
    group: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReturned:
    """A range is handed out again, since its worker is lost or late."""

    at_s: float
    worker: str
    range: Range
    reason: str
    is_late: bool  # The worker may still answer; then it gets work again, and its answer does not count


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """Nothing is handed out any more."""

    at_s: float
    ending: Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGone:
    """A worker is lost for the rest of the run."""

    at_s: float
    worker: str
    reason: str


Happening = EpochEnded | BatchChanged | RangeReturned | WorkerGone | RunEnded
