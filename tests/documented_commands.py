"""`docs/cli.md`, written from the commands' own help: `python -m tests.documented_commands`, or `make codes`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from perfguard.cli import _GROUPS, group

DOCUMENT = Path(__file__).parents[1] / "docs" / "cli.md"
_WIDTH = 100
_HEAD = """\
# Commands

For whoever looks up an option. The same is in `perfguard COMMAND --help`; this page is written by `make codes`.

Exit codes are those of [a gate](gating.md#what-the-exit-code-says). Ratios are written `5%` or `0.05`, times `300`
(seconds), `90s`, `5m` or `2h`.
"""


def document() -> str:
    """The whole page."""
    context = click.Context(group, info_name="perfguard", **group.context_settings)
    parts = [_HEAD]
    for title, names in _GROUPS.items():
        parts.append(f"## {title}\n")
        parts.extend(text for name in names for text in _described(group.get_command(context, name), name, context))
    return "\n".join(parts)


def _described(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    """A command and those below it."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH)
    help_text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield f"### {context.command_path}\n\n```text\n{help_text}\n```\n"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if not found.hidden:
                yield from _described(found, below, context)


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
