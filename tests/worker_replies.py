"""Replies as workers send them, for workers that tests script."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perfguard.records.protocol import Message

_SECONDS = itertools.count(0.0, 1000.0)
REFUSAL: Message = {"reply": "failed", "reason": "ValueError: no", "detail": "traceback", "kind": "error"}


class WritesInPlace:
    """The half of a fake worker that writes no files, or at once where they belong, and whose samples last."""

    def now_s(self) -> float:
        return next(_SECONDS)

    def place_of(self, file: Path) -> Path:
        return file

    def take(self, file: Path) -> None:
        """Nothing has to be moved."""


class QueuedReplies(WritesInPlace):
    """The answering half of a fake worker: replies wait in their order, and an exception among them is raised."""

    def __init__(self) -> None:
        self.replies: list[Message | BaseException] = []
        self.is_closed = False

    def receive(self, timeout_s: float) -> Message:
        assert timeout_s > 0
        assert self.replies, "an answer is waited for, but none is due"
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    pid = 0  # No process

    def processes(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        self.is_closed = True


def ready(cpus: Sequence[int], **more: Any) -> Message:
    """To `hello`."""
    return {"reply": "ready", "affinity_before": list(cpus), "affinity_after": list(cpus), **more}


def profiled(cpus: Sequence[int], kind: str, **more: Any) -> Message:
    """A step of half a second; a bare one, but for its name, where nothing else is said."""
    return {
        "reply": "profiled",
        "kind": kind,
        "wall_s": 0.5,
        "thread_s": 0.4,
        "process_s": 0.9,
        "minor_faults": 3,
        "event_s": None,
        "own_share": None,
        "module_s": None,
        "compile_events": {},
        "logs": [],
        "affinity": list(cpus),
        **more,
    }


def ended(cpus: Sequence[int], *, steps: int, exit_code: int = 0, problem: str | None = None) -> Message:
    """A script that ended by itself."""
    return {
        "reply": "ended",
        "exit_code": exit_code,
        "problem": problem,
        "detail": "Traceback of the script" if problem else "",
        "was_ended": False,
        "steps": steps,
        "affinity": list(cpus),
    }


class Parent:
    """The parent of a worker: says go, and keeps what comes back."""

    def __init__(self):
        self.replies = []

    def receive(self):
        return {"do": "go"}

    def send(self, reply, **fields):
        self.replies.append({"reply": reply, **fields})
