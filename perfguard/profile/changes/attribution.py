"""Which ops made a case's step slower or faster: which way it went, what only moved, what is left to blame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfguard.profile.changes.balance import balance_of
from perfguard.profile.changes.cause_facts import cause_fact, main_phase, main_phases, moved_fact, python_fact
from perfguard.profile.changes.causes import Cause, CauseKind, Certainty, find_causes
from perfguard.profile.changes.counted import Change
from perfguard.profile.changes.diff import MATERIAL_RATIO, OpDiff, diff_ops, op_deltas
from perfguard.profile.changes.op_counts import records_of
from perfguard.profile.changes.weighing import MovedCost, WeighedCause, by_part, established, moved_costs
from perfguard.profile.op_counts.steady import pattern_of
from perfguard.profile.op_times.arm_profile import ArmProfile
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.steps.ops import PYTHON_OP, Attribution, ChangeClass, Culprit, OpCountKind, StepBalance

WORTH_NAMING = 0.05
"""Part of the step's difference that a culprit must have beside others."""
_MOST_OF_IT = 0.5
"""A change may explain the step's difference where its own interval reaches this part of it."""
_GRAVEST = tuple(CauseKind)
"""A lost optimizer, dtype or layout brings other kernels, copies and calls with it, not the other way round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCulprits:
    """What is to blame, and what is not although it changed."""

    blamed: tuple[Culprit, ...]
    """Largest part first. Where a certain change may explain most of the difference, not those of next to no part of
    it, nor those that rest on times alone and are smaller than what the change is estimated to cost; where the steps
    cannot be distinguished, smaller than what it may cost."""
    certain: tuple[Culprit, ...]
    """What changed for certain and is not to blame: its cost is within the noise or, where nothing says how large that
    is, went the other way. Where noise is known, first what may explain the step's difference, and of that what causes
    other changes (`_GRAVEST`): the order of estimates within the noise means nothing; else the largest first."""
    minor: tuple[Culprit, ...]
    """What comes behind those. They may well differ, but a free that now returns memory, or a kernel that lies
    elsewhere, may be what such a change brings with it."""
    moved: tuple[MovedCost, ...]
    """Costs that only went from some ops to others."""

    @property
    def culprits(self) -> tuple[Culprit, ...]:
        """What is to blame, then certain changes, then what is next to nothing beside them."""
        return (*self.blamed, *self.certain, *self.minor)

    def moved_columns(self, diff: OpDiff) -> frozenset[int]:
        """Ops that these costs left or came to."""
        return frozenset(
            column
            for cost in self.moved
            for weighed in (*cost.rises, *cost.falls)
            for column in weighed.cause.columns
            if diff.changes[column] is not ChangeClass.UNCHANGED
        )


def attribute(case_id: str, baseline: ArmProfile, candidate: ArmProfile, changes: Sequence[Change] = ()) -> Attribution:
    """Compare two arms op by op and name what changed.

    One process of each arm gives no intervals: then only what is counted differently can be a culprit.

    Args:
        case_id: What was profiled.
        baseline: One arm.
        candidate: The other one; its processes were interleaved with those of the same number.
        changes: By op counts, worst first; empty where ops were not counted.

    Raises:
        MeasurementError: No process was profiled in both arms.
    """
    diff = diff_ops(baseline, candidate)
    balance = balance_of(baseline, candidate, diff)
    found = find_culprits(diff, balance, changes)
    return Attribution(
        case_id=case_id,
        balance=balance,
        culprits=found.culprits,
        deltas=op_deltas(diff, found.moved_columns(diff)),
        op_count_changes=records_of(changes),
        notes=tuple(_notes(diff, balance, found)),
        processes=len(diff.pairs),
        steps=min(baseline.profile.wall_s.size, candidate.profile.wall_s.size),
    )


def is_worth_telling(cost: MovedCost, balance: StepBalance, blamed: Sequence[Culprit]) -> bool:
    """Whether a cost that moved is told: where culprits are named, only what is as large as they."""
    moved_s = sum(rise.delta_s for rise in cost.rises)
    return not blamed or moved_s >= WORTH_NAMING * abs(balance.delta_s)


def _notes(diff: OpDiff, balance: StepBalance, found: FoundCulprits) -> list[Fact]:
    moved = [cost for cost in found.moved if is_worth_telling(cost, balance, found.blamed)]
    notes = [moved_fact(diff, cost) for cost in moved[:1]]
    if not math.isfinite(balance.lower_s):
        notes.append(fact("ops.one_process", severity=Severity.NOTABLE))
    return notes


def find_culprits(diff: OpDiff, balance: StepBalance, changes: Sequence[Change] = ()) -> FoundCulprits:
    """Name what made the step slower, or faster where that is what it became.

    What is to blame differs significantly in the step's direction; where there are no intervals, what it executes
    changed for certain and its cost is most of the step's difference.

    Args:
        diff: The ops.
        balance: The step.
        changes: By op counts, which say what a culprit is where they show it.
    """
    weighed = established(diff, find_causes(diff))
    moved = moved_costs(weighed, balance)
    excused = {cause for cost in moved for cause in (*cost.rises, *cost.falls)}
    sign = _direction(balance)
    left = [cause for cause in weighed if cause not in excused]
    blamed = [cause for cause in left if sign * cause.delta_s > 0 and not _is_only_certain(cause)]
    has_no_direction = not math.isfinite(balance.lower_s)
    if has_no_direction:  # a part of what may be noise altogether is no blame
        blamed = [cause for cause in blamed if sign * cause.delta_s >= _MOST_OF_IT * abs(balance.delta_s)]
    certain = [
        cause
        for cause in left
        if cause.cause.certainty is Certainty.EXACT
        and cause not in blamed
        and (cause.is_within_noise or has_no_direction)
    ]
    blamed.sort(key=lambda cause: -sign * cause.delta_s)
    certain.sort(key=lambda cause: -abs(cause.delta_s))
    minor: list[WeighedCause] = []
    in_python: list[Culprit] = []
    if not has_no_direction:
        certain.sort(key=lambda cause: (not _may_explain(cause, balance, sign), _GRAVEST.index(cause.cause.kind)))
        if certain and _may_explain(certain[0], balance, sign):
            minor = _outweighed(blamed, certain[0], balance, sign)
        elif _is_in_python(diff, blamed, balance):
            in_python, minor = [_python_culprit(diff, balance)], _next_to_nothing(blamed, balance)
        blamed = [cause for cause in blamed if cause not in minor]
    counted = _counted(diff, [*blamed, *certain, *minor], changes)

    def told(causes: Sequence[WeighedCause], *, has_share: bool = True) -> tuple[Culprit, ...]:
        return tuple(_culprit(diff, cause, balance if has_share else None, counted.get(cause)) for cause in causes)

    return FoundCulprits(
        blamed=(*in_python, *told(blamed)), certain=told(certain, has_share=False), minor=told(minor), moved=moved
    )


def _may_explain(cause: WeighedCause, balance: StepBalance, sign: int) -> bool:
    """Whether the cause may have cost most of what the step differs by: four copies fewer did not."""
    return _most_s(cause, sign) >= _MOST_OF_IT * abs(balance.delta_s)


def _most_s(cause: WeighedCause, sign: int) -> float:
    """What the cause may have cost at most; where the step became faster, saved."""
    return cause.upper_s if sign > 0 else -cause.lower_s


def _outweighed(
    blamed: Sequence[WeighedCause], certain: WeighedCause, balance: StepBalance, sign: int
) -> list[WeighedCause]:
    """Causes that come after a certain change which may explain the step's difference.

    Only its cost is uncertain; of a cause that rests on times alone even that it exists is an estimate.
    """
    in_doubt = balance.is_in_doubt
    limit_s = _most_s(certain, sign) if in_doubt else sign * certain.delta_s
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


def _is_in_python(diff: OpDiff, blamed: Sequence[WeighedCause], balance: StepBalance) -> bool:
    """Whether time in no op is most of a difference that no cause explains: it scatters, but the sum says so."""
    if balance.is_in_doubt or any(_only_python(diff, cause.cause) for cause in blamed):
        return False
    explained_s = sum(cause.delta_s for cause in blamed)
    is_most = balance.python_s * balance.delta_s >= _MOST_OF_IT * balance.delta_s**2 > 0
    return is_most and abs(explained_s) < WORTH_NAMING * abs(balance.delta_s)


def _only_python(diff: OpDiff, cause: Cause) -> bool:
    return all(diff.ops.keys[column].op == PYTHON_OP for column in cause.columns)


def _python_culprit(diff: OpDiff, balance: StepBalance) -> Culprit:
    sign = math.copysign(1.0, balance.python_s)
    python = (column for column, key in enumerate(diff.ops.keys) if key.op == PYTHON_OP)
    columns = sorted(python, key=lambda column: -sign * float(diff.differences.mean[column]))
    return Culprit(
        fact=python_fact(diff, columns, balance.python_s),
        change=ChangeClass.SLOWER if sign > 0 else ChangeClass.FASTER,
        phase=main_phase(diff, columns),
        phases=main_phases(diff, columns),
        delta_s=balance.python_s,
        lower_s=-math.inf,
        upper_s=math.inf,
        share=balance.python_s / balance.delta_s,
        ops=tuple(diff.ops.keys[column] for column in columns),
    )


def _is_only_certain(cause: WeighedCause) -> bool:
    return cause.cause.certainty is Certainty.EXACT and cause.is_within_noise


def _direction(balance: StepBalance) -> int:
    """-1 where the step became faster beyond doubt, or measurably if no interval is known; else 1."""
    limit_s = balance.upper_s if math.isfinite(balance.upper_s) else balance.delta_s
    return -1 if limit_s < 0 and -balance.delta_s >= MATERIAL_RATIO * balance.baseline_s else 1


def _counted(diff: OpDiff, causes: Sequence[WeighedCause], changes: Sequence[Change]) -> dict[WeighedCause, Fact]:
    """What op counts say of causes: each cause gets the change that explains most of it, each change one cause."""
    overlaps = [
        (part_s, number, cause)
        for cause in causes
        if cause.cause.certainty is Certainty.EXACT
        for number, change in enumerate(changes)
        if (part_s := _overlap_s(diff, cause.cause, change)) > 0
    ]
    facts: dict[WeighedCause, Fact] = {}
    taken: set[int] = set()
    for _, number, cause in sorted(overlaps, key=lambda overlap: (-overlap[0], overlap[1])):
        if cause not in facts and number not in taken:
            facts[cause] = changes[number].record.fact
            taken.add(number)
    return facts


def _overlap_s(diff: OpDiff, cause: Cause, change: Change) -> float:
    """Seconds of the cause that the change is about; 0 unless they are most of it."""
    kind = OpCountKind.PRIMITIVE if cause.kind is CauseKind.IMPLEMENTATION else OpCountKind.OP
    is_op = kind is OpCountKind.OP
    named = {(row.place.phase, row.place.module, row.name if is_op else "") for row in change.rows if row.kind is kind}
    all_s = part_s = 0.0
    for column in filter(diff.is_exact, cause.columns):
        key, size_s = diff.ops.keys[column], abs(float(diff.differences.mean[column]))
        all_s += size_s
        part_s += size_s if (key.phase, pattern_of(key.module), key.op if is_op else "") in named else 0.0
    return part_s if part_s >= _MOST_OF_IT * all_s else 0.0


def _culprit(diff: OpDiff, weighed: WeighedCause, balance: StepBalance | None, counted: Fact | None) -> Culprit:
    """A culprit; without the step's balance its share is unknown."""
    columns = by_part(diff, weighed)
    return Culprit(
        fact=cause_fact(diff, weighed.cause, columns, counted),
        change=_change(diff, weighed, columns),
        phase=main_phase(diff, columns),
        phases=main_phases(diff, columns),
        delta_s=weighed.delta_s,
        lower_s=weighed.lower_s,
        upper_s=weighed.upper_s,
        share=math.nan if balance is None else _share(weighed, balance),
        ops=tuple(diff.ops.keys[column] for column in columns),
    )


def _change(diff: OpDiff, weighed: WeighedCause, columns: tuple[int, ...]) -> ChangeClass:
    """That of the op that drives the cause most; of a certain one, of those that changed for certain."""
    if weighed.cause.certainty is Certainty.EXACT:
        return next(diff.changes[column] for column in columns if diff.is_exact(column))
    return ChangeClass.SLOWER if weighed.delta_s > 0 else ChangeClass.FASTER


def _share(weighed: WeighedCause, balance: StepBalance) -> float:
    """Part of the step's difference; nan where either is within its noise, or where they went different ways."""
    in_doubt = balance.is_in_doubt or weighed.is_within_noise
    return weighed.delta_s / balance.delta_s if weighed.delta_s * balance.delta_s > 0 and not in_doubt else math.nan
