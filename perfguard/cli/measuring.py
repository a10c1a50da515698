"""From a command's options to a request, to a judgement, and from its result to stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from perfguard.cli.diagnostics import Verbosity, reader_may_leave
from perfguard.cli.options import command_line, load_policy
from perfguard.config import LoadedConfig
from perfguard.errors import ArmError, ExitCode, PerfguardError, UsageError
from perfguard.records.facts import Fact, Severity, fact

if TYPE_CHECKING:
    from perfguard.records.plan import GateSettings, Injection
    from perfguard.records.result import RunResult
    from perfguard.records.spec import Case
    from perfguard.runner.session import Request

_LEAST = {Verbosity.QUIET: Severity.GRAVE, Verbosity.NORMAL: Severity.NOTABLE, Verbosity.VERBOSE: Severity.INFO}
"""Notes that matter less than this are left out of the table."""


def build_request(
    command: str,
    loaded: LoadedConfig,
    options: dict[str, Any],
    *,
    notes: tuple[Fact, ...] = (),
    gate: GateSettings | None = None,
) -> Request:
    """The request that a command's options describe."""
    from perfguard.benchmarks.selection import in_no_suite
    from perfguard.cli.progress import make_progress
    from perfguard.cli.recording import recorder
    from perfguard.records.plan import DEFAULT_GATE
    from perfguard.runner.session import Request
    from perfguard.runner.suites import budget_of, load_catalog, selected_cases

    catalog = load_catalog(loaded)
    patterns = tuple(options.get("patterns") or ())
    suite = loaded.config.suite
    cases = selected_cases(catalog, suite=suite, patterns=patterns)
    if not patterns and (unmeasured := in_no_suite(catalog)):
        notes = (*notes, fact("run.in_no_suite", severity=Severity.NOTABLE, benchmarks=unmeasured))
    tools = {tag for case in cases for tag in case.tags}
    progress = make_progress(options.get("verbosity", Verbosity.NORMAL))
    return Request(
        command=command,
        arguments=command_line(),
        loaded=loaded,
        suite=" ".join(patterns) or suite,
        cases=cases,
        budget_s=budget_of(catalog, loaded, suite),
        injections=tuple(pair for text in options.get("injections", ()) for pair in _injected(text, cases)),
        observe=progress.observe,
        progress=progress.step,
        ops=options.get("ops"),
        measure_anyway=bool(options.get("measure_anyway")),
        measure_all=bool(options.get("measure_all")),
        patterns=patterns,
        # A catalogue's note is about a suite of the user's: of interest where that is measured.
        notes=(*notes, *(note for note in catalog.notes if note.values.get("tool") in tools)),
        gate=gate or DEFAULT_GATE,
        record=recorder(loaded),
    )


def with_slips(request: Request) -> Request:
    """The request with a note for each case that became slower little by little over the recorded runs."""
    from perfguard.history.slips import read_slips

    try:
        slips = read_slips(request.loaded, request.fingerprint.machine_id, [case.id for case in request.cases])
    except PerfguardError:  # a history that cannot be read keeps no gate from measuring; its end says why
        return request
    return replace(request, notes=(*request.notes, *slips))


def _injected(text: str, cases: tuple[Case, ...]) -> list[tuple[str, Injection]]:
    """Pairs of case id and injection from `PATTERN=+5%`."""
    from perfguard.benchmarks.selection import select_from
    from perfguard.records.plan import Injection

    pattern, equals, amount = text.rpartition("=")
    try:
        if not equals or not amount.endswith("%"):
            raise ValueError(text)
        effect = float(amount.rstrip("%")) / 100
    except ValueError:
        raise UsageError(f"--inject {text!r} is not PATTERN=+5%") from None
    if not -0.9 < effect < 10:
        raise UsageError(f"--inject {text!r}: use an effect between -90% and +1000%")
    injection = Injection(pattern=pattern, effect_ratio=effect)
    return [(case.id, injection) for case in select_from(cases, (pattern,))]


def judge(name: str, options: dict[str, Any], *, default_baseline: str | None) -> None:
    """Measure both arms, print the verdicts and exit with their code; without a baseline, `default_gate` chooses it."""
    from perfguard.gate.choose import compare_or_gate, default_gate, gate_against_anchor
    from perfguard.runner.arms.resolve import parse_arm, require_revision

    if options["anchor"] and options["baseline"] is not None:
        raise UsageError("--anchor chooses the baseline itself; leave --baseline out")
    text = options["baseline"] or default_baseline
    baseline, candidate = parse_arm(text) if text else None, parse_arm(options["candidate"])
    if candidate.stored:
        raise ArmError("--candidate stored: only the baseline can be a stored one")
    with load_policy(options) as policy:
        for arm in filter(None, (baseline, candidate)):
            require_revision(arm, policy.loaded.project)
        request = with_slips(build_request(name, policy.loaded, options, notes=policy.notes))
        if name == "gate":
            request = replace(request, notes=(*request.notes, *_only_built_in(request)))
        if options["anchor"]:
            result = gate_against_anchor(request, candidate)
        elif baseline is None:
            result = default_gate(request, candidate)
        else:
            result = compare_or_gate(request, baseline, candidate)
    show(result, options)


def _only_built_in(request: Request) -> tuple[Fact, ...]:
    """That a gate measures nothing of the project, as before its `perfguard init`."""
    from perfguard.benchmarks.catalog import BENCHMARKS
    from perfguard.runner.process.launching import is_perfguard_checkout

    built_in = {spec.name for spec in BENCHMARKS}
    if is_perfguard_checkout(request.loaded.project) or not built_in.issuperset(c.benchmark for c in request.cases):
        return ()
    return (fact("run.only_built_in", severity=Severity.NOTABLE, cases=len(request.cases)),)


def show(result: RunResult, options: dict[str, Any]) -> None:
    """Print a result in the wanted format and exit with its code."""
    if options.get("exit_zero") and result.exit_code != ExitCode.INTERRUPTED:
        result = replace(result, exit_code=0)
    with reader_may_leave():  # the exit code stands, whoever reads
        _print(result, options.get("output_format", "table"), options.get("verbosity", Verbosity.NORMAL))
    raise click.exceptions.Exit(result.exit_code)


def _print(result: RunResult, output_format: str, verbosity: Verbosity) -> None:
    if output_format == "json":
        from perfguard.codec import to_json

        click.echo(to_json(result, indent=1))
    elif output_format == "md":
        from perfguard.report.comment.markdown import render_markdown

        click.echo(render_markdown(result))
    elif output_format == "comment":
        from perfguard.integrations.github.pull_requests import reproducing
        from perfguard.report.comment.comment import CommentContext, render_comment

        click.echo(render_comment(result, CommentContext(marker="gate", reproduce=reproducing(result))), nl=False)
    else:
        from perfguard.cli.output import print_parts
        from perfguard.report.terminal.result import render_result

        print_parts(lambda width: render_result(result, width=width, least=_LEAST[verbosity]))
