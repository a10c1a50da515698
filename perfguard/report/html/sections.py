"""A run as the parts of a page, in the order of what people ask: is it real, how big, which op, since when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perfguard.gate.rules.rulings import MODES_MIXED, mode_fact
from perfguard.records.result import CaseMeasured, RunResult
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.profile import ProfiledCase
from perfguard.records.steps.projection import CaseProjection
from perfguard.records.task_results import TaskResult
from perfguard.records.training import Training
from perfguard.records.verdict import GateResult, Outcome, Verdict
from perfguard.report.case_history import changes_text, histories_of
from perfguard.report.culprits import CulpritLine, change_text, culprit_lines, step_text
from perfguard.report.html.case_charts import ecdf, forest, pairs
from perfguard.report.html.charts import Chart, Table
from perfguard.report.html.content import CaseEvidence, RunContent
from perfguard.report.html.op_charts import donuts, elided, icicle, rooflines, waterfall
from perfguard.report.html.series import moment, series
from perfguard.report.html.tables import (
    arms_table,
    cases_table,
    culprits_table,
    deltas_table,
    measured_table,
    ops_table,
    profiled_table,
    signals_table,
)
from perfguard.report.html.tasks import mark_of_task, task_charts, task_tables
from perfguard.report.html.training import mark_of_training, training_charts, training_tables
from perfguard.report.lines import error_rate_of, notes_of, signal_lines, unchanged_lines
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.rows import MARKS, CaseRow, case_rows, mark_of_run
from perfguard.report.shown import Mark
from perfguard.report.terminal.projection import efficiency_line, identity_line
from perfguard.report.terminal.tasks import conclusion_of, heading_of
from perfguard.units import format_count, format_duration, format_seconds

_FEW = 3  # So many cases are shown with their evidence open, whatever was said of them
_MOST_EVIDENCE = 30
"""So many cases are shown with their evidence, those first that need a look; a page of hundreds would be megabytes."""
_MEANINGS = {
    0: "pass",
    1: "regression",
    2: "usage or configuration",
    3: "infrastructure or internal",
    4: "inconclusive",
    5: "nothing selected",
    130: "interrupted",
}
_WORTH_A_LOOK = list(MARKS)[:4]
_FAILED = Mark("✗", "failed", "broken")
_T = TypeVar("_T")


class CaseSection(Struct, frozen=True, kw_only=True):
    """One case: what was said of it, and the evidence."""

    anchor: str  # Names it within the page
    case_id: str  # The case
    mark: Mark  # What is said of it
    summary: str  # Its effect or time in a few words
    is_open: bool  # Whether its evidence is shown at once
    lines: tuple[str, ...]  # What was seen, one sentence each
    evidence: tuple[Chart, ...] = ()  # Whether it is real
    signals: Table | None = None  # What was measured beside wall time
    step: str = ""  # How much the profiled step changed; empty where ops were not compared
    culprits: tuple[CulpritLine, ...] = ()  # What made it slower or faster, at most three
    changes: tuple[str, ...] = ()  # What changed by op counts, worst first
    ops_charts: tuple[Chart, ...] = ()  # Where the difference is
    ops_tables: tuple[Table, ...] = ()  # The same in numbers
    every_op: Table | None = None  # Long; folded away
    findings: tuple[Finding, ...] = ()  # Advice
    history: tuple[Chart, ...] = ()  # Since when, a picture for each machine
    history_note: str = ""  # What changed between the runs


class RunSection(Struct, frozen=True, kw_only=True):
    """One run on a page."""

    anchor: str  # Names it within the page
    content: RunContent  # What is known of it; the page shows its arms, machine and files as they are
    mark: Mark  # What is said of it
    sentence: str  # The same as a sentence
    culprits: tuple[CulpritLine, ...] = ()
    """Of the case that needs a look first; empty where it did not regress or was not profiled."""
    error_rate: str = ""  # What is known of the gate's error rates; empty where nothing was judged
    facts: tuple[tuple[str, str], ...]  # Labels with their texts
    problems: tuple[str, ...]  # What of the run is not shown, and why
    forest: Chart | None = None  # Effects of all cases; None where nothing was compared
    cases_table: Table | None = None  # All cases; None where there are none
    cases: tuple[CaseSection, ...] = ()  # Each with its evidence, what needs a look first
    arms: Table | None = None  # Both sides; None where none was started
    notes: tuple[str, ...]  # What the reader should know
    charts: tuple[Chart, ...] = ()  # Of a run that trains, or one of a task
    tables: tuple[Table, ...] = ()  # Likewise


def run_section(content: RunContent, *, number: int = 1) -> RunSection:
    """A run as a page shows it; `number` is its place on the page, from 1."""
    if content.training is not None:
        return _training_section(content, content.training, number)
    if content.task is not None:
        return _task_section(content, content.task, number)
    result, profile = content.result, content.profile
    verdicts = result.gate.verdicts if result and result.gate else ()
    rows = case_rows(sorted(verdicts, key=lambda verdict: list(MARKS).index(verdict.outcome)))
    measured = result.measured if result else ()
    profiled = profile.cases if profile else ()
    case_ids = [*(row.verdict.case_id for row in rows), *(m.case_id for m in measured), *(p.case_id for p in profiled)]
    # Anchors hold nothing of a case's name, which others wrote.
    anchors = {case_id: f"run-{number}-case-{index}" for index, case_id in enumerate(dict.fromkeys(case_ids), 1)}
    links = {case_id: f"#{anchor}" for case_id, anchor in anchors.items()}
    urgent = set(list(anchors)[:_MOST_EVIDENCE])
    without = replace(content, evidence={}, history=None)
    sections = [
        *(_compared_section(row, content if row.verdict.case_id in urgent else without) for row in rows),
        *(_measured_section(case, content if case.case_id in urgent else without) for case in measured),
        *map(_profiled_section, profiled),
    ]
    first = next((row.verdict.case_id for row in rows if row.verdict.outcome is Outcome.REGRESSED), "")
    blamed = content.attributions.get(first)
    return RunSection(
        anchor=f"run-{number}",
        content=content,
        mark=mark_of_run(verdict_of(content)),
        sentence=f"{format_count(len(profiled), 'case')} profiled"
        if profile
        else describe_all(result.reasons)
        if result
        else "nothing can be said of this run",
        culprits=tuple(culprit_lines(blamed)) if blamed else (),
        error_rate=error_rate_of(result) if result else "",
        facts=tuple(_facts(content)),
        problems=tuple(_problems(content, len(anchors))),
        forest=forest(rows, links),
        cases_table=cases_table(rows, links)
        if rows
        else measured_table(measured, links)
        if measured
        else profiled_table(profiled, links)
        if profiled
        else None,
        cases=tuple(
            replace(section, anchor=anchors[section.case_id], is_open=section.is_open or len(anchors) <= _FEW)
            for section in sections
        ),
        arms=arms_table(result.arms) if result else None,
        notes=tuple(
            describe(note)
            for note in (*(notes_of(result) if result else ()), *(profile.notes if profile else ()))
            if result is None or note != result.error_rate
        ),
    )


def _training_section(content: RunContent, found: Training, number: int) -> RunSection:
    return RunSection(
        anchor=f"run-{number}",
        content=content,
        mark=mark_of_training(found),
        sentence=describe_all(found.reasons),
        facts=(
            *_facts(content),
            ("exit code", str(found.exit_code)),
            ("machine", f"{found.machine} [{found.machine_id}]"),
            ("algorithm", found.planned.config.algorithm),
            ("data", found.planned.config.data.source),
        ),
        problems=content.problems,
        notes=tuple(map(describe, found.notes)),
        charts=tuple(training_charts(found)),
        tables=tuple(training_tables(found)),
    )


def _task_section(content: RunContent, found: TaskResult, number: int) -> RunSection:
    return RunSection(
        anchor=f"run-{number}",
        content=content,
        mark=mark_of_task(found),
        sentence=conclusion_of(found),
        facts=(*_facts(content), ("exit code", str(found.exit_code)), *heading_of(found)),
        problems=content.problems,
        notes=tuple(map(describe, found.notes)),
        charts=tuple(task_charts(found)),
        tables=tuple(task_tables(found)),
    )


def _compared_section(row: CaseRow, content: RunContent) -> CaseSection:
    verdict = row.verdict
    section = CaseSection(
        anchor="",
        case_id=verdict.case_id,
        mark=row.mark,
        summary=row.effect_text,
        is_open=verdict.outcome in _WORTH_A_LOOK,
        lines=_said(row, content.result),
        signals=signals_table(verdict.signals) if content.evidence else None,
    )
    return _with_evidence(section, content, verdict)


def _measured_section(case: CaseMeasured, content: RunContent) -> CaseSection:
    section = CaseSection(
        anchor="",
        case_id=case.case_id,
        mark=_FAILED if case.problem else mark_of_run("measured"),
        summary=format_seconds(case.median_s),
        is_open=case.problem is not None,
        lines=(describe(case.problem),) if case.problem else (),
    )
    return _with_evidence(section, content, None)


def _profiled_section(case: ProfiledCase) -> CaseSection:
    """Where the time of a profiled case goes."""
    projection = case.projection
    return CaseSection(
        anchor="",
        case_id=case.case_id,
        mark=mark_of_run("profiled"),
        summary=format_seconds(case.step_s if case.step_s is not None else case.profiled_step_s),
        is_open=True,
        lines=(*(_projected(projection) if projection else ()), *map(describe, case.notes)),
        ops_charts=(*donuts(case.breakdown), *(rooflines(projection) if projection else ())),
        every_op=ops_table(case.ops, case.breakdown.step_s),
        findings=case.findings,
    )


def _with_evidence(section: CaseSection, content: RunContent, verdict: Verdict | None) -> CaseSection:
    """The section with what was measured of its case, which ops changed, and its history."""
    case_id, result = section.case_id, content.result
    evidence = content.evidence.get(case_id, CaseEvidence(case_id=case_id))
    attribution = content.attributions.get(case_id)
    histories = histories_of(content.history) if content.history else ()
    history = next((each for each in histories if each.case_id == case_id), None)
    if attribution is not None:
        section = replace(
            section,
            step=step_text(attribution),
            culprits=tuple(culprit_lines(attribution)),
            ops_charts=_present(waterfall(attribution), icicle(attribution)),
            ops_tables=_present(culprits_table(attribution), elided(attribution)),
            every_op=deltas_table(attribution),
        )
    if history is not None:
        section = replace(
            section,
            history=series(history, machine_id=result.machine_id if result else None, run_id=content.run_id),
            history_note=changes_text(history.points),
        )
    return replace(
        section,
        evidence=_present(pairs(evidence.blocks, verdict.effect if verdict else None), ecdf(evidence)),
        changes=tuple(map(change_text, result.op_count_changes.get(case_id, ()))) if result else (),
        findings=result.findings.get(case_id, ()) if result else (),
    )


def _present(*parts: _T | None) -> tuple[_T, ...]:
    return tuple(part for part in parts if part is not None)


def _said(row: CaseRow, result: RunResult | None) -> tuple[str, ...]:
    """The verdict's reasons, and what led to it or stands beside it."""
    verdict = row.verdict
    is_said = any(reason.code == MODES_MIXED for reason in verdict.reasons)
    return (
        *map(describe, verdict.reasons),
        *([describe(mode_fact(verdict.modes))] if verdict.modes and not is_said else ()),
        *signal_lines(verdict),
        *(unchanged_lines(verdict, result) if result else ()),
        *(["advisory: it cannot fail the gate"] if row.advisory else ()),
    )


