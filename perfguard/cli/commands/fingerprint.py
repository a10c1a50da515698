"""`perfguard fingerprint`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("fingerprint")
@click.option("--json", "as_json", is_flag=True, help="JSON; its schema: `perfguard schema fingerprint`.")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A recorded machine: a directory with proc and sys below it, or a tarball of one.",
)
@click.option("--python", metavar="PATH", help="Interpreter whose software stack is asked; default: perfguard's own.")
@click.option("--no-software", is_flag=True, help="Do not ask an interpreter for its software stack.")
def command(*, as_json: bool, root: Path | None, python: str | None, no_software: bool) -> None:
    """Show what this machine is: CPU, usable ISA, topology, state, software; and its two identities."""
    from perfguard.codec import to_json
    from perfguard.fingerprint.render import render_fingerprint
    from perfguard.pipeline.machine import fingerprint_of

    found = fingerprint_of(root, python=python, ask_software=not no_software)
    click.echo(to_json(found, indent=1) if as_json else render_fingerprint(found))
