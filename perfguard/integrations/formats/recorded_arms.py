"""What each arm of a recorded run measured, in the shape that files of other tools are read into."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from perfguard.integrations.formats.checks import checked_values, is_usable, number_or_none
from perfguard.integrations.formats.series import ImportedSeries, ImportedSuite, ProcessSamples, summarize
from perfguard.records.case_names import split_case_id
from perfguard.records.events import BlockFinished, Event
from perfguard.records.result import RunResult
from perfguard.records.run import Arm
from perfguard.records.run_data import RunData

ROLES = tuple(arm.value for arm in Arm)


def arms_of(events: Sequence[Event], result: RunResult, *, perfguard: str) -> dict[str, ImportedSuite]:
    """The main stage's measurements by role; an arm without any is missing.

    Voided blocks are in it: what is raw stays whole. A block of an arm is one process.

    Args:
        events: The run's, whole or cut off.
        result: As judged.
        perfguard: Version that reads them.

    Raises:
        StoreError: A sample holds no time.
    """
    data = RunData.of(events)
    started = {event.block: event.started_at for event in events if isinstance(event, BlockFinished)}
    samples = _paired(data, started) if result.gate is not None else _rounds(data)
    arms = {}
    source = f"run {result.run_id}"
    for role in ROLES:
        series = tuple(
            _series(case_id, found, data.inner_loops.get(case_id), source=source)
            for case_id in data.case_ids
            if (found := samples.get((role, case_id)))
        )
        if series:
            arms[role] = _suite(series, result, role, source=source, perfguard=perfguard)
    return arms


_Samples = dict[tuple[str, str], list[ProcessSamples]]


def _paired(data: RunData, started: dict[int, float]) -> _Samples:
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


def measured_until(events: Iterable[Event]) -> float | None:
    """End of the last block, seconds since the epoch; None where none ended."""
    ends = (event.started_at + event.duration_s for event in events if isinstance(event, BlockFinished))
    return max((end for end in ends if math.isfinite(end)), default=None)


def _process(
    values_s: tuple[float, ...], control_s: tuple[float, ...], started_at: float | None, block: int
) -> ProcessSamples:
    return ProcessSamples(
        values=values_s,
        control_s=tuple(value for value in control_s if is_usable(value)),
        started_at=number_or_none(started_at),
        block=block,
    )


def _series(case_id: str, samples: Iterable[ProcessSamples], inner_loops: int | None, *, source: str) -> ImportedSeries:
    found = tuple(samples)
    for process in found:
        checked_values(process.values, name=case_id, source=source)
    return ImportedSeries(
        name=case_id,
        parameters=split_case_id(case_id).parameters,
        samples=found,
        has_processes=True,
        summary=summarize(found),
        n=sum(len(process.values) for process in found),
        inner_loops=inner_loops,
    )


def _suite(
    series: tuple[ImportedSeries, ...], result: RunResult, role: str, *, source: str, perfguard: str
) -> ImportedSuite:
    arm = result.arms.get(role)
    return ImportedSuite(
        tool="perfguard",
        version=perfguard,
        source=source,
        series=series,
        machine=result.machine,
        machine_id=result.machine_id,
        python=arm.python if arm else None,
        torch=arm.torch if arm else None,
    )
