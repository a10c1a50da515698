"""A result as Markdown, for a comment or a job summary."""

from __future__ import annotations

from perfguard.records.result import RunResult
from perfguard.records.verdict import Outcome
from perfguard.report.escaping import code, escape
from perfguard.report.lines import blame_lines, name_in, names_in, note_lines, signal_lines
from perfguard.report.messages.catalog import describe_all
from perfguard.report.rows import PLAIN, case_rows, measured_rows
from perfguard.report.scaling import scaling_tables
from perfguard.report.terminal.findings import render_findings_markdown

_ORDER = (
    Outcome.FAILED,
    Outcome.INVALID,
    Outcome.REGRESSED,
    Outcome.DIFFERENT,
    Outcome.ALLOWED,
    Outcome.INCOMPARABLE,
    Outcome.NO_BASELINE,
    Outcome.INCONCLUSIVE,
    Outcome.IMPROVED,
    Outcome.UNCHANGED,
    Outcome.UNTOUCHED,
    Outcome.SAME_CODE,
)
"""What a reader must see first."""


def render_markdown(result: RunResult) -> str:
    """One heading with the verdict, the table, then what else there is to know."""
    lines = [f"## perfguard: {escape(result.verdict)}", "", escape(describe_all(result.reasons)), ""]
    if result.gate is not None:
        lines += _verdicts(result)
        for case_id, findings in result.findings.items():
            name = code(name_in(result, case_id))
            lines += ["", f"Advice on what the candidate does in {name} and the baseline does not:", ""]
            lines.append(render_findings_markdown(findings))
    elif result.measured:
        lines += ["| case | rounds | median | between rounds | |", "|---|--:|--:|--:|---|"]
        lines += [
            f"| {code(r.name)} | {r.rounds.text} | {r.median.text} | {r.between.text} | {escape(r.problem)} |"
            for r in measured_rows(result.measured)
        ]
        for table in scaling_tables(result.scaling):
            lines += ["", escape(table.title), "", f"| {' | '.join(table.heads)} |", "|" + "--:|" * len(table.heads)]
            lines += [f"| {' | '.join(row)} |" for row in table.rows]
    cpus = ",".join(map(str, result.cpus))
    lines += ["", f"Machine: {escape(result.machine)} ({code(result.machine_id)}), CPU {cpus}", ""]
    for role, arm in sorted(result.arms.items()):
        lines.append(f"- {role}: {code(arm.text)}" + (f", torch {escape(arm.torch)}" if arm.torch else ""))
    lines += [f"- {escape(note)}" for note in note_lines(result)]
    return "\n".join(lines)


def _verdicts(result: RunResult) -> list[str]:
    """The table, then a sentence for each verdict that needs one."""
    verdicts = result.gate.verdicts if result.gate else ()
    rows = case_rows(sorted(verdicts, key=lambda verdict: _ORDER.index(verdict.outcome)), names_in(result))
    lines = [
        "| | case | baseline | candidate | effect | 95 % interval | block SD | verdict |",
        "|---|---|--:|--:|--:|---|--:|---|",
    ]
    for row in rows:
        numbers = (row.baseline, row.candidate, row.effect, row.interval, row.block_sd)
        outcome = f"**{row.verdict.outcome.value}**{row.advisory}"
        cells = (row.mark.sign, code(row.name), *(number.text for number in numbers), outcome)
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for row in rows:
        further = [*signal_lines(row.verdict), *blame_lines(row.verdict, result)]
        if further or row.verdict.outcome not in PLAIN:
            said = "; ".join((describe_all(row.verdict.reasons), *further))
            lines.append(f"- {code(row.name)}: {escape(said)}")
    return lines
