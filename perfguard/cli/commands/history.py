"""`perfguard history` and `perfguard db`: recorded runs over time, and the database that holds them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfguard.cli.declaring import flag
from perfguard.cli.options import format_option, load
from perfguard.cli.recording import read_cases, without_removed
from perfguard.config import LoadedConfig
from perfguard.errors import DatabaseError, ExitCode, NothingSelectedError, UsageError
from perfguard.history.project_names import project_name
from perfguard.units import format_bytes, format_count, printable, shorten

if TYPE_CHECKING:
    from perfguard.history.database import Database

_MOST_FAILURES = 10
_MOST_CHARACTERS = 300
_BY_DEFAULT = "cases"


class CasesByDefault(click.Group):
    """A group whose arguments belong to `cases` where they begin with no other command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command before arguments without one."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [_BY_DEFAULT, *args]
        return super().parse_args(ctx, args)


last_option = click.option(
    "--last", type=click.IntRange(min=1), default=40, show_default=True, metavar="N", help="Runs to show."
)


@click.group("history", cls=CasesByDefault, epilog="`perfguard history cases -h` has the options of `history [CASE]`.")
def history_command() -> None:
    """Show cases over the recorded runs, and where they became slower or faster.

    `perfguard history [CASE]` is short for `perfguard history cases [CASE]`. The setting `database` says where runs are
    recorded: by default in a SQLite file in your data folder, or in a PostgreSQL database that a team shares.
    """


@history_command.command(_BY_DEFAULT)
@click.argument("case", required=False)
@last_option
@format_option
def cases(case: str | None, last: int, output_format: str) -> None:
    """Show CASE in each recorded run, and where its level changed; without CASE, a line for each case.

    CASE is an id, a short name or a pattern as for -c. Each machine and each software stack is a series of its own, so
    neither is taken for a change of the code. A change is five runs or more at another level, by 0.5 % or more; single
    slow runs, drift and noise are none. Where the code differs, `perfguard bisect` finds the commit, and `perfguard
    history mark` says what became of it.
    """
    from perfguard.cli.output import print_and_exit
    from perfguard.history.reading import history_of
    from perfguard.report.terminal.history import render_histories, render_history

    loaded = load({}, keys=())
    with history_of(loaded) as database:
        found, problems = read_cases(database, project_name(loaded), case)
    found = without_removed(loaded, found, keeps_points=case is not None)
    for sentence in problems[:_MOST_FAILURES]:
        click.echo(printable(shorten(sentence, _MOST_CHARACTERS)), err=True)
    one = len({each.case_id for each in found}) == 1 and case is not None
    print_and_exit(
        found,
        lambda: render_history(found, last=last) if one else render_histories(found),
        output_format,
        exit_code=int(ExitCode.PASS),
    )


@history_command.command("log")
@last_option
@format_option
def log(last: int, output_format: str) -> None:
    """List the newest recorded runs of the project, on all machines."""
    from perfguard.cli.output import print_and_exit
    from perfguard.history.queries import read_log
    from perfguard.history.reading import history_of
    from perfguard.report.terminal.recorded_runs import render_log

    loaded = load({}, keys=())
    with history_of(loaded) as database:
        found = read_log(database, project_name(loaded), last=last)
    print_and_exit(found, lambda: render_log(found), output_format, exit_code=int(ExitCode.PASS))


@history_command.command("show")
@click.argument("run")
@format_option
def show(run: str, output_format: str) -> None:
    """Show what is recorded of RUN, which need not be in .perfguard/runs any more; --format json has the samples.

    RUN is an id that `perfguard history log` lists, or its beginning.
    """
    from perfguard.cli.output import print_and_exit
    from perfguard.history.queries import find_run, read_run, read_samples
    from perfguard.history.reading import history_of
    from perfguard.report.terminal.recorded_runs import render_run

    loaded = load({}, keys=())
    with history_of(loaded) as database:
        row = find_run(database, project_name(loaded), run)
        found, samples = read_run(database, row), read_samples(database, row)
    shown = {"run": found, "samples": samples} if output_format == "json" else found
    print_and_exit(shown, lambda: render_run(found), output_format, exit_code=int(ExitCode.PASS))


