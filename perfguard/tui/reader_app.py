"""The half of the application that reads: it polls the run and paints between samples."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.timer import Timer

from perfguard.tui.drawing.head import SCREENS, FrameFacts, elapsed_text
from perfguard.tui.host_now import host_text
from perfguard.tui.keymap import KEYS, shown_keys
from perfguard.tui.launch import TuiOptions
from perfguard.tui.pace import RETRY_S, Pace
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.session import AppState
from perfguard.tui.themes import DEFAULT_THEME, PLAIN_THEME, THEMES, styles_for
from perfguard.tui.widgets.texts import Inks
from perfguard.watch.view.watching import RunWatch

TERMINATED = 128 + signal.SIGTERM  # Exit code after SIGTERM, as shells give it
_HOST_EVERY_S = 10.0
_SAID_S = 6.0  # A sentence in the status line stays so long


class ReaderApp(App[int]):
    """Nothing in it can delay a sample or stop the run."""

    TITLE = "perfguard"
    CSS_PATH = Path(__file__).with_name("app.tcss")
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(
        self,
        watch: RunWatch,
        options: TuiOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        is_colourless = bool(os.environ.get("NO_COLOR"))
        # With native colours NO_COLOR takes all of them away; else textual would leave shades of grey.
        super().__init__(ansi_color=True if is_colourless else None)
        self.session = AppState(watch, options)
        self.pace = Pace(interval_s=options.interval_s, clock=clock, cpu_clock=cpu_clock)
        for theme in THEMES:
            self.register_theme(theme)
        has_few_colours = is_colourless or self.console.color_system in (None, "standard")
        self._first = PLAIN_THEME if has_few_colours else DEFAULT_THEME
        if options.theme is not None and options.theme in self.available_themes:
            self._first = options.theme
        self.inks = Inks(styles_for(self.available_themes[self._first]), is_ascii=options.is_ascii)
        self.set_class(options.is_ascii, "-ascii")
        self.set_keymap(options.keys)
        self.host_text = ""
        self._newest = self.session.view
        self._said = ""
        self._said_at = float("-inf")
        self._looked_at = float("-inf")
        self._ticker: Timer | None = None
        self._is_retrying = False

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """What themes that are not perfguard's own do not know."""
        theme = self.current_theme
        return {"row-cursor": "ansi_default" if theme.ansi else "#26374a" if theme.dark else "#d3e4f2"}

    def watch_theme(self, _: str) -> None:
        """Other colours for all roles."""
        self.inks = Inks(styles_for(self.current_theme), is_ascii=self.session.options.is_ascii)

    @property
    def view_screen(self) -> ViewScreen:
        """The screen of the present mode, also below a dialog."""
        screen = self.get_screen_stack(self.current_mode)[0]
        assert isinstance(screen, ViewScreen)  # noqa: S101 - all modes are
        return screen

    def on_mount(self) -> None:
        """Begin to look."""
        with suppress(RuntimeError, ValueError, NotImplementedError):  # only a main thread gets signals
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit, 0, TERMINATED)
        # Whatever textual takes the screen to show: the shell has drawn over it (textual issue 6298).
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.theme = self._first
        if self.session.options.housekeeping and not self.session.options.hint:
            self.say(self.session.options.housekeeping)
        self.tick()
        self._ticker = self.set_interval(self.pace.interval_s, self.tick)

    def tick(self) -> None:
        """Look at the run; paint what is new, now or in the next gap between samples."""
        self.pace.measure()
        self._look_at_host()
        if self._said and self.pace.clock() - self._said_at >= _SAID_S:
            self._said = ""
        self._look()

    def _look(self) -> None:
        watch = self.session.watch
        self._newest = watch.poll() or self._newest
        is_due = self.pace.may_paint(is_between_samples=watch.is_between_samples)
        is_due &= not (watch.is_behind and self.pace.is_fresh)
        if is_due:
            self.session.show(self._newest)
            self.paint()
        must_wait = not is_due and not self.pace.is_paused
        if (must_wait or watch.is_behind) and not self._is_retrying:
            self._is_retrying = True
            self.set_timer(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._is_retrying = False
        self._look()

    def paint(self) -> None:
        """Paint the active screen; screens below a dialog wait."""
        stack = self.screen_stack  # empty while the app closes, when a timer may still come
        screen = stack[-1] if stack else None
        if not isinstance(screen, ViewScreen):
            return
        with self.batch_update():
            screen.paint(self._facts(), resort=self.pace.painted())

    def _facts(self) -> FrameFacts:
        screen, session, pace = self.view_screen, self.session, self.pace
        return FrameFacts(
            active=screen.mode.capitalize(),
            keys=tuple(self._first_key(name.lower()) for name in SCREENS),
            glyphs=self.inks.glyphs,
            is_swapped=session.is_swapped,
            host=self.host_text,
            replay=self._replay_text(),
            said=self._said,
            filter_text=screen.filter.text if screen.filter is not None else "",
            is_paused=pace.is_paused,
            interval_s=pace.interval_s,
            own_ratio=pace.own_ratio,
            hint=session.options.hint,
        )

    def _first_key(self, key_id: str) -> str:
        default = next(key.keys for key in KEYS if key.id == key_id)
        return shown_keys(self.session.options.keys.get(key_id, default)).split(" ")[0]

    def _replay_text(self) -> str:
        replay = self.session.watch.replay
        if replay is None:
            return ""
        state = "stands" if replay.is_paused else f"x{replay.speed:g}"
        return f"replay {elapsed_text(replay.position_s)} of {elapsed_text(replay.length_s)}, {state}"

    def _look_at_host(self) -> None:
        watch = self.session.watch
        if not self.session.options.is_local or watch.replay is not None:
            return
        now = self.pace.clock()
        if now - self._looked_at >= _HOST_EVERY_S and watch.is_between_samples:
            self._looked_at = now
            selection = watch.selection()
            self.host_text = host_text(selection.cpus if selection is not None else ())

    def say(self, sentence: str) -> None:
        """Say something in the status line for some seconds."""
        self._said, self._said_at = sentence, self.pace.clock()
        if self.is_running:
            self.view_screen.show_status(self._facts())
