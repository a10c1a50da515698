"""`perfguard show`, `report`, `publish`, `watch` and `tui`: recorded runs, and runs that go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from perfguard.cli.declaring import flag
from perfguard.cli.options import load, output_options, verdict_options
from perfguard.cli.watching import find_source, require_tui, show_tui, source_options, stream
from perfguard.errors import ExitCode
from perfguard.units import format_bytes, format_count, printable, shorten

_MOST_FAILURES = 10
_MOST_CHARACTERS = 300

_run_argument = click.argument("run", required=False)


@click.command("show", epilog="`perfguard export RUN --format junit|csv|openmetrics|…` writes the run for other tools.")
@_run_argument
@flag("--rejudge", help="Judge again, by this version's rule; --margin implies it.")
@verdict_options
@output_options
def show_command(**options: Any) -> None:
    """Show the verdict of a recorded RUN; default: the latest run.

    RUN is an id below .perfguard/runs or a path. A run that was killed is judged from what it measured.
    """
    from perfguard.cli.measuring import show
    from perfguard.gate.show import find_run, show_run

    loaded = load(options, keys=())
    folder = find_run(loaded, options["run"])
    _show_without_a_gate(folder, options["output_format"])
    if options["rejudge"] or options["margin"] is not None:
        from perfguard.gate.rejudge import rejudge_run

        result = rejudge_run(loaded, folder, margin_ratio=options["margin"])
    else:
        result = show_run(loaded, folder)
    if options["fail_on"] is not None and result.gate is not None:
        from perfguard.gate.rules.policy import exit_code

        result = replace(result, exit_code=int(exit_code(result.gate, fail_on=loaded.config.fail_on)))
    show(result, options)


def _show_without_a_gate(folder: Path, output_format: str) -> None:
    """Print a training, a task or an audit, and exit with its code; return for other runs."""
    from perfguard.runner.run_folder import mode_of

    match mode_of(folder):
        case "training":
            from perfguard.cli.training import show_training

            show_training(folder, output_format)
        case "task":
            from perfguard.cli.tasks import show_task

            show_task(folder, output_format)
        case "audit":
            from perfguard.cli.tasks import show_audit

            show_audit(folder, output_format)


@click.command("report", epilog="`perfguard publish` writes a site of all recorded runs.")
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@click.option("-o", "--output", default="report.html", show_default=True, metavar="FILE", help="File to write.")
@flag("--force", help="Overwrite a file that perfguard did not write.")
def report_command(**options: Any) -> None:
    """Write recorded RUNs as one HTML file; default: the latest run.

    RUN is an id below .perfguard/runs or a path. The file holds everything that it needs, raw data included, and loads
    nothing. A killed or damaged run is shown as far as it can be read. The exit code says only whether the file was
    written.
    """
    from perfguard.gate.show import find_run
    from perfguard.report.pages.build import report_on
    from perfguard.report.pages.site import write_page

    loaded = load(options, keys=())
    folders = list(dict.fromkeys(find_run(loaded, name) for name in options["runs"] or (None,)))
    path = Path(options["output"])
    text = report_on(loaded, folders)
    write_page(path, text, force=options["force"])
    click.echo(f"wrote {printable(str(path))} ({format_bytes(len(text.encode()))})")


@click.command("publish", epilog="`perfguard report RUN` writes one run as a single file.")
@click.option("-o", "--output", default="site", show_default=True, metavar="FOLDER", help="Folder to write.")
@flag("--force", help="Overwrite files that perfguard did not write.")
def publish_command(**options: Any) -> None:
    """Write a static site over the recorded runs: their pages, a table of all, and the cases' changes and series.

    Only changed pages are written again, and pages of removed runs stay. Links are relative and nothing is loaded from
    elsewhere. So you can serve the folder from any place, such as GitHub Pages, or open it as files.

    A run that cannot be read is named, and the others are still published; the exit code is 3 if a run has no page.
    """
    from perfguard.report.pages.site import publish

    site = Path(options["output"])
    done = publish(load(options, keys=()), site, force=options["force"])
    for name in done.written:
        click.echo(f"wrote {printable(str(site / name))}")
    click.echo(f"{site / 'index.html'} lists {format_count(done.runs, 'run')}; {done.unchanged} unchanged")
    found = (*done.failures, *done.problems)
    for sentence in found[:_MOST_FAILURES]:
        click.echo(printable(shorten(sentence, _MOST_CHARACTERS)), err=True)
    more = len(found) - _MOST_FAILURES
    if more > 0:
        click.echo(f"and {format_count(more, 'more run')} like these; the first page names them", err=True)
    if done.failures:
        raise click.exceptions.Exit(int(ExitCode.INFRASTRUCTURE))


@click.command("watch")
@_run_argument
@flag("-f", "--follow", help="Continue until the run has ended, and exit with its code.")
@flag("--plain", help="No colours and only ASCII signs: for logs and screen readers.")
@source_options
def watch_command(**options: Any) -> None:
    """Print the events of RUN as lines; default: the latest run.

    RUN is an id below .perfguard/runs or a path. A run on another machine is always followed. Single samples are left
    out; all of them are in the run's events.jsonl.
    """
    source = find_source(load(options, keys=()), options)
    # What is far away comes in its own time.
    code = stream(source, follow=options["follow"] or source.folder is None, is_plain=options["plain"])
    raise click.exceptions.Exit(code)


@click.command("tui")
@_run_argument
@click.option("--replay", metavar="RUN", help="Play a recorded run again.")
@click.option("--speed", metavar="SPEED", help="Speed of the replay: 10x, 0.5, or max; default 1x.")
@source_options
@click.option("--theme", metavar="NAME", help="Colours; `?` in the TUI lists all themes.")
@flag("--ascii", help="Draw with ASCII characters only.")
@flag("--read-only", help="Remove the dialog that starts runs.")
def tui_command(**options: Any) -> None:
    """Watch RUN live: its cases, its ops, the history, the host; default: the latest run, or the first one to start.

    RUN is an id below .perfguard/runs or a path. The TUI only reads what the run writes: you can start it late, quit
    it, and start it again, in several terminals. Without a terminal use `perfguard watch`.
    """
    require_tui()
    loaded = load(options, keys=())
    watch = show_tui(loaded, find_source(loaded, options, may_wait=True), options)
    view = watch.view
    if view.run_id is not None and view.exit_code is None and watch.source.is_live:
        click.echo(f"run {view.run_id} was left alone; to come back: perfguard tui {view.run_id}")
