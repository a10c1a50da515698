"""`perfguard export`: a recorded run in the format of another tool."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from perfguard import __version__
from perfguard.config import LoadedConfig
from perfguard.errors import UsageError
from perfguard.gate.show import show_run
from perfguard.integrations.formats import (
    asv_results,
    charts,
    ci_reports,
    code_scanning,
    pyperf_json,
    pytorch_records,
    tables,
)
from perfguard.integrations.formats.reading import checked_values, is_usable, number_or_none
from perfguard.integrations.formats.suites import ImportedSuite, ProcessSamples, RunExport, series_of_samples
from perfguard.records.case_names import split_case_id
from perfguard.records.events import BlockFinished, Event
from perfguard.records.result import RunResult
from perfguard.records.run import Arm
from perfguard.records.run_data import RunData
from perfguard.runner.run_folder import read_events
from perfguard.watch.sources.event_sources import EVENTS_FILE

WRITERS: dict[str, Callable[[RunExport], bytes]] = {
    "pyperf": lambda run: pyperf_json.write(run.suite),
    "asv": asv_results.write,
    "pytorch": pytorch_records.write,
    "bencher": lambda run: charts.write_bencher(run.suite),
    "github-action": charts.write_github_action,
    "junit": ci_reports.write_junit,
    "sarif": code_scanning.write_sarif,
    "openmetrics": ci_reports.write_open_metrics,
    "csv": tables.write_csv,
    "parquet": tables.write_parquet,
}
"""By name."""

WITH_SAMPLES = ("csv", "parquet")
"""Formats that hold either verdicts or raw samples; all others have one layout."""

_Samples = dict[tuple[str, str], list[ProcessSamples]]  # By role of the arm and case


def export(
    loaded: LoadedConfig, folder: Path, name: str, *, arm: str, samples: bool = False, commit: str | None = None
) -> bytes:
    """A recorded run in the format `name`, a key of `WRITERS`, judged by the rule of the configuration.

    Formats with one side get the arm of the role `arm`. Its commit is by default the one that was measured, if it was
    measured as committed. `samples` asks for raw samples instead of verdicts.

    Raises:
        StoreError: The run cannot be read, or holds nothing that the format could hold.
        UsageError: The options do not go together, or what writes the format is not installed.
    """
    result = show_run(loaded, folder)
    events = tuple(read_events(folder / EVENTS_FILE))
    measured = result.arms.get(arm)
    if commit is None and measured is not None and "+" not in (measured.source_id or "+"):
        commit = measured.commit
    run = RunExport(
        result=result,
        arms=arms_of(events, result),
        measured_until=measured_until(events),
        arm=arm,
        commit=commit,
        samples=samples,
    )
    return export_run(run, name)


def export_run(run: RunExport, name: str) -> bytes:
    """A run in the format `name`, a key of `WRITERS`; raises what `export` does."""
    if run.samples and name not in WITH_SAMPLES:
        raise UsageError(f"--samples goes with {' and '.join(WITH_SAMPLES)}; {name} has one layout only")
    return WRITERS[name](run)


def arms_of(events: Sequence[Event], result: RunResult) -> dict[str, ImportedSuite]:
    """The main stage's measurements by role; an arm without any is missing, voided blocks are in it.

    A block of an arm is one process. StoreError where a sample holds no time.
    """
    data = RunData.of(events)
    source = f"run {result.run_id}"
    samples = _paired(data, events) if result.gate is not None else _rounds(data)
    for (_, case_id), processes in samples.items():
        for process in processes:
            checked_values(process.values, name=case_id, source=source)
    arms = {}
    for role in (arm.value for arm in Arm):
        series = tuple(
            series_of_samples(
                case_id, found, parameters=split_case_id(case_id).parameters, inner_loops=data.inner_loops.get(case_id)
            )
            for case_id in data.case_ids
            if (found := samples.get((role, case_id)))
        )
        if series:
            arm = result.arms.get(role)
            arms[role] = ImportedSuite(
                tool="perfguard",
                version=__version__,
                source=source,
                series=series,
                machine=result.machine,
                machine_id=result.machine_id,
                python=arm.python if arm else None,
                torch=arm.torch if arm else None,
            )
    return arms


def measured_until(events: Iterable[Event]) -> float | None:
    """End of the last block, seconds since the epoch; None where none ended."""
    ends = (event.started_at + event.duration_s for event in events if isinstance(event, BlockFinished))
    return max((end for end in ends if math.isfinite(end)), default=None)


def _paired(data: RunData, events: Sequence[Event]) -> _Samples:
    started = {event.block: event.started_at for event in events if isinstance(event, BlockFinished)}
    paired = data.paired()
    control_times = {entry.block: entry.control_s for entry in paired.conditions}
    found: _Samples = {}
    for entry in sorted(paired.samples, key=lambda entry: entry.block):
        for arm, values_s in ((Arm.BASELINE, entry.baseline_s), (Arm.CANDIDATE, entry.candidate_s)):
            if values_s:
                process = _process(values_s, control_times.get(entry.block, ()), started.get(entry.block), entry.block)
                found.setdefault((arm.value, entry.case_id), []).append(process)
    return found


def _rounds(data: RunData) -> _Samples:
    return {
        (Arm.CANDIDATE.value, case_id): [
            _process(entry.values_s, entry.control_s, entry.started_at, number) for number, entry in enumerate(rounds)
        ]
        for case_id, rounds in data.rounds().items()
    }


def _process(values_s: tuple[float, ...], control_s: Iterable[float], started_at: Any, block: int) -> ProcessSamples:
    control = tuple(filter(is_usable, control_s))
    return ProcessSamples(values=values_s, control_s=control, started_at=number_or_none(started_at), block=block)
