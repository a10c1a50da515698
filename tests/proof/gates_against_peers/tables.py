"""The summaries as Markdown tables; nothing is left out, and what was not measured is a dash."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tests.proof.gates_against_peers.intervals import Rate, mean_effect
from tests.proof.gates_against_peers.journal import Row
from tests.proof.gates_against_peers.live_summary import ToolSummary
from tests.proof.gates_against_peers.replay_summary import RuleSummary

SHOWN_EFFECTS = (0.01, 0.02, 0.03, 0.05, 0.10)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> list[str]:
    """A Markdown table whose first `left` columns are text and whose others are numbers."""
    marks = ["---"] * left + ["--:"] * (len(head) - left)
    return [_line(head), _line(marks), *(_line(row) for row in rows), ""]


def replay_table(summaries: Sequence[RuleSummary]) -> list[str]:
    """Rules in rows: false alarms, power, the smallest effect found with 80 % power."""
    head = (
        "rule",
        "order of the samples",
        "flags above",
        "red on identical arms [95 %]",
        "resampled",
        *(f"{effect:.0%} found" for effect in SHOWN_EFFECTS),
        "80 % power at",
        "only the right case",
        "cannot tell",
        "minutes to the answer",
    )
    rows = [
        (
            f"**{s.name}**" if s.name == "perfguard" else s.name,
            s.design + ("" if s.is_own_design else " (not its own)"),
            "-" if s.threshold is None else f"{s.threshold:.1%}",
            share(s.false_alarms),
            percent(s.resampled.value),
            *(percent(s.power.get(effect)) for effect in SHOWN_EFFECTS),
            "never" if s.effect_80 is None else f"{s.effect_80:.2%}",
            percent(s.right_culprit),
            percent(s.inconclusive),
            "-" if s.seconds is None else f"{s.seconds / 60:.1f}",
        )
        for s in summaries
    ]
    return table(head, rows, left=2)


def live_table(summaries: Sequence[ToolSummary]) -> list[str]:
    """Tools in rows, regimes apart: false alarms, what was found, time to the answer."""
    effects = sorted({name for s in summaries for name in s.found})
    head = (
        "tool",
        "regime",
        "minutes",
        "allocator of the peers",
        "red: identical",
        "red: placebos",
        "red: both [95 %]",
        *effects,
        "cannot tell",
        "errors",
        "seconds to the answer",
    )
    rows = [
        (
            f"**{s.tool}**" if s.tool == "perfguard" else s.tool,
            s.regime,
            f"{s.gate_minutes:g}",
            "-" if s.tool == "perfguard" else s.allocator,
            count(s.identical),
            count(s.placebos),
            share(s.nothing),
            *(_found(s, name) for name in effects),
            count(s.inconclusive),
            str(s.errors),
            "-" if math.isnan(s.seconds) else f"{s.seconds:.0f}",
        )
        for s in summaries
    ]
    return table(head, rows, left=2)


def fault_table(rows: Sequence[Row]) -> list[str]:
    """Faults in rows: what perfguard said, how large it found the effect, and where."""
    head = ("variant", "what it does", "should be", "answered", "as expected", "effects", "needs", "seen in")
    lines = [
        (
            row["variant"],
            row["doc"],
            row["should_be"],
            row["detail"].get("verdict", row["answer"]),
            "yes" if row["as_expected"] else "**no**",
            _effects(row),
            _needs(row),
            row["source"] or "-",
        )
        for row in rows
    ]
    return table(head, lines, left=len(head))


def effect_table(rows: Sequence[Row]) -> list[str]:
    """How large each variant's effect really is on this machine, with 95 % intervals over pairs of processes."""
    head = ("variant", "case", "wall", "CPU seconds", "same result")
    lines = [
        (
            row["key"],
            case + ("" if found["expected"] else " (control)"),
            str(mean_effect(found["wall_s"])),
            str(mean_effect(found["cpu_s"])),
            "yes" if same(found["results"]) else "no",
        )
        for row in rows
        for case, found in row["cases"].items()
    ]
    return table(head, lines, left=2)


def same(results: Sequence[float]) -> bool:
    """Whether two results agree to five digits, or both are nearly nothing."""
    return math.isclose(results[0], results[1], rel_tol=1e-5, abs_tol=1e-8)


def share(rate: Rate) -> str:
    """`1/30 = 3.3 % [0.1, 17.2]`."""
    if not rate.trials:
        return "-"
    return f"{rate.count}/{rate.trials} = {rate.value:.1%} [{rate.lower * 100:.1f}, {rate.upper * 100:.1f}]"


def count(rate: Rate) -> str:
    """`1/30`."""
    return f"{rate.count}/{rate.trials}" if rate.trials else "-"


def percent(value: float | None) -> str:
    """`12 %`; a dash for nothing."""
    return "-" if value is None or math.isnan(value) else f"{value:.1%}"


def _found(summary: ToolSummary, name: str) -> str:
    if name not in summary.found:
        return "-"
    found, only = summary.found[name], summary.only[name]
    return count(found) if only.count == only.trials else f"{count(found)} ({only.count} alone)"


def _effects(row: Row) -> str:
    flagged = set(row["flagged"])
    words = [
        f"{'**' if case in flagged else ''}{case} {effect:+.1%}{'**' if case in flagged else ''}"
        for case, effect in row["effects"].items()
    ]
    return ", ".join(words) or (row["detail"].get("reason") or "-").strip().splitlines()[-1][:160].replace("|", "/")


def _needs(row: Row) -> str:
    if not row["hardware"]:
        return "-"
    return row["hardware"] + (f" (missing here: {', '.join(row['missing_flags'])})" if row["missing_flags"] else "")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
