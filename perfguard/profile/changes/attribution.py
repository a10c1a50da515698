"""Which ops made a case's step slower or faster: which way it went, what only moved, what remains unexplained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from perfguard.profile.changes.cause_facts import cause_fact, main_phases, moved_fact
from perfguard.profile.changes.causes import MovedCost, by_part, established, find_causes
from perfguard.profile.changes.counted import Change
from perfguard.profile.changes.diff import MATERIAL_RATIO, OpDiff, balance_of, diff_ops, op_deltas
from perfguard.profile.changes.op_counts import records_of
from perfguard.profile.changes.paired_ops import Cause, CauseKind, Certainty
from perfguard.profile.op_counts.steady import pattern_of
from perfguard.profile.op_times.arm_profile import ArmProfile
from perfguard.records.changed_lines import NO_LINES, ChangedLines
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.steps.ops import Attribution, ChangeClass, Culprit, OpCountKind, StepBalance

WORTH_TELLING = 0.05  # Part of the step's difference that a moved cost must have beside culprits
LEAST_FIRST = 0.1  # Part of the step's difference below which no culprit comes first
_MOST_OF_IT = 0.5  # A change may explain the step's difference where its own interval reaches this part of it
SIMILAR = 0.25
"""A rise and a fall are the same cost where they differ by at most this part of the larger one, and a step is unchanged
where it differs by at most this part of the rise, if no interval says it."""
MIRRORED = 0.15
"""The same where the step did change, so that the rise could as well be its cause: nearer, and no other to choose."""
_KINDS = tuple(CauseKind)
"""A lost optimizer, dtype or layout brings other kernels, copies and calls with it, not the other way round."""


def attribute(
    case_id: str,
    baseline: ArmProfile,
    candidate: ArmProfile,
    changes: Sequence[Change] = (),
    *,
    changed: ChangedLines = NO_LINES,
) -> Attribution:
    """Compare two arms op by op and name what changed; processes of the same number were interleaved.

    A culprit's line is one of the `changed` lines of the candidate's tree, where one led to its ops or must have.

    A culprit differs significantly in the step's direction. One process of each arm gives no intervals: then
    only what is counted differently can be a culprit, if its cost is most of the step's difference. The changes of op
    counts, worst first, say what a culprit is where they show it.

    Raises:
        MeasurementError: No process was profiled in both arms.
    """
    diff = diff_ops(baseline, candidate)
    balance = balance_of(baseline, candidate, diff)
    causes = established(diff, find_causes(diff))
    moved = moved_costs(causes, balance)
    excused = {cause for cost in moved for cause in (*cost.rises, *cost.falls)}
    blamed, certain, minor = _sorted(diff, balance, [cause for cause in causes if cause not in excused])
    named = [*blamed, *certain, *minor]
    counted = _counted(diff, named, changes)
    shares = dict.fromkeys(named, math.nan) | _shares([cause for cause in named if cause not in certain], balance)
    notes = [moved_fact(diff, cost) for cost in moved if is_worth_telling(cost, balance, blamed)][:1]
    if not math.isfinite(balance.lower_s):
        notes.append(fact("ops.one_process", severity=Severity.NOTABLE))
    moved_columns = {column for cause in excused for column in cause.columns}
    return Attribution(
        case_id=case_id,
        balance=balance,
        culprits=tuple(_culprit(diff, cause, share, counted.get(cause), changed) for cause, share in shares.items()),
        deltas=op_deltas(diff, {c for c in moved_columns if diff.changes[c] is not ChangeClass.UNCHANGED}),
        op_count_changes=records_of(changes),
        notes=tuple(notes),
        processes=len(diff.pairs),
        steps=min(baseline.profile.wall_s.size, candidate.profile.wall_s.size),
    )


def is_worth_telling(cost: MovedCost, balance: StepBalance, blamed: Sequence[object]) -> bool:
    """Whether a cost that moved is worth a note: where something is blamed, only what is as large as that may be."""
    return not blamed or cost.moved_s >= WORTH_TELLING * abs(balance.delta_s)


def _sorted(
    diff: OpDiff, balance: StepBalance, causes: Sequence[Cause]
) -> tuple[list[Cause], list[Cause], list[Cause]]:
    """Causes by how far they explain the difference.

    1. To blame, largest part first. Where a certain change may explain most of the difference, not those of next to no
       part of it, nor those that rest on times alone and are smaller than what the change is estimated to cost; where
       the steps cannot be distinguished, smaller than what it may cost.
    2. Certain changes that did not contribute: their cost is within the noise or, where nothing says how large that
       is, went the other way. Where noise is known, first what may explain the step's difference, and of that what
       causes other changes (`_KINDS`): the order of estimates within the noise means nothing; else the largest first.
    3. What comes behind those. They may well differ, but a free that now returns memory, or a kernel that lies
       elsewhere, may be what such a change brings with it.
    """
    sign, most_s = _direction(balance), _MOST_OF_IT * abs(balance.delta_s)
    has_direction = math.isfinite(balance.lower_s)
    blamed = [
        cause
        for cause in sorted(causes, key=lambda cause: -sign * cause.delta_s)
        if sign * cause.delta_s > 0 and not (cause.is_exact and cause.is_within_noise)
        # A part of what may be noise altogether is no blame.
        if has_direction or sign * cause.delta_s >= most_s
    ]
    certain = [
        cause
        for cause in sorted(causes, key=lambda cause: -abs(cause.delta_s))
        if cause.is_exact and cause not in blamed and (cause.is_within_noise or not has_direction)
    ]
    if not has_direction:
        return blamed, certain, []

    def may_cost_s(cause: Cause) -> float:
        """At most; where the step became faster, what it may have saved."""
        return cause.upper_s if sign > 0 else -cause.lower_s

    # Four copies fewer did not cost most of what the step differs by.
    certain.sort(key=lambda cause: (may_cost_s(cause) < most_s, _KINDS.index(cause.kind)))
    minor = [] if balance.is_in_doubt else _next_to_nothing(blamed, balance)
    in_python = []
    if certain and may_cost_s(certain[0]) >= most_s:
        # Only its cost is uncertain; of a cause that rests on times alone even that it exists is an estimate.
        limit_s = may_cost_s(certain[0]) if balance.is_in_doubt else sign * certain[0].delta_s
        minor += [cause for cause in blamed if not cause.is_exact and sign * cause.delta_s <= limit_s]
    elif _is_in_python(diff, blamed, balance):
        python = tuple(filter(diff.ops.is_python, range(len(diff.ops.keys))))
        cause = Cause(kind=CauseKind.TIME, certainty=Certainty.OPEN, columns=python, delta_s=balance.python_s)
        in_python = [by_part(diff, cause)]
    elif not certain:
        return blamed, [], []  # Of next to no part, but nothing else is known
    left = [cause for cause in blamed if cause not in minor]
    return [*in_python, *left], certain, [cause for cause in blamed if cause in minor]


def _direction(balance: StepBalance) -> int:
    """-1 where the step became faster beyond doubt, or measurably if no interval is known; else 1."""
    limit_s = balance.upper_s if math.isfinite(balance.upper_s) else balance.delta_s
    return -1 if limit_s < 0 and -balance.delta_s >= MATERIAL_RATIO * balance.baseline_s else 1


def _next_to_nothing(blamed: Sequence[Cause], balance: StepBalance) -> list[Cause]:
    """Causes of less than a tenth of the step's difference each; none where together they are most of it."""
    small = [cause for cause in blamed if abs(cause.delta_s) < LEAST_FIRST * abs(balance.delta_s)]
    return small if abs(sum(cause.delta_s for cause in small)) < _MOST_OF_IT * abs(balance.delta_s) else []


