"""Data that is moved and not computed with: reorders of oneDNN and copies of torch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from perfguard.profile.changes.counted import Change, Rule, explained, more_or_fewer
from perfguard.profile.changes.op_names import COPIES, is_copy, short
from perfguard.profile.changes.pairs import REORDER
from perfguard.profile.changes.residue import Counts, Place, Residue, RowKey
from perfguard.profile.op_counts.details import op_detail, primitive_detail
from perfguard.records.facts import Severity, Value
from perfguard.records.steps.ops import OpCountKind, StepPhase


def reorders(residue: Residue) -> list[Change]:
    """Reorders that nothing else explains: a change for each phase, more and fewer.

    Places with as many reorders as before, between other layouts, follow from something else and are left.
    """
    found = []
    for places in _changed_places(residue, filter(is_reorder, residue.open(OpCountKind.PRIMITIVE)), reorders_at):
        counts = sum((reorders_at(residue, place) for place in places), Counts())
        rows = [row for place in places for row in open_reorders(residue, place)]
        moved = _moved(residue, [row for row in rows if residue.change(row) * counts.change > 0])
        code, number = _code("reorders", counts), abs(counts.change)
        found.append(explained(residue, Rule.REORDERS, code, rows, counts=counts, values=moved, number=number))
    return found


def other_reorders(residue: Residue) -> list[Change]:
    """As many reorders as before, between other layouts."""
    rows = [row for row in residue.open(OpCountKind.PRIMITIVE) if is_reorder(row)]
    counts = residue.counts(rows)
    number, severity = max(counts.before, counts.after), Severity.NOTABLE
    code = "reorders.changed"
    return [explained(residue, Rule.REORDERS, code, rows, severity=severity, number=number)] if rows else []


def copies(residue: Residue) -> list[Change]:
    """Copies of tensors that nothing else explains: a change for each phase, more and fewer."""
    found = []
    for places in _changed_places(residue, filter(is_copying, residue.open(OpCountKind.OP)), copies_at):
        counts = sum((copies_at(residue, place) for place in places), Counts())
        rows = [row for place in places for row in open_copies(residue, place)]
        telling = [row for row in rows if residue.change(row) * counts.change > 0] or rows
        # The outermost op, which the code calls, and its most frequent tensor.
        example = min(telling, key=lambda row: (COPIES.index(short(row.name)), -abs(residue.change(row)), row))
        detail = op_detail(example.detail)
        tensor = " ".join(part.split(" ")[0] for part in (detail.dtypes, detail.shapes) if part)
        values: dict[str, Value] = {"number": abs(counts.change), "by": short(example.name), "tensor": tensor}
        found.append(explained(residue, Rule.COPIES, _code("copies", counts), rows, counts=counts, values=values))
    return found


def is_reorder(row: RowKey) -> bool:
    """Whether a row counts reorders."""
    return row.kind is OpCountKind.PRIMITIVE and row.name == REORDER


def is_copying(row: RowKey) -> bool:
    """Whether a row counts calls of an op that copies, a wrapper included."""
    return row.kind is OpCountKind.OP and is_copy(row.name)


def open_reorders(residue: Residue, place: Place) -> list[RowKey]:
    """Reorders of a place that are not explained."""
    return [row for row in residue.open_at(place) if is_reorder(row)]


def open_copies(residue: Residue, place: Place) -> list[RowKey]:
    """Copies of a place that are not explained."""
    return [row for row in residue.open_at(place) if is_copying(row)]


def reorders_at(residue: Residue, place: Place) -> Counts:
    """All reorders of a place."""
    return residue.counts(row for row in residue.at(place) if is_reorder(row))


def copies_at(residue: Residue, place: Place) -> Counts:
    """All copies of a place, as calls of the innermost op whose number changed.

    `contiguous` calls `clone` calls `copy_`, and that is one copy.
    """
    changes = {short(op): change for op, change in residue.op_changes(place).items() if is_copy(op)}
    counted = next((op for op in reversed(COPIES) if changes.get(op)), COPIES[-1])
    return residue.counts(row for row in residue.at(place) if is_copying(row) and short(row.name) == counted)


def around(places: Iterable[Place]) -> frozenset[Place]:
    """Where the tensors of these places may have been prepared.

    The places, the modules around them, and the load phase, in which the batch gets its dtype and memory format.
    """
    found = {Place(phase=StepPhase.LOAD, module="")}
    for place in places:
        parts = place.module.split(".") if place.module else []
        found |= {Place(phase=place.phase, module=".".join(parts[:length])) for length in range(len(parts) + 1)}
    return frozenset(found)


def take_movements(residue: Residue, places: Iterable[Place]) -> tuple[dict[str, Value], frozenset[RowKey]]:
    """Explain the reorders and copies of these places by what else happened there; how many more, and the rows."""
    reordered = copied = 0
    rows: frozenset[RowKey] = frozenset()
    for place in places:
        moved, copying = open_reorders(residue, place), open_copies(residue, place)
        reordered += reorders_at(residue, place).change if moved else 0
        copied += copies_at(residue, place).change if copying else 0
        rows |= residue.take([*moved, *copying])
    return {**more_or_fewer("reorders", reordered), **more_or_fewer("copies", copied)}, rows


def _code(noun: str, counts: Counts) -> str:
    return f"{noun}.{'added' if counts.change > 0 else 'removed'}"


def _changed_places(
    residue: Residue, rows: Iterable[RowKey], counts_at: Callable[[Residue, Place], Counts]
) -> list[Sequence[Place]]:
    """The places of rows in groups: one for each phase, those with more and those with fewer apart."""
    found: dict[tuple[StepPhase, bool], list[Place]] = defaultdict(list)
    for place in sorted({row.place for row in rows}):
        change = counts_at(residue, place).change
        if change:
            found[place.phase, change > 0].append(place)
    return [*found.values()]


def _moved(residue: Residue, rows: Sequence[RowKey]) -> dict[str, Value]:
    """Between which layouts reorders lead, the most frequent first, and how much they write, as far as it is known."""
    calls: Counter[str] = Counter()
    written_bytes = 0
    for row in rows:
        detail, count = primitive_detail(row.detail), abs(residue.change(row))
        written_bytes += detail.written_bytes * count
        if detail.tags:
            calls[detail.tags] += count
    layouts = tuple(sorted(calls, key=lambda tags: (-calls[tags], tags)))
    return {"layouts": layouts, "written_bytes": written_bytes or None}
