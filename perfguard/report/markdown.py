"""A result as Markdown, for a comment or a job summary."""

from __future__ import annotations

from perfguard.model.result import CaseMeasured, RunResult
from perfguard.model.spec import Gating
from perfguard.model.verdict import Outcome, Verdict
from perfguard.report.lines import note_lines, signal_lines
from perfguard.report.terminal import SIGNS, format_interval
from perfguard.units import format_effect, format_ratio, format_seconds, printable

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
)
"""What a reader must see first."""


def render_markdown(result: RunResult) -> str:
    """One heading with the verdict, the table, then what else there is to know."""
    lines = [f"## perfguard: {result.verdict}", "", escape(result.reason), ""]
    if result.gate is not None:
        lines += _verdicts(result.gate.verdicts)
    elif result.measured:
        lines += _measured(result.measured)
    lines += [
        "",
        f"Machine: {escape(result.machine)} (`{result.machine_id}`), CPU {','.join(map(str, result.cpus))}",
        "",
    ]
    for role, arm in sorted(result.arms.items()):
        lines.append(f"- {role}: {code(arm.text)}" + (f", torch {escape(arm.torch)}" if arm.torch else ""))
    lines += [f"- {escape(note)}" for note in note_lines(result)]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Text that Markdown and HTML leave as it is."""
    for plain, safe in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("|", "\\|"),
        ("`", "'"),
        ("*", "\\*"),
        ("_", "\\_"),
    ):
        text = text.replace(plain, safe)
    return " ".join(printable(text).split())


def code(text: str) -> str:
    """A code span that holds the text, also inside a table."""
    safe = printable(text).replace("`", "'").replace("|", "\\|")
    return f"`{' '.join(safe.split())}`"


def _verdicts(verdicts: tuple[Verdict, ...]) -> list[str]:
    lines = [
        "| | case | baseline | candidate | effect | 95 % interval | block SD | verdict |",
        "|---|---|--:|--:|--:|---|--:|---|",
    ]
    for verdict in sorted(verdicts, key=lambda v: _ORDER.index(v.outcome)):
        c, e = verdict.comparison, verdict.comparison.estimate
        advisory = " (advisory)" if verdict.gating is Gating.ADVISORY else ""
        cells = (
            SIGNS[verdict.outcome][0],
            code(verdict.case_id),
            format_seconds(c.baseline_median_s),
            format_seconds(c.candidate_median_s),
            format_effect(e.log_ratio) if e else "-",
            format_interval(c),
            format_ratio(e.block_sd) if e else "-",
            f"**{verdict.outcome.value}**{advisory}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        *(
            f"- {code(v.case_id)}: {escape('; '.join((v.reason, *signal_lines(v))))}"
            for v in sorted(verdicts, key=lambda v: _ORDER.index(v.outcome))
            if v.outcome is not Outcome.UNCHANGED or signal_lines(v)
        ),
    ]
    return lines


def _measured(measured: tuple[CaseMeasured, ...]) -> list[str]:
    lines = ["| case | rounds | median | between rounds | |", "|---|--:|--:|--:|---|"]
    for case in measured:
        problem = escape(case.problem) if case.problem else ""
        lines.append(
            f"| {code(case.case_id)} | {case.rounds} | {format_seconds(case.median_s)} | "
            f"{format_ratio(case.between_sd_ratio)} | {problem} |"
        )
    return lines
