"""What the live gates and the faults add up to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.proof.gates_against_peers.intervals import Rate, rate
from tests.proof.gates_against_peers.journal import Row
from tests.proof.gates_against_peers.variants import Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSummary:
    """One tool in one regime, with the same minutes and allocator."""

    tool: str
    """Name."""
    regime: str
    """`idle` or `neighbour`."""
    gate_minutes: float
    """What each gate was given."""
    allocator: str
    """Of the peers."""
    identical: Rate
    """Red gates on byte-identical arms."""
    placebos: Rate
    """Red gates on placebos."""
    nothing: Rate
    """Both together: the false-alarm rate."""
    found: dict[str, Rate]
    """By injected variant: gates that flag the right case."""
    only: dict[str, Rate]
    """Of those: gates that flag no other."""
    inconclusive: Rate
    """Gates that say they cannot tell."""
    errors: int
    """Gates without an answer; they count nowhere else."""
    seconds: float
    """Median wall time to the answer."""


def summarize(rows: Sequence[Row]) -> tuple[ToolSummary, ...]:
    """A summary for each tool, regime, length and allocator that gates were run with."""
    groups: dict[tuple[str, str, float, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["regime"], row["tool"], row["gate_minutes"], row["allocator"]), []).append(row)
    return tuple(_summary(group) for _, group in sorted(groups.items()))


def _summary(rows: Sequence[Row]) -> ToolSummary:
    answered = [row for row in rows if row["answer"] != "error"]
    kinds = {kind: [row for row in answered if row["kind"] == kind] for kind in ("identical", "placebo")}
    injected = [row for row in answered if row["kind"] in ("spin", "work")]
    found, only = {}, {}
    for name in sorted({row["variant"] for row in injected}):
        gates = [row for row in injected if row["variant"] == name]
        right = [row for row in gates if set(row["expected"]) <= set(row["flagged"])]
        found[name] = rate(len(right), len(gates))
        only[name] = rate(sum(set(row["flagged"]) == set(row["expected"]) for row in right), len(right))
    return ToolSummary(
        tool=rows[0]["tool"],
        regime=rows[0]["regime"],
        gate_minutes=rows[0]["gate_minutes"],
        allocator=rows[0]["allocator"],
        identical=_red(kinds["identical"]),
        placebos=_red(kinds["placebo"]),
        nothing=_red([*kinds["identical"], *kinds["placebo"]]),
        found=found,
        only=only,
        inconclusive=rate(sum(row["answer"] == "inconclusive" for row in answered), len(answered)),
        errors=len(rows) - len(answered),
        seconds=statistics.median([row["seconds"] for row in answered] or [float("nan")]),
    )


def _red(rows: Sequence[Row]) -> Rate:
    return rate(sum(row["answer"] == "red" for row in rows), len(rows))


def as_expected(row: Row) -> bool:
    """Whether a gate answered what a fault should be answered with.

    For a regression the gate must be red with an expected case among the flagged ones and no control; a fault that
    makes an arm unfit may be refused instead; a cost in CPU seconds may show in that signal.
    """
    flagged = set(row["flagged"])
    wrong = flagged & set(row["controls"])
    expected = Expected(row["should_be"])
    if expected is Expected.NOTHING:
        return row["answer"] in ("pass", "inconclusive") and not flagged
    if expected is Expected.INCOMPARABLE:
        return row["detail"].get("verdict") in ("incomparable", "no-baseline") and not flagged
    if expected is Expected.REFUSAL and row["detail"].get("exit_code") == 3:
        return True
    if expected is Expected.CPU and _cpu_regressed(row):
        return not wrong
    return row["answer"] == "red" and bool(flagged & set(row["expected"])) and not wrong


def _cpu_regressed(row: Row) -> bool:
    cases = row["detail"].get("cases", {})
    return any(cases.get(case, {}).get("signals", {}).get("cpu") == "regressed" for case in row["expected"])
