"""From causes to culprits: which way the step went, what only moved, and what is left to blame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfguard.profile.changes.culprits.causes import Cause, Certainty, Rule
from perfguard.profile.changes.culprits.implementations import implementation_causes
from perfguard.profile.changes.culprits.offsets import MovedCost, moved_costs
from perfguard.profile.changes.culprits.optimizers import optimizer_causes
from perfguard.profile.changes.culprits.places import place_causes
from perfguard.profile.changes.culprits.tensors import tensor_causes
from perfguard.profile.changes.culprits.times import time_causes
from perfguard.profile.changes.culprits.weighing import WeighedCause, by_part, established
from perfguard.profile.changes.diff import MATERIAL_RATIO, OpDiff
from perfguard.profile.changes.sentences import WORTH_NAMING, culprit_name, culprit_sentence
from perfguard.profile.changes.wording import main_phase, main_phases
from perfguard.records.steps.ops import ChangeClass, Culprit, StepBalance

RULES = (optimizer_causes, tensor_causes, implementation_causes, place_causes, time_causes)
"""In this order: each takes its ops from what the ones before it left; the last takes all the rest."""

_MOST_OF_IT = 0.5
"""A fact may explain the step's difference where its own interval reaches this part of it."""

_GRAVEST = tuple(Rule)
"""A lost optimizer, dtype or layout brings other kernels, copies and calls with it, not the other way round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCulprits:
    """What is to blame, and what is not although it changed."""

    blamed: tuple[Culprit, ...]
    """Largest part first. Where a fact may explain most of the difference, not those of next to no part of it, nor
    those that rest on times alone and are smaller than what the fact is estimated to cost; where the steps cannot be
    told apart, smaller than what it may cost."""
    facts: tuple[Culprit, ...]
    """What is executed otherwise for certain and is not to blame: its cost is within the noise or, where nothing says
    how large that is, went the other way. Where noise is known, first what may explain the step's difference, and of
    that what causes other changes (`_GRAVEST`): the order of estimates within the noise means nothing; else the largest
    estimate first."""
    minor: tuple[Culprit, ...]
    """Those. They may well differ, but a free that now returns memory, or a kernel that lies elsewhere, may be
    what such a fact brings with it."""
    moved: tuple[MovedCost, ...]
    """Costs that only went from some ops to others."""

    @property
    def culprits(self) -> tuple[Culprit, ...]:
        """What is to blame, then the facts, then what is next to nothing beside them."""
        return (*self.blamed, *self.facts, *self.minor)

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

    What is to blame differs significantly in the step's direction; where there are no intervals, what it executes
    changed for certain and its cost is most of the step's difference.
    """
    weighed = established(diff, find_causes(diff))
    moved = moved_costs(weighed, balance)
    excused = {cause for cost in moved for cause in (*cost.rises, *cost.falls)}
    sign = _direction(balance)
    left = [cause for cause in weighed if cause not in excused]
    blamed = [cause for cause in left if sign * cause.delta_s > 0 and not _is_only_a_fact(cause)]
    has_no_direction = not math.isfinite(balance.lower_s)
    if has_no_direction:  # a part of what may be noise altogether is no blame
        blamed = [cause for cause in blamed if sign * cause.delta_s >= _MOST_OF_IT * abs(balance.delta_s)]
    facts = [
        cause
        for cause in left
        if cause.cause.certainty is Certainty.EXACT
        and cause not in blamed
        and (cause.is_within_noise or has_no_direction)
    ]
    blamed.sort(key=lambda cause: -sign * cause.delta_s)
    facts.sort(key=lambda cause: -abs(cause.delta_s))
    minor: list[WeighedCause] = []
    if not has_no_direction:
        facts.sort(key=lambda cause: (not _may_explain(cause, balance, sign), _GRAVEST.index(cause.cause.rule)))
        if facts and _may_explain(facts[0], balance, sign):
            minor = _outweighed(blamed, facts[0], balance, sign)
            blamed = [cause for cause in blamed if cause not in minor]
    return FoundCulprits(
        blamed=tuple(_culprit(diff, cause, balance) for cause in blamed),
        facts=tuple(replace(_culprit(diff, cause, balance), share=math.nan) for cause in facts),
        minor=tuple(_culprit(diff, cause, balance) for cause in minor),
        moved=moved,
    )


def _may_explain(cause: WeighedCause, balance: StepBalance, sign: int) -> bool:
    """Whether the cause may have cost most of what the step differs by: four copies fewer did not."""
    return _most_s(cause, sign) >= _MOST_OF_IT * abs(balance.delta_s)


def _most_s(cause: WeighedCause, sign: int) -> float:
    """What the cause may have cost at most; where the step became faster, saved."""
    return cause.upper_s if sign > 0 else -cause.lower_s


def _outweighed(
    blamed: Sequence[WeighedCause], fact: WeighedCause, balance: StepBalance, sign: int
) -> list[WeighedCause]:
    """Causes that come after a fact which may explain the step's difference.

    A fact is certain, only its cost is not; of a cause that rests on times alone even that it exists is an estimate.
    """
    in_doubt = balance.is_in_doubt
    limit_s = _most_s(fact, sign) if in_doubt else sign * fact.delta_s
    tiny = [] if in_doubt else _next_to_nothing(blamed, balance)
    return [
        cause
        for cause in blamed
        if cause in tiny or (cause.cause.certainty is not Certainty.EXACT and sign * cause.delta_s <= limit_s)
    ]


def _next_to_nothing(blamed: Sequence[WeighedCause], balance: StepBalance) -> list[WeighedCause]:
    """Causes of less than a twentieth of the step's difference each; none where together they are most of it."""
    small = [cause for cause in blamed if abs(cause.delta_s) < WORTH_NAMING * abs(balance.delta_s)]
    together_s = sum(cause.delta_s for cause in small)
    return small if abs(together_s) < _MOST_OF_IT * abs(balance.delta_s) else []


def _is_only_a_fact(cause: WeighedCause) -> bool:
    return cause.cause.certainty is Certainty.EXACT and cause.is_within_noise


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
    return Culprit(
        name=culprit_name(diff, weighed.cause, columns),
        sentence=culprit_sentence(diff, weighed.cause, columns),
        change=_change(diff, weighed, columns),
        phase=main_phase(diff, columns),
        phases=main_phases(diff, columns),
        delta_s=weighed.delta_s,
        lower_s=weighed.lower_s,
        upper_s=weighed.upper_s,
        share=_share(weighed, balance),
        ops=tuple(diff.ops.keys[column] for column in columns),
    )


def _change(diff: OpDiff, weighed: WeighedCause, columns: tuple[int, ...]) -> ChangeClass:
    """That of the op that drives the cause most; of a cause that is a fact, of those that changed for certain."""
    if weighed.cause.certainty is Certainty.EXACT:
        return next(diff.changes[column] for column in columns if diff.is_exact(column))
    return ChangeClass.SLOWER if weighed.delta_s > 0 else ChangeClass.FASTER


def _share(weighed: WeighedCause, balance: StepBalance) -> float:
    """Part of the step's difference; nan where either is within its noise, or where they went different ways."""
    in_doubt = balance.is_in_doubt or weighed.is_within_noise
    return weighed.delta_s / balance.delta_s if weighed.delta_s * balance.delta_s > 0 and not in_doubt else math.nan
