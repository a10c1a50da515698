"""From causes to culprits: which way the step went, what only moved, and what is left to blame."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from perfguard.model.ops import ChangeClass, Culprit, StepBalance, StepPhase
from perfguard.profile.culprits.causes import Cause, Certainty
from perfguard.profile.culprits.implementations import implementation_causes
from perfguard.profile.culprits.offsets import MovedCost, moved_costs
from perfguard.profile.culprits.optimizers import optimizer_causes
from perfguard.profile.culprits.places import place_causes
from perfguard.profile.culprits.tensors import tensor_causes
from perfguard.profile.culprits.times import time_causes
from perfguard.profile.culprits.weighing import WeighedCause, by_part, established
from perfguard.profile.diff import MATERIAL_RATIO, OpDiff
from perfguard.profile.sentences import culprit_name, culprit_sentence

RULES = (optimizer_causes, tensor_causes, implementation_causes, place_causes, time_causes)
"""In this order: each takes its ops from what the ones before it left; the last takes all the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCulprits:
    """What is to blame, and what is not although it changed."""

    culprits: tuple[Culprit, ...]
    """Largest part first."""
    moved: tuple[MovedCost, ...]
    """Costs that only went from some ops to others."""

    def moved_columns(self, diff: OpDiff) -> frozenset[int]:
        """Ops that these costs left or came to."""
        return frozenset(
            column
            for cost in self.moved
            for weighed in (*cost.rises, *cost.falls)
            for column in weighed.cause.columns
            if diff.changes[column] is not ChangeClass.UNCHANGED
        )


def find_culprits(diff: OpDiff, balance: StepBalance) -> FoundCulprits:
    """Name what made the step slower, or faster where that is what it became.

    A culprit differs significantly in the step's direction, or what it executes changed for certain and its cost went
    that way.
    """
    weighed = established(diff, find_causes(diff))
    moved = moved_costs(weighed, balance)
    excused = {cause for cost in moved for cause in (*cost.rises, *cost.falls)}
    sign = _direction(balance)
    blamed = [cause for cause in weighed if cause not in excused and sign * cause.delta_s > 0]
    blamed.sort(key=lambda cause: -sign * cause.delta_s)
    return FoundCulprits(culprits=tuple(_culprit(diff, cause, balance) for cause in blamed), moved=moved)


def find_causes(diff: OpDiff) -> list[Cause]:
    """Every op in exactly one cause."""
    free = set(range(len(diff.ops.keys)))
    causes: list[Cause] = []
    for rule in RULES:
        claimed = rule(diff, free)
        free.difference_update(column for cause in claimed for column in cause.columns)
        causes.extend(claimed)
    return causes


def _direction(balance: StepBalance) -> int:
    """-1 where the step became faster beyond doubt, or measurably if no interval is known; else 1."""
    limit_s = balance.upper_s if math.isfinite(balance.upper_s) else balance.delta_s
    return -1 if limit_s < 0 and -balance.delta_s >= MATERIAL_RATIO * balance.baseline_s else 1


def _culprit(diff: OpDiff, weighed: WeighedCause, balance: StepBalance) -> Culprit:
    columns = by_part(diff, weighed)
    phases: dict[StepPhase, float] = defaultdict(float)
    sign = math.copysign(1.0, weighed.delta_s)
    for column in columns:
        phases[diff.ops.keys[column].phase] += sign * float(diff.differences.mean[column])
    return Culprit(
        name=culprit_name(diff, weighed.cause, columns),
        sentence=culprit_sentence(diff, weighed.cause, columns),
        change=_change(diff, weighed, columns),
        phase=max(phases, key=lambda phase: phases[phase]),
        delta_s=weighed.delta_s,
        lower_s=weighed.lower_s,
        upper_s=weighed.upper_s,
        share=_share(weighed.delta_s, balance),
        ops=tuple(diff.ops.keys[column] for column in columns),
    )


def _change(diff: OpDiff, weighed: WeighedCause, columns: tuple[int, ...]) -> ChangeClass:
    """That of the op that drives the cause most; of a cause that is a fact, of those that changed for certain."""
    if weighed.cause.certainty is Certainty.EXACT:
        return next(diff.changes[column] for column in columns if diff.is_exact(column))
    return ChangeClass.SLOWER if weighed.delta_s > 0 else ChangeClass.FASTER


def _share(delta_s: float, balance: StepBalance) -> float:
    """Part of the step's difference; nan where it is not known which way the step went, or where it went the other."""
    in_doubt = math.isfinite(balance.lower_s) and balance.lower_s <= 0 <= balance.upper_s
    return delta_s / balance.delta_s if delta_s * balance.delta_s > 0 and not in_doubt else math.nan
