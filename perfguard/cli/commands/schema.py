"""`perfguard schema`."""

from __future__ import annotations

import json

import click


@click.command("schema")
@click.argument("name", type=click.Choice(["result", "events", "fingerprint"]))
def command(*, name: str) -> None:
    """Print the JSON schema of an output: result (--format json), events (events.jsonl) or fingerprint (--json)."""
    from perfguard.codec import schema_of

    click.echo(json.dumps(schema_of(name), indent=1, sort_keys=True))
