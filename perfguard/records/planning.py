"""How many blocks and minutes the cases of a suite need, and which of them are therefore only reported."""

from __future__ import annotations

from dataclasses import dataclass

from perfguard.records.facts import Fact

PLAN_SCHEMA = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCase:
    """One gating case of the suite."""

    case_id: str
    """The case."""
    block_sd: float | None
    """SD of its block log-ratios; None where it was never measured."""
    margin_ratio: float
    """Its margin, placebo floor included."""
    blocks: int | None
    """Blocks that find the slowdown with the asked-for power, the confirmation left out; None where no number up to
    1000 does."""
    minutes: float | None
    """Minutes that a gate takes to get there, where the other cases are unchanged."""
    gating: bool
    """Whether the budget holds so many blocks, where the other cases are unchanged."""
    reason: Fact
    """What it needs, and where it may not gate, why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlan:
    """What a suite can find within its budget on one machine."""

    schema: int = PLAN_SCHEMA
    """Version of the stored layout."""
    suite: str
    """Name of the suite."""
    machine_id: str
    """Machine it was made for."""
    cpus: int
    """CPUs that are measured on."""
    env_profile: str
    """`stable` or `production`."""
    created_at: str
    """UTC time, ISO 8601."""
    source: Fact
    """What it was made from."""
    detect_ratio: float
    """Slowdown to find."""
    power: float
    """Chance to find it."""
    alpha: float
    """Family-wise level."""
    budget_s: float
    """Budget of a gate, seconds."""
    blocks_within: int
    """Blocks that the budget holds where every case is measured to the end."""
    minutes: float | None
    """Minutes of a gate in which every gating case that is left reaches its power; None where none is left."""
    cases: tuple[PlannedCase, ...]
    """In the order of the suite."""
