"""`perfguard mcp`: recorded runs for coding agents."""

from __future__ import annotations

import click

from perfguard.cli.options import load
from perfguard.errors import UsageError


@click.command("mcp", epilog="docs/agents.md has the settings of common agents.")
def mcp_command() -> None:
    """Answer a coding agent on stdin and stdout, over the Model Context Protocol.

    Its tools read recorded runs and change nothing: the verdict of a run, the culprits of a case, its history, and what
    a code means. The agent starts this command in the project's folder.
    """
    from perfguard.cli.agents import build_server

    try:
        server = build_server(load({}, keys=()))
    except ModuleNotFoundError as error:
        raise UsageError(f"this needs {error.name}, which is not installed: pip install 'perfguard[mcp]'") from None
    server.run("stdio")
