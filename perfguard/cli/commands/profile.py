"""`perfguard profile`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from perfguard.cli.declaring import SecondsType, flag
from perfguard.cli.options import (
    env_profile_option,
    format_choice,
    format_option,
    load,
    progress_options,
    python_option,
    wait_option,
)
from perfguard.cli.output import plain_text, print_parts
from perfguard.cli.targets import TakesScript, is_script
from perfguard.codec import to_json
from perfguard.errors import ExitCode, StoreError, UsageError
from perfguard.records.case_names import short_names
from perfguard.report.messages.catalog import describe
from perfguard.store.files import write_whole
from perfguard.units import format_change, format_count, format_seconds, format_share, printable

if TYPE_CHECKING:
    from perfguard.records.steps.profile import ProfiledCase, ProfileReport
    from perfguard.records.steps.scripts import ScriptComparison
    from perfguard.runner.session import Request

_FORMATS = ("table", "json", "csv", "collapsed", "speedscope")
_EPILOG = """\b
TARGET is a case, a pattern of cases, or a script with its arguments:
  perfguard profile 'step.bert*'
  perfguard profile train.py --epochs 1
  perfguard profile diff before.json.gz after.json.gz
Arguments after a script go to the script. The Chrome traces and the libraries' logs stay in the run's folder.
"""

_top_option = click.option(
    "--top", type=click.IntRange(1), default=15, show_default=True, metavar="N", help="Ops in the table."
)


class _UnnamedContext(click.Context):
    """Of a command that goes by its group's name."""

    @property
    def command_path(self) -> str:
        """The group's."""
        return self.parent.command_path if self.parent is not None else super().command_path


class _Unnamed(TakesScript):
    context_class = _UnnamedContext


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
def profile_command(ctx: click.Context) -> None:
    """Show which ops a training step spends its time in."""
    if ctx.invoked_subcommand is None:
        click.echo(target.get_help(target.make_context("target", ["-"], parent=ctx)))


@profile_command.command(
    "target",
    cls=_Unnamed,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
    options_metavar="[OPTIONS]",
)
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--candidate", default="dir:.", show_default=True, metavar="ARM", help="What to profile; see `compare`.")
@click.option(
    "--baseline", metavar="ARM", help="Of a script: also time steps of this arm and of the candidate in turns."
)
@click.option("--processes", type=click.IntRange(1), help="Fresh processes.  [default: 2; 1 for a script]")
@click.option("--steps", type=click.IntRange(1), default=6, show_default=True, help="Profiled steps in each process.")
@click.option(
    "--skip", type=click.IntRange(1), default=5, show_default=True, help="Script steps before the profiled ones."
)
@click.option("--cpus", metavar="LIST", help="CPUs to run on, such as 2-5,8.")
@click.option("--threads", type=int, metavar="N", help="How many of the CPUs to use; one thread each.")
@click.option("--numa", metavar="NODE", help="NUMA node to run on, or 'none' to leave memory unbound.")
@env_profile_option
@python_option
@wait_option
@click.option(
    "--timeout", "budget_s", type=SecondsType(), metavar="TIME", help="Maximum time for a script's start or step."
)
@click.option("--seed", type=int, metavar="N", help="Seed of data and hashes.")
@flag(
    "--project",
    "replays",
    help="Also replay the step's ops alone, and compare them with the best that these CPUs can do.",
)
@_top_option
@format_choice(*_FORMATS)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write; default: stdout.")
@progress_options
def target(**options: Any) -> None:
    """Show which ops a step spends its time in: by primitive and direction, by phase, op by op.

    Steps with and without the profiler alternate, to measure the profiler's cost. A script's step ends where its
    optimizer's `step` returns; the script is ended after the last profiled step. That takes skip + 2 x steps + 4 of
    its steps, 21 by default. If the script makes fewer, the result covers those.

    A script's arms may have set:dtype=bf16, memory_format=channels_last and optimizer=for-loop, foreach or fused: the
    unchanged script then runs with these settings.

    The result is also printed if a case or the script failed (exit code 3), if the candidate computes something else
    than the baseline (4), or if Ctrl-C ended it (130).
    """
    from perfguard.cli.measuring import build_request
    from perfguard.profile.runs.profiling import ProfileSize, profile_arm, profile_user_script
    from perfguard.runner.arms.resolve import parse_arm

    has_script = is_script(options["target"])
    loaded = load(options)
    spec = parse_arm(options["candidate"])
    size = ProfileSize(
        processes=options["processes"] or (1 if has_script else 2), steps=options["steps"], replays=options["replays"]
    )
    if has_script:
        request, path = build_request("profile", loaded, options), Path(options["target"])
        comparison = _compared(request, path, options) if options["baseline"] is not None else None
        report = profile_user_script(request, spec, size, path, options["arguments"], skip=options["skip"])
        report = replace(report, comparison=comparison)
    elif options["baseline"] is not None:
        raise UsageError("--baseline is for scripts; compare cases with `perfguard compare --ops`")
    else:
        patterns = (options["target"], *options["arguments"])
        report = profile_arm(build_request("profile", loaded, {**options, "patterns": patterns}), spec, size)
    _print_report(report, options["output_format"], options["output"], rows=options["top"])
    if (code := _exit_code(report)) is not ExitCode.PASS:
        raise click.exceptions.Exit(int(code))


def _compared(request: Request, path: Path, options: dict[str, Any]) -> ScriptComparison:
    from perfguard.gate.paired.compare_scripts import Precision, compare_user_script, script_of
    from perfguard.runner.arms.resolve import parse_arm

    script = script_of(path, options["arguments"], timeout_s=request.budget_s, skip=options["skip"])
    before, after = parse_arm(options["baseline"]), parse_arm(options["candidate"])
    return compare_user_script(request, before, after, script, Precision(budget_s=request.budget_s)).comparison


