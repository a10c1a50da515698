"""What the application is started with: where views come from, and what it may do. Imports nothing that draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from perfguard.records.machine.fingerprint import CheckResult, CpuSelection, Fingerprint
from perfguard.records.steps.ops import OpDelta
from perfguard.watch.view.run_view import CaseSeries, History, RunView


class Replay(Protocol):
    """The hands on a recording that is played again."""

    @property
    def speed(self) -> float:
        """Seconds of the recording in one of the clock."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether it stands."""
        ...

    @property
    def position_s(self) -> float:
        """Where it stands, seconds since its beginning."""
        ...

    @property
    def length_s(self) -> float:
        """Seconds of the whole recording."""
        ...

    def pause(self) -> None:
        """Stand still."""
        ...

    def resume(self) -> None:
        """Go on."""
        ...

    def seek(self, position_s: float) -> None:
        """Go to another place, forwards or backwards."""
        ...

    def set_speed(self, speed: float) -> None:
        """Go on at another speed."""
        ...


class Watch(Protocol):
    """A run that can be looked at again and again; `perfguard.watch.view.watching.RunWatch` is one."""

    def poll(self) -> RunView | None:
        """What is known now; None where nothing is new."""
        ...

    def series(self, case_id: str) -> CaseSeries:
        """The curves of one case."""
        ...

    def deltas(self, case_id: str) -> tuple[OpDelta, ...]:
        """All differences of a case's ops; empty where they were not compared. May read a large file."""
        ...

    @property
    def is_between_samples(self) -> bool:
        """Whether painting now disturbs no timed sample."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether more of the recording waits to be read at once."""
        ...

    @property
    def replay(self) -> Replay | None:
        """The hands on a recording; None where the run itself is read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedCommand:
    """What became of a command that the user asked for."""

    sentence: str
    """What was started and where its output is, or why not."""
    watch: Watch | None = None
    """The new run, to be watched instead; None to stay with the old one."""
    read_fingerprint: Callable[[], Fingerprint | None] | None = None
    """The machine of the new run."""
    read_cpus: Callable[[], CpuSelection | None] | None = None
    """Where the new run is pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuiOptions:
    """How the application is started."""

    run_name: str = ""
    """The run as commands know it: an id or a path; empty for the latest one."""
    theme: str | None = None
    """Name of a theme; None for one that suits the terminal."""
    is_ascii: bool = False
    """Whether to draw with ASCII only."""
    is_local: bool = True
    """Whether the run is measured on this machine."""
    interval_s: float = 1.0
    """Seconds between two looks at the events."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Other keys for bindings, by the binding's id: `{"pause": "p"}`."""
    housekeeping: str = ""
    """What was done to keep this process away from the measured CPUs, one sentence."""
    read_history: Callable[[], History] | None = None
    """Series over the recorded runs; None where there are none to read."""
    read_fingerprint: Callable[[], Fingerprint | None] | None = None
    """The machine of the run."""
    read_checks: Callable[[], tuple[CheckResult, ...]] | None = None
    """The doctor's rows for this machine."""
    read_cpus: Callable[[], CpuSelection | None] | None = None
    """Where the run is pinned."""
    start_command: Callable[[tuple[str, ...]], StartedCommand] | None = None
    """Starts `perfguard` with these arguments as a process of its own; None where nothing may be started."""
    hint: str = ""
    """What to say while there is nothing to read."""
