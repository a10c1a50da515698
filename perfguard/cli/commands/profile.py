"""`perfguard profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perfguard.cli.options import load

_FORMATS = ("table", "json", "csv", "collapsed", "speedscope")
_EPILOG = """\b
TARGET is a case, a pattern of cases, or a script with its arguments:
  perfguard profile 'step.bert*'
  perfguard profile train.py --epochs 1
  perfguard profile diff before.json.gz after.json.gz
What follows a script goes to the script. The Chrome traces and the libraries' logs stay in the run's folder.
"""


class _UnnamedContext(click.Context):
    """Of a command that goes by its group's name."""

    @property
    def command_path(self) -> str:
        """The group's."""
        return self.parent.command_path if self.parent is not None else super().command_path


class _Unnamed(click.Command):
    context_class = _UnnamedContext

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What follows a script is the script's own, whatever it looks like."""
        script = next((index for index, word in enumerate(args) if _is_script(word)), len(args))
        return super().parse_args(ctx, [*args[: script + 1], "--", *args[script + 1 :]])


def _is_script(word: str) -> bool:
    return word.endswith(".py") and not word.startswith("-")


class TargetOrCommand(click.Group):
    """A group whose first word is a sub-command or, as a rule, what to profile."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """`diff` where that is the first word, else the command that profiles a target."""
        if args and args[0] in self.commands and args[0] != "target":
            return super().resolve_command(ctx, args)
        return "target", self.commands["target"], args


@click.group(
    "profile",
    cls=TargetOrCommand,
    # Options, --help among them, belong to the command that the first word chooses.
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    invoke_without_command=True,
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Say which ops a training step's time is in."""
    if ctx.invoked_subcommand is None:
        click.echo(target.get_help(target.make_context("target", ["-"], parent=ctx)))


@command.command(
    "target",
    cls=_Unnamed,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
    options_metavar="[OPTIONS]",
)
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--candidate", default="dir:.", show_default=True, metavar="ARM", help="What to profile; see `compare`.")
@click.option("--processes", type=click.IntRange(1), help="Fresh processes.  [default: 2, of a script 1]")
@click.option("--steps", type=click.IntRange(1), default=6, show_default=True, help="Profiled steps in each process.")
@click.option("--skip", type=click.IntRange(1), default=5, show_default=True, help="Steps of a script before those.")
@click.option("--cpus", metavar="LIST", help="CPUs to run on, such as 2-5,8.")
@click.option("--threads", type=int, metavar="N", help="How many of the CPUs to use; one thread each.")
@click.option("--numa", metavar="NODE", help="NUMA node to run on, or 'none' to leave memory unbound.")
@click.option(
    "--env-profile", type=click.Choice(["stable", "production"]), help="How much of the environment is pinned."
)
@click.option("--python", metavar="PATH", help="Interpreter of the environment under test.")
@click.option(
    "--timeout", "budget_s", type=float, metavar="SECONDS", help="How long a script's start or step may take."
)
@click.option("--seed", type=int, metavar="N", help="Seed of data and hashes.")
@click.option(
    "--project",
    "replays",
    is_flag=True,
    help="Also replay the step's ops alone, and compare them with what these CPUs can do at best.",
)
@click.option("--top", type=click.IntRange(1), default=15, show_default=True, metavar="N", help="Ops in the table.")
@click.option("--format", "output_format", type=click.Choice(_FORMATS), default="table", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File instead of stdout.")
@click.option("--no-progress", is_flag=True, help="Do not show progress on stderr.")
def target(**options: Any) -> None:
    """Say which ops a step's time is in: by primitive and direction, by phase, op by op.

    Steps with and without the profiler alternate, so that its own cost is known. The step of a script ends where its
    optimizer's `step` returns; after the last profiled one the script is ended. All of it takes skip + 2 x steps + 4
    of a script's steps, 21 by default; where a script makes fewer, what there is is shown.

    What was profiled is shown also where a case or the script failed (exit code 3) or Ctrl-C ended it (130).
    """
    from perfguard.cli.measuring import build_request
    from perfguard.cli.profiles import print_report
    from perfguard.errors import ExitCode
    from perfguard.profile.runs.profiling import ProfileSize, profile_arm, profile_user_script
    from perfguard.runner.arms.arm_spec import parse_arm

    is_script = _is_script(options["target"])
    loaded = load(options)
    spec = parse_arm(options["candidate"])
    size = ProfileSize(
        processes=options["processes"] or (1 if is_script else 2), steps=options["steps"], replays=options["replays"]
    )
    if is_script:
        request = build_request("profile", loaded, options)
        report = profile_user_script(
            request, spec, size, Path(options["target"]), options["arguments"], skip=options["skip"]
        )
    else:
        patterns = (options["target"], *options["arguments"])
        report = profile_arm(build_request("profile", loaded, {**options, "patterns": patterns}), spec, size)
    print_report(report, options["output_format"], options["output"], rows=options["top"])
    code = ExitCode.INTERRUPTED if report.interrupted else ExitCode.INFRASTRUCTURE if report.problems else ExitCode.PASS
    if code is not ExitCode.PASS:
        raise click.exceptions.Exit(int(code))


@command.command("diff", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(1), default=15, show_default=True, metavar="N", help="Ops in the table.")
@click.option("--format", "output_format", type=click.Choice(("table", "json")), default="table", show_default=True)
def diff(*, before: Path, after: Path, top: int, output_format: str) -> None:
    """Compare two traces op by op, for instance of your own torch.profiler runs (export_chrome_trace).

    One trace a side gives no intervals: only what is executed otherwise is sure, times are told as they are.
    """
    from perfguard.cli.output import print_parts
    from perfguard.codec import to_json
    from perfguard.profile.runs.trace_diff import diff_traces
    from perfguard.report.terminal.ops import render_attribution

    attribution = diff_traces(before, after)
    if output_format == "json":
        click.echo(to_json(attribution, indent=1))
    else:
        print_parts(lambda _: render_attribution(attribution, rows=top))
