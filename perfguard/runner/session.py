"""What every measuring command does first and last: host lock, run folder, CPUs, the record of it; and cleaning up."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard import __version__
from perfguard.config import LoadedConfig
from perfguard.errors import ConfigError, HostUnfitError, UsageError
from perfguard.host.lock import host_lock
from perfguard.host.placement import select_cpus
from perfguard.host.probe import probe
from perfguard.records.events import EVENT_SCHEMA, Event, Noted, RunStarted
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.machine.fingerprint import CpuSelection, Fingerprint
from perfguard.records.plan import DEFAULT_GATE, GateSettings, Injection, MeasureSettings
from perfguard.records.result import ArmSummary
from perfguard.records.run import Arm
from perfguard.records.run_data import RunData
from perfguard.records.spec import Case, Gating
from perfguard.runner.arms.environment import ignored_variables
from perfguard.runner.arms.resolve import clean_workshop
from perfguard.runner.leftovers import WORKSHOPS, clear_leftovers
from perfguard.runner.run_folder import RunFolder

if TYPE_CHECKING:
    from perfguard.runner.process.answers import CodeProof

_STDERR = 2


class Interrupts:
    """Whether the user wants the run to end. A second signal raises KeyboardInterrupt."""

    asked = False

    def handle(self, *_: object) -> None:
        """Handle SIGINT or SIGTERM."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # Not through sys.stderr: the signal may have come in the middle of a line that is being written there.
        with suppress(OSError):
            os.write(_STDERR, b"\nperfguard: ending soon; what was measured is kept. Again to abort.\n")


