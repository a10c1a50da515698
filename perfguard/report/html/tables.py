"""The tables of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfguard.records.case_names import short_names
from perfguard.records.result import ArmSummary, CaseMeasured
from perfguard.records.spec import Gating
from perfguard.records.steps.ops import Attribution, ChangeClass, OpDelta, OpKey, OpTotal
from perfguard.records.steps.profile import ProfiledCase
from perfguard.records.verdict import SignalFinding, Verdict
from perfguard.report.culprits import place_of_culprit
from perfguard.report.escaping import LONGEST_NAME
from perfguard.report.html.charts import Cell, Table, numbers, text_cells
from perfguard.report.html.marks import mark_of, urgency
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.result import format_interval
from perfguard.units import (
    cut_middle,
    format_bytes,
    format_effect,
    format_number,
    format_ratio,
    format_seconds,
    format_seconds_interval,
    format_share,
    format_signed_seconds,
)

SHOWN_OPS = 100
"""Rows of a table of ops; the raw data has all of them."""


def cases_table(verdicts: Sequence[Verdict], links: Mapping[str, str]) -> Table:
    """Every case with its numbers, what needs a look first."""
    names = short_names(verdict.case_id for verdict in verdicts)
    return Table(
        columns=("case", "verdict", ">effect", "95 % interval", ">baseline", ">candidate", ">n", ">block SD", ">p",
                 ">detectable"),
        rows=tuple(_case_row(verdict, names, links) for verdict in verdicts),
        keys=tuple(f"{v.case_id} {v.outcome.value} {v.gating.value}" for v in verdicts),
        caption="Cases",
        is_sortable=True,
        class_="cases",
    )  # fmt: skip


def _case_row(verdict: Verdict, names: Mapping[str, str], links: Mapping[str, str]) -> tuple[Cell, ...]:
    comparison, mark = verdict.comparison, mark_of(verdict.outcome)
    estimate = verdict.effect
    advisory = " (advisory)" if verdict.gating is Gating.ADVISORY else ""
    return (
        name_cell(verdict.case_id, names, links),
        Cell(
            content=f"{mark.sign} {mark.word}{advisory}",
            sort=float(urgency(verdict.outcome)),
            class_=f"verdict {mark.class_}",
        ),
        *numbers((format_effect(estimate.log_ratio), estimate.log_ratio) if estimate else ("-", None)),
        Cell(content=format_interval(estimate), sort=estimate.interval.lower if estimate else None, class_="num"),
        *numbers(
            (format_seconds(comparison.baseline_median_s), comparison.baseline_median_s),
            (format_seconds(comparison.candidate_median_s), comparison.candidate_median_s),
            (str(estimate.blocks), float(estimate.blocks)) if estimate else ("-", None),
            (format_ratio(estimate.block_sd), estimate.block_sd) if estimate else ("-", None),
            (_p(verdict.p_adjusted), verdict.p_adjusted),
            (format_ratio(verdict.mde_ratio), verdict.mde_ratio),
        ),
    )


def name_cell(case_id: str, names: Mapping[str, str], links: Mapping[str, str]) -> Cell:
    """A case by its short name, with its id as a tooltip."""
    name = names[case_id]
    title = "" if name == case_id else cut_middle(case_id, LONGEST_NAME)
    return Cell(content=cut_middle(name, LONGEST_NAME), link=links.get(case_id, ""), class_="name", title=title)


def _p(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.2g}"


def measured_table(measured: Sequence[CaseMeasured], links: Mapping[str, str]) -> Table:
    """What one arm took."""
    names = short_names(case.case_id for case in measured)
    rows = (
        (
            name_cell(case.case_id, names, links),
            *numbers(
                (format_seconds(case.median_s), case.median_s),
                (str(case.rounds), float(case.rounds)),
                (format_ratio(case.between_sd_ratio), case.between_sd_ratio),
                (format_ratio(case.within_sd_ratio), case.within_sd_ratio),
                (str(case.inner_loops or "-"), float(case.inner_loops or 0)),
            ),
            Cell(content=f"✗ {describe(case.problem)}" if case.problem else "", class_="broken"),
        )
        for case in measured
    )
    return Table(
        columns=("case", ">median", ">rounds", ">between rounds", ">within a round", ">loops", "problem"),
        rows=tuple(rows),
        keys=tuple(case.case_id for case in measured),
        caption="Cases",
        is_sortable=True,
        class_="cases",
    )


def profiled_table(cases: Sequence[ProfiledCase], links: Mapping[str, str]) -> Table:
    """What was profiled."""
    names = short_names(case.case_id for case in cases)
    rows = (
        (
            name_cell(case.case_id, names, links),
            *numbers(
                (format_seconds(case.step_s), case.step_s),
                (format_seconds(case.profiled_step_s), case.profiled_step_s),
                (format_share(case.overhead_ratio), case.overhead_ratio),
                (str(case.steps), float(case.steps)),
                (str(case.processes), float(case.processes)),
                (str(len(case.findings)), float(len(case.findings))),
            ),
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
    if not signals:
        return None
    rows = (
        (
            Cell(content=found.signal),
            Cell(content=f"{mark_of(found.outcome).sign} {found.outcome.value}", class_=mark_of(found.outcome).class_),
            *numbers((_amount(found.baseline, found.unit), found.baseline)),
            *numbers((_amount(found.candidate, found.unit), found.candidate)),
            *numbers((_p(found.p_adjusted), found.p_adjusted)),
            Cell(content="gating" if found.gating else "advisory"),
            Cell(content=describe(found.fact), class_="wide"),
        )
        for found in signals
    )
    columns = ("signal", "verdict", ">baseline", ">candidate", ">p", "role", "why")
    return Table(columns=columns, rows=tuple(rows), caption="Beside wall time, for one iteration")


def _amount(value: float, unit: str) -> str:
    if unit == "s":
        return format_seconds(value)
    if unit == "B":
        return format_bytes(value)
    return f"{format_number(value)} {unit}".rstrip() if math.isfinite(value) else "-"


def culprits_table(attribution: Attribution) -> Table | None:
    """What is to blame, largest part first; None where nothing is."""
    if not attribution.culprits:
        return None
    rows = (
        (
            *numbers(
                (format_share(culprit.share), culprit.share), (format_signed_seconds(culprit.delta_s), culprit.delta_s)
            ),
            Cell(content=format_seconds_interval(culprit.lower_s, culprit.upper_s) or "-", class_="num"),
            *text_cells(place_of_culprit(culprit)),
            Cell(content=describe(culprit.fact), class_="wide"),
        )
        for culprit in attribution.culprits
    )
    columns = (">of the difference", ">Δ a step", "95 % interval", "place", "what changed")
    return Table(columns=columns, rows=tuple(rows), caption="Culprits")


def deltas_table(attribution: Attribution) -> Table | None:
    """Ops that differ, largest difference first; None where none does."""
    changed = [delta for delta in attribution.deltas if delta.change is not ChangeClass.UNCHANGED]
    if not changed:
        return None
    more = f"; the {SHOWN_OPS} largest of {len(changed)}" if len(changed) > SHOWN_OPS else ""
    return Table(
        columns=("op", "phase", "module", "tensors", ">calls", ">baseline", ">candidate", ">Δ a step",
                 "95 % interval", "change", "source"),
        rows=tuple(_delta_row(delta) for delta in changed[:SHOWN_OPS]),
        keys=tuple(f"{d.key.op} {d.key.module} {d.key.phase.value} {d.change.value}" for d in changed[:SHOWN_OPS]),
        caption=f"Ops that differ{more}",
        is_sortable=True,
    )  # fmt: skip


def _delta_row(delta: OpDelta) -> tuple[Cell, ...]:
    key = delta.key
    before, after = format_number(delta.baseline_calls), format_number(delta.candidate_calls)
    calls = before if before == after else f"{before} → {after}"
    change = f"{delta.change.value}: {delta.detail}" if delta.detail else delta.change.value
    return (
        *text_cells(key.op.removeprefix("aten::"), key.phase.value, key.module or "-"),
        Cell(content=tensors(key), class_="tensors"),
        *numbers(
            (calls, delta.candidate_calls),
            (format_seconds(delta.baseline_s), delta.baseline_s),
            (format_seconds(delta.candidate_s), delta.candidate_s),
            (format_signed_seconds(delta.delta_s), delta.delta_s),
        ),
        Cell(content=format_seconds_interval(delta.lower_s, delta.upper_s) or "-", class_="num"),
        *text_cells(change, delta.source or "-"),
    )


def ops_table(totals: Sequence[OpTotal], step_s: float) -> Table | None:
    """The ops of a profiled step, longest first; None without any."""
    if not totals:
        return None
    more = f"; the longest {SHOWN_OPS} of {len(totals)}" if len(totals) > SHOWN_OPS else ""
    rows = (
        (
            *numbers(
                (format_seconds(total.self_s), total.self_s),
                (f"{total.self_s / step_s * 100:.1f} %" if step_s > 0 else "-", total.self_s),
                (format_number(total.calls), total.calls),
            ),
            *text_cells(total.key.op.removeprefix("aten::"), total.key.phase.value, total.key.module or "-"),
            Cell(content=tensors(total.key), class_="tensors"),
            *text_cells(", ".join(total.implementations) or "-", total.source or "-"),
        )
        for total in totals[:SHOWN_OPS]
    )
    return Table(
        columns=(">self time", ">share", ">calls", "op", "phase", "module", "tensors", "implementation", "source"),
        rows=tuple(rows),
        keys=tuple(f"{t.key.op} {t.key.module} {t.key.phase.value}" for t in totals[:SHOWN_OPS]),
        caption=f"Ops{more}",
        is_sortable=True,
    )


_ARM_ROWS = (
    ("as typed", "text"),
    ("source", "source_id"),
    ("Python", "python"),
    ("torch", "torch"),
    ("interpreter", "interpreter"),
    ("stack", "stack_id"),
)


def arms_table(arms: Mapping[str, ArmSummary]) -> Table | None:
    """Both sides beside each other; what differs says so. None without arms."""
    roles = [role for role in ("baseline", "candidate") if role in arms]
    if not roles:
        return None
    rows = []
    for label, name in _ARM_ROWS:
        values = [getattr(arms[role], name) or "-" for role in roles]
        differs = len(set(values)) > 1
        mark = (Cell(content="≠ differs" if differs else "", class_="differs"),) if len(roles) > 1 else ()
        rows.append((Cell(content=label), *text_cells(*values), *mark))
    return Table(
        columns=("", *roles, *(("",) if len(roles) > 1 else ())), rows=tuple(rows), caption="Arms", class_="arms"
    )


def tensors(key: OpKey) -> str:
    """Shapes, dtypes and layouts of an op; `-` where the trace has none."""
    return " ".join(filter(None, (key.shapes, key.dtypes, key.layouts))) or "-"