def _exit_code(report: ProfileReport) -> ExitCode:
    if report.interrupted:
        return ExitCode.INTERRUPTED
    if report.problems:
        return ExitCode.INFRASTRUCTURE
    is_refused = report.comparison is not None and report.comparison.refused
    return ExitCode.INCONCLUSIVE if is_refused else ExitCode.PASS


@profile_command.command("diff", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@_top_option
@format_option
def diff(*, before: Path, after: Path, top: int, output_format: str) -> None:
    """Compare two traces op by op, for instance of your own torch.profiler runs (export_chrome_trace).

    One trace per side gives no intervals: changed op counts are certain, times are not.
    """
    from perfguard.profile.runs.trace_diff import diff_traces
    from perfguard.report.terminal.ops import render_attribution

    attribution = diff_traces(before, after)
    if output_format == "json":
        click.echo(to_json(attribution, indent=1))
    else:
        print_parts(lambda _: render_attribution(attribution, rows=top))


def _print_report(report: ProfileReport, output_format: str, output: Path | None, *, rows: int) -> None:
    """Print a report, or write it to a file."""
    if output_format == "table" and output is None:
        print_parts(lambda _: _rendered(report, rows))
        return
    text = _text(report, output_format, rows).removesuffix("\n")
    if output is None:
        click.echo(text)
        return
    try:
        write_whole(output, f"{text}\n".encode())
    except StoreError as error:
        raise UsageError(f"{error}; the report is in {report.folder}") from error
    click.echo(f"written to {output}", err=True)


def _text(report: ProfileReport, output_format: str, rows: int) -> str:
    from perfguard.integrations.formats.tables import collapsed_stacks, ops_csv, speedscope_profile

    if output_format == "json":
        return to_json(report, indent=1)
    if output_format == "table":
        return plain_text(_rendered(report, rows))
    if len(report.cases) > 1:
        raise UsageError(
            f"{output_format} holds one case, and {len(report.cases)} were profiled; choose one, or use --format json"
        )
    (case,) = report.cases
    if output_format == "speedscope":
        return speedscope_profile(case.ops, name=case.case_id)
    return ops_csv(case.ops) if output_format == "csv" else collapsed_stacks(case.ops)


def _rendered(report: ProfileReport, rows: int) -> list[RenderableType]:
    from perfguard.report.terminal.findings import render_findings
    from perfguard.report.terminal.ops import render_breakdown
    from perfguard.report.terminal.projection import render_projection

    cpus = ",".join(map(str, report.cpus))
    parts: list[RenderableType] = [
        Text(f"machine    {report.machine} [{report.machine_id}], on CPU {cpus}, torch {report.torch}", style="dim"),
        *(Text(printable(f"note       {describe(note)}"), style="dim") for note in report.notes),
        Text(f"run        {report.folder}", style="dim"),
    ]
    if report.comparison is not None:
        parts += _comparison_lines(report.comparison)
    names = short_names([*(case.case_id for case in report.cases), *report.problems])
    for case in report.cases:
        parts += [
            Text(printable(names[case.case_id]), style="bold"),
            Text(_step_line(case)),
            *(Text(f"! {describe(note)}", style="yellow") for note in case.notes),
            *render_breakdown(case.breakdown, case.ops, rows=rows, has_library_calls=case.op_counts is not None),
            *(
                render_projection(case.projection, name=names[case.case_id], rows=rows)
                if case.projection is not None
                else ()
            ),
            *render_findings(case.findings),
        ]
    for case_id, problem in report.problems.items():
        parts.append(Text(printable(f"✗ {names[case_id]}: {describe(problem)}"), style="bold red"))
        detail = str(problem.values.get("detail") or "")
        parts += [Text(f"  {printable(line)}", style="dim") for line in detail.splitlines()]
    return parts


def _comparison_lines(found: ScriptComparison) -> list[Text]:
    of = f"{format_count(found.steps, 'step')} of each arm in {format_count(found.pairs, 'pair')} of processes"
    lines = [Text(printable(f"! {describe(note)}"), style="yellow") for note in found.notes]
    if found.refused:
        lines += [Text(printable(f"✗ {describe(reason)}"), style="bold red") for reason in found.refused]
    elif found.ratio is not None:
        interval = (found.lower or -math.inf, found.upper or math.inf)
        change = format_change(found.ratio - 1, *(end - 1 for end in interval))
        times = f"{format_seconds(found.before_s)} → {format_seconds(found.after_s)}"
        lines.append(Text(f"against the baseline {change}: {times} per step ({of})", style="bold"))
    return lines


def _step_line(case: ProfiledCase) -> str:
    from perfguard.profile.op_times.typical_steps import leaves_steps_out

    of = f"{format_count(case.steps, 'step')} in {case.processes} process{'' if case.processes == 1 else 'es'}"
    if case.step_s is None or case.overhead_ratio is None:
        return f"{format_seconds(case.profiled_step_s)} per step with the profiler ({of}); without it: not measured"
    middle = ", of which the middle third counts" if leaves_steps_out(case.steps // case.processes) else ""
    more = "less" if case.overhead_ratio < 0 else "more"
    return (
        f"{format_seconds(case.step_s)} per step, {format_seconds(case.profiled_step_s)} with the profiler "
        f"({format_share(abs(case.overhead_ratio))} {more}; {of}{middle}); "
        "shares are of the profiled step"
    )
