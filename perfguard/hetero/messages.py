"""What coordinator and workers say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec


class _Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """As bytes an array that begins with a number of its kind."""


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


class ScheduleWork(_Message, frozen=True, kw_only=True, tag=0):
    """A worker is ready for its first range."""

    worker: str


class Report(_Message, frozen=True, kw_only=True, tag=1):
    """A worker has finished a range, and is ready for the next one."""

    worker: str
    ticket: int
    loss: float  # Sum over the examples of the range
    updates: int = 0  # Of the shared model
    busy_s: float = 0.0  # Seconds of computing
    waiting_s: float = 0.0  # Seconds between the last report and this range
    transfer_s: float = 0.0  # Seconds of copies of model and examples to a device and back


class WorkerLost(_Message, frozen=True, kw_only=True, tag=2):
    """A worker has ended or cannot go on; said by whatever watches it."""

    worker: str
    reason: str  # At most 500 characters

    @classmethod
    def by(cls, worker: str, error: Exception) -> WorkerLost:
        """A worker that an error ends."""
        line = f"{type(error).__name__}: {str(error).partition(chr(10))[0].rstrip('.')}"[:500]
        return cls(worker=worker, reason=line.encode("utf-8", "replace").decode("utf-8"))


FromWorker = ScheduleWork | Report | WorkerLost

# To a worker


class ExecuteWork(_Message, frozen=True, kw_only=True, tag=3):
    """Train on a range."""

    range: Range
    updates: int  # That the range is split into
    learning_rate: float


class Evaluate(_Message, frozen=True, kw_only=True, tag=4):
    """Compute the loss of a range."""

    range: Range


class Stop(_Message, frozen=True, kw_only=True, tag=5):
    """End; nothing follows."""


ToWorker = ExecuteWork | Evaluate | Stop


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[FromWorker | ToWorker] = msgspec.msgpack.Decoder(FromWorker | ToWorker)


def encode(message: FromWorker | ToWorker) -> bytes:
    """A message as bytes."""
    return _encoder.encode(message)


def decode(content: bytes) -> FromWorker | ToWorker:
    """The message in bytes.

    Raises:
        ValueError: They are no message.
    """
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a message: {content[:40]!r}") from error
