"""What coordinator and workers say to each other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any


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
    updates: int  # That the range is split into
    learning_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Compute the loss of a range."""

    range: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End; nothing follows."""


ToWorker = ExecuteWork | Evaluate | Stop


# As bytes: arrays of JSON, so that a message never runs code of its sender

_TYPES: tuple[type[FromWorker | ToWorker], ...] = (ScheduleWork, Report, WorkerLost, ExecuteWork, Evaluate, Stop)
_CODES = {kind: code for code, kind in enumerate(_TYPES)}


def encode(message: FromWorker | ToWorker) -> bytes:
    """A message as bytes."""
    kind = type(message)
    if kind is ExecuteWork or kind is Evaluate:
        part = message.range  # type: ignore[union-attr]
        body = [part.ticket, part.task.value, part.start, part.stop]
        if kind is ExecuteWork:
            body += [message.updates, message.learning_rate]  # type: ignore[union-attr]
        return _bytes([_CODES[kind], *body])
    return _bytes([_CODES[kind], *(getattr(message, name) for name in kind.__slots__)])


def _bytes(fields: list[Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass")  # as json.loads reads it


def decode(content: bytes) -> FromWorker | ToWorker:
    """The message in bytes.

    Raises:
        ValueError: They are no message.
    """
    try:
        code, *body = json.loads(content)
        kind = _TYPES[code]
        if kind is ExecuteWork or kind is Evaluate:
            ticket, task, start, stop, *more = body
            part = Range(ticket=ticket, task=Task(task), start=start, stop=stop)
            return Evaluate(range=part) if not more else ExecuteWork(range=part, updates=more[0], learning_rate=more[1])
        message: FromWorker | ToWorker = kind(**dict(zip(kind.__slots__, body, strict=True)))
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"not a message: {content[:40]!r}") from error
    return message
