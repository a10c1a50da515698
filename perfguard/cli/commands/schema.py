"""`perfguard schema`."""

from __future__ import annotations

import json

import click

from perfguard.codec import SCHEMAS, schema_of


@click.command("schema")
@click.argument("name", type=click.Choice(SCHEMAS))
def command(*, name: str) -> None:
    """Print the JSON schema of an output.

    NAME is result (--format json of commands that measure), profile (--format json of `profile`), events
    (events.jsonl) or fingerprint (--json).
    """
    click.echo(json.dumps(schema_of(name), indent=1, sort_keys=True))
