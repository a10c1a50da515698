"""`perfguard config`."""

from __future__ import annotations

import dataclasses
import json

import click

from perfguard.cli.options import load
from perfguard.codec import to_builtins


@click.group("config")
def command() -> None:
    """Show the configuration."""


@command.command("show")
@click.option("--origin", is_flag=True, help="Also print where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of TOML-like text.")
def show(*, origin: bool, as_json: bool) -> None:
    """Print every setting and its value: built-in, user's file, project's file, PERFGUARD_* variables."""
    loaded = load({})
    values = {f.name: to_builtins(getattr(loaded.config, f.name)) for f in dataclasses.fields(loaded.config)}
    origins = {key: loaded.origins.get(key, "built-in") for key in values}
    if as_json:
        data = {key: {"value": value, "origin": origins[key]} for key, value in values.items()} if origin else values
        click.echo(json.dumps(data, indent=1))
        return
    for key, value in values.items():
        text = f"{key} = {json.dumps(value)}" if value is not None else f"# {key} is not set"
        click.echo(f"{text:<44}  # {origins[key]}" if origin else text)
