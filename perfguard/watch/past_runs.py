"""Series over the recorded runs of a project: what each case took, by when, on which machine, with which software."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfguard.codec import from_builtins, to_json
from perfguard.config import LoadedConfig
from perfguard.errors import PerfguardError, StoreError
from perfguard.host.probe import probe
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.run import Arm
from perfguard.records.run_data import RunData
from perfguard.store.baselines import BaselineStore
from perfguard.store.files import write_text
from perfguard.watch.sources.event_sources import EVENTS_FILE
from perfguard.watch.sources.event_tail import EventTail
from perfguard.watch.view.run_view import History, HistoryPoint

MAX_RUNS = 500  # The latest ones; older runs are left out of a series
_CACHE_FILE = "history.json"
_CACHE_SCHEMA = 3
_LONGEST_S = 1e9  # Thirty years; a damaged recording can hold any number


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """What a series needs of one run, as kept from one reading of its events to the next."""

    size_bytes: int  # Of the events when they were read; others are read again
    changed_ns: int  # Time of their last change, likewise
    points: tuple[HistoryPoint, ...]  # One for each case that was measured
    problem: Fact | None = None  # Why the run could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    schema: int
    runs: dict[str, RecordedRun]


def read_history(loaded: LoadedConfig, case_ids: Collection[str] | None = None) -> History:
    """The series of a project's recorded runs, and this machine's stored baselines beside them.

    The first reading takes seconds where many runs are recorded; what it found is kept in `.perfguard/history.json`.
    No `case_ids` stand for all cases.
    """
    folder = loaded.project / ".perfguard"
    known = _load(folder / _CACHE_FILE)
    found = dict(_read_runs(folder / "runs", known))
    if found != known:
        _save(folder / _CACHE_FILE, found)
    try:
        machine_id = probe().machine_id
    except PerfguardError:  # `perfguard fingerprint` says why
        machine_id = None
    points = (point for run in found.values() for point in run.points if case_ids is None or point.case_id in case_ids)
    return History(
        points=tuple(sorted(points, key=lambda point: (point.t_wall, point.case_id))),
        baselines_s=_baselines_s(loaded, machine_id, case_ids),
        machine_id=machine_id,
        problems={run_id: run.problem for run_id, run in found.items() if run.problem},
    )


def _read_runs(runs: Path, known: dict[str, RecordedRun]) -> Iterator[tuple[str, RecordedRun]]:
    """The latest runs, read again where their events have changed."""
    for path in sorted(runs.glob(f"*/{EVENTS_FILE}"))[-MAX_RUNS:]:
        try:
            status = path.stat()
        except OSError:  # removed meanwhile
            continue
        run_id, kept = path.parent.name, known.get(path.parent.name)
        if kept is not None and (kept.size_bytes, kept.changed_ns) == (status.st_size, status.st_mtime_ns):
            yield run_id, kept
        else:
            yield run_id, _read_run(path, size_bytes=status.st_size, changed_ns=status.st_mtime_ns)


def _read_run(path: Path, *, size_bytes: int, changed_ns: int) -> RecordedRun:
    tail, data, problems = EventTail(path), RunData(keeps_signals=False), list[Fact]()
    started_at: float | None = None
    has_more = True
    while has_more:
        update = tail.poll()
        has_more = update.has_more
        problems.extend(update.problems)
        if update.restarted:
            data, started_at = RunData(keeps_signals=False), None
        for seen in update.events:
            started_at = seen.t_wall if started_at is None else started_at
            data.add(seen.event)
    if data.start is None:
        problems.insert(0, fact("recording.no_start", severity=Severity.NOTABLE))
    return RecordedRun(
        size_bytes=size_bytes,
        changed_ns=changed_ns,
        points=tuple(_points(path.parent.name, data, started_at or 0.0)),
        problem=problems[0] if problems else None,
    )


def _points(run_id: str, data: RunData, started_at: float) -> Iterator[HistoryPoint]:
    start, ready = data.start, data.arms.get(Arm.CANDIDATE)
    if start is None or start.is_injected:
        return
    for case_id in start.case_ids:
        blocks = [block for block in data.effect_blocks(case_id) if block.is_finished and block.candidate_s]
        medians_s = [statistics.median(block.candidate_s) for block in blocks]
        medians_s = [median_s for median_s in medians_s if 0 < median_s < _LONGEST_S]
        if not medians_s:
            continue
        logs = [math.log(median_s) for median_s in medians_s]
        verdict = data.verdicts.get(case_id)
        yield HistoryPoint(
            run_id=run_id,
            t_wall=started_at,
            case_id=case_id,
            median_s=statistics.median(medians_s),
            spread_ratio=statistics.stdev(logs) if len(logs) > 1 else None,
            source_id=ready.source_id if ready else None,
            machine_id=start.machine_id,
            stack_id=ready.stack_id if ready else None,
            outcome=verdict.outcome if verdict else None,
            commit=ready.commit if ready else None,
        )


def _baselines_s(loaded: LoadedConfig, machine_id: str | None, case_ids: Collection[str] | None) -> dict[str, float]:
    """Median of each case in this machine's stored baselines; of the configured suite where several hold a case."""
    store = BaselineStore(loaded.rules / loaded.config.baselines)
    found: dict[str, float] = {}
    try:
        places = [place for place in store.stored() if place.parent.name == machine_id]
        for place in sorted(places, key=lambda place: place.name == loaded.config.suite):
            found |= {case_id: noise.median_s for case_id, noise in store.load(place).noise.items()}
    except PerfguardError:  # said by `perfguard baseline show`; a series goes without its line
        return {}
    return {case_id: median_s for case_id, median_s in found.items() if case_ids is None or case_id in case_ids}


def _load(path: Path) -> dict[str, RecordedRun]:
    """What the last reading kept; nothing where that is missing, of another version or damaged."""
    try:
        cache = from_builtins(json.loads(path.read_text(encoding="utf-8")), _Cache, source=str(path))
    except (OSError, ValueError, RecursionError, StoreError):
        return {}
    is_possible = all(0 < point.median_s < _LONGEST_S for run in cache.runs.values() for point in run.points)
    return cache.runs if cache.schema == _CACHE_SCHEMA and is_possible else {}


def _save(path: Path, runs: dict[str, RecordedRun]) -> None:
    """Keep what was read; a place that cannot be written only costs the next reading its time."""
    with suppress(StoreError, UnicodeError):  # names of folders need not be text
        write_text(path, to_json(_Cache(schema=_CACHE_SCHEMA, runs=runs)) + "\n")
