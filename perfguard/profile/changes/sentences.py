"""The sentences that say which ops made a step slower or faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from perfguard.profile.changes.culprits.causes import Cause, Rule, short_op
from perfguard.profile.changes.culprits.offsets import MovedCost
from perfguard.profile.changes.culprits.weighing import WeighedCause, by_part
from perfguard.profile.changes.diff import OpDiff
from perfguard.profile.changes.implementation_changes import implementation_change
from perfguard.profile.changes.twins import AFTER, BEFORE, CASTS, LAYOUT_COPIES
from perfguard.profile.changes.wording import FUSED_PREFIX, exchange, line, main_op, tensors, where, won_ops
from perfguard.profile.op_times.typical_steps import FloatArray
from perfguard.records.steps.ops import PYTHON_OP, CensusChange, ChangeClass, Culprit, StepBalance, StepPhase
from perfguard.units import format_change, format_count, format_number, format_ratio, format_seconds, format_share

MOST_NAMED = 3
"""Culprits in a sentence."""
ENOUGH_EXPLAINED = 0.8
"""Part of the step's difference after which a sentence names no more culprits."""
WORTH_NAMING = 0.05
"""Part of the step's difference that a further culprit must have."""
_TENSOR_RULES = frozenset({Rule.LAYOUT, Rule.DTYPE, Rule.SHAPE})
_ALL_OF_IT = 0.995
_MORE_THAN_IT = 1.25


def attribution_sentence(
    balance: StepBalance,
    blamed: Sequence[Culprit],
    facts: Sequence[Culprit],
    minor: Sequence[Culprit],
    *,
    moved: Sequence[str],
    census_changes: Sequence[CensusChange],
) -> str:
    """`step +6.2 % [+5.1 %, +7.4 %]; 94 % of it: Adam no longer fused, … (train.py:88)`.

    Args:
        balance: Of the step.
        blamed: Culprits, largest part first.
        facts: What is executed otherwise and not to blame; the first is told where nothing is to blame, or where no
            interval says what is.
        minor: What comes after a fact; those with a part of the step's difference are told behind it.
        moved: What only moved, a phrase for each.
        census_changes: Gravest first; the first is told where no culprit explains the step.
    """
    return "; ".join((_step(balance), *_reasons(balance, blamed, facts, minor, census_changes), *moved[:1]))


def culprit_name(diff: OpDiff, cause: Cause, columns: Sequence[int]) -> str:
    """`Adam`, `aten::convolution in ResNet.layer3`: short, for a table's first column.

    Args:
        diff: The comparison.
        cause: What to name.
        columns: Its ops, those first that drive it most.
    """
    if cause.rule is Rule.OPTIMIZER:
        return cause.label
    if cause.rule in _TENSOR_RULES:
        return f"{cause.rule.value} {where(diff, columns)}"
    lead = next((column for column in columns if diff.is_exact(column)), columns[0])
    return f"{diff.ops.keys[lead].op} {where(diff, columns)}"


def culprit_sentence(diff: OpDiff, cause: Cause, columns: Sequence[int]) -> str:
    """`Adam no longer fused, 1 _fused_adam_ → 1,240 mul_/addcdiv_ (train.py:88)`, ops in backticks.

    Args:
        diff: The comparison.
        cause: What to tell of.
        columns: Its ops, those first that drive it most.
    """
    first = _origin(diff, columns) if cause.rule in _TENSOR_RULES else ()
    return _SENTENCES[cause.rule](diff, cause, columns) + line(diff, (*first, *columns))


def is_worth_telling(cost: MovedCost, balance: StepBalance, blamed: Sequence[Culprit]) -> bool:
    """Whether a cost that moved belongs into the sentence: where culprits are named, only what is as large as they."""
    moved_s = sum(rise.delta_s for rise in cost.rises)
    return not blamed or moved_s >= WORTH_NAMING * abs(balance.delta_s)


