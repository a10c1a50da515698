"""A run as the parts of a page, in the order of what people ask: is it real, how big, which op, since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfguard.records.result import RunResult
from perfguard.records.steps.profile import ProfiledCase, ProfileReport
from perfguard.records.verdict import GateResult, Outcome, Verdict
from perfguard.report.culprits import CulpritLine, culprit_lines
from perfguard.report.html.cases import CaseSection, profiled_section, section_of
from perfguard.report.html.charts import Chart, Table
from perfguard.report.html.content import ArmFacts, RawFile, RunContent
from perfguard.report.html.forest import forest
from perfguard.report.html.marks import Mark, mark_of_verdict, urgency
from perfguard.report.html.series import moment
from perfguard.report.html.tables import arms_table, cases_table, measured_table, profiled_table
from perfguard.report.lines import error_rate_of, notes_of
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.units import format_count, format_duration

_FEW = 3
"""So many cases are shown with their evidence open, whatever was said of them."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSection:
    """One run on a page."""

    anchor: str
    """Names it within the page."""
    run_id: str
    """Name of its folder."""
    mark: Mark
    """What is said of it."""
    sentence: str
    """The same as a sentence."""
    culprits: tuple[CulpritLine, ...]
    """Of the case that needs a look first; empty where it did not regress or was not profiled."""
    error_rate: str
    """What is known of the gate's error rates; empty where nothing was judged."""
    facts: tuple[tuple[str, str], ...]
    """Labels with their texts."""
    problems: tuple[str, ...]
    """What of the run is not shown, and why."""
    forest: Chart | None
    """Effects of all cases; None where nothing was compared."""
    cases_table: Table | None
    """All cases; None where there are none."""
    cases: tuple[CaseSection, ...]
    """Each with its evidence, what needs a look first."""
    arms: Table | None
    """Both sides; None where none was started."""
    arm_facts: tuple[ArmFacts, ...]
    """What distinguishes them."""
    fingerprint: str
    """The machine, in lines."""
    notes: tuple[str, ...]
    """What the reader should know."""
    files: tuple[RawFile, ...]
    """Raw data."""


def run_section(content: RunContent, *, number: int = 1) -> RunSection:
    """A run as a page shows it.

    Args:
        content: What is known of it.
        number: Which run of the page it is, from 1.
    """
    anchor = f"run-{number}"
    result, profile = content.result, content.profile
    verdicts = _ordered(result.gate) if result and result.gate else ()
    measured = result.measured if result else ()
    case_ids = [*(v.case_id for v in verdicts), *(m.case_id for m in measured)]
    anchors = _anchors(anchor, [*case_ids, *(case.case_id for case in _profiled(profile))])
    without = replace(content, evidence={}, history=None)
    shown = {case_id: content if index < _MOST_EVIDENCE else without for index, case_id in enumerate(anchors)}
    is_short = len(anchors) <= _FEW
    links = {case_id: f"#{known}" for case_id, known in anchors.items()}
    return RunSection(
        anchor=anchor,
        run_id=content.run_id,
        mark=mark_of_verdict(verdict_of(content)),
        sentence=_sentence(content),
        culprits=_culprits(verdicts, content),
        error_rate=error_rate_of(result) if result is not None else "",
        facts=tuple(_facts(content)),
        problems=(*_problems(content), *_left_out(len(anchors))),
        forest=forest(verdicts, links),
        cases_table=_table(verdicts, result, profile, links),
        cases=(
            *(
                section_of(v.case_id, anchors[v.case_id], shown[v.case_id], verdict=v, is_open=is_short)
                for v in verdicts
            ),
            *(
                section_of(m.case_id, anchors[m.case_id], shown[m.case_id], measured=m, is_open=is_short)
                for m in measured
            ),
            *(profiled_section(case, anchors[case.case_id]) for case in _profiled(profile)),
        ),
        arms=arms_table(result.arms) if result else None,
        arm_facts=content.arm_facts,
        fingerprint=content.fingerprint,
        notes=tuple(_notes(content)),
        files=content.files,
    )


