"""What a command works on: a case, or a script with arguments of its own."""

from __future__ import annotations

import click


class TakesScript(click.Command):
    """A command whose first argument is a case, a pattern of cases or a script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Arguments after a script are the script's own, even if they look like options."""
        script = next((index for index, word in enumerate(args) if is_script(word)), len(args))
        return super().parse_args(ctx, [*args[: script + 1], "--", *args[script + 1 :]])


def is_script(word: str) -> bool:
    """Whether a word of the command line is a script, by its name."""
    return word.endswith(".py") and not word.startswith("-")