def _is_in_python(diff: OpDiff, blamed: Sequence[Cause], balance: StepBalance) -> bool:
    """Whether time in no op is most of a difference that no cause explains: it scatters, but the sum says so."""
    if balance.is_in_doubt or any(all(map(diff.ops.is_python, cause.columns)) for cause in blamed):
        return False
    explained_s = sum(cause.delta_s for cause in blamed)
    is_most = balance.python_s * balance.delta_s >= _MOST_OF_IT * balance.delta_s**2
    return is_most and abs(explained_s) < LEAST_FIRST * abs(balance.delta_s)


def _counted(diff: OpDiff, causes: Sequence[Cause], changes: Sequence[Change]) -> dict[Cause, Fact]:
    """What op counts say of causes: each cause gets the change that explains most of it, each change one cause."""
    overlaps = [
        (part_s, number, cause)
        for cause in causes
        if cause.is_exact
        for number, change in enumerate(changes)
        if (part_s := _overlap_s(diff, cause, change)) > 0
    ]
    facts: dict[Cause, Fact] = {}
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
        key, size_s = diff.ops.keys[column], abs(diff.mean_s([column]))
        all_s += size_s
        part_s += size_s if (key.phase, pattern_of(key.module), key.op if is_op else "") in named else 0.0
    return part_s if part_s >= _MOST_OF_IT * all_s else 0.0