def _culprits(verdicts: Sequence[Verdict], content: RunContent) -> tuple[CulpritLine, ...]:
    first = next((verdict for verdict in verdicts if verdict.outcome is Outcome.REGRESSED), None)
    attribution = content.attributions.get(first.case_id) if first is not None else None
    return tuple(culprit_lines(attribution)) if attribution is not None else ()


def _ordered(gate: GateResult) -> tuple[Verdict, ...]:
    """What needs a look first, else the order of the suite."""
    return tuple(sorted(gate.verdicts, key=lambda verdict: urgency(verdict.outcome)))


def _anchors(prefix: str, case_ids: Sequence[str]) -> dict[str, str]:
    """Anchors that hold nothing of a case's name, which others wrote."""
    return {case_id: f"{prefix}-case-{index}" for index, case_id in enumerate(dict.fromkeys(case_ids), 1)}


def _profiled(profile: ProfileReport | None) -> tuple[ProfiledCase, ...]:
    return profile.cases if profile else ()


def _table(
    verdicts: Sequence[Verdict], result: RunResult | None, profile: ProfileReport | None, links: Mapping[str, str]
) -> Table | None:
    if verdicts:
        return cases_table(verdicts, links)
    if result and result.measured:
        return measured_table(result.measured, links)
    return profiled_table(profile.cases, links) if profile and profile.cases else None


def verdict_of(content: RunContent) -> str:
    """A GateOutcome, `measured`, `profiled`, `interrupted` or `nothing to show`."""
    if content.profile is not None:
        return "profiled"
    return content.result.verdict if content.result else "nothing to show"


def _sentence(content: RunContent) -> str:
    if content.profile is not None:
        return f"{format_count(len(content.profile.cases), 'case')} profiled"
    if content.result is None:
        return "nothing can be said of this run"
    return describe_all(content.result.reasons)


def _facts(content: RunContent) -> list[tuple[str, str]]:
    result, profile = content.result, content.profile
    found = [("run", content.run_id), ("started", moment(content.started_at))]
    if content.command:
        found.append(("command", _typed(content.command)))
    if result is not None:
        code = result.exit_code
        found.append(("exit code", f"{code}, {_MEANINGS.get(code, 'unknown')}"))
        found += [("suite", result.suite), ("took", format_duration(result.duration_s))]
    if result is not None and result.gate is not None:
        gate = result.gate
        voided = f", {gate.blocks_voided} of them voided" if gate.blocks_voided else ""
        found.append(("blocks", f"{gate.blocks_total}{voided}{_confirming(gate)}"))
    machine = result or profile
    if machine is not None:
        cpus = ", ".join(map(str, machine.cpus)) or "unknown"
        found += [("machine", f"{machine.machine} [{machine.machine_id}]"), ("measured on CPU", cpus)]
    if profile is not None:
        found.append(("torch", profile.torch))
    return found


def _confirming(gate: GateResult) -> str:
    """Blocks that were measured to confirm flags, which no verdict's own estimate counts."""
    estimates = (v.confirmation.estimate for v in gate.verdicts if v.confirmation is not None)
    blocks = max((estimate.blocks for estimate in estimates if estimate is not None), default=0)
    return f"; {blocks} more with relocated arms confirmed or refuted what was flagged" if blocks else ""


def _typed(command: Sequence[str]) -> str:
    return " ".join(command if command[0] == "perfguard" else ("perfguard", *command))


def _problems(content: RunContent) -> tuple[str, ...]:
    rejudged = (
        ("this run left no result; what is shown was judged again from what it measured",)
        if content.is_rejudged
        else ()
    )
    failed = content.profile.problems.items() if content.profile else ()
    return (*content.problems, *rejudged, *(f"{case_id} was not profiled: {describe(why)}" for case_id, why in failed))


def _left_out(cases: int) -> list[str]:
    """What a page of so many cases does not show."""
    more = cases - _MOST_EVIDENCE
    if more <= 0:
        return []
    first = f"blocks, signals and history are shown of the {_MOST_EVIDENCE} most urgent cases"
    return [f"{first}; of {more} more the numbers are in the table, and their samples in the raw data"]


def _notes(content: RunContent) -> list[str]:
    result, profile = content.result, content.profile
    notes = (*(notes_of(result) if result else ()), *(profile.notes if profile else ()))
    return [describe(note) for note in notes if result is None or note != result.error_rate]