def _projected(projection: CaseProjection) -> Iterator[str]:
    for found, noun in ((projection.ops, "op"), (projection.primitives, "primitive")):
        if found is not None:
            yield from (identity_line(found, noun), efficiency_line(found, noun))
    yield from map(describe, projection.notes)


def verdict_of(content: RunContent) -> str:
    """A GateOutcome, `measured`, `profiled`, `interrupted` or `nothing to show`."""
    if content.profile is not None:
        return "profiled"
    if content.training is not None:
        return mark_of_training(content.training).word
    if content.task is not None:
        return mark_of_task(content.task).word
    return content.result.verdict if content.result else "nothing to show"


def _facts(content: RunContent) -> Iterator[tuple[str, str]]:
    result, profile = content.result, content.profile
    yield "run", content.run_id
    yield "started", moment(content.started_at)
    if content.command:
        typed = content.command if content.command[0] == "perfguard" else ("perfguard", *content.command)
        yield "command", " ".join(typed)
    if result is not None:
        yield "exit code", f"{result.exit_code}, {_MEANINGS.get(result.exit_code, 'unknown')}"
        yield "suite", result.suite
        yield "took", format_duration(result.duration_s)
        if result.gate is not None:
            voided = f", {result.gate.blocks_voided} of them voided" if result.gate.blocks_voided else ""
            yield "blocks", f"{result.gate.blocks_total}{voided}{_confirming(result.gate)}"
    machine = result or profile
    if machine is not None:
        yield "machine", f"{machine.machine} [{machine.machine_id}]"
        yield "measured on CPU", ", ".join(map(str, machine.cpus)) or "unknown"
    if profile is not None:
        yield "torch", profile.torch


def _confirming(gate: GateResult) -> str:
    """Blocks that were measured to confirm flags, which no verdict's own estimate counts."""
    estimates = (v.confirmation.estimate for v in gate.verdicts if v.confirmation is not None)
    blocks = max((estimate.blocks for estimate in estimates if estimate is not None), default=0)
    return f"; {blocks} more with relocated arms confirmed or refuted what was flagged" if blocks else ""


def _problems(content: RunContent, cases: int) -> Iterator[str]:
    """What could not be read, what is not as the run left it, and what a page of so many cases does not show."""
    yield from content.problems
    if content.is_rejudged:
        yield "this run left no result; what is shown was judged again from what it measured"
    for case_id, why in content.profile.problems.items() if content.profile else ():
        yield f"{case_id} was not profiled: {describe(why)}"
    if (more := cases - _MOST_EVIDENCE) > 0:
        first = f"blocks, signals and history are shown of the {_MOST_EVIDENCE} most urgent cases"
        yield f"{first}; of {more} more the numbers are in the table, and their samples in the raw data"
