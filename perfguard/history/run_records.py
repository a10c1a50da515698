"""From the fold over a run's events to what the history keeps of it. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterator
from typing import TypeVar

from msgspec.structs import replace

from perfguard.codec import to_builtins
from perfguard.errors import StoreError
from perfguard.records.events import ArmReady
from perfguard.records.facts import Fact
from perfguard.records.history import CaseRecord, MeasuredCode, MeasuredRun, RecordedSamples, RunRecord
from perfguard.records.run import Arm
from perfguard.records.run_data import RunData

T = TypeVar("T")
_LONGEST_S = 1e9  # Thirty years; a damaged recording can hold any number
_MOST_BLOCKS = 2**15 - 1
_MOST_MILLIONTHS = 2**31 - 1
MILLION = 1e6


def is_of_interest(data: RunData) -> bool:
    """Whether a run says how fast the code is: it injects nothing, and is no trial, bisection or calibration."""
    return data.start is not None and not data.start.is_injected and data.start.gate.uses_allowances


def record_of(
    data: RunData, *, project: str, run_id: str, started_at: float, events_bytes: int, problem: Fact | None = None
) -> RunRecord:
    """What a run measured; without a start, a record that says only that there is none."""
    start, end, arms = data.start, data.end, data.arms
    record = RunRecord(
        project=project,
        run_id=run_id,
        started_at=started_at,
        mode=start.mode if start else "",
        suite=start.suite if start else "",
        machine_id=start.machine_id if start else None,
        outcome=end.outcome if end else None,
        exit_code=end.exit_code if end else None,
        candidate=_code(arms[Arm.CANDIDATE]) if Arm.CANDIDATE in arms else MeasuredCode(),
        baseline=_code(arms[Arm.BASELINE]) if Arm.BASELINE in arms else None,
        events_bytes=events_bytes,
        problem=problem,
        cases=tuple(sorted(_cases(data), key=lambda case: case.case_id)) if is_of_interest(data) else (),
    )
    return _as_text(record)


def samples_of(data: RunData) -> dict[str, RecordedSamples]:
    """The samples behind each case's record, by case id."""
    if not is_of_interest(data):
        return {}
    found = {
        case_id: [block for block in data.effect_blocks(case_id) if block.is_finished] for case_id in data.known_ids
    }
    return {
        _as_text(case_id): RecordedSamples(
            baseline_s=tuple(tuple(block.baseline_s) for block in blocks if block.baseline_s),
            candidate_s=tuple(tuple(block.candidate_s) for block in blocks if block.candidate_s),
        )
        for case_id, blocks in found.items()
        if blocks
    }


def storable(found: MeasuredRun) -> MeasuredRun:
    """A run from elsewhere as every database takes it.

    Raises:
        StoreError: It holds what no run of perfguard has, such as a median below zero.
    """
    record = _as_text(found.record)
    problem = next(_impossible(record), None)
    if problem is not None:
        raise StoreError(f"run {record.run_id!r} cannot be recorded: {problem}")
    samples = {_as_text(case_id): kept for case_id, kept in found.samples.items()}
    return replace(found, record=record, samples=samples)


def _impossible(record: RunRecord) -> Iterator[str]:
    """What is wrong with a record, if anything."""
    if not record.project or not record.run_id:
        yield "it has no project or no id"
    if not (0 <= record.started_at < _LONGEST_S * 100 and 0 <= record.events_bytes < 2**62):
        yield "its start or its size is impossible"
    if record.exit_code is not None and not 0 <= record.exit_code < 256:
        yield f"exit code {record.exit_code}"
    if len({case.case_id for case in record.cases}) < len(record.cases):
        yield "a case stands there twice"
    for case in record.cases:
        if not (0 < case.median_s < _LONGEST_S and 0 <= case.blocks <= _MOST_BLOCKS):
            yield f"{case.case_id} has a median of {case.median_s} s over {case.blocks} blocks"
        if case.spread_ratio is not None and not 0 <= case.spread_ratio <= _MOST_MILLIONTHS / MILLION:
            yield f"{case.case_id} has a spread of {case.spread_ratio}"
        if any(end is not None and not math.isfinite(end) for end in (case.log_ratio, case.lower, case.upper)):
            yield f"{case.case_id} has an effect that is no number"


def content_hash(record: RunRecord) -> str:
    """Equal for equal records, wherever they were made."""
    return hashlib.sha256(stored_json(record).encode()).hexdigest()


def stored_json(value: object) -> str:
    """JSON in ASCII, which every database takes: facts and fingerprints of a recording may hold what is no text."""
    return json.dumps(to_builtins(value), sort_keys=True)


def _code(ready: ArmReady) -> MeasuredCode:
    return MeasuredCode(source_id=ready.source_id, stack_id=ready.stack_id, commit=ready.commit)


def _cases(data: RunData) -> Iterator[CaseRecord]:
    from perfguard.stats.voiding import voided_blocks

    voided = voided_blocks(data)
    for case_id in data.known_ids:
        blocks = [block for block in data.effect_blocks(case_id) if block.is_finished and block.candidate_s]
        kept = [block for block in blocks if block.block not in voided] or blocks
        medians_s = [statistics.median(block.candidate_s) for block in kept]
        medians_s = [median_s for median_s in medians_s if 0 < median_s < _LONGEST_S]
        if not medians_s:
            continue
        logs = [math.log(median_s) for median_s in medians_s]
        verdict = data.verdicts.get(case_id)
        judged_s = (verdict and verdict.candidate_s) or 0.0  # Without the blocks that its gate left out
        yield CaseRecord(
            case_id=case_id,
            median_s=judged_s if 0 < judged_s < _LONGEST_S else statistics.median(medians_s),
            spread_ratio=_in_millionths(statistics.stdev(logs)) if len(logs) > 1 else None,
            blocks=min(len(logs), _MOST_BLOCKS),
            outcome=verdict.outcome if verdict else None,
            log_ratio=_finite(verdict.log_ratio) if verdict else None,
            lower=_finite(verdict.lower) if verdict else None,
            upper=_finite(verdict.upper) if verdict else None,
        )


def _as_text(value: T) -> T:
    """A record whose texts every database takes: recordings and names of folders may hold what is no text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", " ")  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(_as_text(item) for item in value)  # type: ignore[return-value]
    if isinstance(value, (MeasuredCode, CaseRecord, RunRecord)):
        return replace(value, **{name: _as_text(getattr(value, name)) for name in value.__struct_fields__})
    return value


def _in_millionths(ratio: float) -> float:
    """As precise as the database keeps it."""
    return min(round(ratio * MILLION), _MOST_MILLIONTHS) / MILLION


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
