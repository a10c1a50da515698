"""Commands that watch a run: where it is, the plain stream of its events, the TUI, and runs started under it."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from perfguard.cli.declaring import together
from perfguard.cli.diagnostics import is_terminal
from perfguard.cli.options import command_line, load
from perfguard.errors import ExitCode, PerfguardError, UsageError
from perfguard.records.case_names import short_names

if TYPE_CHECKING:
    from perfguard.config import LoadedConfig
    from perfguard.tui.launch import StartedCommand
    from perfguard.watch.housekeeping import StartingThread
    from perfguard.watch.sources.event_sources import EventSource
    from perfguard.watch.view.run_view import LogLine
    from perfguard.watch.view.watching import RunWatch

_FOLLOW_EVERY_S = 0.5
_FASTEST = 1e9
_ENDS = {
    "silent": "has not said anything for long, and nobody writes to it: the run probably died; `perfguard show` judges "
    "what was measured",
    "gone": "has vanished",
}
"""By the state of a run that is followed no further."""
_COLOURS: dict[str, dict[str, Any]] = {"warning": {"fg": "yellow"}, "error": {"bold": True}}


source_options = together(
    click.option("--host", metavar="ssh:HOST", help="Watch a run on another machine, through ssh."),
    click.option(
        "--remote-project", metavar="DIR", help="The project's directory there.  [default: the home directory]"
    ),
)


def find_source(loaded: LoadedConfig, options: dict[str, Any], *, may_wait: bool = False) -> EventSource:
    """Where the run is that the options name; with `may_wait` also where the first run of a project will be."""
    from perfguard.gate.show import find_run, latest_run, runs_of
    from perfguard.watch.sources.event_sources import LocalSource, ReplaySource, UpcomingSource

    run, replay, host = options.get("run"), options.get("replay"), options.get("host")
    if replay is not None and (run is not None or host is not None):
        raise UsageError("--replay names the run itself and plays it here; leave RUN and --host out")
    if replay is not None:
        return ReplaySource(find_run(loaded, replay), speed=parse_speed(options["speed"] or "1x"))
    if options.get("speed") is not None:
        raise UsageError("--speed is that of a replay; name the run by --replay RUN, or leave --speed out")
    if host is not None:
        return _remote_source(host, options.get("remote_project"), run)
    if options.get("remote_project") is not None:
        raise UsageError("--remote-project belongs to --host ssh:HOST")
    if may_wait and run is None and latest_run(loaded) is None:
        return UpcomingSource(runs_of(loaded))
    return LocalSource(find_run(loaded, run))


def parse_speed(text: str) -> float:
    """Seconds of a recording in one of the clock, from `10x`, `0.5` or `max`. Raises UsageError: none of these."""
    if text == "max":
        return _FASTEST
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed <= _FASTEST:
        raise UsageError(f"--speed {text!r}: write it like 10x or 0.5, above zero, or max")
    return speed


def stream(source: EventSource, *, follow: bool, is_plain: bool) -> int:
    """Print a run's events as lines, plain ones in ASCII; gives the run's exit code where it is followed to its end."""
    from perfguard.watch.housekeeping import keep_off
    from perfguard.watch.view.run_view import RunState
    from perfguard.watch.view.watching import RunWatch

    watch = RunWatch(source, listen=_printer(is_plain=is_plain), keep_off=keep_off)
    before = None
    try:
        while True:
            watch.poll()
            if watch.is_behind:
                continue
            if not follow:
                return int(ExitCode.PASS)
            state = watch.view.state
            if state is RunState.FINISHED and watch.view.exit_code is not None:
                return watch.view.exit_code
            # Twice: the writer's last line may come while one looks whether it is there.
            if state is before and state in (RunState.SILENT, RunState.GONE):
                click.echo(f"perfguard: {watch.source.name} {_ENDS[state.value]}", err=True)
                return int(ExitCode.INFRASTRUCTURE)
            before = state
            time.sleep(_FOLLOW_EVERY_S)
    finally:
        watch.close()


def require_tui() -> None:
    """Say what the TUI lacks, before anything is started for it. Raises UsageError: no terminal, or no textual."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError(
            "the TUI needs a terminal on stdin and stdout; `perfguard watch --plain` prints the same events as lines"
        )
    if importlib.util.find_spec("textual") is None:
        raise UsageError(
            "the TUI needs textual, which is not installed: pip install 'perfguard[tui]'; or use `perfguard watch`"
        )


