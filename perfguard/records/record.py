"""What is stored: an accepted record of a suite on one machine."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.run import Round
from perfguard.records.steps.ops import OpCounts

BASELINE_SCHEMA = 1


class CaseNoise(Struct, frozen=True, kw_only=True):
    """How one case varied while its baseline was recorded."""

    rounds: int
    median_s: float  # Median of the rounds' medians, seconds for one iteration
    between_round_sd_ratio: float  # Standard deviation of the rounds' log medians
    within_round_sd_ratio: float  # Typical standard deviation of the log values inside a round
    inner_loops: int  # Iterations of one sample


class BaselineInfo(Struct, frozen=True, kw_only=True):
    """Where a stored baseline comes from, and how it was measured."""

    schema: int
    suite: str
    machine_id: str
    stack_id: str | None  # Software stack that it was measured with
    created_at: str  # UTC time, ISO 8601
    commit: str | None  # Commit that was measured
    source_id: str
    perfguard: str
    cpus: int
    env_profile: str  # `stable` or `production`
    sample_s: float  # Wanted length of a sample
    samples: int  # Samples in each round
    span_s: float  # Wall seconds from the first round to the last
    seed: int  # Seed of the plan; rounds are repeated with the same seeds
    code_id: str | None = None
    """Identity of the commit's files without the baselines: finds the code where a squash has replaced the commit. None
    outside git, and in baselines of older versions."""


class StoredBaseline(Struct, frozen=True, kw_only=True):
    """Everything that a gate against a stored baseline needs."""

    info: BaselineInfo  # Provenance and settings
    fingerprint: Fingerprint
    noise: dict[str, CaseNoise]  # By case id
    rounds: dict[str, tuple[Round, ...]]  # The measurements, by case id


class StoredOpCounts(Struct, frozen=True, kw_only=True):
    """What a suite's steps executed when a baseline was recorded."""

    info: BaselineInfo  # Where the baseline comes from
    op_counts: Mapping[str, OpCounts]  # By case id; not empty
