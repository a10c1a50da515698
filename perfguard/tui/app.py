"""The application: its screens, and what its keys do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from perfguard.errors import PerfguardError
from perfguard.tui.dialogs import HelpDialog, NoticeDialog, RunsDialog, export_dialog, start_dialog
from perfguard.tui.keymap import KEYS, KeyScope
from perfguard.tui.launch import StartedCommand
from perfguard.tui.pace import neighbour
from perfguard.tui.reader_app import ReaderApp
from perfguard.tui.screens.cases import CompareScreen, LiveScreen
from perfguard.tui.screens.fleet import FleetScreen
from perfguard.tui.screens.history import HistoryScreen
from perfguard.tui.screens.host import HostScreen
from perfguard.tui.screens.log import LogScreen
from perfguard.tui.screens.ops import OpsScreen
from perfguard.tui.screens.tune import TuneScreen
from perfguard.tui.session import AppState, command_for, words_to_start
from perfguard.tui.tables.columns import as_markdown, exported
from perfguard.tui.widgets.texts import bindings_in
from perfguard.watch.sources.event_sources import ReplaySource
from perfguard.watch.sources.recorded_runs import RecordedRun
from perfguard.watch.view.watching import RunWatch

_SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
_SEEK_PARTS = 20  # A key seeks by one of so many parts of a recording


class PerfguardApp(ReaderApp):
    """What is run."""

    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = {
        "live": LiveScreen,
        "compare": CompareScreen,
        "ops": OpsScreen,
        "history": HistoryScreen,
        "host": HostScreen,
        "log": LogScreen,
        "fleet": FleetScreen,
        "tune": TuneScreen,
    }
    DEFAULT_MODE = "live"
    BINDINGS: ClassVar[list[BindingType]] = bindings_in(KeyScope.APP, KeyScope.REPLAY)
    _trail: tuple[str, ...] = ()  # Screens that were left for the present one, for the way back

    def action_show_screen(self, mode: str) -> None:
        """Another screen, which remembers where it was."""
        if mode in self.MODES and mode != self.current_mode:
            self._trail = (*self._trail[-20:], self.current_mode)
            self.switch_mode(mode)

    def action_next_screen(self, step: int) -> None:
        """The screen beside this one."""
        modes = list(self.MODES)
        self.action_show_screen(modes[(modes.index(self.current_mode) + step) % len(modes)])

    async def action_back(self) -> None:
        """Leave zoom or filter; else the screen before; never the application."""
        if self.view_screen.go_back():
            self.paint()
        elif self._trail:
            *rest, mode = self._trail
            self._trail = tuple(rest)
            self.switch_mode(mode)

    def action_help_quit(self) -> None:
        """What ctrl+c does: it might be meant for the run, so it stops neither."""
        quits = f"{self._first_key('quit')} quits"
        goes_on = "" if self.session.view.outcome else ", and the run goes on; stop the run where it was started"
        self.say(quits + goes_on)

    def action_help(self) -> None:
        """All keys."""
        self.push_screen(HelpDialog(self.session.options.keys, sorted(self.available_themes)))

    def action_next_case(self, step: int) -> None:
        """Another case on the same screen."""
        if self.session.select_next(step) is None:
            self.say("there is no case yet")
        self.paint()

    def action_swap(self) -> None:
        """Read effects the other way round."""
        self.session.is_swapped = not self.session.is_swapped
        self.say("arms swapped: effects are those of the baseline" if self.session.is_swapped else "arms as they were")
        self.paint()

    def action_pause(self) -> None:
        """Stop painting; a replay stands."""
        self.pace.is_paused = not self.pace.is_paused
        replay = self.session.watch.replay
        if replay is not None:
            (replay.pause if self.pace.is_paused else replay.resume)()
        self.paint()
        if not self.pace.is_paused:
            self.tick()

    def action_interval(self, step: int) -> None:
        """Look more or less often."""
        interval_s = self.pace.change_interval(step)
        if self._ticker is not None:
            self._ticker.stop()
        self._ticker = self.set_interval(interval_s, self.tick)
        self.say(f"looking every {interval_s:g} s")

    def action_replay_speed(self, step: int) -> None:
        """Replay faster or slower."""
        self._with_replay(lambda replay: replay.set_speed(neighbour(_SPEEDS, replay.speed, step)))

    def action_replay_seek(self, step: int) -> None:
        """Replay from another place."""

        def seek(replay: ReplaySource) -> None:
            wanted = replay.position_s + step * replay.length_s / _SEEK_PARTS
            replay.seek(min(max(0.0, wanted), replay.length_s))

        self._with_replay(seek)

    def _with_replay(self, change: Callable[[ReplaySource], None]) -> None:
        replay = self.session.watch.replay
        if replay is None:
            self.say("this is no replay; perfguard tui --replay RUN is one")
            return
        change(replay)
        self.tick()

    def action_copy_row(self) -> None:
        """The row under the cursor as a Markdown table."""
        table = self.view_screen.table
        if table.cursor_row is None:
            self.say("there is no row to copy")
            return
        self.copy_to_clipboard(as_markdown(table.spec, [table.cursor_row]))
        self.say("row copied as Markdown")

    def action_copy_command(self) -> None:
        """The command that says what this screen shows."""
        command = command_for(self.current_mode, self.session)
        self.copy_to_clipboard(command)
        self.say(f"copied: {command}")

    def action_export(self) -> None:
        """Ask where to write, then write."""
        name = self.session.view.run_id or "run"
        self.push_screen(export_dialog(f"perfguard-{name}-{self.current_mode}.md"), self._export)

    def _export(self, path: Path | None) -> None:
        if path is not None and path.suffix == ".svg":
            picture = partial(self.export_screenshot, title="perfguard tui", simplify=True)
            self.call_after_refresh(lambda: self._write(path, picture()))
        elif path is not None:
            table = self.view_screen.table
            self._write(path, exported(table.spec, table.rows, path.suffix))

    def _write(self, path: Path, text: str) -> None:
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self.say(f"{path} cannot be written: {error.strerror}")
            return
        self.say(f"written to {path}")

    def action_start(self, kind: str) -> None:
        """Show what would be started, and start it if that is wanted."""
        title = "store a new baseline" if kind == "baseline" else "start a run"
        is_read_only = self.session.options.start_command is None
        dialog = start_dialog(words_to_start(kind, self.session), title=title, is_read_only=is_read_only)
        self.push_screen(dialog, self._start)

    def _start(self, words: tuple[str, ...] | None) -> None:
        start = self.session.options.start_command
        if words is None or start is None:
            return

        def started() -> StartedCommand:
            try:
                return start(words)
            except PerfguardError as error:
                return StartedCommand(sentence=str(error))

        self.say(f"starting perfguard {' '.join(words)}")
        self.view_screen.in_thread(started, self._watch_started)

    def _watch_started(self, outcome: StartedCommand) -> None:
        """Watch the new run, where there is one."""
        if outcome.watch is None:
            self.push_screen(NoticeDialog("nothing was started", outcome.sentence))
            return
        self._watch(outcome.watch, name="")
        self.say(outcome.sentence)

    def _watch(self, watch: RunWatch, *, name: str) -> None:
        """Watch a run instead of the present one."""
        self.session = AppState(watch, replace(self.session.options, run_name=name, hint="", is_local=True))
        self.action_show_screen("live")
        self.tick()

    def action_runs(self) -> None:
        """Show the project's runs, and watch the one that is chosen."""
        if (read := self.session.options.list_runs) is None:
            self.say("the runs of another machine cannot be listed; name one on the command line")
            return
        self.view_screen.in_thread(read, self._show_runs, "runs")

    def _show_runs(self, runs: tuple[RecordedRun, ...]) -> None:
        self.push_screen(RunsDialog(runs, self.session.view.run_id), self._open_run)

    def _open_run(self, name: str | None) -> None:
        if name is not None and (opens := self.session.options.open_run) is not None:
            try:
                self._watch(opens(name), name=name)
            except PerfguardError as error:
                self.say(str(error))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Everything that keys do, by its name."""
        del screen
        for key in KEYS:
            if key.scope in (KeyScope.APP, KeyScope.REPLAY) and key.id != "palette":
                yield SystemCommand(key.text, f"key {self._first_key(key.id)}", partial(self.run_action, key.action))
        for name in sorted(self.available_themes):
            yield SystemCommand(f"theme {name}", "colours", partial(setattr, self, "theme", name))
