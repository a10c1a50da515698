"""Stored baselines of made-up machines, for tests that look at what else than times they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyperf

from perfguard.host.probe import probe
from perfguard.records.record import BASELINE_SCHEMA, BaselineInfo, CaseNoise, StoredBaseline
from perfguard.records.run import Round
from perfguard.store.baselines import BaselineStore, metadata_of
from perfguard.store.op_counts import op_counts_file, save_op_counts

if TYPE_CHECKING:
    from pathlib import Path

    from perfguard.records.steps.ops import OpCounts

CASE = "step.a"
ROUND = Round(values_s=(0.001,), control_s=(0.002,), started_at=1000.0)
NOISE = CaseNoise(rounds=1, median_s=0.001, between_round_sd_ratio=0.0, within_round_sd_ratio=0.0, inner_loops=1)


def recorded_on(machine_id: str, **fields: Any) -> BaselineInfo:
    """Where a baseline comes from."""
    known = {
        "schema": BASELINE_SCHEMA,
        "suite": "quick",
        "machine_id": machine_id,
        "stack_id": None,
        "created_at": "2026-01-02T03:04:05Z",
        "commit": "c" * 40,
        "source_id": "t" * 40,
        "perfguard": "0.1.0",
        "cpus": 1,
        "env_profile": "stable",
        "sample_s": 0.02,
        "samples": 2,
        "span_s": 60.0,
        "seed": 7,
    }
    return BaselineInfo(**{**known, **fields})


def record(
    project: Path, machine_id: str, *op_counts: OpCounts, suite: str = "quick", created_at: str = "2026-01-02T03:04:05Z"
) -> Path:
    """Store a baseline in a project; gives its folder."""
    info = recorded_on(machine_id, suite=suite, created_at=created_at)
    baseline = StoredBaseline(info=info, fingerprint=probe(), noise={CASE: NOISE}, rounds={CASE: (ROUND,)})
    run = pyperf.Run(list(ROUND.values_s), metadata={"name": CASE, **metadata_of(ROUND)}, collect_metadata=False)
    place = BaselineStore(project / "baselines").save(baseline, {CASE: [run]})
    if op_counts:
        save_op_counts(op_counts_file(place), op_counts)
    return place
