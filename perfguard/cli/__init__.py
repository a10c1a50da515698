"""The command line: a click group whose commands are imported when they are called."""

from __future__ import annotations

import importlib
import sys
from keyword import iskeyword

import click

from perfguard import __version__

_COMMANDS = {
    "init": "Write a first configuration, benchmark and workflows.",
    "run": "Measure a suite, without a comparison.",
    "compare": "Measure two arms in interleaved blocks and judge each case.",
    "gate": "Judge the working tree against the stored baseline or the last commit.",
    "profile": "Show which ops a training step spends its time in; compare two traces.",
    "bisect": "Find the commit that made cases slower, by paired gates.",
    "baseline": "Show, update or compare stored baselines.",
    "allow": "Accept a slowdown of a case up to a limit, until a date.",
    "calibrate": "Run A/A gates on this machine; store its false-alarm rate and noise.",
    "plan": "Compute the blocks and minutes that detect a slowdown; make undetectable cases advisory.",
    "show": "Print the verdict of a recorded run.",
    "report": "Write recorded runs as one HTML file.",
    "publish": "Write a static site over the recorded runs.",
    "tui": "Watch a run live in the terminal; drill down to ops; browse history.",
    "watch": "Print a run's events as lines, live or recorded.",
    "export": "Write a recorded run in the format of another tool.",
    "import": "Show and compare files of other benchmark tools.",
    "github": "Gate pull requests and comment on them, from a GitHub workflow.",
    "list": "List suites, benchmarks and cases.",
    "fingerprint": "Show what this machine (or a recorded one) is.",
    "doctor": "Check the host for sources of noise, with the fix for each.",
    "env": "Make an environment for a software stack, for instance ipex.",
    "config": "Show the configuration and where it comes from.",
    "schema": "Print the JSON schema of an output.",
    "version": "Show versions.",
}
"""Help by name; each command is in the module of its name."""

_EPILOG = """\b
Exit codes: 0 pass, 1 regression, 2 usage or configuration, 3 infrastructure or internal,
4 inconclusive, 5 nothing selected, 130 interrupted.
"""


class LazyGroup(click.Group):
    """Knows its commands by name and imports one only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which they are useful."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in _COMMANDS:
            near = _nearest(cmd_name)
            ctx.fail(f"No such command {cmd_name!r}." + (f" Did you mean {near!r}?" if near else ""))
        module = importlib.import_module(f"perfguard.cli.commands.{cmd_name}{'_' if iskeyword(cmd_name) else ''}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands with their one-line help, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _nearest(name: str) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, _COMMANDS, n=1)), None)


@click.group(cls=LazyGroup, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="perfguard")
def group() -> None:
    """Guard the speed of PyTorch training on CPUs.

    perfguard measures pinned training steps and kernels in fresh processes, a candidate against a baseline in
    interleaved blocks, and says what got slower, by how much and how sure it is.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    from perfguard.cli.diagnostics import run_and_exit

    run_and_exit(group, sys.argv[1:] if arguments is None else arguments)
