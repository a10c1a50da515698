"""Fused ops whose work is done in pieces now, or the other way round; what optimizers execute."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from perfguard.profile.changes.counted import Change, Rule, changed, phases_of, severity_of
from perfguard.profile.changes.op_names import (
    CONVOLUTIONS,
    COPIES,
    FUSIONS,
    Fusion,
    computes,
    is_copy,
    is_minor,
    is_piece_of,
    leading,
    short,
)
from perfguard.profile.changes.residue import Counts, Place, Residue, RowKey
from perfguard.profile.op_counts.details import op_detail
from perfguard.profile.trace.op_groups import group_of
from perfguard.records.steps.ops import OpCountKind, StepPhase

_BROKEN, _JOINED = -1, 1
"""Sign of the change of the fused op's calls."""
_LIST = re.compile(r"\{(?P<tensors>\d+):(?P<elements>\d+)\}")
"""The shape of a list of tensors: how many, and how many elements together."""


def fusions(residue: Residue) -> list[Change]:
    """One change for each fused op, whether it was taken to pieces or put together.

    Copies and views at the same places belong to it: within a fused op there is no need for any.
    """
    return [change for fusion in FUSIONS for change in _changes_of(residue, fusion)]


def _changes_of(residue: Residue, fusion: Fusion) -> Iterable[Change]:
    found: dict[int, list[tuple[Place, Place]]] = defaultdict(list)
    fused = (row for row in residue.open(OpCountKind.OP) if short(row.name) in fusion.fused)
    for place in sorted({row.place for row in fused}):
        for direction in (_BROKEN, _JOINED):
            pieces = _place_of_pieces(residue, place, fusion, direction)
            if pieces is not None:
                found[direction].append((place, pieces))
    for direction, replaced in sorted(found.items()):
        places = frozenset(place for both in replaced for place in both)
        yield _fusion_change(residue, fusion, places, direction)


def _place_of_pieces(residue: Residue, place: Place, fusion: Fusion, direction: int) -> Place | None:
    """Where pieces changed, if calls of the fused op, all its names together, changed the other way here; else None.

    That is the same place or, where a module gave way to a few lines of code, the module around it.
    """
    changes = residue.op_changes(place)
    if sum(change for op, change in changes.items() if short(op) in fusion.fused) * direction <= 0:
        return None
    for other in (place, replace(place, module=place.module.rpartition(".")[0])):
        pieces = residue.op_changes(other).items()
        core = (change for op, change in pieces if is_piece_of(op, fusion) and group_of(op) is fusion.core)
        if any(change * direction < 0 for change in core):
            return other
    return None


def _fusion_change(residue: Residue, fusion: Fusion, places: frozenset[Place], direction: int) -> Change:
    # Forward and backward are the same change; the earlier one has the names that people know.
    first = phases_of(places)[0]
    whole: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    for place in (place for place in places if place.phase is first):
        for op, change in residue.op_changes(place).items():
            if short(op) in fusion.fused and change * direction > 0:
                whole[op] += abs(change)
            elif is_piece_of(op, fusion) and change * direction < 0:
                pieces[op] += abs(change)
    lost, gained = (whole, pieces) if direction == _BROKEN else (pieces, whole)
    rows = [row for place in places for row in residue.at(place) if row.kind is OpCountKind.OP]
    named_ops = {*leading(whole), *leading(pieces)}
    return changed(
        Rule.FUSION,
        f"{fusion.kind}.{'unfused' if direction == _BROKEN else 'fused'}",
        residue.counts(row for row in rows if row.name in named_ops),
        places,
        residue.take(row for row in rows if _belongs(row.name, fusion)),
        severity=severity_of(-direction),
        lost=_most_called(lost),
        gained=_most_called(gained),
    )


def _belongs(op: str, fusion: Fusion) -> bool:
    return short(op) in fusion.fused or is_piece_of(op, fusion) or is_minor(op) or is_copy(op)


def _most_called(calls: Counter[str]) -> tuple[str, ...]:
    return tuple(short(op) for op in sorted(leading(calls), key=lambda op: (-calls[op], op)))


