"""Measurements as files of other tools hold them, in one shape for all formats, and what can be said of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from msgspec import Struct

from perfguard.errors import StoreError
from perfguard.records.facts import Fact
from perfguard.records.result import RunResult

IMPORT_SCHEMA = 2

TIME = "time"  # The metric that all formats with times share: seconds of one iteration
SECONDS = "s"  # The unit of times
_LAST = 253_402_300_800  # Python's dates end with the year 9999


class Difference(str, Enum):
    """What a comparison of two imported series says of the second one."""

    SLOWER = "slower"
    FASTER = "faster"
    EQUAL = "equal"  # The whole interval lies inside the equivalence margin
    UNDECIDED = "undecided"
    NOT_COMPARED = "not-compared"  # The reasons say what is missing


class ProcessSamples(Struct, frozen=True, kw_only=True):
    """The samples of one process; where a file does not name the processes, all that it holds of a series."""

    values: tuple[float, ...]  # For one iteration, in the order of the file; not empty
    control_s: tuple[float, ...] = ()
    """Samples of perfguard's control workload at that time; empty where another tool measured."""
    started_at: float | None = None  # Seconds since the epoch
    block: int | None = None  # Block or round of a perfguard run


class SeriesSummary(Struct, frozen=True, kw_only=True):
    """A series in a few numbers, in its unit: from its samples where there are any, else as its tool gives them.

    All but the median are of all values.
    """

    median: float | None = None
    """Median of the processes' medians; of all values where the processes are not known."""
    mean: float | None = None
    sd: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    q25: float | None = None
    q75: float | None = None
    lower: float | None = None  # Lower end of the interval that the file gives, whatever it means to its tool
    upper: float | None = None


class ImportedSeries(Struct, frozen=True, kw_only=True):
    """One metric of one benchmark."""

    name: str  # As its tool shows it, parameters included; unique in the suite together with `metric`
    parameters: tuple[tuple[str, str], ...] = ()  # Names and values, where the file gives them
    metric: str = TIME  # `time`, or the tool's own word for something else
    unit: str = SECONDS  # `s` for times; empty where the file gives none
    samples: tuple[ProcessSamples, ...] | None  # None where the file holds only a summary
    has_processes: bool = False
    """Whether each entry of `samples` is one process. False: the file does not say which process a value is from."""
    summary: SeriesSummary
    n: int | None  # How many values were measured; None where the file does not say
    inner_loops: int | None = None  # Iterations that one value is the mean of; None where unknown
    what_is_missing: tuple[Fact, ...] = ()  # What a gate would need and this series lacks


class ImportedSuite(Struct, frozen=True, kw_only=True):
    """What one file holds, or what one arm of a run would hold in it."""

    tool: str  # Who wrote it: `pyperf`, `asv`, ..
    version: str | None  # Version of the tool or of its format, as the file gives it
    source: str  # The file as named
    series: tuple[ImportedSeries, ...]  # In the order of the file; not empty
    commit: str | None = None
    machine: str | None = None  # The machine in the file's own words
    machine_id: str | None = None  # perfguard's identity of the machine; None where another tool measured
    python: str | None = None
    torch: str | None = None
    what_is_missing: tuple[Fact, ...] = ()
    """What holds for all series: what was left out of the file, and what the format cannot hold."""


class Objection(Struct, frozen=True, kw_only=True):
    """Why a gate could not use some series of a file as a baseline."""

    fact: Fact
    series: tuple[str, ...]  # Names of the series, in the order of the file


class ImportedComparison(Struct, frozen=True, kw_only=True):
    """The same series in two files."""

    name: str
    difference: Difference  # What the second file is against the first
    reasons: tuple[Fact, ...]  # The numbers that lead to it, or what is missing
    baseline_median_s: float | None = None  # Median seconds of one iteration in the first file
    candidate_median_s: float | None = None
    log_ratio: float | None = None
    """Estimated effect, with the ends of its interval, which are infinite when unknown."""
    lower: float = -math.inf
    upper: float = math.inf
    p_adjusted: float | None = None
    """p of a slowdown, corrected for the number of series; None where nothing was tested."""
    has_control: bool = False
    """Whether both sides timed the control workload. False: it holds only if the machine was as fast both times."""


