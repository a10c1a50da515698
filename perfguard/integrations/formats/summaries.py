"""A series in a few numbers, from its samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from perfguard.integrations.formats.series import ProcessSamples, SeriesSummary


def summarize(samples: Sequence[ProcessSamples]) -> SeriesSummary:
    """Median over processes, the rest over all values.

    Args:
        samples: At least one process with at least one value.
    """
    values = sorted(value for process in samples for value in process.values)
    mean = statistics.fmean(values)
    return SeriesSummary(
        median=statistics.median(process_medians(samples)),
        mean=mean,
        sd=_sd(values, mean),
        minimum=values[0],
        maximum=values[-1],
        q25=quantile(values, 0.25),
        q75=quantile(values, 0.75),
    )


def process_medians(samples: Sequence[ProcessSamples]) -> tuple[float, ...]:
    """The median of each process, in the order of the samples."""
    return tuple(statistics.median(process.values) for process in samples)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile by linear interpolation between order statistics.

    Args:
        ordered: Ascending, not empty.
        share: In [0, 1].
    """
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _sd(values: Sequence[float], mean: float) -> float | None:
    # statistics.stdev reckons in fractions, which takes seconds for a hundred thousand rounds.
    if len(values) < 2:
        return None
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
