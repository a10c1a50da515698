"""Series like those of benchmarks, with known jumps; and the labelled ones of the Turing change-point dataset."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SPACING = 25  # Points between two changes, and at either end
OUTLIERS = 0.02


@dataclass(frozen=True)
class Series:
    """Seconds, shape `(points,)`, and what changed where."""

    values: np.ndarray
    jumps: tuple[int, ...]  # First points of new levels that the code caused
    environments: np.ndarray  # One number a point

    @classmethod
    def flat(cls, logs):
        """Without a jump that is known, in one environment."""
        return cls(np.exp(logs), (), np.zeros(len(logs), dtype=int))


def places(rng, points, count):
    """Sorted places of changes."""
    free = points - SPACING * (count + 1)
    return np.sort(rng.integers(0, free + 1, count)) + SPACING * np.arange(1, count + 1)


def sizes(rng, count):
    """Jumps of 1 to 10 % up or down."""
    return np.log1p(rng.uniform(0.01, 0.10, count)) * rng.choice([-1, 1], count)


def drawn_sd(rng):
    """SD of logarithms: 0.3 to 2 %."""
    return float(np.exp(rng.uniform(np.log(0.003), np.log(0.02))))


def noise(rng, points, sd):
    """A third of the series follow their neighbours; outliers are slow runs, by up to 30 %."""
    correlation = rng.choice([0.0, 0.0, 0.3])
    shocks = rng.standard_normal(points) * sd * np.sqrt(1 - correlation**2)
    values = np.empty(points)
    last = sd * rng.standard_normal()
    for index, shock in enumerate(shocks):
        last = values[index] = correlation * last + shock
    return values + (rng.random(points) < OUTLIERS) * np.log1p(rng.uniform(0.03, 0.30, points))


def drift(rng, points):
    """A slope of up to 4 % and a wave of up to 1 %, over the whole series."""
    along = np.arange(points) / points
    wave = rng.uniform(0, 0.01) * np.sin(2 * np.pi * (rng.uniform(0.5, 2) * along + rng.random()))
    return rng.uniform(-0.04, 0.04) * along + wave


def series(rng, *, points=400, jumps=3, drifts=False, environments=0):
    """One series; places of jumps and of environments are drawn together, so none are near each other."""
    sd = drawn_sd(rng)
    changes = places(rng, points, jumps + environments)
    is_code = rng.permutation(np.arange(jumps + environments) < jumps)
    levels = np.zeros(points)
    for place, size in zip(changes, sizes(rng, len(changes)), strict=True):
        levels[place:] += size
    numbers = np.searchsorted(changes[~is_code], np.arange(points), side="right")
    logs = levels + noise(rng, points, sd) + (drift(rng, points) if drifts else 0.0)
    return Series(np.exp(logs), tuple(int(place) for place in changes[is_code]), numbers)


SETS = {
    "steps": {},
    "drift": {"drifts": True},
    "environments": {"jumps": 2, "environments": 2},
    "flat": {"points": 1000, "jumps": 0},
    "drifting": {"points": 1000, "jumps": 0, "drifts": True},
}
"""How the series of each set are made."""


def made(name, seed, count):
    """Series of a set."""
    rng = np.random.default_rng([seed, list(SETS).index(name)])
    return [series(rng, **SETS[name]) for _ in range(count)]


def stepped(rng, *, sds, after=5, points=100):
    """A flat series that ends a few points after a jump of so many SDs."""
    sd = drawn_sd(rng)
    logs = noise(rng, points, sd)
    logs[points - after :] += sds * sd
    return Series(np.exp(logs), (points - after,), np.zeros(points, dtype=int))


def labelled(folder: Path):
    """The labelled series with one value a point: values, and the places that each annotator marked."""
    marked = json.loads((folder / "annotations.json").read_text())
    for path in sorted(folder.glob("*.json")):
        if path.stem in marked:
            found = json.loads(path.read_text())
            if len(found["series"]) == 1 and None not in found["series"][0]["raw"]:
                yield np.array(found["series"][0]["raw"], dtype=float), list(marked[path.stem].values())
