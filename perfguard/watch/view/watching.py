"""Watching a run: whoever reads, on whatever screen, polls one of these and shows the view that it gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.machine.fingerprint import CpuSelection, Fingerprint
from perfguard.records.steps.ops import OpDelta
from perfguard.watch.sources.event_sources import (
    EVENTS_FILE,
    EventSource,
    ReplaySource,
    read_attribution,
    read_fingerprint,
    read_planned_rounds,
    read_selection,
)
from perfguard.watch.sources.event_tail import TailUpdate
from perfguard.watch.sources.event_writers import WriterSearch
from perfguard.watch.view.run import WatchedRun
from perfguard.watch.view.run_view import CaseSeries, Level, LogLine, RunState, RunView

SILENCE_S = 60.0  # A run is not called silent before this, however short its blocks are
SHORT_SILENCE_S = 3.0  # The same where its process was seen before and is gone
FIRST_SILENCE_S = 300.0
"""The same before its first block has ended: setting cases up and counting what they execute takes long."""
_SLOWEST_BLOCKS = 2.0
_SEARCH_EVERY_S = 10.0  # Between two searches for the process that writes: each may look through all processes
MAX_PROBLEMS = 50
CUT = fact("recording.cut", severity=Severity.NOTABLE)  # Shown as long as it holds; the line may yet be completed


class RunWatch:
    """A run that is watched. Polled by one thread; `series` and `deltas` may be asked by another one."""

    def __init__(
        self,
        source: EventSource,
        clock: Callable[[], float] = time.time,
        *,
        listen: Callable[[LogLine], None] | None = None,
        keep_off: Callable[[Collection[int]], Fact] | None = None,
    ) -> None:
        """Know nothing yet.

        `clock` is the reader's wall clock, seconds since the epoch; `listen` hears every line of the log; `keep_off`
        moves the reader away from the CPUs that a run on this machine measures on, and says what it did.
        """
        self.source = source
        self.replay = source if isinstance(source, ReplaySource) else None
        self.view = RunView(run_id=None, state=RunState.WAITING)
        self.is_behind = False
        """Whether more of the recording waits to be read at once, as after attaching late to a long run."""
        self._clock = clock
        self._listen = listen
        self._keep_off = keep_off
        self._run = WatchedRun(listen)
        self._problems: tuple[Fact, ...] = ()
        self._rounds_planned: int | None = None
        self._writer: WriterSearch | None = None
        self._is_held: bool | None = None
        self._was_held = False
        self._asked_at: float | None = None
        self._is_plan_read = False
        self._deltas_of: tuple[str, str] | None = None
        self._deltas: tuple[OpDelta, ...] = ()

    @property
    def is_between_samples(self) -> bool:
        """Whether painting now can disturb no timed sample of a run that measures on this machine."""
        return not (self._is_here and self.view.state is RunState.MEASURING and self._run.data.timing is not None)

    def poll(self) -> RunView | None:
        """The run as it is now; None where nothing that is shown has changed. Never raises, whatever the file holds."""
        update = self.source.poll()
        self.is_behind = update.has_more
        now = self._clock()
        if update.restarted:
            self._begin_anew()
        for seen in update.events:
            self._run.add(seen)
        for problem in update.problems:
            if problem not in self._problems and len(self._problems) < MAX_PROBLEMS:
                self._problems = (*self._problems, problem)
                self._say("warning", problem, now)
        state = self._state(update, now)
        if state is RunState.MEASURING and self._is_here and self._keep_off and (chosen := self.selection()):
            keep_off, self._keep_off = self._keep_off, None
            self._say("info", keep_off(chosen.cpus), now)
        view = self._run.view(
            state=state,
            now_wall=self.source.wall_s(now),
            rounds_planned=self._planned_rounds(),
            problems=(*self._problems, CUT) if state is RunState.SILENT and update.is_cut else self._problems,
        )
        if view == self.view:
            return None
        self.view = view
        return view

    def series(self, case_id: str) -> CaseSeries:
        """The curves of one case; empty ones where it is unknown."""
        return self._run.series(case_id)

    def deltas(self, case_id: str) -> tuple[OpDelta, ...]:
        """Every op of a case in both arms, largest difference first; empty where its ops were not compared.

        Reads a file of the run's folder, which may be large or far away; the largest differences, which are in the
        events, stand in where it cannot be read.
        """
        attribution = self._run.data.attributions.get(case_id)
        if attribution is None:
            return ()
        file = self._run.data.ops_files[case_id]
        if self._deltas_of != (case_id, file):
            found = read_attribution(self.source.read_file, file) if file else None
            self._deltas_of, self._deltas = (case_id, file), (found or attribution).deltas
        return self._deltas

    def host(self) -> Fingerprint | None:
        """The machine that is measured on; None until the arms were looked at."""
        return read_fingerprint(self.source.read_file)

    def selection(self) -> CpuSelection | None:
        """The CPUs that are measured on; None until the first block."""
        return read_selection(self.source.read_file)

    def close(self) -> None:
        """Let go of the source."""
        self.source.close()

    @property
    def _is_here(self) -> bool:
        return self.source.is_live and self.source.folder is not None

    def _begin_anew(self) -> None:
        self._run = WatchedRun(self._listen)
        self._problems = ()
        self._rounds_planned = self._is_held = self._asked_at = self._deltas_of = None
        self._is_plan_read = self._was_held = False

    def _say(self, level: Level, what: Fact, now: float) -> None:
        """Put what the reader itself has to say behind what the run said last."""
        last = self._run.last
        t_wall = last.t_wall if last else self.source.wall_s(now)
        self._run.say(LogLine(seq=-1, t_wall=t_wall, level=level, what=what))

    def _planned_rounds(self) -> int | None:
        """Rounds of a run with one arm, known from its plan alone; read once, and not from far away."""
        data = self._run.data
        if not self._is_plan_read and data.blocks_finished and self.source.folder is not None:
            self._is_plan_read = True
            if data.start is not None and data.start.mode == "rounds":
                self._rounds_planned = read_planned_rounds(self.source.read_file)
        return self._rounds_planned

    def _state(self, update: TailUpdate, now: float) -> RunState:
        data = self._run.data
        if update.is_gone:
            return RunState.GONE
        if data.end is not None:
            return RunState.FINISHED
        if self._run.last is None:
            return RunState.WAITING
        if update.is_end or (not update.has_more and self._is_silent(now)):
            return RunState.SILENT
        is_training = data.training is not None and data.training.trained is not None
        is_under_way = data.block is not None or is_training or data.task is not None
        return RunState.MEASURING if is_under_way else RunState.PREPARING

    def _is_silent(self, now: float) -> bool:
        """Whether nothing came for longer than the slowest block explains, and nobody is there who might write."""
        last, data = self._run.last, self._run.data
        if last is None or not self.source.is_live:
            return False
        quiet_s = self.source.wall_s(now) - last.t_wall
        is_late = quiet_s > SHORT_SILENCE_S
        # To look at a process that is known costs little; to look for one may mean to look through all.
        is_due = self._asked_at is None or self._is_held or abs(now - self._asked_at) >= _SEARCH_EVERY_S
        if self._asked_at is None or (is_late and is_due):
            self._asked_at = now
            self._is_held = self._has_writer()
            self._was_held = self._was_held or bool(self._is_held)
        if self._is_held or not is_late:
            return False
        if self._was_held and self._is_held is False:
            return True
        slowest_s = _SLOWEST_BLOCKS * data.slowest_block_s
        return quiet_s > (max(SILENCE_S, slowest_s) if data.blocks_finished else FIRST_SILENCE_S)

    def _has_writer(self) -> bool | None:
        """Whether a process of this machine writes the events; None where that is unknown."""
        folder = self.source.folder
        if self._writer is None and folder is not None:
            self._writer = WriterSearch(folder / EVENTS_FILE)
        return self._writer.has_writer() if self._writer is not None else None
