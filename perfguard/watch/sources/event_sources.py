"""Where a run that is watched comes from: a folder on this machine, one that is yet to come, a recording played again.

Runs on another machine: `perfguard.watch.sources.remote_source`.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from perfguard.codec import from_builtins
from perfguard.errors import StoreError
from perfguard.plain_files import read_plain
from perfguard.recordings import upgraded, with_nan
from perfguard.records.machine.fingerprint import CpuSelection, Fingerprint
from perfguard.records.steps.ops import Attribution
from perfguard.watch.sources.event_tail import EventTail, SeenEvent, TailUpdate

EVENTS_FILE = "events.jsonl"
MAX_FILE_BYTES = 64 * 1024**2
"""Of the other files of a run's folder; the largest, an attribution with all its ops, has a few megabytes."""
_LAST_BYTES = 256 * 1024  # Enough of a recording's end to find a whole line in it


class EventSource:
    """A run's events as they come, and the other files of its folder."""

    name: str  # What is read, for a title: a path, or HOST:path
    folder: Path | None = None  # The run's folder on this machine; None where it is on another one
    is_live: bool = True  # Whether time passes there as it does here; False for a replay

    def poll(self) -> TailUpdate:
        """What is new; never waits for anything, never raises."""
        raise NotImplementedError

    def wall_s(self, now_s: float) -> float:
        """What the run's own wall clock shows, seconds since the epoch, when that of the reader shows `now_s`."""
        return now_s

    def read_file(self, name: str) -> bytes | None:
        """Another file of the run's folder; None where there is none. May take seconds where it is far away."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what is held."""


class LocalSource(EventSource):
    """A run's folder on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = str(folder)
        self._folder = folder
        self._tail = EventTail(folder / EVENTS_FILE)

    def poll(self) -> TailUpdate:
        """What is new."""
        return self._tail.poll()

    def read_file(self, name: str) -> bytes | None:
        """Another file of the folder; None where there is none, or where it cannot be read."""
        return read_beside(self._folder, name)


class UpcomingSource(LocalSource):
    """The first run of a project that has none yet: once there is one, it is read."""

    def __init__(self, runs: Path) -> None:
        """Wait; the folder of runs stands for the run until there is one, and need not exist."""
        super().__init__(runs)
        self._is_found = False

    def poll(self) -> TailUpdate:
        """What is new; the newest run, if several came at once."""
        if not self._is_found:
            found = sorted(path.parent for path in self._folder.glob(f"*/{EVENTS_FILE}"))
            if not found:
                return TailUpdate()
            super().__init__(found[-1])
            self._is_found = True
        return super().poll()


class ReplaySource(LocalSource):
    """A recording, played by its own clock or a multiple of it; can be paused and moved about in."""

    is_live = False

    def __init__(self, folder: Path, *, speed: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        """Stand at the beginning; time passes from the first poll on, `speed` seconds in one of the monotonic clock."""
        super().__init__(folder)
        self.speed = speed
        """Seconds of the recording in one of the clock; changed by `set_speed`."""
        self.is_paused = False
        """Whether time stands still; changed by `pause` and `resume`."""
        self._clock = clock
        self._waiting: deque[SeenEvent] = deque()
        self._latest: SeenEvent | None = None
        self._origin_s, self.length_s = _span(folder / EVENTS_FILE)
        self._is_rewound = False
        self._is_read = False
        self._is_cut = False
        self._position_s = 0.0
        self._since: float | None = None

    def set_speed(self, speed: float) -> None:
        """Let time pass at another pace; above zero."""
        self._settle()
        self.speed = speed

    def pause(self) -> None:
        """Let time stand still."""
        self._settle()
        self.is_paused = True

    def resume(self) -> None:
        """Let time pass."""
        self._settle()
        self.is_paused = False

    @property
    def position_s(self) -> float:
        """Where it stands, seconds from the beginning of the recording; at most `length_s`."""
        passed_s = 0.0 if self._since is None or self.is_paused else (self._clock() - self._since) * self.speed
        return min(self._position_s + passed_s, self.length_s)

    def seek(self, position_s: float) -> None:
        """Stand elsewhere; backwards, the events come again from the first one on, which the next poll says."""
        before_s = self.position_s
        self._settle()
        self._position_s = min(max(position_s, 0.0), self.length_s)
        if self._position_s < before_s:
            self._tail = EventTail(self._folder / EVENTS_FILE)
            self._waiting.clear()
            self._latest = None
            self._is_rewound, self._is_read = True, False

    def poll(self) -> TailUpdate:
        """The events that have become due."""
        if self._since is None:
            self._since = self._clock()
        update = TailUpdate(is_cut=self._is_cut)
        if not self._waiting:
            update = self._tail.poll()
            self._waiting.extend(update.events)
            self._is_read, self._is_cut = not update.has_more, update.is_cut
        is_at_the_end = self.position_s >= self.length_s
        due: list[SeenEvent] = []
        while self._waiting and (is_at_the_end or self._waiting[0].t_mono - self._origin_s <= self.position_s):
            due.append(self._waiting.popleft())
        self._latest = due[-1] if due else self._latest
        restarted, self._is_rewound = update.restarted or self._is_rewound, False
        return replace(
            update,
            events=tuple(due),
            restarted=restarted,
            has_more=not self._is_read and not self._waiting,
            is_end=is_at_the_end and self._is_read and not self._waiting,
        )

    def wall_s(self, now_s: float) -> float:
        """The clock on the wall when the run was at this position; the reader's own before the first event."""
        if self._latest is None:
            return now_s
        return self._latest.t_wall + max(0.0, self.position_s - (self._latest.t_mono - self._origin_s))

    def _settle(self) -> None:
        """Begin to count from here, before the pace changes."""
        self._position_s = self.position_s
        if self._since is not None:
            self._since = self._clock()


