"""Ops that are called as before and computed otherwise: by another kernel, by another library, or by none any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from perfguard.profile.changes.count_rules.op_names import computes
from perfguard.profile.changes.paired_ops import PairedOps
from perfguard.profile.libraries.runners import NO_LIBRARY
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey


def implementation_change(ops: PairedOps, column: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Implementations that went, and those that came; both empty unless the op has some of each.

    A call that could not be placed in the trace is missing from one arm. It must not look like a change, so it takes
    one that went and one that came. Where all calls are known, `NO_LIBRARY` may be one of them.
    """
    before, after = ops.implementations[column]
    went, came = tuple(sorted({*before} - {*after})), tuple(sorted({*after} - {*before}))
    return (went, came) if went and came else ((), ())


def implementation_changes(ops: PairedOps, counted: Sequence[ChangeClass]) -> frozenset[int]:
    """Columns of ops that are computed otherwise.

    An op that left the libraries, or came to one, counts only where nothing beside it took over: no op at its place is
    called more or less often, none went the other way there, and none anywhere took on what it lost. Else a callee may
    do its work now, or a call of the library was placed in another op than in the other arm.

    Args:
        ops: Both arms.
        counted: What the numbers of calls say of each op.
    """
    changes = {column: implementation_change(ops, column) for column in range(len(ops.keys))}
    changes = {column: change for column, change in changes.items() if change[0]}
    left = {column for column, (_, came) in changes.items() if came == (NO_LIBRARY,)}
    joined = {column for column, (went, _) in changes.items() if went == (NO_LIBRARY,)}
    lost = {name for column in left for name in changes[column][0]}
    won = {name for column in joined for name in changes[column][1]}
    ways: dict[Hashable, set[bool]] = defaultdict(set)
    for column in left | joined:
        ways[_place(ops.keys[column])].add(column in left)
    busy = {_place(ops.keys[column]) for column, change in enumerate(counted) if _is_busy(ops.keys[column], change)}
    doubtful = {
        column
        for column in left | joined
        if len(ways[_place(ops.keys[column])]) > 1
        or _place(ops.keys[column]) in busy
        or not (lost & won).isdisjoint((*changes[column][0], *changes[column][1]))
    }
    return frozenset(changes) - doubtful


def _place(key: OpKey) -> Hashable:
    return key.phase, key.module


def _is_busy(key: OpKey, change: ChangeClass) -> bool:
    return change is not ChangeClass.UNCHANGED and key.op != PYTHON_OP and computes(key.op)
