"""A result as Markdown, for a comment or a job summary."""

from __future__ import annotations

from perfguard.records.case_names import short_names
from perfguard.records.result import CaseMeasured, RunResult
from perfguard.records.spec import Gating
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.escaping import code, escape
from perfguard.report.lines import blame_lines, name_in, names_in, note_lines, signal_lines
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.findings import render_findings_markdown
from perfguard.report.terminal.result import PLAIN, SIGNS, format_interval
from perfguard.units import format_effect, format_ratio, format_seconds

_ORDER = (
    Outcome.FAILED,
    Outcome.REGRESSED,
    Outcome.DIFFERENT,
    Outcome.ALLOWED,
    Outcome.INCOMPARABLE,
    Outcome.NO_BASELINE,
    Outcome.INCONCLUSIVE,
    Outcome.IMPROVED,
    Outcome.UNCHANGED,
    Outcome.SAME_CODE,
)
"""What a reader must see first."""


def render_markdown(result: RunResult) -> str:
    """One heading with the verdict, the table, then what else there is to know."""
    lines = [f"## perfguard: {escape(result.verdict)}", "", escape(describe_all(result.reasons)), ""]
    if result.gate is not None:
        lines += [*_verdicts(result.gate.verdicts, result), *_advice(result)]
    elif result.measured:
        lines += _measured(result.measured)
    lines += [
        "",
        f"Machine: {escape(result.machine)} ({code(result.machine_id)}), CPU {','.join(map(str, result.cpus))}",
        "",
    ]
    for role, arm in sorted(result.arms.items()):
        lines.append(f"- {role}: {code(arm.text)}" + (f", torch {escape(arm.torch)}" if arm.torch else ""))
    lines += [f"- {escape(note)}" for note in note_lines(result)]
    return "\n".join(lines)


def _advice(result: RunResult) -> list[str]:
    lines: list[str] = []
    for case_id, findings in result.findings.items():
        name = code(name_in(result, case_id))
        lines += ["", f"Advice on what the candidate does in {name} and the baseline does not:", ""]
        lines.append(render_findings_markdown(findings))
    return lines


def _verdicts(verdicts: tuple[Verdict, ...], result: RunResult) -> list[str]:
    lines = [
        "| | case | baseline | candidate | effect | 95 % interval | block SD | verdict |",
        "|---|---|--:|--:|--:|---|--:|---|",
    ]
    names = names_in(result)
    for verdict in sorted(verdicts, key=lambda v: _ORDER.index(v.outcome)):
        c, e = verdict.comparison, verdict.effect
        advisory = " (advisory)" if verdict.gating is Gating.ADVISORY else ""
        cells = (
            SIGNS[verdict.outcome][0],
            code(names[verdict.case_id]),
            format_seconds(c.baseline_median_s),
            format_seconds(c.candidate_median_s),
            format_effect(e.log_ratio) if e else "-",
            format_interval(e),
            format_ratio(e.block_sd) if e else "-",
            f"**{verdict.outcome.value}**{advisory}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        *(
            f"- {code(names[v.case_id])}: {escape('; '.join((describe_all(v.reasons), *further)))}"
            for v in sorted(verdicts, key=lambda v: _ORDER.index(v.outcome))
            if (further := [*signal_lines(v), *blame_lines(v, result)]) or v.outcome not in PLAIN
        ),
    ]
    return lines


def _measured(measured: tuple[CaseMeasured, ...]) -> list[str]:
    lines = ["| case | rounds | median | between rounds | |", "|---|--:|--:|--:|---|"]
    names = short_names(case.case_id for case in measured)
    for case in measured:
        problem = escape(describe(case.problem)) if case.problem else ""
        lines.append(
            f"| {code(names[case.case_id])} | {case.rounds} | {format_seconds(case.median_s)} | "
            f"{format_ratio(case.between_sd_ratio)} | {problem} |"
        )
    return lines
