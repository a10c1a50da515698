"""The tables of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfguard.records.case_names import short_names
from perfguard.records.result import ArmSummary, CaseMeasured
from perfguard.records.steps.ops import Attribution, ChangeClass, OpDelta, OpTotal
from perfguard.records.steps.profile import ProfiledCase
from perfguard.records.verdict import SignalFinding
from perfguard.report.culprits import place_of_culprit
from perfguard.report.escaping import LONGEST_NAME
from perfguard.report.html.charts import Cell, Table, cells, mark_cell
from perfguard.report.messages.catalog import describe
from perfguard.report.rows import MARKS, CaseRow, delta_row, measured_rows, op_names, total_row
from perfguard.report.shown import Number
from perfguard.units import (
    cut_middle,
    format_bytes,
    format_number,
    format_seconds,
    format_seconds_interval,
    format_share,
    format_signed_seconds,
)

SHOWN_OPS = 100  # Rows of a table of ops; the raw data has all of them
_URGENCY = list(MARKS)


def cases_table(rows: Sequence[CaseRow], links: Mapping[str, str]) -> Table:
    """Every case with its numbers, what needs a look first."""
    return Table(
        columns=("case", "verdict", ">effect", "95 % interval", ">baseline", ">candidate", ">n", ">block SD", ">p",
                 ">detectable"),
        rows=tuple(
            cells(
                name_cell(row.verdict.case_id, row.name, links),
                mark_cell(row.mark, row.outcome, sort=float(_URGENCY.index(row.verdict.outcome))),
                row.effect, row.interval, row.baseline, row.candidate, row.blocks, row.block_sd, row.p, row.detectable,
            )
            for row in rows
        ),
        keys=tuple(f"{r.verdict.case_id} {r.verdict.outcome.value} {r.verdict.gating.value}" for r in rows),
        caption="Cases",
        is_sortable=True,
        class_="cases",
    )  # fmt: skip


def name_cell(case_id: str, name: str, links: Mapping[str, str]) -> Cell:
    """A case by its short name, with its id as a tooltip."""
    title = "" if name == case_id else cut_middle(case_id, LONGEST_NAME)
    return Cell(content=cut_middle(name, LONGEST_NAME), link=links.get(case_id, ""), class_="name", title=title)


def measured_table(measured: Sequence[CaseMeasured], links: Mapping[str, str]) -> Table:
    """What one arm took."""
    return Table(
        columns=("case", ">median", ">rounds", ">between rounds", ">within a round", ">loops", "problem"),
        rows=tuple(
            cells(
                name_cell(row.case_id, row.name, links), row.median, row.rounds, row.between, row.within, row.loops,
                Cell(content=row.problem and f"✗ {row.problem}", class_="broken"),
            )
            for row in measured_rows(measured)
        ),
        keys=tuple(case.case_id for case in measured),
        caption="Cases",
        is_sortable=True,
        class_="cases",
    )  # fmt: skip


def profiled_table(cases: Sequence[ProfiledCase], links: Mapping[str, str]) -> Table:
    """What was profiled."""
    names = short_names(case.case_id for case in cases)
    rows = (
        cells(
            name_cell(case.case_id, names[case.case_id], links),
            Number.of(format_seconds, case.step_s),
            Number.of(format_seconds, case.profiled_step_s),
            Number.of(format_share, case.overhead_ratio),
            *map(Number.whole, (case.steps, case.processes, len(case.findings))),
        )
        for case in cases
    )
    return Table(
        columns=("case", ">step", ">profiled", ">profiler's cost", ">steps", ">processes", ">findings"),
        rows=tuple(rows),
        keys=tuple(case.case_id for case in cases),
        caption="Profiled cases",
        is_sortable=True,
        class_="cases",
    )


def signals_table(signals: Sequence[SignalFinding]) -> Table | None:
    """What was measured beside wall time; None without any."""
    rows = tuple(
        cells(
            found.signal,
            Cell(content=f"{MARKS[found.outcome].sign} {found.outcome.value}", class_=MARKS[found.outcome].class_),
            Number(_amount(found.baseline, found.unit), found.baseline),
            Number(_amount(found.candidate, found.unit), found.candidate),
            Number.p(found.p_adjusted),
            "gating" if found.gating else "advisory",
            Cell(content=describe(found.fact), class_="wide"),
        )
        for found in signals
    )
    columns = ("signal", "verdict", ">baseline", ">candidate", ">p", "role", "why")
    return Table(columns=columns, rows=rows, caption="Beside wall time, for one iteration") if rows else None


def _amount(value: float, unit: str) -> str:
    if unit == "s":
        return format_seconds(value)
    if unit == "B":
        return format_bytes(value)
    return f"{format_number(value)} {unit}".rstrip() if math.isfinite(value) else "-"


def culprits_table(attribution: Attribution) -> Table | None:
    """Culprits, largest part first; None where nothing is."""
    rows = tuple(
        cells(
            Number.of(format_share, culprit.share),
            Number.of(format_signed_seconds, culprit.delta_s),
            Cell(content=format_seconds_interval(culprit.lower_s, culprit.upper_s) or "-", class_="num"),
            place_of_culprit(culprit),
            Cell(content=describe(culprit.fact), class_="wide"),
        )
        for culprit in attribution.culprits
    )
    columns = (">of the difference", ">Δ a step", "95 % interval", "place", "what changed")
    return Table(columns=columns, rows=rows, caption="Culprits") if rows else None


def deltas_table(attribution: Attribution) -> Table | None:
    """Ops that differ, largest difference first; None where none does."""
    changed = [delta for delta in attribution.deltas if delta.change is not ChangeClass.UNCHANGED]
    shown = changed[:SHOWN_OPS]
    more = f"; the {SHOWN_OPS} largest of {len(changed)}" if len(changed) > SHOWN_OPS else ""
    return Table(
        columns=("op", "phase", "module", "tensors", ">calls", ">baseline", ">candidate", ">Δ a step",
                 "95 % interval", "change", "source"),
        rows=tuple(map(_delta_cells, shown)),
        keys=tuple(f"{d.key.op} {d.key.module} {d.key.phase.value} {d.change.value}" for d in shown),
        caption=f"Ops that differ{more}",
        is_sortable=True,
    ) if shown else None  # fmt: skip


def _delta_cells(delta: OpDelta) -> tuple[Cell, ...]:
    row = delta_row(delta)
    *names, tensors = row.names
    change = f"{row.change}: {delta.detail}" if delta.detail else row.change
    return cells(
        *names, Cell(content=tensors, class_="tensors"), row.calls, row.baseline, row.candidate, row.difference,
        Cell(content=row.interval, class_="num"), change, row.source,
    )  # fmt: skip


def ops_table(totals: Sequence[OpTotal], step_s: float) -> Table | None:
    """The ops of a profiled step, longest first; None without any."""
    shown = totals[:SHOWN_OPS]
    more = f"; the longest {SHOWN_OPS} of {len(totals)}" if len(totals) > SHOWN_OPS else ""
    rows = []
    for total in shown:
        *names, tensors = op_names(total.key)
        implementations = ", ".join(total.implementations) or "-"
        rows.append(
            cells(
                *total_row(total, step_s), *names, Cell(content=tensors, class_="tensors"), implementations,
                total.source or "-",
            )
        )  # fmt: skip
    return Table(
        columns=(">self time", ">share", ">calls", "op", "phase", "module", "tensors", "implementation", "source"),
        rows=tuple(rows),
        keys=tuple(f"{t.key.op} {t.key.module} {t.key.phase.value}" for t in shown),
        caption=f"Ops{more}",
        is_sortable=True,
    ) if shown else None  # fmt: skip


_ARM_ROWS = {
    "as typed": "text",
    "source": "source_id",
    "Python": "python",
    "torch": "torch",
    "interpreter": "interpreter",
    "stack": "stack_id",
}


def arms_table(arms: Mapping[str, ArmSummary]) -> Table | None:
    """Both sides beside each other; what differs says so. None without arms."""
    roles = [role for role in ("baseline", "candidate") if role in arms]
    has_both = len(roles) > 1
    rows = []
    for label, name in _ARM_ROWS.items():
        values = [getattr(arms[role], name) or "-" for role in roles]
        mark = [Cell(content="≠ differs" if len(set(values)) > 1 else "", class_="differs")] if has_both else []
        rows.append(cells(label, *values, *mark))
    columns = ("", *roles, *([""] if has_both else []))
    return Table(columns=columns, rows=tuple(rows), caption="Arms", class_="arms") if roles else None
