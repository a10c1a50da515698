"""`perfguard version`."""

from __future__ import annotations

import importlib.metadata
import json
import platform

import click

from perfguard import __version__

_PACKAGES = (
    "pyperf",
    "torch",
    "textual",
    "rich",
    "psutil",
    "py-cpuinfo",
    "archspec",
    "click",
    "msgspec",
    "numpy",
    "scipy",
)


@click.command("version")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def command(*, as_json: bool) -> None:
    """Show the versions of perfguard and its dependencies."""
    versions = {"perfguard": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    if as_json:
        click.echo(json.dumps(versions, indent=1))
        return
    for name, version in versions.items():
        click.echo(f"{name:<12} {version}")
