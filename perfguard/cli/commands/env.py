"""`perfguard env`."""

from __future__ import annotations

import click


@click.group("env")
def command() -> None:
    """Make an environment for another software stack."""


@command.command("create")
@click.argument("stack")
@click.option("--recreate", is_flag=True, help="Remove an existing environment first.")
def create(*, stack: str, recreate: bool) -> None:
    """Install STACK (ipex) into a virtual environment of its own, about 7 GB; then use --candidate stack:ipex.

    It is created below $PERFGUARD_ENVS, by default in your data directory.
    """
    from perfguard.runner.arms.stack_envs import STACKS
    from perfguard.runner.arms.stack_envs import create as create_environment

    if stack in STACKS:
        click.echo(f"! {STACKS[stack].warning}", err=True)
    python = create_environment(stack, progress=lambda line: click.echo(f"· {line}", err=True), recreate=recreate)
    click.echo(str(python))