def moved_phrase(diff: OpDiff, cost: MovedCost) -> str:
    """`0.31 ms moved from relu in Net.stem to add in Net.head, not blamed`, ops in backticks.

    Args:
        diff: The comparison.
        cost: What moved.
    """
    source, target = (_main_part(diff, side[0]) for side in (cost.falls, cost.rises))
    seconds = format_seconds(sum(rise.delta_s for rise in cost.rises))
    return f"{seconds} moved from {source} to {target}, not blamed"


def _main_part(diff: OpDiff, weighed: WeighedCause) -> str:
    columns = by_part(diff, weighed)
    key = diff.ops.keys[columns[0]]
    name = "python time" if key.op == PYTHON_OP else f"`{short_op(key)}`"
    return f"{name} {where(diff, columns)}"


def _step(balance: StepBalance) -> str:
    base_s = balance.baseline_s
    if base_s <= 0:
        return f"step {format_seconds(balance.delta_s)}"
    said = format_change(balance.delta_s / base_s)
    if math.isfinite(balance.lower_s) and math.isfinite(balance.upper_s):
        said += f" [{format_change(balance.lower_s / base_s)}, {format_change(balance.upper_s / base_s)}]"
    return f"the profiled steps cannot be told apart ({said})" if balance.is_in_doubt else f"step {said}"


def _reasons(
    balance: StepBalance,
    blamed: Sequence[Culprit],
    facts: Sequence[Culprit],
    minor: Sequence[Culprit],
    census_changes: Sequence[CensusChange],
) -> list[str]:
    reasons = [f"{_part(balance, culprit)}: {culprit.sentence}" for culprit in _worth_naming(blamed)]
    if facts and (not blamed or not math.isfinite(balance.lower_s)):
        cost = ", at a cost within the noise" if facts[0].is_within_noise else ""
        reasons.append(f"executed otherwise{cost}: {facts[0].sentence}")
    behind = [culprit for culprit in minor if culprit.share >= WORTH_NAMING]  # nan has no part
    reasons += [
        f"{format_share(culprit.share)} of the difference: {culprit.sentence}"
        for culprit in behind[: MOST_NAMED - len(reasons)]
    ]
    if reasons:
        return reasons
    if census_changes:
        return [f"executed otherwise: {census_changes[0].sentence}"]
    known = math.isfinite(balance.lower_s)
    return ["no op stands out from the noise" if known else "one process of each arm, so times prove nothing"]


def _worth_naming(culprits: Sequence[Culprit]) -> list[Culprit]:
    """The first, and more until most is explained: of the step, or of what culprits explain if the step is in doubt."""
    total_s = sum(culprit.delta_s for culprit in culprits)
    named: list[Culprit] = []
    explained = 0.0
    for culprit in culprits[:MOST_NAMED]:
        share = culprit.share if math.isfinite(culprit.share) else culprit.delta_s / total_s
        if named and (explained >= ENOUGH_EXPLAINED or share < WORTH_NAMING):
            break
        named.append(culprit)
        explained += share
    return named


def _part(balance: StepBalance, culprit: Culprit) -> str:
    """`94 % of it`; where that cannot be said, the culprit's own size."""
    if not math.isfinite(culprit.share):
        return _own_size(balance, culprit)
    if culprit.share >= _MORE_THAN_IT:
        return "more than all of it"
    return "all of it" if culprit.share >= _ALL_OF_IT else f"{format_share(culprit.share)} of it"


def _own_size(balance: StepBalance, culprit: Culprit) -> str:
    if balance.baseline_s <= 0:
        return format_seconds(culprit.delta_s)
    return f"{format_change(culprit.delta_s / balance.baseline_s)} of the step"


def _optimizer(diff: OpDiff, cause: Cause, columns: Sequence[int]) -> str:
    was, now = (_has_fused(diff, columns, calls) for calls in (diff.ops.baseline_calls, diff.ops.candidate_calls))
    verb = "" if was == now else (" no longer fused" if was else " now fused")
    return f"{cause.label}{verb}, {exchange(diff, columns)}"


