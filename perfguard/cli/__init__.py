"""The command line: a click group whose commands are imported when they are called."""

from __future__ import annotations

import difflib
import importlib
import sys

import click

from perfguard import __version__

_COMMANDS = {
    "init": ("init", "Write a first configuration, benchmark and workflows."),
    "run": ("measure", "Measure a suite, without a comparison."),
    "compare": ("measure", "Measure two arms in interleaved blocks and judge each case."),
    "gate": ("measure", "Judge the working tree against the stored baseline or the last commit."),
    "profile": ("profile", "Show which ops a training step spends its time in; compare two traces."),
    "tune": ("tune", "Find the settings that make a training step faster, by paired trials."),
    "hetero": ("hetero", "Train one model with workers of different speed (Hogbatch, Adaptive Hogbatch)."),
    "task": ("task", "Run standard models with quality targets by MLPerf Mobile's rules; compare frameworks."),
    "study": ("study", "Measure a published study again, beside the paper's own figures."),
    "bisect": ("measure", "Find the commit that made cases slower, by paired gates."),
    "baseline": ("baselines", "Show, update or compare stored baselines."),
    "allow": ("baselines", "Accept a slowdown of a case up to a limit, until a date."),
    "calibrate": ("calibrate", "Run A/A gates on this machine; store its false-alarm rate and noise."),
    "plan": ("calibrate", "Compute the blocks and minutes that detect a slowdown; make undetectable cases advisory."),
    "show": ("runs", "Print the verdict of a recorded run."),
    "history": ("history", "Show cases over the recorded runs, and where they became slower or faster."),
    "db": ("history", "Look after the database of recorded runs: status, backup, move to PostgreSQL, export."),
    "serve": ("serve", "Serve pages and a JSON API over the recorded runs."),
    "fleet": ("fleet", "Run gates on many machines, through PostgreSQL or Slurm."),
    "report": ("runs", "Write recorded runs as one HTML file."),
    "publish": ("runs", "Write a static site over the recorded runs."),
    "tui": ("runs", "Watch a run live in the terminal; drill down to ops; browse history."),
    "watch": ("runs", "Print a run's events as lines, live or recorded."),
    "export": ("interchange", "Write a recorded run in the format of another tool."),
    "import": ("interchange", "Show and compare files of other benchmark tools."),
    "github": ("github", "Gate pull requests and comment on them, from a GitHub workflow."),
    "list": ("describe", "List suites, benchmarks and cases."),
    "fingerprint": ("describe", "Show what this machine (or a recorded one) is."),
    "doctor": ("describe", "Check the host for sources of noise, with the fix for each."),
    "env": ("describe", "Make an environment for a software stack, for instance ipex."),
    "config": ("describe", "Show the configuration and where it comes from."),
    "schema": ("describe", "Print the JSON schema of an output."),
    "version": ("describe", "Show versions."),
}
"""Module and help by name, in the order in which commands are useful."""

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
            near = difflib.get_close_matches(cmd_name, _COMMANDS, n=1)
            ctx.fail(f"No such command {cmd_name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        module = importlib.import_module(f"perfguard.cli.commands.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands with their one-line help, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


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