class _Style(IntEnum):
    """How an optimizer updates, the least work first."""

    FUSED = 0
    FOREACH = 1
    SINGLE_TENSOR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Update:
    """What an optimizer's step executes."""

    style: _Style
    calls: Mapping[str, int]
    """By op; of foreach ops and fused ones only those."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Parameters:
    """What an optimizer updates, as far as its ops take lists of tensors."""

    elements: int
    tensors: int


def optimizers(residue: Residue) -> list[Change]:
    """One change for each optimizer that updates in another way, or does the same for other parameters."""
    places = {row.place for row in residue.open(OpCountKind.OP) if row.place.phase is StepPhase.OPTIMIZER}
    found = (_optimizer(residue, place) for place in sorted(places) if place.module)
    return [change for change in found if change is not None]


def _optimizer(residue: Residue, place: Place) -> Change | None:
    rows = [row for row in residue.at(place) if row.kind is OpCountKind.OP]
    computing = [row for row in rows if computes(row.name)]
    before, after = (_update(residue, computing, side) for side in ("before", "after"))
    # An optimizer that only one side has is no other way of updating.
    if before is None or after is None:
        return None
    if before.style is not after.style:
        return changed(
            Rule.FUSION,
            optimizer_code(was_fused=before.style is _Style.FUSED, is_fused=after.style is _Style.FUSED),
            Counts(before=sum(before.calls.values()), after=sum(after.calls.values())),
            {place},
            residue.take(rows),
            severity=severity_of(after.style - before.style),
            lost=tuple(before.calls),
            gained=tuple(after.calls),
        )
    was, now = (_parameters(residue, rows, side) for side in ("before", "after"))
    if was is None or now is None or was == now:
        return None
    return changed(
        Rule.SHAPES,
        "optimizer.parameters_changed",
        Counts(before=was.tensors, after=now.tensors),
        {place},
        residue.take(rows),
        severity=severity_of(now.elements - was.elements),
        elements_before=was.elements,
        elements_after=now.elements,
    )


def optimizer_code(*, was_fused: bool, is_fused: bool) -> str:
    """Code of an optimizer that executes other ops than before."""
    if was_fused == is_fused:
        return "optimizer.changed"
    return "optimizer.unfused" if was_fused else "optimizer.fused"


def _update(residue: Residue, rows: Sequence[RowKey], side: str) -> _Update | None:
    """How a side updates; None where it has no such optimizer."""
    calls: Counter[str] = Counter()
    for row in rows:
        calls[short(row.name)] += getattr(residue.counts([row]), side)
    calls = +calls
    if not calls:
        return None
    fused = {name: count for name, count in calls.items() if "fused" in name}
    foreach = {name: count for name, count in calls.items() if name.startswith("_foreach_")}
    style = _Style.FUSED if fused else _Style.FOREACH if foreach else _Style.SINGLE_TENSOR
    kinds = fused or foreach or calls
    return _Update(style=style, calls=dict(sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0]))))


def _parameters(residue: Residue, rows: Sequence[RowKey], side: str) -> _Parameters | None:
    """The longest list of tensors that ops of a side take."""
    found = []
    for row in rows:
        listed = _LIST.match(op_detail(row.detail).shapes)
        if listed and getattr(residue.counts([row]), side):
            found.append(_Parameters(tensors=int(listed["tensors"]), elements=int(listed["elements"])))
    return max(found, default=None)


def exchange_code(lost: Sequence[str], gained: Sequence[str]) -> str:
    """Code of ops that went and ops that came in their place, by their short names."""
    if not lost or not gained:
        noun = "copies" if all(name in COPIES for name in (*lost, *gained)) else "ops"
        return f"{noun}.{'removed' if lost else 'added'}"
    if not CONVOLUTIONS.isdisjoint(lost) and not CONVOLUTIONS.isdisjoint(gained):
        return "convolution.changed"
    for fusion in FUSIONS:
        for whole, pieces, verb in ((lost, gained, "unfused"), (gained, lost, "fused")):
            if not fusion.fused.isdisjoint(whole) and any(is_piece_of(f"aten::{name}", fusion) for name in pieces):
                return f"{fusion.kind}.{verb}"
    return "ops.replaced"