class ImportReport(Struct, frozen=True, kw_only=True):
    """What `perfguard import` found."""

    schema: int = IMPORT_SCHEMA
    suites: tuple[ImportedSuite, ...]  # One for each file
    objections: tuple[tuple[Objection, ...], ...]
    """For each suite: why a gate could not judge by it; empty where it could."""
    comparisons: tuple[ImportedComparison, ...] = ()  # The second file against the first; empty with one file
    notes: tuple[Fact, ...] = ()  # What the reader must know beside the table


class RunExport(Struct, frozen=True, kw_only=True):
    """A recorded run, and what of it is to be exported."""

    result: RunResult
    arms: Mapping[str, ImportedSuite]
    """What each arm measured in the main stage, by role; arms without any measurement are missing."""
    measured_until: float | None  # End of the last block, seconds since the epoch; None where none ended
    arm: str = "candidate"  # Role of the arm that formats with one side get
    commit: str | None = None  # Commit of that arm
    samples: bool = False  # Raw samples instead of verdicts, where a format has both

    @property
    def suite(self) -> ImportedSuite:
        """What the arm measured; StoreError where that is nothing."""
        if self.arm not in self.arms:
            known = ", ".join(sorted(self.arms)) or "none"
            raise StoreError(
                f"{self.result.run_id} holds no measurement of its {self.arm}; arms that measured: {known}"
            )
        return self.arms[self.arm]


def series_of_samples(name: str, samples: Sequence[ProcessSamples], **fields: Any) -> ImportedSeries:
    """A series with its summary and the number of its values; `fields` are the others of `ImportedSeries`."""
    return ImportedSeries(
        **{"has_processes": True, **fields},
        name=name,
        samples=tuple(samples),
        summary=summarize(samples),
        n=sum(len(process.values) for process in samples),
    )


def summarize(samples: Sequence[ProcessSamples]) -> SeriesSummary:
    """Median over processes, the rest over all values; there must be one."""
    values = sorted(value for process in samples for value in process.values)
    mean = statistics.fmean(values)
    # statistics.stdev computes in fractions, which takes seconds for a hundred thousand rounds.
    squares = math.fsum((value - mean) ** 2 for value in values)
    return SeriesSummary(
        median=statistics.median(process_medians(samples)),
        mean=mean,
        sd=math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else None,
        minimum=values[0],
        maximum=values[-1],
        q25=quantile(values, 0.25),
        q75=quantile(values, 0.75),
    )


def process_medians(samples: Sequence[ProcessSamples] | None) -> tuple[float, ...]:
    """The median of each process, in the order of the samples."""
    return tuple(statistics.median(process.values) for process in samples or ())


def quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile of ascending values by linear interpolation between order statistics; `share` is in [0, 1]."""
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def times_of(suite: ImportedSuite, *, raw: bool = False) -> list[tuple[ImportedSeries, float]]:
    """The series with a median, in seconds; `raw`: only those with samples. StoreError where there is none."""
    found = [
        (series, series.summary.median)
        for series in suite.series
        if series.unit == SECONDS and series.summary.median is not None and (series.samples or not raw)
    ]
    if not found:
        raise StoreError(f"{suite.source} holds no times that the format could hold")
    return found


def utc_text(moment: float | None, *, separator: str = "T") -> str | None:
    """`2026-09-21T14:26:40`, seconds since the epoch as UTC without a zone; None for what is no moment."""
    if moment is None or not 0 <= moment < _LAST:
        return None
    return datetime.fromtimestamp(int(moment), tz=timezone.utc).replace(tzinfo=None).isoformat(sep=separator)
