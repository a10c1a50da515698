"""What coordinator and workers say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Task(str, Enum):
    """What a range of examples is used for."""

    TRAIN = "train"  # Updates of the shared model
    LOSS = "loss"  # The loss of the model as it is, no update


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Examples that one worker has; `start` to `stop`, without `stop`."""

    ticket: int  # Names this range once in a run; one that is handed out again gets another
    task: Task
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of examples."""
        return self.stop - self.start


# From a worker


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWork:
    """A worker is ready for its first range."""

    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A worker has finished a range, and is ready for the next one."""

    worker: str
    ticket: int
    loss: float  # Sum over the examples of the range
    updates: int = 0  # Of the shared model
    busy_s: float = 0.0  # Seconds of computing
    waiting_s: float = 0.0  # Seconds between the last report and this range
    transfer_s: float = 0.0  # Seconds of copies of model and examples to a device and back


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """A worker has ended or cannot go on; said by whatever watches it."""

    worker: str
    reason: str


FromWorker = ScheduleWork | Report | WorkerLost

# To a worker


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteWork:
    """Train on a range."""

    range: Range
    learning_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Compute the loss of a range."""

    range: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End; nothing follows."""


ToWorker = ExecuteWork | Evaluate | Stop
