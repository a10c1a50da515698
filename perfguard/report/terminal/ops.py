"""Which ops a step's time is in, and which ones changed: tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfguard.records.steps.ops import Attribution, ChangeClass, OpDelta, OpTotal
from perfguard.records.steps.profile import Breakdown
from perfguard.report.culprits import culprit_lines, step_text
from perfguard.report.messages.catalog import describe
from perfguard.report.rows import delta_row, op_names, percentage, slice_row, total_row
from perfguard.report.shown import Number
from perfguard.report.terminal.tables import plain_table, texts
from perfguard.units import (
    format_count,
    format_number,
    format_seconds,
    format_seconds_interval,
    format_share,
    format_signed_seconds,
    shorten,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN_PART = 1e-4
"""Parts of an identity below this part of the largest one are shown as 0: the others have no more digits."""
SHOWN_OPS = 15  # Rows of a table of ops


def render_attribution(
    attribution: Attribution, *, rows: int = SHOWN_OPS, name: str | None = None
) -> list[RenderableType]:
    """Where a step's difference went: the identity, the culprits, the ops that differ most."""
    parts = [
        *texts(f"ops of {name or attribution.case_id}", style="bold"),
        *texts(step_text(attribution)),
        *texts(*(f"! {describe(note)}" for note in attribution.notes), style="yellow"),
        *texts(balance_line(attribution), style="dim"),
    ]
    for line in culprit_lines(attribution):
        parts += [*texts(line.headline, style="bold"), *texts(f"  {line.details}")]
    changed = [delta for delta in attribution.deltas if delta.change is not ChangeClass.UNCHANGED]
    if changed[:rows]:
        parts.append(
            plain_table(
                "~~op", "~shapes/7", "phase/4", "~module/6", ">calls/3", ">baseline/5", ">Δ per step",
                "95 % interval/2", "~change/1", "~~source", rows=map(_delta_cells, changed[:rows]),
            )
        )  # fmt: skip
        details = dict.fromkeys(f"  {d.key.op.removeprefix('aten::')}: {d.detail}" for d in changed[:rows] if d.detail)
        parts += texts(*details, _rest_line(attribution, changed, rows=rows), style="dim")
    return parts


def _rest_line(attribution: Attribution, changed: Sequence[OpDelta], *, rows: int) -> str:
    """What makes the table add up to the ops of the balance: the ops that it leaves out."""
    alike = len(attribution.deltas) - len(changed)
    shown_s, changed_s = (sum(delta.delta_s for delta in deltas) for deltas in (changed[:rows], changed))
    ops_s = attribution.balance.ops_s
    parts = [f"these ops {format_signed_seconds(shown_s)}"]
    if len(changed) > rows:
        parts.append(f"{len(changed) - rows} more that changed {format_signed_seconds(changed_s - shown_s)}")
    if alike:
        parts.append(f"{format_count(alike, 'op')} not shown to differ {format_signed_seconds(ops_s - changed_s)}")
    return f"{', '.join(parts)}; together {format_signed_seconds(ops_s)}"


def balance_line(attribution: Attribution) -> str:
    """`step +1.20 ms = ops +1.10 ms + Python +0.05 ms + idle 0 s + unexplained 50 µs (16 steps …)`."""
    b = attribution.balance
    least_s = _SHOWN_PART * max(abs(b.delta_s), abs(b.ops_s), abs(b.python_s), abs(b.unexplained_s))
    parts = " ".join(
        f"{'+' if value >= 0 else '-'} {name} {format_seconds(abs(value) if abs(value) >= least_s else 0.0)}"
        for name, value in (("Python", b.python_s), ("idle", b.idle_s), ("unexplained", b.unexplained_s))
    )
    has_cost = not math.isnan(b.overhead_ratio)
    overhead = f"; the profiler's own cost, {format_share(b.overhead_ratio)}, is taken out" if has_cost else ""
    left = format_seconds_interval(b.unexplained_lower_s, b.unexplained_upper_s)
    noise = "" if left is None else f"; unexplained in {left} at 95 %"
    pairs = "1 pair of processes" if attribution.processes == 1 else f"{attribution.processes} pairs of processes"
    return (
        f"step {format_signed_seconds(b.delta_s)} = ops {format_signed_seconds(b.ops_s)} {parts} "
        f"({format_count(attribution.steps, 'step')} in {pairs}{noise}{overhead})"
    )


def render_breakdown(
    breakdown: Breakdown, totals: Sequence[OpTotal], *, rows: int = SHOWN_OPS, has_library_calls: bool = True
) -> list[RenderableType]:
    """A step by kind of work, by phase, and its largest ops.

    `has_library_calls` is whether the calls of oneDNN and MKL are known.
    """
    phases = (
        (
            phase.phase.value,
            format_number(phase.calls),
            format_seconds(phase.time_s),
            percentage(phase.share),
            format_seconds(phase.primitives_s) if has_library_calls else "-",
            format_seconds(phase.python_s),
        )
        for phase in breakdown.phases
    )
    return [
        plain_table(
            "~kind of work", "direction/1", ">calls/2", ">time", ">share", rows=map(slice_row, breakdown.slices)
        ),
        plain_table("phase", ">ops/2", ">time", ">share", ">in oneDNN and MKL/3", ">Python/1", rows=phases),
        plain_table(
            ">self time", ">share/1", ">calls/2", "~~op", "phase/3", "~module/4", "~shapes/5", "dtypes/6", "~~source",
            rows=(_total_cells(total, breakdown.step_s) for total in totals[:rows]),
        ),
    ]  # fmt: skip


def _total_cells(total: OpTotal, step_s: float) -> tuple[str | Number, ...]:
    op, phase, module, _ = op_names(total.key)
    shapes, dtypes = shorten(total.key.shapes, 36) or "-", shorten(total.key.dtypes, 14) or "-"
    return (*total_row(total, step_s), op, phase, module, shapes, dtypes, total.source or "-")


def _delta_cells(delta: OpDelta) -> tuple[str | Number, ...]:
    row, shapes = delta_row(delta), shorten(delta.key.shapes, 16) or "-"
    op, phase, module, _ = row.names
    times = (row.calls, row.baseline, row.difference, row.interval)
    return (op, shapes, phase, module, *times, row.change, row.source)