@contextmanager
def catch_interrupts() -> Iterator[Interrupts]:
    """While entered, SIGINT and SIGTERM set a flag instead of ending the program."""
    interrupts = Interrupts()
    previous = {number: signal.signal(number, interrupts.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Request(Struct, frozen=True, kw_only=True):
    """What a measuring command was asked to do."""

    command: str  # Name of the command
    arguments: tuple[str, ...]  # The whole command line, for the record
    loaded: LoadedConfig  # Configuration
    suite: str  # Suite or selection, for the record
    cases: tuple[Case, ...]  # What to measure
    budget_s: float  # Wall-clock budget of the whole command, seconds
    injections: tuple[tuple[str, Injection], ...] = ()  # Case id and the slowdown to inject there
    inherited: Mapping[str, str] = field(default_factory=os.environ.copy)  # perfguard's own environment
    observe: Callable[[Event], None] = lambda _: None  # Sees every event
    progress: Callable[[Fact], None] = lambda _: None  # Sees one line for each step before measuring starts
    notes: tuple[Fact, ...] = ()  # What the reader should know from the beginning
    ops: bool | None = None  # Whether ops are compared: of all cases, of none, or (None) of those that regressed
    measure_anyway: bool = False  # Whether arms that run the same code are measured all the same
    measure_all: bool = False  # Whether cases that the change does not reach are measured, too
    script: str = ""  # Script that is run instead of cases
    patterns: tuple[str, ...] = ()  # Which cases were asked for instead of a suite
    gate: GateSettings = DEFAULT_GATE  # What its gates do
    record: Callable[[Path, RunData], None] = lambda *_: None
    """Takes the run's folder and what it measured, once it has ended, however it ended; raises nothing."""
    fingerprint: Fingerprint = field(default_factory=lambda: probe())  # noqa: PLW0108 - looked up when it is called
    """The machine, looked at once a run; without the software under test, which only the arms tell."""


class Session(Struct):
    """A run in progress."""

    request: Request  # What was asked for
    fingerprint: Fingerprint  # The machine; completed with the candidate's software once it is known
    selection: CpuSelection  # Where it is pinned
    folder: RunFolder  # Where it is written
    interrupts: Interrupts  # Whether the user wants it to end
    settings: MeasureSettings  # How it was asked to measure; what calibration makes of it is in the plan
    started: float  # Monotonic start
    data: RunData = field(default_factory=RunData)  # What was measured so far
    closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)  # What ends with the run
    imported: frozenset[str] = frozenset()  # Files of the baseline's trees that its cases imported, relative to them
    proofs: dict[Arm, dict[str, CodeProof]] = field(default_factory=dict)  # What cases run of the arms' trees, by id
    is_decided: bool = False  # Whether all that its verdict rests on is measured, so that ending it early costs nothing
    identical: bool = False  # Whether the arms run the same files with the same packages, interpreter and variables
    notes: list[Fact] = field(default_factory=list)  # What the reader should know
    summaries: dict[str, ArmSummary] = field(default_factory=dict)  # The arms, for the reader

    def emit(self, event: Event) -> None:
        """Write an event, take it into account, and show it."""
        self.folder.emit(event)
        self.data.add(event)
        self.request.observe(event)

    def note(self, found: Fact) -> None:
        """Say something once, in the events and in the result."""
        if all((n.code, n.subject, n.values) != (found.code, found.subject, found.values) for n in self.notes):
            self.notes.append(found)
            self.emit(Noted(fact=found))

    def left_s(self) -> float:
        """What is left of the budget, seconds."""
        return self.request.budget_s - (time.monotonic() - self.started)


@contextlib.contextmanager
def open_session(request: Request, *, mode: str) -> Iterator[Session]:
    """Lock the host, choose CPUs and open the run folder.

    Raises:
        HostUnfitError: Another run measures here, or nothing can be written.
        UsageError: The asked-for CPUs cannot be used.
    """
    waits = request.loaded.config.wait

    def waiting(owner: str, waited_s: float) -> None:
        request.progress(fact("step.waiting", owner=owner, waited_s=waited_s or None))

    lock = host_lock(command=request.command, waiting=waiting if waits else None)
    with contextlib.ExitStack() as ending, lock, catch_interrupts() as interrupts:
        started = time.monotonic()
        if request.loaded.config.confine:
            _require_own_folder(request.loaded.project)
        selection = choose_cpus(request.loaded, request.fingerprint)
        folder, settings = RunFolder.create(request.loaded.project), _settings(request)
        session = Session(request, request.fingerprint, selection, folder, interrupts, settings, started)
        ending.callback(request.record, folder.path, session.data)
        try:
            clear_leftovers(request.loaded.project, own=folder.path)
            _begin(session, mode)
            yield session
        except (UsageError, HostUnfitError):
            if not session.data.revisions:
                ending.pop_all()  # A request that was refused is no run: neither the history nor `show` knows of it
                ending.callback(folder.remove)
            raise
        finally:
            session.closing.close()
            for workshop in folder.path.glob(WORKSHOPS):
                clean_workshop(workshop, request.loaded.project)
            folder.close()


def _require_own_folder(project: Path) -> None:
    """Refuse a `.perfguard` that a stranger's checkout brings: runs would be written, and removed, where it leads."""
    own = project / ".perfguard"
    if (own / ".git").exists() or any(place.is_symlink() for place in (own, own / "runs", own / "envs")):
        raise UsageError(f"{own} is a link or a repository; code that is not trusted is measured with a plain folder")


def choose_cpus(loaded: LoadedConfig, fingerprint: Fingerprint) -> CpuSelection:
    """The CPUs to measure on.

    Raises:
        UsageError: What was asked for is not available.
    """
    config = loaded.config
    numa = None if config.numa in (None, "none") else config.numa
    if numa is not None and not numa.isdigit():
        raise ConfigError(f"--numa {numa!r} is neither a node number nor 'none'")
    node, available = None if numa is None else int(numa), frozenset(os.sched_getaffinity(0))
    selection = select_cpus(fingerprint, cpus=config.cpus, threads=config.threads, numa=node, available=available)
    return replace(selection, bind_memory_node=None) if config.numa == "none" else selection


def _settings(request: Request) -> MeasureSettings:
    config = request.loaded.config
    return MeasureSettings(
        sample_s=config.sample_s,
        samples=config.samples,
        warmups=config.warmups,
        budget_s=request.budget_s,
        # Nobody who gave a run seconds wants to wait minutes for a benchmark that hangs.
        setup_timeout_s=min(300.0, max(60.0, request.budget_s)),
        sample_timeout_s=min(120.0, max(20.0, request.budget_s)),
        max_blocks=config.max_blocks,
        seed=config.seed if config.seed is not None else secrets.randbelow(2**31),
        env_profile=config.env_profile,
    )


def _begin(session: Session, mode: str) -> None:
    """Emit what the run is, and what the reader should know from the beginning."""
    request = session.request
    started = RunStarted(
        run_id=session.folder.run_id,
        schema=EVENT_SCHEMA,
        mode=mode,
        suite=request.suite,
        case_ids=tuple(case.id for case in request.cases),
        command=("perfguard", *request.arguments),
        budget_s=request.budget_s,
        machine_id=session.fingerprint.machine_id,
        advisory_ids=tuple(case.id for case in request.cases if case.gating is Gating.ADVISORY),
        gate=request.gate,
        is_injected=bool(request.injections),
    )
    session.emit(started)
    first = fact("run.started", version=__version__, seed=session.settings.seed)
    for note in (first, session.selection.reason, *request.notes):
        session.note(note)
    if dropped := ignored_variables(request.inherited, session.settings.env_profile):
        session.note(fact("run.variables_dropped", names=dropped))
    for case_id, injection in request.injections:
        log_ratio = math.log1p(injection.effect_ratio)
        session.note(fact("run.injected", severity=Severity.NOTABLE, case_id=case_id, log_ratio=log_ratio))
