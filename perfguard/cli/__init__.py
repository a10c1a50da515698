"""The command line: a click group whose commands are imported when they are called."""

from __future__ import annotations

import importlib
import sys

import click

from perfguard import __version__

_GROUPS = {
    "Gate": {
        "init": ("init", "Write a first configuration, benchmark and workflows."),
        "gate": ("measure", "Judge the working tree against the baseline or last commit."),
        "compare": ("measure", "Measure two arms in interleaved blocks and judge each case."),
        "run": ("measure", "Measure a suite, without a comparison."),
        "bisect": ("measure", "Find the commit that made cases slower, by paired gates."),
        "allow": ("baselines", "Accept a slowdown of a case up to a limit, until a date."),
        "demo": ("demo", "Gate a small project that got slower, and write its report."),
    },
    "Inspect": {
        "show": ("runs", "Print the verdict of a recorded run."),
        "tui": ("runs", "Watch a run live; drill down to ops; browse history."),
        "watch": ("runs", "Print a run's events as lines, live or recorded."),
        "profile": ("profile", "Show which ops a training step spends its time in."),
        "explain": ("explain", "Say what a verdict, a code or an exit code means."),
        "list": ("describe", "List suites, benchmarks and cases."),
    },
    "Optimize": {
        "tune": ("tune", "Find settings that make a training step faster."),
        "study": ("study", "Measure a published study again, beside the paper's figures."),
    },
    "Train and tasks": {
        "hetero": ("hetero", "Train with workers of different speed (Adaptive Hogbatch)."),
        "task": ("task", "Run standard models with quality targets; compare frameworks."),
    },
    "Baselines and history": {
        "baseline": ("baselines", "Show, update or compare stored baselines."),
        "calibrate": ("calibrate", "Measure this machine's false-alarm rate and noise."),
        "plan": ("calibrate", "Compute the blocks and minutes that detect a slowdown."),
        "history": ("history", "Show cases over the runs, and where they became slower."),
        "db": ("history", "Look after the database of runs: back up, move, export."),
    },
    "Share": {
        "report": ("runs", "Write recorded runs as one HTML file."),
        "publish": ("runs", "Write a static site over the recorded runs."),
        "serve": ("serve", "Serve pages and a JSON API over the recorded runs."),
        "mcp": ("mcp", "Answer coding agents about recorded runs."),
        "github": ("github", "Gate pull requests and comment on them, from a workflow."),
        "export": ("interchange", "Write a recorded run in the format of another tool."),
        "import": ("interchange", "Show and compare files of other benchmark tools."),
        "schema": ("describe", "Print the JSON schema of an output."),
    },
    "Host": {
        "doctor": ("describe", "Check the host for sources of noise, with the fix for each."),
        "fingerprint": ("describe", "Show what this machine (or a recorded one) is."),
        "fleet": ("fleet", "Run gates on many machines, through PostgreSQL or Slurm."),
        "env": ("describe", "Make an environment for a software stack, such as ipex."),
        "config": ("describe", "Show the configuration and where it comes from."),
        "completion": ("explain", "Print the shell's completion of commands, options and cases."),
        "version": ("describe", "Show versions."),
    },
}
"""Module and help by name, by purpose, in the order in which commands are useful."""
_COMMANDS = {name: command for commands in _GROUPS.values() for name, command in commands.items()}

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
            from perfguard.cli.mistakes import no_command

            ctx.fail(no_command(ctx, self, cmd_name))
        module = importlib.import_module(f"perfguard.cli.commands.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands by purpose with their one-line help, without importing them."""
        del ctx
        width = max(map(len, _COMMANDS))
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])


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
