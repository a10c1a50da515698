"""Rule: what an optimizer executes is one thing, however many ops it takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set as AbstractSet

from perfguard.profile.changes.culprits.causes import Cause, Certainty, Rule
from perfguard.profile.changes.diff import OpDiff
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey, StepPhase


def is_update(key: OpKey) -> bool:
    """Whether an optimizer executes it; gradient clipping is in the same phase, but in no optimizer."""
    return key.phase is StepPhase.OPTIMIZER and key.module != ""


def optimizer_causes(diff: OpDiff, free: AbstractSet[int]) -> list[Cause]:
    """One cause for each optimizer that executes other ops than before; one for an optimizer that replaced another."""
    by_name: dict[str, list[int]] = defaultdict(list)
    for column in sorted(free):
        if is_update(diff.ops.keys[column]):
            by_name[diff.ops.keys[column].module].append(column)
    changed = {name: columns for name, columns in by_name.items() if any(diff.is_exact(column) for column in columns)}
    gone = [name for name, columns in changed.items() if _all_of(diff, columns, ChangeClass.GONE)]
    new = [name for name, columns in changed.items() if _all_of(diff, columns, ChangeClass.NEW)]
    causes = []
    if len(gone) == len(new) == 1:
        both = (*changed.pop(gone[0]), *changed.pop(new[0]))
        causes.append(_cause(f"{gone[0]} → {new[0]}", both))
    return causes + [_cause(name, tuple(columns)) for name, columns in changed.items()]


def _all_of(diff: OpDiff, columns: list[int], change: ChangeClass) -> bool:
    return all(diff.changes[column] is change for column in columns if diff.ops.keys[column].op != PYTHON_OP)


def _cause(label: str, columns: tuple[int, ...]) -> Cause:
    return Cause(rule=Rule.OPTIMIZER, certainty=Certainty.EXACT, columns=columns, label=label)
