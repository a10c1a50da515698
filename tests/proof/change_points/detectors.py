"""Rules that find change points: the product's, asv's, apache-otava's with two settings, and none."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

from perfguard.stats.change_points import change_points, noise_sd, without_outliers

OTAVA = Path(__file__).parents[3] / ".perfguard" / "otava"
"""Where `make proof-change-points` puts apache-otava, without the clients of databases and chats that it requires."""


def parts(series):
    """Start and end of each stretch of one environment."""
    return list(pairwise([0, *(np.flatnonzero(np.diff(series.environments)) + 1), len(series.values)]))


def perfguard(series):
    """The product's rule, in each environment."""
    logs = np.log(series.values)
    return [start + jump.index for start, end in parts(series) for jump in change_points(logs[start:end])]


def asv(series):
    """Steps of `asv publish`, which knows no environments."""
    from asv.step_detect import detect_steps

    return [left for left, *_ in detect_steps(list(series.values))[1:]]


def otava(series):
    """apache-otava as it comes."""
    return _otava(list(series.values))


def tuned_otava(series):
    """apache-otava in each environment, with outliers clipped and a stricter p-value."""
    found = []
    for start, end in parts(series):
        logs = np.log(series.values[start:end])
        values = np.exp(without_outliers(logs, noise_sd(logs)))
        found += [start + place for place in _otava(values, window_len=100, max_pvalue=1e-6, min_magnitude=0.005)]
    return found


def _otava(values, **options):
    if str(OTAVA) not in sys.path:
        sys.path.insert(0, str(OTAVA))
    from otava.analysis import compute_change_points

    found, _ = compute_change_points([float(value) for value in values], **options)
    return [point.index for point in found]


def nothing(series):
    """Finds none."""
    return []


DETECTORS = {
    "perfguard": perfguard,
    "apache-otava 0.8.0": otava,
    "apache-otava, split, clipped, p 1e-6": tuned_otava,
    "asv": asv,
    "nothing": nothing,
}