def show_tui(loaded: LoadedConfig, source: EventSource, options: dict[str, Any]) -> RunWatch:
    """Watch a run in the TUI until the user leaves; gives what was watched last, closed."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # read when numpy is imported
        os.environ.setdefault(name, "1")
    from perfguard.fleet.reading import read_fleet
    from perfguard.gate.show import find_run, runs_of
    from perfguard.history.reading import read_history
    from perfguard.report.messages.catalog import describe
    from perfguard.runner.doctor import check_host
    from perfguard.tui.launch import TuiOptions, run_app
    from perfguard.tuning.journal import KEPT_IN, newest_tuning
    from perfguard.watch.housekeeping import StartingThread, keep_off
    from perfguard.watch.sources.event_sources import LocalSource, UpcomingSource, read_selection
    from perfguard.watch.sources.recorded_runs import recorded_runs
    from perfguard.watch.view.watching import RunWatch

    is_local = source.folder is not None
    is_here = source.is_live and is_local
    selection = read_selection(source.read_file) if is_here else None
    starting = StartingThread()
    step_aside = partial(keep_off, spared={starting.id})
    placed = step_aside(selection.cpus if selection else ())
    watch = RunWatch(source, keep_off=step_aside if is_here and selection is None else None)
    start = None if options.get("read_only") else _starter(loaded, starting)
    way = "R starts one; " if start else ""
    hint = f"no run is recorded here yet: {way}one started elsewhere is shown, too"
    shown = TuiOptions(
        run_name=options.get("run") or options.get("replay") or "",
        theme=options.get("theme"),
        is_ascii=bool(options.get("ascii")),
        is_local=is_local,
        keys=loaded.config.keys,
        housekeeping=describe(placed),
        read_history=lambda: read_history(loaded),
        read_fleet=lambda: read_fleet(loaded),
        read_tuning=(lambda: newest_tuning(loaded.project / KEPT_IN)) if is_local else None,
        read_checks=(lambda: check_host(loaded)) if is_local else None,
        start_command=start,
        list_runs=(lambda: recorded_runs(runs_of(loaded))) if is_local else None,
        open_run=lambda name: RunWatch(LocalSource(find_run(loaded, name)), keep_off=step_aside),
        hint=hint if isinstance(source, UpcomingSource) else "",
    )
    try:
        code = run_app(watch, shown)
    finally:
        watch.close()
    if code:
        raise click.exceptions.Exit(code)
    return watch


def _starter(loaded: LoadedConfig, starting: StartingThread) -> Callable[[tuple[str, ...]], StartedCommand]:
    """What starts a command that the user asked for in the TUI, as `--tui` does."""

    def start(arguments: tuple[str, ...]) -> StartedCommand:
        from perfguard.tui.launch import StartedCommand
        from perfguard.watch.detached import DetachedRun
        from perfguard.watch.housekeeping import keep_off
        from perfguard.watch.sources.event_sources import LocalSource
        from perfguard.watch.view.watching import RunWatch

        try:
            run = starting.run(partial(DetachedRun, arguments, loaded.project))
            folder = run.wait_for_folder()
        except PerfguardError as error:
            return StartedCommand(sentence=str(error))
        if folder is None:
            said = run.take_console().strip().rpartition("\n")[2]
            return StartedCommand(sentence=said or f"it ended at once with exit code {run.exit_code()}")
        watch = RunWatch(LocalSource(folder), keep_off=partial(keep_off, spared={starting.id}))
        return StartedCommand(
            sentence=f"started run {folder.name}, pid {run.pid}; its output is in {run.console}", watch=watch
        )

    return start


def _measure_under_tui(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's
    """Start the same command without `--tui` and watch its run."""
    if not value or context.resilient_parsing:
        return
    from perfguard.watch.detached import DetachedRun
    from perfguard.watch.sources.event_sources import LocalSource

    require_tui()
    loaded = load({}, keys=())
    run = DetachedRun([argument for argument in command_line() if argument != "--tui"], loaded.project)
    click.echo("starting the run …", err=True)
    try:
        folder = run.wait_for_folder()
    except KeyboardInterrupt:
        run.interrupt()
        folder = None
    if folder is None:
        click.echo(run.take_console(), nl=False, err=True)
        raise click.exceptions.Exit(run.exit_code() or 0)
    watch = show_tui(loaded, LocalSource(folder), {"run": folder.name})
    code = run.exit_code()
    if code is None:
        back = f"to come back: perfguard tui {folder.name}, or perfguard watch -f {folder.name}"
        click.echo(f"the run goes on (pid {run.pid}); {back}; to end it: kill -INT {run.pid}")
        raise click.exceptions.Exit(int(ExitCode.PASS))
    if watch.view.exit_code is None:  # it ended, and did not say so in its events
        click.echo(run.take_console(), nl=False, err=True)
    click.echo(f"the run has ended with exit code {code}; perfguard show {folder.name}; its output: {run.console}")
    raise click.exceptions.Exit(code)


tui_option = click.option(
    "--tui",
    is_flag=True,
    expose_value=False,
    callback=_measure_under_tui,
    help="Measure in a process of its own and watch it; quitting leaves the run alone.",
)


def _printer(*, is_plain: bool) -> Callable[[LogLine], None]:
    from perfguard.records.events import RunStarted
    from perfguard.report.event_lines import plain_line

    encoding = sys.stdout.encoding or "ascii"
    is_ascii = is_plain or not encoding.lower().startswith("utf")
    is_coloured = not is_plain and is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
    names: dict[str, str] = {}

    def say(line: LogLine) -> None:
        if isinstance(line.what, RunStarted):
            names.update(short_names(line.what.case_ids))
        text = plain_line(line, names, is_ascii=is_ascii).encode(encoding, "replace").decode(encoding)
        click.echo(click.style(text, **_COLOURS[line.level]) if is_coloured and line.level in _COLOURS else text)

    return say


def _remote_source(host: str, project: str | None, run: str | None) -> EventSource:
    from perfguard.watch.sources.remote_source import RemoteSource, latest_remote_run

    scheme, colon, name = host.partition(":")
    if scheme != "ssh" or not colon or not name:
        raise UsageError(f"--host {host!r}: write ssh:HOST or ssh:USER@HOST")
    home = project or "."
    if run is None:
        return RemoteSource(name, latest_remote_run(name, home))
    return RemoteSource(name, run if "/" in run else f"{home}/.perfguard/runs/{run}")