@history_command.command("compare")
@click.argument("before", metavar="REV")
@click.argument("after", metavar="REV")
@format_option
def compare(before: str, after: str, output_format: str) -> None:
    """Compare two revisions by what is recorded of them; nothing is measured.

    A run that measured both in turns decides; without one, the runs of each are compared, which other days and other
    states of the machine widen. With a single run of a revision there is no interval. Cases of several machines are
    pooled, and machines that disagree are named. To measure: `perfguard compare`.
    """
    from perfguard.cli.output import print_and_exit
    from perfguard.history.reading import history_of
    from perfguard.history.revisions import compare_revisions
    from perfguard.report.terminal.recorded_runs import render_comparison
    from perfguard.runner.arms.git import resolve_commit, top_level

    loaded = load({}, keys=())
    repository = top_level(loaded.project)
    if repository is None:
        raise UsageError(f"{loaded.project} is in no git repository, so {before!r} and {after!r} name no commits")
    commits = resolve_commit(repository, before), resolve_commit(repository, after)
    with history_of(loaded) as database:
        found = compare_revisions(database, project_name(loaded), *commits)
    if not found.cases:
        short = " and ".join(commit[:12] for commit in commits)
        raise NothingSelectedError(
            f"no case is recorded at both {short}; runs of uncommitted "
            "changes do not count. `perfguard compare` measures both"
        )
    print_and_exit(found, lambda: render_comparison(found), output_format, exit_code=int(ExitCode.PASS))


@history_command.command("mark")
@click.argument("case")
@click.argument("change")
@click.argument("state", type=click.Choice(["acknowledged", "fixed", "noise", "infrastructure", "new"]))
@click.option("--because", "reason", required=True, metavar="TEXT", help="Why; kept with your name.")
@click.option("--machine", "machine_id", metavar="ID", help="Machine, where the case changed on several.")
def mark(case: str, change: str, state: str, reason: str, machine_id: str | None) -> None:
    """Say what became of a CHANGE of CASE: that it is known, fixed, noise, or due to the machine.

    CHANGE is the commit or the run at which the new level begins, as `perfguard history CASE` names it. Changes that
    are noise or infrastructure count as noise of this case from then on: smaller ones are no longer laid to the code.
    """
    from perfguard.history.changes import ChangeState
    from perfguard.history.reading import history_of
    from perfguard.history.states import author_in, find_change, state_change

    loaded = load({}, keys=())
    _require_kept(loaded)
    project, author = project_name(loaded), author_in(loaded.project)
    with history_of(loaded) as database:
        found = [each for each in read_cases(database, project, case)[0] if machine_id in (None, each.machine_id)]
        changed = find_change(tuple(each for of in found for each in of.changes), change)
        state_change(database, project, changed, ChangeState(state), author=author, reason=reason)
    click.echo(printable(f"{changed.after.case_id}: the change at {change} is {state}, says {author}"))


@history_command.command("push")
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@click.option("--to", "url", required=True, metavar="URL", help="Address of `perfguard serve`.")
def push(runs: tuple[str, ...], url: str) -> None:
    """Send recorded RUNs to a server; default: the latest run. The variable PERFGUARD_TOKEN holds the token.

    For machines that cannot reach the database, such as CI runners. A run that is there already stays as it is.
    """
    from perfguard.gate.show import find_run
    from perfguard.history.pushing import push_run
    from perfguard.history.recording import measured_run

    loaded = load({}, keys=())
    token = os.environ.get("PERFGUARD_TOKEN")
    if not token:
        raise UsageError(
            "PERFGUARD_TOKEN is not set; `perfguard db token add NAME --for ingest` makes one on the server"
        )
    for folder in dict.fromkeys(find_run(loaded, name) for name in runs or (None,)):
        is_new = push_run(url, token, measured_run(folder, project_name(loaded)))
        click.echo(f"{folder.name}: {'sent' if is_new else 'was there already'}")


@click.group("db")
def db_command() -> None:
    """Look after the database of recorded runs.

    The setting `database`, or the variable PERFGUARD_DATABASE, names it: a PostgreSQL URL, a SQLite file, or `off`.
    """


@contextmanager
def _open(*, upgrades: bool | None = None, setting: str | None = None) -> Iterator[tuple[LoadedConfig, Database]]:
    from perfguard.history.database import opened

    loaded = load({}, keys=())
    if setting is None:
        _require_kept(loaded)
    with opened(setting or loaded.config.database, loaded.project, upgrades=upgrades) as database:
        yield loaded, database


def _require_kept(loaded: LoadedConfig) -> None:
    from perfguard.history.database import is_off

    if is_off(loaded.config.database):
        origin = loaded.origins.get("database", "built-in")
        raise UsageError(f"runs are not recorded: database is off ({origin})")


@db_command.command("status")
@format_option
def status(output_format: str) -> None:
    """Show where the database is, what it holds and how large it is."""
    from perfguard.cli.output import print_and_exit
    from perfguard.history.upkeep import status_of
    from perfguard.report.terminal.recorded_runs import render_status

    with _open() as (_, database):
        found = status_of(database)
    print_and_exit(found, lambda: render_status(found), output_format, exit_code=int(ExitCode.PASS))


