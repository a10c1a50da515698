"""`perfguard explain` and `completion`: what words mean, and what the shell may complete."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Any

import click

from perfguard.cli.options import format_option
from perfguard.codec import to_json
from perfguard.units import printable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from perfguard.report.explanations import Explanation


def _complete_words(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from perfguard.report.explanations import groups
    from perfguard.report.messages.catalog import messages

    words = (*(name for names in groups().values() for name in names), *messages())
    return [CompletionItem(word) for word in words if word.startswith(incomplete) and " " not in word]


@click.command("explain")
@click.argument("words", metavar="[WORD]", nargs=-1, shell_complete=_complete_words)
@format_option
def explain_command(**options: Any) -> None:
    """Say what WORD means: a verdict, an exit code, a term such as block, or a code such as verdict.too_noisy.

    The name of a group, such as `verdict` or `advice`, shows all of its codes. Without WORD it lists what can be
    explained.
    """
    from perfguard.report.explanations import explain, groups

    is_json = options["output_format"] == "json"
    if not options["words"]:
        click.echo(to_json(groups(), indent=1) if is_json else "\n\n".join(_listed(*each) for each in groups().items()))
        return
    found = explain(" ".join(options["words"]))
    click.echo(to_json(found, indent=1) if is_json else "\n\n".join(map(paragraph, found)))


def _listed(title: str, names: tuple[str, ...]) -> str:
    text = ", ".join(dict.fromkeys(names))
    return f"{title}\n" + textwrap.fill(
        text, _width(), initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


def paragraph(found: Explanation) -> str:
    """An explanation as lines."""
    rows = {"": found.meaning, "text": found.text, "try": found.change, "gain": found.gain}
    return "\n".join([found.name, *(_row(title, text) for title, text in rows.items() if text)])


def _row(title: str, text: str) -> str:
    return textwrap.fill(
        printable(text), _width(), initial_indent=f"  {title:<5} " if title else "  ",
        subsequent_indent="        " if title else "  ", break_on_hyphens=False,
    )  # fmt: skip


def _width() -> int:
    return min(100, shutil.get_terminal_size().columns)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    r"""Print SHELL's completion of commands, options, suites and cases; write it where the shell looks.

    \b
    perfguard completion bash > ~/.local/share/bash-completion/completions/perfguard
    perfguard completion zsh > ~/.zfunc/_perfguard
    perfguard completion fish > ~/.config/fish/completions/perfguard.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    root = context.find_root().command
    if found is not None:
        click.echo(found(root, {}, "perfguard", "_PERFGUARD_COMPLETE").source())
