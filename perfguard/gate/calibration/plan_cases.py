"""Which cases of a suite can find a slowdown within its budget; the others are reported only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfguard.records.calibration import Pace, PlannedCase, SuitePlan
from perfguard.records.facts import Fact, Severity, Subject, Value, fact
from perfguard.records.spec import Case, Gating
from perfguard.stats.planning import sequential_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a suite is asked to find."""

    detect_ratio: float
    """A slowdown."""
    power: float
    """The chance to find it."""
    alpha: float
    """Family-wise level of a gate."""
    budget_s: float
    """Budget of a gate, seconds."""
    max_blocks: int
    """Upper bound on blocks."""
    analyses: int
    """Times that a gate looks at its data."""
    min_blocks: int
    """Blocks below which a gate decides nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseNoise:
    """What is known of one case on the machine."""

    block_sd: float
    """SD of its block log-ratios."""
    margin_ratio: float
    """Its margin, placebo floor included."""


def plan_cases(
    case_ids: Sequence[str], noise: Mapping[str, CaseNoise], pace: Pace, target: Target
) -> tuple[PlannedCase, ...]:
    """Blocks and minutes of each case, and whether it may gate.

    The level of a case depends on how many gate, so the neediest case is demoted first and the rest is planned again:
    the largest family in which every case reaches its power stays.

    Args:
        case_ids: Gating cases, in the order of the suite.
        noise: By case id; a case that is missing was never measured.
        pace: Of the suite.
        target: What is asked for.
    """
    limits = {id_: min(pace.blocks_within(target.budget_s, id_), target.max_blocks) for id_ in case_ids}
    family = list(case_ids)
    while family:
        needs = {id_: _need_over_limit(noise.get(id_), limits[id_], target, len(family)) for id_ in family}
        neediest = max(family, key=needs.__getitem__)
        if needs[neediest] <= 1:
            break
        family.remove(neediest)
    return tuple(_planned(case_id, noise.get(case_id), family, pace, target) for case_id in case_ids)


def suite_minutes(cases: Sequence[PlannedCase]) -> float | None:
    """Minutes until every case that gates has its power; they are measured side by side."""
    minutes = [case.minutes for case in cases if case.gating and case.minutes is not None]
    return max(minutes) if minutes else None


def planned_gating(cases: Sequence[Case], plan: SuitePlan | None) -> tuple[tuple[Case, ...], tuple[Fact, ...]]:
    """The cases with those demoted that the plan demotes, and a note for each.

    Args:
        cases: Of the suite, as it asks for them.
        plan: Of this machine and suite; None changes nothing.
    """
    if plan is None:
        return tuple(cases), ()
    demoted = {planned.case_id: planned for planned in plan.cases if not planned.gating}
    changed = [case for case in cases if case.id in demoted and case.gating is Gating.GATING]
    ids = {case.id for case in changed}
    return (
        tuple(replace(case, gating=Gating.ADVISORY) if case.id in ids else case for case in cases),
        tuple(
            replace(
                reason,
                severity=Severity.NOTABLE,
                subject=Subject(case_id=case.id),
                values={**reason.values, "date": plan.created_at[:10]},
            )
            for case in changed
            for reason in [demoted[case.id].reason]
        ),
    )


def _blocks(noise: CaseNoise | None, target: Target, family: int) -> int | None:
    if noise is None:
        return None
    level = target.alpha / max(1, family)
    found = sequential_blocks(
        target.detect_ratio,
        noise.block_sd,
        level=level,
        margin_ratio=noise.margin_ratio,
        power=target.power,
        analyses=target.analyses,
    )
    return None if found is None else max(found, target.min_blocks)


def _need_over_limit(noise: CaseNoise | None, limit: int, target: Target, family: int) -> float:
    """Blocks that a case needs over those that it can have; inf where none would do."""
    blocks = _blocks(noise, target, family)
    return math.inf if blocks is None or not limit else blocks / limit


def _planned(case_id: str, noise: CaseNoise | None, family: Sequence[str], pace: Pace, target: Target) -> PlannedCase:
    is_gating = case_id in family
    # A demoted case is planned as the family's next member, which is what it would have to be.
    blocks = _blocks(noise, target, len(family) if is_gating else len(family) + 1)
    return PlannedCase(
        case_id=case_id,
        block_sd=None if noise is None or math.isnan(noise.block_sd) else noise.block_sd,
        margin_ratio=noise.margin_ratio if noise else 0.0,
        blocks=blocks,
        minutes=None if blocks is None else round(pace.minutes_for(blocks, case_id), 1),
        gating=is_gating,
        reason=_impossible(noise, blocks, target) or _need(case_id, blocks or 0, pace, target, is_gating=is_gating),
    )


def _impossible(noise: CaseNoise | None, blocks: int | None, target: Target) -> Fact | None:
    """Why no budget would do; None where one would."""
    if noise is None:
        return fact("plan.never_measured")
    if math.isnan(noise.block_sd):
        return fact("plan.noise_unknown")
    if noise.margin_ratio >= target.detect_ratio:
        return fact("plan.below_floor", _effect(target), floor_ratio=noise.margin_ratio)
    if blocks is None:
        return fact("plan.too_noisy", _effect(target), block_sd_ratio=noise.block_sd)
    return None


def _need(case_id: str, blocks: int, pace: Pace, target: Target, *, is_gating: bool) -> Fact:
    """What a case needs; of one that may not gate, also what the budget has instead."""
    within = pace.blocks_within(target.budget_s, case_id)
    if is_gating:
        return fact("plan.enough", _effect(target), blocks=blocks)
    if within > target.max_blocks:
        return fact("plan.beyond_max_blocks", _effect(target), blocks=blocks, max_blocks=target.max_blocks)
    limits = {"within": within, "budget_s": target.budget_s}
    return fact("plan.beyond_budget", {**_effect(target), **limits}, blocks=blocks)


def _effect(target: Target) -> Mapping[str, Value]:
    return {"detect_ratio": target.detect_ratio, "power_share": target.power}