@db_command.command("upgrade")
def upgrade() -> None:
    """Create the tables, or bring them to this version.

    A SQLite file is upgraded whenever it is opened; PostgreSQL only by this command. Make a backup first.
    """
    from perfguard.history.database import revision_of

    with _open(upgrades=True) as (_, database):
        click.echo(f"{database.name} has version {revision_of(database)}")


@db_command.command("verify")
def verify() -> None:
    """Compare every run with the hash of what was recorded; exit with 3 if the database is damaged."""
    from perfguard.history.upkeep import verify as verify_all

    with _open() as (_, database):
        found = verify_all(database)
    for damage in found.damages:
        click.echo(printable(shorten(damage, _MOST_CHARACTERS)), err=True)
    if found.damages:
        raise DatabaseError(f"{database.name} is damaged; `perfguard db move --from BACKUP` adds the runs of a backup")
    click.echo(f"{format_count(found.runs, 'run')}: all as they were recorded")


@db_command.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
def backup(file: Path) -> None:
    """Copy all runs into a new SQLite FILE; `perfguard db move --from FILE` puts them back.

    Tokens and what a fleet waits for stay behind.
    """
    from perfguard.history.upkeep import back_up

    if not file.absolute().parent.is_dir():
        raise UsageError(f"{file}: there is no folder {file.parent}; make it, or mount what it is on")
    with _open() as (_, database):
        done = back_up(database, file)
    click.echo(f"wrote {printable(str(file))}: {format_count(done.added, 'run')}, {format_bytes(file.stat().st_size)}")


@db_command.command("move")
@click.option("--from", "source", metavar="DATABASE", help="Copy from there; default: the configured database.")
@click.option("--to", "target", metavar="DATABASE", help="Copy there; default: the configured database.")
def move(source: str | None, target: str | None) -> None:
    """Copy all runs from one database to another, such as from SQLite to PostgreSQL, or back from a backup.

    Runs that are there already are passed over: a copy that was broken off goes on, and the histories of several
    machines come together. The source stays as it is. Afterwards set `database` to the new place.
    """
    from perfguard.history.upkeep import copy_all

    if (source is None) == (target is None):
        raise UsageError("name one of --from and --to; the other one is the configured database")
    if source is not None and "://" not in source and not Path(source).expanduser().is_file():
        raise UsageError(f"--from {source}: there is no such file")
    with _open(setting=source) as (_, first), _open(setting=target, upgrades=True) as (_, second):
        done = copy_all(first, second)
    known = f", {done.known} were there already" if done.known else ""
    click.echo(f"copied {format_count(done.added, 'run')} from {done.source} to {done.target}{known}")


@db_command.command("export")
@click.option("-o", "--output", type=click.Path(path_type=Path), default="history.parquet", show_default=True)
@flag("--all-projects", help="Of all projects, instead of this one.")
def export(output: Path, *, all_projects: bool) -> None:
    """Write the values of all cases and runs as a Parquet file, for pandas, DuckDB and others."""
    from perfguard.history.upkeep import export_values

    with _open() as (loaded, database):
        rows = export_values(database, output, project=None if all_projects else project_name(loaded))
    size = format_bytes(output.stat().st_size)
    click.echo(f"wrote {printable(str(output))}: {format_count(rows, 'value')}, {size}")


@db_command.group("token")
def token_group() -> None:
    """Tokens for the API of `perfguard serve`."""


@token_group.command("add")
@click.argument("name")
@click.option("--for", "scope", type=click.Choice(["read", "ingest"]), required=True, help="Reading, or adding runs.")
@click.option("--project", metavar="NAME", help="For one project alone.")
def add_token(name: str, scope: str, project: str | None) -> None:
    """Make a token for NAME and print it, once; the database keeps its hash."""
    from perfguard.history.access import create_token, find_token
    from perfguard.records.history import TokenScope

    with _open() as (_, database):
        text = create_token(database, name, TokenScope(scope), project=project)
        made = find_token(database, text)
    click.echo(text)
    if made is not None:
        where = printable(database.name)
        click.echo(f"token {made.id} of {where}; `perfguard db token revoke {made.id}` makes it worthless", err=True)


@token_group.command("list")
@format_option
def list_tokens(output_format: str) -> None:
    """List the tokens."""
    from perfguard.cli.output import print_and_exit
    from perfguard.history.access import read_tokens
    from perfguard.report.terminal.recorded_runs import render_tokens

    with _open() as (_, database):
        found = read_tokens(database)
    print_and_exit(found, lambda: render_tokens(found), output_format, exit_code=int(ExitCode.PASS))


@token_group.command("revoke")
@click.argument("token", type=int)
def revoke(token: int) -> None:
    """Make the token with this number worthless."""
    from perfguard.history.access import revoke_token

    with _open() as (_, database):
        revoke_token(database, token)
    click.echo(f"token {token} is revoked")