def _culprit(diff: OpDiff, cause: Cause, share: float, counted: Fact | None, changed: ChangedLines) -> Culprit:
    change = ChangeClass.SLOWER if cause.delta_s > 0 else ChangeClass.FASTER
    if cause.is_exact:  # that of the op which drives the cause most, of those that changed for certain
        change = next(diff.changes[column] for column in cause.columns if diff.is_exact(column))
    phase, phases = main_phases(diff, cause.columns)
    return Culprit(
        fact=cause_fact(diff, cause, counted, changed),
        change=change,
        phase=phase,
        phases=phases,
        delta_s=cause.delta_s,
        lower_s=cause.lower_s,
        upper_s=cause.upper_s,
        share=share,
        ops=tuple(diff.ops.keys[column] for column in cause.columns),
    )


def _shares(causes: Sequence[Cause], balance: StepBalance) -> dict[Cause, float]:
    """Part of the step's difference, for causes that went its way and are not within the noise; at most 1 together.

    Where other costs made up for a part of it, it is the part of all that these causes come to.
    """
    if balance.is_in_doubt:
        return {}
    known = [cause for cause in causes if cause.delta_s * balance.delta_s > 0 and not cause.is_within_noise]
    all_s = max(abs(balance.delta_s), math.fsum(abs(cause.delta_s) for cause in known))
    return {cause: abs(cause.delta_s) / all_s for cause in known}


def moved_costs(causes: Sequence[Cause], balance: StepBalance) -> tuple[MovedCost, ...]:
    """Rises and falls that make up for each other, all of them significant where intervals are known.

    The first op that touches fresh memory pays its page faults, and the first that needs a reordered tensor pays for
    the reorder. Which op that is may change with any small thing, so nothing is blamed for it.
    """
    shown = [cause for cause in causes if cause.is_significant or math.isinf(cause.upper_s)]
    rises = sorted((cause for cause in shown if cause.delta_s > 0), key=lambda cause: -cause.delta_s)
    falls = sorted((cause for cause in shown if cause.delta_s < 0), key=lambda cause: cause.delta_s)
    if not rises or not falls:
        return ()
    if math.isfinite(balance.lower_s):
        is_unchanged = balance.lower_s <= 0 <= balance.upper_s
    else:
        is_unchanged = abs(balance.delta_s) <= SIMILAR * rises[0].delta_s
    if not is_unchanged and abs(balance.delta_s) >= MATERIAL_RATIO * balance.baseline_s:
        return tuple(_mirrored(rises, falls))
    pairs, left = [], []
    for rise in rises:  # the largest first, each with the fall that is nearest to it in size
        fall = min(falls, key=lambda cause: abs(cause.delta_s + rise.delta_s), default=None)
        if fall is not None and _similar([rise], [fall], SIMILAR):
            falls.remove(fall)
            pairs.append(MovedCost(rises=(rise,), falls=(fall,)))
        else:
            left.append(rise)
    if left and falls and _similar(left, falls, SIMILAR):
        pairs.append(MovedCost(rises=tuple(left), falls=tuple(falls)))
    return tuple(pairs)


def _mirrored(rises: Sequence[Cause], falls: Sequence[Cause]) -> Iterable[MovedCost]:
    """Pairs in which each is the only one of about the other's size."""
    for rise in rises:
        near = [fall for fall in falls if _similar([rise], [fall], 2 * MIRRORED)]
        if len(near) == 1 and _similar([rise], near, MIRRORED):
            rivals = [other for other in rises if _similar([other], near, 2 * MIRRORED)]
            if len(rivals) == 1:
                yield MovedCost(rises=(rise,), falls=(near[0],))


def _similar(rises: Sequence[Cause], falls: Sequence[Cause], tolerance: float) -> bool:
    rise_s, fall_s = (sum(cause.delta_s for cause in side) for side in (rises, falls))
    return abs(rise_s + fall_s) <= tolerance * max(rise_s, -fall_s)
