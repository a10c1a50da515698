"""Ops that are executed as before, but called from another place: a renamed module, a step taken elsewhere."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

from perfguard.profile.changes.paired_ops import PairedOps
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey


def relocated(ops: PairedOps, changes: Sequence[ChangeClass]) -> dict[int, int]:
    """Columns that went away, and where each came back: the same op on the same tensors, called as often.

    Time in no op follows the ops of its place, since it has nothing else to be known by.
    """
    gone = [column for column, change in enumerate(changes) if change is ChangeClass.GONE]
    new = [column for column, change in enumerate(changes) if change is ChangeClass.NEW]
    moves: dict[int, int] = {}
    for identity in (_within_phase, _anywhere):
        moves.update(_matched(ops, _left(ops, gone, set(moves)), _left(ops, new, set(moves.values())), identity))
    moves.update(_python_moves(ops, gone, new, moves))
    return moves


def _within_phase(key: OpKey) -> Hashable:
    return (key.phase, key.op, key.shapes, key.dtypes, key.layouts)


def _anywhere(key: OpKey) -> Hashable:
    return (key.op, key.shapes, key.dtypes, key.layouts)


def _left(ops: PairedOps, columns: Sequence[int], taken: set[int]) -> list[int]:
    return [column for column in columns if column not in taken and ops.keys[column].op != PYTHON_OP]


def _matched(
    ops: PairedOps, gone: Sequence[int], new: Sequence[int], identity: Callable[[OpKey], Hashable]
) -> dict[int, int]:
    """Pairs within each identity, where as many went as came, with the same calls."""
    before: dict[Hashable, list[int]] = defaultdict(list)
    after: dict[Hashable, list[int]] = defaultdict(list)
    for columns, sides in ((gone, before), (new, after)):
        for column in columns:
            sides[identity(ops.keys[column])].append(column)
    moves: dict[int, int] = {}
    for name, origins in before.items():
        targets = after.get(name, [])
        origins.sort(key=lambda column: (ops.baseline_calls[column], ops.keys[column].module))
        targets.sort(key=lambda column: (ops.candidate_calls[column], ops.keys[column].module))
        calls_before = [float(ops.baseline_calls[column]) for column in origins]
        calls_after = [float(ops.candidate_calls[column]) for column in targets]
        if calls_before == calls_after:
            moves.update(zip(origins, targets, strict=True))
    return moves


def _python_moves(ops: PairedOps, gone: Sequence[int], new: Sequence[int], moves: Mapping[int, int]) -> dict[int, int]:
    """Time in no op of a place whose ops mostly went to one other place."""
    votes: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
    for origin, target in moves.items():
        votes[_place(ops.keys[origin])][_place(ops.keys[target])] += 1
    arrivals = {_place(ops.keys[column]): column for column in new if ops.keys[column].op == PYTHON_OP}
    found: dict[int, int] = {}
    for column in gone:
        key = ops.keys[column]
        if key.op == PYTHON_OP and _place(key) in votes:
            target_place = votes[_place(key)].most_common(1)[0][0]
            if target_place in arrivals:
                found[column] = arrivals.pop(target_place)
    return found


def _place(key: OpKey) -> tuple[str, str]:
    return key.phase.value, key.module
