"""Confirms LoadGen's latencies by perfguard's own time stamps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from perfguard.errors import StoreError
from perfguard.tasks.integer_arrays import read_integers
from perfguard.tasks.scores import early_stopping, percentile

_SLACK_NS, _SLACK_RATIO = 10_000, 0.005
_FIGURES = {"result_90.00_percentile_latency_ns": percentile, "early_stopping_latency_ss": early_stopping}
"""By LoadGen's key."""


@dataclass(frozen=True, slots=True)
class StampedQueries:
    """Time stamps around queries that came one after the other, nanoseconds of the monotonic clock."""

    begun_ns: Sequence[int]
    ended_ns: Sequence[int]  # The answer was there
    returned_ns: Sequence[int]  # LoadGen had taken the answer; the first is before all queries, so there is one more

    @property
    def latencies_ns(self) -> list[int]:
        """From the call to the answer: the shortest that LoadGen may say."""
        return [end - begin for begin, end in zip(self.begun_ns, self.ended_ns, strict=True)]

    @property
    def longest_ns(self) -> list[int]:
        """From the end of the query before: the longest that LoadGen may say."""
        return [after - before for before, after in pairwise(self.returned_ns)]


@dataclass(frozen=True, slots=True)
class OtherFigure:
    """A figure of LoadGen that the time stamps contradict, nanoseconds."""

    own_ns: int
    loadgen_ns: float


def contradicted(queries: StampedQueries, logged: Callable[[str], float | None]) -> Iterator[OtherFigure]:
    """Percentiles in LoadGen's log, by key, that do not follow from perfguard's time stamps.

    In single-stream LoadGen sends a query when it has taken the answer before. Each of its latencies then lies between
    the shortest and the longest that the stamps allow, and so does each percentile. 10 µs or 0.5 %, whichever is more,
    are left to the difference between the clocks.
    """
    shortest_ns, longest_ns = queries.latencies_ns, queries.longest_ns
    for key, figure in _FIGURES.items():
        theirs, least, most = logged(key), figure(shortest_ns), figure(longest_ns)
        if theirs is None or least is None or most is None:
            continue
        slack = max(_SLACK_NS, _SLACK_RATIO * theirs)
        if not least - slack <= theirs <= most + slack:
            yield OtherFigure(least, theirs)


def write_stamps(path: Path, queries: StampedQueries) -> None:
    """Store them in NumPy's format."""
    np.savez_compressed(
        path,
        begun_ns=np.array(queries.begun_ns),
        ended_ns=np.array(queries.ended_ns),
        returned_ns=np.array(queries.returned_ns),
    )


def read_stamps(path: Path) -> StampedQueries:
    """What `write_stamps` stored.

    Raises:
        StoreError: The file cannot be read, or lacks stamps.
    """
    begun, ended, returned = read_integers(path, "begun_ns", "ended_ns", "returned_ns")
    if not len(begun) == len(ended) == len(returned) - 1:
        raise StoreError(f"{path}: each query has three time stamps")
    return StampedQueries(begun.tolist(), ended.tolist(), returned.tolist())
