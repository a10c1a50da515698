"""`export` and `import`: recorded runs as files of other tools, and files of other tools looked at and compared."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfguard import __version__
from perfguard.config import LoadedConfig
from perfguard.errors import StoreError, UsageError
from perfguard.gate.paired.judging import policy_of
from perfguard.gate.rules.compare import compare_rounds
from perfguard.gate.rules.policy import decide_cases
from perfguard.gate.show import show_run
from perfguard.integrations.formats.documents import MAX_FILE_BYTES
from perfguard.integrations.formats.formats import AUTO, ExportRequest, export_run, import_suite
from perfguard.integrations.formats.recorded_arms import arms_of, measured_until
from perfguard.integrations.formats.series import (
    SECONDS,
    TIME,
    Difference,
    ImportedComparison,
    ImportedSeries,
    ImportedSuite,
    ImportReport,
    Objection,
    RunExport,
)
from perfguard.records.facts import Fact, fact
from perfguard.records.result import RunResult
from perfguard.records.run import Round
from perfguard.records.spec import Case
from perfguard.records.verdict import Outcome, Policy, Verdict
from perfguard.report.messages.catalog import describe
from perfguard.runner.run_folder import read_events
from perfguard.units import printable
from perfguard.watch.sources.event_sources import EVENTS_FILE

STDIN = "-"
_UNKNOWN_SPEED = 1.0
"""Stands for the control workload where none was timed: the same on both sides, so it says that the machine was as
fast."""

_DIFFERENCES = {
    Outcome.REGRESSED: Difference.SLOWER,
    Outcome.IMPROVED: Difference.FASTER,
    Outcome.UNCHANGED: Difference.EQUAL,
    Outcome.SAME_CODE: Difference.EQUAL,
}


def export(
    loaded: LoadedConfig, folder: Path, name: str, *, arm: str, samples: bool = False, commit: str | None = None
) -> bytes:
    """A recorded run in the format of another tool.

    Args:
        loaded: The configuration, by whose rule the run is judged.
        folder: The run's.
        name: The format.
        arm: Role of the arm that formats with one side get.
        samples: Raw samples instead of verdicts, where a format has both.
        commit: Commit of that arm, where a format asks for one; None takes the one that was measured, if it was
            measured as committed.

    Raises:
        StoreError: The run cannot be read, or holds nothing that the format could hold.
        UsageError: The options do not go together, or what writes the format is not installed.
    """
    result = show_run(loaded, folder)
    events = tuple(read_events(folder / EVENTS_FILE))
    run = RunExport(
        result=result,
        arms=arms_of(events, result, perfguard=__version__),
        perfguard=__version__,
        measured_until=measured_until(events),
        commit=commit or _measured_commit(result, arm),
    )
    return export_run(ExportRequest(run=run, arm=arm, samples=samples), name)


def _measured_commit(result: RunResult, arm: str) -> str | None:
    """The commit of an arm; None where it held changes that are in no commit, or lies outside git."""
    summary = result.arms.get(arm)
    return None if summary is None or "+" in (summary.source_id or "+") else summary.commit


def import_files(loaded: LoadedConfig, names: Sequence[str], *, name: str = AUTO) -> ImportReport:
    """What one file holds and lacks; with two files also the second against the first.

    Args:
        loaded: The configuration, whose margins a comparison uses.
        names: One or two paths; `-` is stdin.
        name: The format, or `auto`.

    Raises:
        StoreError: A file cannot be read.
        UsageError: The two cannot be compared; the message says why.
    """
    suites = tuple(import_suite(_content(path), source=_source(path), name=name) for path in names)
    if len(suites) < 2:
        return ImportReport(suites=suites, objections=tuple(objections_of(suite) for suite in suites))
    comparisons = compare_suites(suites[0], suites[1], policy_of(loaded.config))
    assumed = any(entry.log_ratio is not None and not entry.has_control for entry in comparisons)
    return ImportReport(
        suites=suites,
        objections=tuple(objections_of(suite) for suite in suites),
        comparisons=comparisons,
        notes=(
            *((fact("import.speed_assumed"),) if assumed else ()),
            *_other_machine(*suites),
            fact("import.not_a_gate"),
        ),
    )


def compare_suites(baseline: ImportedSuite, candidate: ImportedSuite, policy: Policy) -> tuple[ImportedComparison, ...]:
    """The times that two files have in common, compared as rounds of a stored baseline are.

    Where a process timed no control workload, the machine is taken to have been as fast both times; each comparison
    says so.

    Args:
        baseline: The first file.
        candidate: The second one.
        policy: Margins and error rate.

    Raises:
        UsageError: They have no time in common, or none that can be compared.
    """
    old, new = _times(baseline), _times(candidate)
    common = [name for name in old if name in new]
    if not common:
        raise UsageError(
            f"{baseline.source} and {candidate.source} have no time in common: the first has {_named(old)}, the second "
            f"{_named(new)}"
        )
    objections = {name: found for name in common if (found := _objection(old[name], new[name], baseline, candidate))}
    if len(objections) == len(common):
        name, why = next(iter(objections.items()))
        more = f" (and {len(common) - 1} more)" if len(common) > 1 else ""
        raise UsageError(f"the two cannot be compared: {name}{more}: {describe(why)}")
    return tuple(_comparisons(old, new, common, objections, policy))


def _comparisons(
    old: Mapping[str, ImportedSeries],
    new: Mapping[str, ImportedSeries],
    common: Sequence[str],
    objections: Mapping[str, Fact],
    policy: Policy,
) -> list[ImportedComparison]:
    compared = [name for name in common if name not in objections]
    timed = {name: has_control(old[name]) and has_control(new[name]) for name in compared}
    cases = [Case(benchmark=name, target="") for name in compared]
    comparisons = compare_rounds(
        {name: _rounds(old[name], with_control=timed[name]) for name in compared},
        {name: _rounds(new[name], with_control=timed[name]) for name in compared},
        cases,
        policy,
    )
    verdicts = {verdict.case_id: verdict for verdict in decide_cases(comparisons, policy)}
    return [
        _compared(verdicts[name], has_control=timed[name])
        if name in verdicts
        else ImportedComparison(name=name, difference=Difference.NOT_COMPARED, reasons=(objections[name],))
        for name in common
    ]


def _compared(verdict: Verdict, *, has_control: bool) -> ImportedComparison:
    comparison, estimate = verdict.comparison, verdict.effect
    return ImportedComparison(
        name=verdict.case_id,
        difference=_DIFFERENCES.get(verdict.outcome, Difference.UNDECIDED),
        reasons=verdict.reasons,
        baseline_median_s=comparison.baseline_median_s,
        candidate_median_s=comparison.candidate_median_s,
        log_ratio=estimate.log_ratio if estimate else None,
        lower=estimate.interval.lower if estimate else -math.inf,
        upper=estimate.interval.upper if estimate else math.inf,
        p_adjusted=verdict.p_adjusted,
        has_control=has_control,
    )


def _rounds(series: ImportedSeries, *, with_control: bool) -> tuple[Round, ...]:
    return tuple(
        Round(
            values_s=process.values,
            control_s=process.control_s if with_control else (_UNKNOWN_SPEED,),
            started_at=process.started_at or 0.0,
        )
        for process in series.samples or ()
    )


def _objection(
    old: ImportedSeries, new: ImportedSeries, baseline: ImportedSuite, candidate: ImportedSuite
) -> Fact | None:
    return comparison_objection(old, place=baseline.source) or comparison_objection(new, place=candidate.source)


def _times(suite: ImportedSuite) -> dict[str, ImportedSeries]:
    return {
        series.name if series.metric == TIME else f"{series.name} {series.metric}": series
        for series in suite.series
        if series.unit == SECONDS
    }


def _named(series: Mapping[str, ImportedSeries]) -> str:
    names = list(series)
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return (", ".join(names[:2]) or "none") + more


def _other_machine(baseline: ImportedSuite, candidate: ImportedSuite) -> tuple[Fact, ...]:
    old, new = (suite.machine_id or suite.machine for suite in (baseline, candidate))
    if old is None or new is None or old == new:
        return ()
    return (fact("import.other_machine", baseline=old, candidate=new),)


def _source(path: str) -> str:
    return "stdin" if path == STDIN else printable(path)


def _content(path: str) -> bytes:
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        with Path(path).open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"{_source(path)} cannot be read: {reason}") from error


MIN_PROCESSES = 2
"""Fewer say nothing on how processes differ."""


def comparison_objection(series: ImportedSeries, *, place: str | None = None) -> Fact | None:
    """Why a series cannot be compared with another file's at all; None where it can.

    Args:
        series: The series.
        place: The file, where two are compared.
    """
    if series.unit != SECONDS:
        return fact("import.not_a_time", place=place)
    if series.samples is None:
        return fact("import.only_a_summary", place=place)
    if not series.has_processes:
        return fact("import.unknown_processes", place=place)
    if len(series.samples) < MIN_PROCESSES:
        return fact("import.too_few_processes", place=place, needed_processes=MIN_PROCESSES)
    return None


def gate_objection(series: ImportedSeries) -> Fact | None:
    """Why a gate could not judge by a series; None where it could, as by rounds of a stored baseline."""
    objection = comparison_objection(series)
    return objection if objection is not None or has_control(series) else fact("import.no_control")


def has_control(series: ImportedSeries) -> bool:
    """Whether every process timed the control workload."""
    return bool(series.samples) and all(process.control_s for process in series.samples or ())


def objections_of(suite: ImportedSuite) -> tuple[Objection, ...]:
    """What a gate would object to, each with its series; empty where it could judge by all of them."""
    found: dict[str, list[str]] = {}
    facts: dict[str, Fact] = {}
    for series in suite.series:
        objection = gate_objection(series)
        if objection is not None:
            facts[objection.code] = objection
            found.setdefault(objection.code, []).append(series.name)
    return tuple(Objection(fact=facts[code], series=tuple(names)) for code, names in found.items())
