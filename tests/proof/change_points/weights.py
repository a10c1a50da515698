"""Would it help to weight runs by their own intervals? `python -m tests.proof.change_points.weights`, a minute.

Series of 400 runs with three jumps, in which each run has an error of its own that is known, beside noise between runs
that is not. The product's rule is compared with one that clips and regresses with weights.
"""

# ruff: noqa: T201
from __future__ import annotations

import math
from unittest import mock

import numpy as np
from scipy import special

from perfguard.stats import change_points as rule
from tests.proof.change_points.scores import f1, matched
from tests.proof.change_points.series import drawn_sd, noise, places, sizes

SERIES = 80
POINTS, JUMPS = 400, 3


def made(rng, spread, share):
    """Log times, the known error of each, and the places of jumps; `share` is the errors' part of the variance."""
    sd, changes, levels = drawn_sd(rng), places(rng, POINTS, JUMPS), np.zeros(POINTS)
    for place, size in zip(changes, sizes(rng, JUMPS), strict=True):
        levels[place:] += size
    errors = sd * math.sqrt(share) * np.exp(rng.normal(0, spread, POINTS))
    between = noise(rng, POINTS, sd * math.sqrt(1 - share))
    return levels + between + errors * rng.standard_normal(POINTS), errors, {int(place) for place in changes}


def weighted(logs, errors):
    """Places of jumps by a rule that knows the errors."""
    sd = rule.noise_sd(logs)
    total = np.sqrt(max(sd**2 - float(np.median(errors**2)), (0.2 * sd) ** 2) + errors**2)
    clipped = rule.without_outliers(logs, total)

    def jump(values, start, place, end):
        start, end = max(start, place - rule._WINDOW), min(end, place + rule._WINDOW)
        times = np.arange(start, end, dtype=float) - place
        weights = 1 / total[start:end]
        design = np.column_stack([np.ones_like(times), times, times >= 0]) * weights[:, None]
        inverse = np.linalg.inv(design.T @ design)
        fitted = inverse @ (design.T @ (values[start:end] * weights))
        residuals = values[start:end] * weights - design @ fitted
        freedom = len(residuals) - 3
        error = math.sqrt(float(residuals @ residuals) / freedom * rule._inflation(residuals) * inverse[2, 2])
        p = special.stdtr(freedom, -abs(fitted[2]) / error)
        z = math.copysign(-float(special.ndtri(max(p, 1e-300))), fitted[2])
        return rule.Jump(index=place, log_ratio=float(fitted[2]), lower=0.0, upper=0.0, z=z)

    with mock.patch.object(rule, "_jump", jump):
        return {found.index for found in rule._shown(clipped, rule._proposed(clipped / sd))}


def main():
    """Print F1 of both for errors that differ little and much."""
    for spread, share in ((0.3, 0.5), (0.7, 0.5), (0.7, 0.8), (1.0, 0.8)):
        counts = np.zeros((2, 3))
        for seed in range(SERIES):
            logs, errors, known = made(np.random.default_rng([seed, int(10 * spread), int(10 * share)]), spread, share)
            plain = {found.index for found in rule.change_points(logs)}
            for row, found in enumerate((plain, weighted(logs, errors))):
                hits = len(matched(known, found)[0])
                counts[row] += hits, len(found) - hits, len(known) - hits
        plain, other = (f1(*row) for row in counts)
        errors = f"errors a factor {math.exp(spread):.1f} apart, {share:.0%} of the variance"
        print(f"{errors}: F1 {plain:.3f}, weighted {other:.3f}")


if __name__ == "__main__":
    main()
