"""One case of a page: what was said of it, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass

from perfguard.gate.rules.rulings import MODES_MIXED, mode_fact
from perfguard.records.result import CaseMeasured, RunResult
from perfguard.records.spec import Gating
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import Attribution
from perfguard.records.steps.profile import ProfiledCase
from perfguard.records.steps.projection import CaseProjection
from perfguard.records.verdict import Verdict
from perfguard.report.case_history import changes_text, histories_of
from perfguard.report.culprits import CulpritLine, change_text, culprit_lines, step_text
from perfguard.report.html.charts import Chart, Table
from perfguard.report.html.content import CaseEvidence, RunContent
from perfguard.report.html.donut import donuts
from perfguard.report.html.ecdf import ecdf
from perfguard.report.html.icicle import elided, icicle
from perfguard.report.html.marks import Mark, is_worth_a_look, mark_of
from perfguard.report.html.pairs import pairs
from perfguard.report.html.rooflines import rooflines
from perfguard.report.html.series import series
from perfguard.report.html.tables import culprits_table, deltas_table, ops_table, signals_table
from perfguard.report.html.waterfall import waterfall
from perfguard.report.lines import signal_lines, unchanged_lines
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.projection import efficiency_line, identity_line
from perfguard.report.terminal.result import format_interval
from perfguard.units import format_effect, format_seconds

_MEASURED = Mark("·", "measured", "same")
_PROFILED = Mark("·", "profiled", "same")
_FAILED = Mark("✗", "failed", "broken")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSection:
    """One case."""

    anchor: str
    """Names it within the page."""
    case_id: str
    """The case."""
    mark: Mark
    """What is said of it."""
    summary: str
    """Its effect or time in a few words."""
    is_open: bool
    """Whether its evidence is shown at once."""
    lines: tuple[str, ...]
    """What was seen, one sentence each."""
    evidence: tuple[Chart, ...] = ()
    """Whether it is real."""
    signals: Table | None = None
    """What was measured beside wall time."""
    step: str = ""
    """How much the profiled step changed; empty where ops were not compared."""
    culprits: tuple[CulpritLine, ...] = ()
    """What made it slower or faster, at most three."""
    changes: tuple[str, ...] = ()
    """What changed by op counts, worst first."""
    ops_charts: tuple[Chart, ...]
    """Where the difference is."""
    ops_tables: tuple[Table, ...] = ()
    """The same in numbers."""
    every_op: Table | None
    """Long; folded away."""
    findings: tuple[Finding, ...]
    """Advice."""
    history: tuple[Chart, ...] = ()
    """Since when, a picture for each machine."""
    history_note: str = ""
    """What changed between the runs."""


def section_of(
    case_id: str,
    anchor: str,
    content: RunContent,
    *,
    verdict: Verdict | None = None,
    measured: CaseMeasured | None = None,
    is_open: bool = False,
) -> CaseSection:
    """A case that was compared or measured.

    Args:
        case_id: The case.
        anchor: Names it within the page.
        content: Its run.
        verdict: What was said of it; None where nothing was compared.
        measured: What one arm took; None where two were compared.
        is_open: Whether its evidence is shown at once, even if there is nothing to look at.
    """
    evidence = content.evidence.get(case_id, CaseEvidence(case_id=case_id))
    estimate = verdict.effect if verdict else None
    attribution = content.attributions.get(case_id)
    history = (
        next((h for h in histories_of(content.history) if h.case_id == case_id), None) if content.history else None
    )
    result = content.result
    plots = (pairs(evidence.blocks, estimate), ecdf(evidence))
    return CaseSection(
        anchor=anchor,
        case_id=case_id,
        mark=mark_of(verdict.outcome) if verdict else _FAILED if measured and measured.problem else _MEASURED,
        summary=_effect(verdict) if verdict else format_seconds(measured.median_s) if measured else "",
        is_open=is_open or (is_worth_a_look(verdict.outcome) if verdict else bool(measured and measured.problem)),
        lines=_said(verdict, result)
        if verdict
        else (describe(measured.problem),)
        if measured and measured.problem
        else (),
        evidence=tuple(chart for chart in plots if chart is not None),
        signals=signals_table(verdict.signals) if verdict and content.evidence else None,
        step=step_text(attribution) if attribution else "",
        culprits=tuple(culprit_lines(attribution)) if attribution else (),
        changes=_changes(case_id, result),
        ops_charts=_op_charts(attribution),
        ops_tables=_op_tables(attribution),
        every_op=deltas_table(attribution) if attribution else None,
        findings=result.findings.get(case_id, ()) if result else (),
        history=series(history, machine_id=result.machine_id if result else None, run_id=content.run_id)
        if history
        else (),
        history_note=changes_text(history.points) if history else "",
    )


def profiled_section(case: ProfiledCase, anchor: str) -> CaseSection:
    """A case of a profile: where its time goes."""
    projection = case.projection
    return CaseSection(
        anchor=anchor,
        case_id=case.case_id,
        mark=_PROFILED,
        summary=format_seconds(case.step_s if case.step_s is not None else case.profiled_step_s),
        is_open=True,
        lines=(*_projected(projection), *map(describe, case.notes)),
        ops_charts=(*donuts(case.breakdown), *(rooflines(projection) if projection else ())),
        every_op=ops_table(case.ops, case.breakdown.step_s),
        findings=case.findings,
    )


def _effect(verdict: Verdict) -> str:
    estimate = verdict.effect
    if estimate is None:
        return ""
    return f"{format_effect(estimate.log_ratio)} {format_interval(verdict.effect)}"


def _said(verdict: Verdict, result: RunResult | None) -> tuple[str, ...]:
    """The verdict's reasons, and what led to it or stands beside it."""
    modes = verdict.modes
    is_told = any(reason.code == MODES_MIXED for reason in verdict.reasons)
    return (
        *map(describe, verdict.reasons),
        *([describe(mode_fact(modes))] if modes and not is_told else ()),
        *(line for line in signal_lines(verdict)),
        *(unchanged_lines(verdict, result) if result else ()),
        *(["advisory: it cannot fail the gate"] if verdict.gating is Gating.ADVISORY else ()),
    )


def _changes(case_id: str, result: RunResult | None) -> tuple[str, ...]:
    return tuple(change_text(change) for change in result.op_count_changes.get(case_id, ())) if result else ()


def _op_charts(attribution: Attribution | None) -> tuple[Chart, ...]:
    if attribution is None:
        return ()
    return tuple(chart for chart in (waterfall(attribution), icicle(attribution)) if chart is not None)


def _op_tables(attribution: Attribution | None) -> tuple[Table, ...]:
    if attribution is None:
        return ()
    tables = (culprits_table(attribution), elided(attribution))
    return tuple(table for table in tables if table is not None)


def _projected(projection: CaseProjection | None) -> tuple[str, ...]:
    if projection is None:
        return ()
    primitives = projection.primitives
    return (
        identity_line(projection.ops, "op"),
        efficiency_line(projection.ops, "op"),
        *([identity_line(primitives, "primitive"), efficiency_line(primitives, "primitive")] if primitives else ()),
        *map(describe, projection.notes),
    )
