"""`perfguard init`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from perfguard.cli.scaffold import PlannedFile, Scaffold

_WOULD = {"written": "would write", "replaced": "would replace", "extended": "would extend"}


@click.command("init")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="The project; created if it is missing.",
)
@click.option("--workflows/--no-workflows", default=True, show_default=True, help="Also write .github/workflows.")
@click.option(
    "--action",
    metavar="OWNER/NAME@REF",
    help="Action that the workflows use; default: this version's tag. A commit is safer.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option("--dry-run", is_flag=True, help="Write nothing; print what would be written.")
def command(*, directory: Path, workflows: bool, action: str | None, force: bool, dry_run: bool) -> None:
    """Write what a repository needs for its first gate.

    That is a perfguard.toml with every setting and its default, a benchmark that runs, workflows that gate pull
    requests, and a line in .gitignore. Existing files are kept.
    """
    from perfguard.cli.scaffold import ACTION, plan_scaffold, write_scaffold

    scaffold = plan_scaffold(directory, os.environ, workflows=workflows, force=force, action=action or ACTION)
    if not dry_run:
        write_scaffold(scaffold)
    _print_files(scaffold, dry_run=dry_run)
    _print_next(scaffold, dry_run=dry_run)


def _print_files(scaffold: Scaffold, *, dry_run: bool) -> None:
    words = [_WOULD.get(file.fate.value, file.fate.value) if dry_run else file.fate.value for file in scaffold.files]
    width = max(map(len, words))
    for word, file in zip(words, scaffold.files, strict=True):
        click.echo(f"{word:<{width}}  {file.name}" + (f" ({file.note})" if file.note else ""))


def _print_next(scaffold: Scaffold, *, dry_run: bool) -> None:
    from perfguard.units import printable

    if scaffold.hints:
        click.echo()
    for hint in scaffold.hints:
        click.echo(f"! {printable(hint)}")
    if dry_run:
        click.echo("\nnothing was written")
        return
    if not scaffold.changed:
        click.echo("\nall of it was there; --force replaces what was kept")
        return
    here = scaffold.directory.resolve() == Path.cwd()
    click.echo("\nnext" + ("" if here else f", in {printable(shlex.quote(str(scaffold.directory)))}") + ":")
    for number, (meaning, text) in enumerate(
        (
            ("see that the benchmark runs", "perfguard run"),
            (
                "commit to your default branch: a gate takes its rules and its baseline from there",
                _commit(scaffold.changed),
            ),
            ("after each change, compare the working tree with the last commit", "perfguard gate"),
        ),
        start=1,
    ):
        click.echo(f"  {number}. {meaning}:\n     {text}")


def _commit(files: tuple[PlannedFile, ...]) -> str:
    tops = dict.fromkeys(file.name.partition("/")[0] for file in files)
    return f"git add {' '.join(tops)} && git commit -m 'Guard the speed'"