def read_beside(folder: Path, name: str, *, most_bytes: int = MAX_FILE_BYTES) -> bytes | None:
    """A file of a run's folder; None where there is none, it is no plain file or too large, or it lies elsewhere.

    A link is not followed: whoever hands a run on must not make its reader show files of their own.
    """
    if Path(name).name != name:
        return None
    return read_plain(folder / name, most_bytes)


def _span(path: Path) -> tuple[float, float]:
    """First moment of a recording by its monotonic clock, and its length; zeros where it does not tell."""
    try:
        with path.open("rb") as file:
            pieces = [file.read(_LAST_BYTES)]
            file.seek(max(0, path.stat().st_size - _LAST_BYTES))
            pieces.append(file.read(_LAST_BYTES))
    except OSError:
        return 0.0, 0.0
    moments = []
    for line in b"\n".join(pieces).split(b"\n"):
        with suppress(ValueError, KeyError, TypeError, RecursionError):  # cut, or no event
            moment = json.loads(line)["t_mono"]
            if isinstance(moment, (int, float)) and abs(moment) < 1e12:
                moments.append(float(moment))
    return (moments[0], max(0.0, moments[-1] - moments[0])) if moments else (0.0, 0.0)


T = TypeVar("T")
ReadFile = Callable[[str], "bytes | None"]  # Gives a file of a run's folder by its name


def host_of(folder: Path) -> Fingerprint | None:
    """The machine and the candidate's software; None until the arms were looked at."""
    return read_fingerprint(lambda name: read_beside(folder, name))


def selection_of(folder: Path) -> CpuSelection | None:
    """Where the run is pinned; None until its first block."""
    return read_selection(lambda name: read_beside(folder, name))


def read_fingerprint(read: ReadFile) -> Fingerprint | None:
    """The run's `fingerprint.json`."""
    return _decoded(_parsed(read("fingerprint.json")), Fingerprint)


def read_selection(read: ReadFile) -> CpuSelection | None:
    """The CPUs in the run's `plan.json`."""
    plan = _parsed(read("plan.json"))
    return _decoded(plan.get("cpus"), CpuSelection) if isinstance(plan, dict) else None


def read_planned_rounds(read: ReadFile) -> int | None:
    """The most blocks or rounds that the run's `plan.json` allows."""
    plan = _parsed(read("plan.json"))
    settings = plan.get("settings") if isinstance(plan, dict) else None
    rounds = settings.get("max_blocks") if isinstance(settings, dict) else None
    return rounds if isinstance(rounds, int) and rounds > 0 else None


def read_attribution(read: ReadFile, name: str) -> Attribution | None:
    """All differences of a case's ops, from the file that its event names."""
    return _decoded(with_nan(_parsed(read(name)), Attribution), Attribution)


def _parsed(content: bytes | None) -> Any:
    try:
        return json.loads(content or b"")
    except (ValueError, RecursionError):  # missing, cut, or no JSON
        return None


def _decoded(data: object, kind: type[T]) -> T | None:
    try:
        return from_builtins(upgraded(data, kind), kind, source="a file of the run")
    except StoreError:
        return None
