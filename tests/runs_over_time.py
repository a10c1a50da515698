"""A case over imagined runs, a day apart, with noise of half a percent."""

from __future__ import annotations

import numpy as np

from perfguard.records.history import HistoryPoint

STARTED = 1_790_000_000.0
DAY_S = 86_400.0


def point(number, median_s, *, source_id="", machine_id="machine", stack_id="stack", case_id="step.net"):
    """A run; without a source tree given, each has its own."""
    source_id = f"{number:02x}" * 20 if source_id == "" else source_id
    return HistoryPoint(
        run_id=f"run-{number}", t_wall=STARTED + number * DAY_S, case_id=case_id, median_s=median_s, spread_ratio=0.004,
        source_id=source_id, machine_id=machine_id, stack_id=stack_id, outcome=None,
        commit=None if source_id is None else f"{number + 128:02x}" * 20,
    )  # fmt: skip


def runs(*levels, first=0, **fields):
    """So many runs at each level, in seconds."""
    medians = [level_s for count, level_s in levels for _ in range(count)]
    noise = np.random.default_rng(7).normal(0, 0.005, len(medians))
    return [
        point(first + index, float(median_s * np.exp(each)), **fields)
        for index, (median_s, each) in enumerate(zip(medians, noise, strict=True))
    ]