def _has_fused(diff: OpDiff, columns: Sequence[int], calls: FloatArray) -> bool:
    """Whether a fused op is among them in the arm with these calls."""
    return any(calls[column] > 0 and short_op(diff.ops.keys[column]).startswith(FUSED_PREFIX) for column in columns)


def _tensors(diff: OpDiff, cause: Cause, columns: Sequence[int]) -> str:
    before, _, after = cause.label.partition(" → ")
    if cause.rule is Rule.LAYOUT and before == "channels_last":
        text = f"channels_last lost {where(diff, columns)} (now {after})"
    else:
        text = f"{cause.rule.value} {cause.label} {where(diff, columns)}"
    known = {diff.ops.keys[column].op for column in columns if diff.changes[column] in BEFORE}
    copies = won_ops(diff, [column for column in columns if diff.ops.keys[column].op not in known])
    return f"{text}, {copies} more" if copies else text


def _origin(diff: OpDiff, columns: Sequence[int]) -> list[int]:
    """Copies that came in the forward pass, outside of the places that feel it: there the tensors become others."""
    felt = {diff.ops.keys[column].module for column in columns if diff.changes[column] in BEFORE}
    return [
        column
        for column in columns
        if diff.changes[column] in AFTER
        and diff.ops.keys[column].phase is StepPhase.FORWARD
        and diff.ops.keys[column].module not in felt
        and short_op(diff.ops.keys[column]) in LAYOUT_COPIES | CASTS
    ]


def _implementation(diff: OpDiff, cause: Cause, columns: Sequence[int]) -> str:
    del cause
    went, came = implementation_change(diff.ops, columns[0])
    key = diff.ops.keys[columns[0]]
    text = f"`{short_op(key)}` {where(diff, columns)}: {', '.join(went)} → {', '.join(came)}"
    return f"{text}, {tensors(key)}" if main_op(diff, columns) is not None and tensors(key) else text


def _calls(diff: OpDiff, cause: Cause, columns: Sequence[int]) -> str:
    del cause
    counted = {ChangeClass.MORE_CALLS, ChangeClass.FEWER_CALLS}
    lead = next(column for column in columns if diff.changes[column] in counted)
    names = {short_op(diff.ops.keys[column]) for column in columns if diff.is_exact(column)}
    others = f" and {format_count(len(names) - 1, 'other op')}" if len(names) > 1 else ""
    before, after = (format_number(float(side[lead])) for side in (diff.ops.baseline_calls, diff.ops.candidate_calls))
    return f"`{short_op(diff.ops.keys[lead])}`{others} called {after} instead of {before} times {where(diff, columns)}"


def _replaced(diff: OpDiff, cause: Cause, columns: Sequence[int]) -> str:
    del cause
    return f"{exchange(diff, columns)} {where(diff, columns)}"


def _time(diff: OpDiff, cause: Cause, columns: Sequence[int]) -> str:
    del cause
    key = diff.ops.keys[columns[0]]
    place = where(diff, columns)
    if key.op == PYTHON_OP:
        return f"python time {place}"
    before_s = float(diff.ops.baseline_s.mean(axis=0)[list(columns)].sum())
    delta_s = float(diff.differences.mean[list(columns)].sum())
    word = "slower" if delta_s > 0 else "faster"
    much = f"{format_ratio(abs(delta_s) / before_s)} {word}" if before_s > 0 else word
    shown = f" on {tensors(key)}" if main_op(diff, columns) is not None and tensors(key) else ""
    return f"`{short_op(key)}` {much} {place}{shown}"


_SENTENCES: Mapping[Rule, Callable[[OpDiff, Cause, Sequence[int]], str]] = {
    Rule.OPTIMIZER: _optimizer,
    Rule.LAYOUT: _tensors,
    Rule.DTYPE: _tensors,
    Rule.SHAPE: _tensors,
    Rule.IMPLEMENTATION: _implementation,
    Rule.CALLS: _calls,
    Rule.REPLACED: _replaced,
    Rule.TIME: _time,
}
