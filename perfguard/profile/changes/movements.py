"""Data that is moved and not computed with: reorders of oneDNN and copies of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from perfguard.profile.changes.counted import (
    Change,
    ChangeRule,
    Place,
    Residue,
    RowKey,
    StepCounts,
    changed,
    grouped,
    ranked,
)
from perfguard.profile.changes.op_names import COPIES, REORDER, is_copy, short
from perfguard.profile.op_counts.details import op_detail, primitive_detail
from perfguard.records.facts import Severity, Value
from perfguard.records.steps.ops import OpCountKind, StepPhase


def is_reorder(row: RowKey) -> bool:
    """Whether a row counts reorders."""
    return row.kind is OpCountKind.PRIMITIVE and row.name == REORDER


def _is_copy(row: RowKey) -> bool:
    """Whether a row counts calls of an op that copies, a wrapper included."""
    return row.kind is OpCountKind.OP and is_copy(row.name)


MOVEMENTS: Mapping[str, Callable[[RowKey], bool]] = {"reorders": is_reorder, "copies": _is_copy}
"""Which rows count them."""


def reorders(residue: Residue) -> Iterable[Change]:
    """Reorders that nothing else explains: a change for each phase, more and fewer."""
    for code, rows, counts in _changed(residue, "reorders"):
        values = {**_moved(residue, _alike(residue, rows, counts)), "number": abs(counts.change)}
        yield changed(ChangeRule.REORDERS, code, residue.take(rows), counts, values)


def other_reorders(residue: Residue) -> Iterable[Change]:
    """As many reorders as before, between other layouts."""
    rows = [row for row in residue.open(OpCountKind.PRIMITIVE) if is_reorder(row)]
    if rows:
        counts = residue.counts(rows)
        taken, values = residue.take(rows), {"number": counts.after}
        yield changed(ChangeRule.REORDERS, "reorders.changed", taken, counts, values, severity=Severity.NOTABLE)


def copies(residue: Residue) -> Iterable[Change]:
    """Copies of tensors that nothing else explains: a change for each phase, more and fewer."""
    for code, rows, counts in _changed(residue, "copies"):
        telling = _alike(residue, rows, counts) or rows
        # The outermost op, which the code calls, and its most frequent tensor.
        example = min(telling, key=lambda row: (COPIES.index(short(row.name)), -abs(residue.change(row)), row))
        detail = op_detail(example.detail)
        tensor = " ".join(part.split(" ")[0] for part in (detail.dtypes, detail.shapes) if part)
        values: dict[str, Value] = {"number": abs(counts.change), "by": short(example.name), "tensor": tensor}
        yield changed(ChangeRule.COPIES, code, residue.take(rows), counts, values)


def _alike(residue: Residue, rows: Iterable[RowKey], counts: StepCounts) -> list[RowKey]:
    """Rows that changed the same way as the counts."""
    return [row for row in rows if residue.change(row) * counts.change > 0]


def _changed(residue: Residue, noun: str) -> Iterable[tuple[str, list[RowKey], StepCounts]]:
    """Code, open rows and all counts of the places with more movements in each phase, and of those with fewer.

    Places with as many as before, of other tensors, follow from something else and are left.
    """
    places = sorted({row.place for kind in OpCountKind for row in residue.open(kind) if MOVEMENTS[noun](row)})
    counts = {place: moved_at(residue, place, noun) for place in places}

    def code_at(place: Place) -> str:
        return f"{noun}.{'added' if counts[place].change > 0 else 'removed'}"

    places = [place for place in places if counts[place].change]
    for (_, code), there in grouped(places, lambda place: (place.phase, code_at(place))).items():
        rows = [row for place in there for row in open_movements(residue, place, noun)]
        yield code, rows, sum((counts[place] for place in there), StepCounts())


def open_movements(residue: Residue, place: Place, noun: str) -> list[RowKey]:
    """Reorders or copies of a place that are not explained."""
    return [row for row in residue.open_at(place) if MOVEMENTS[noun](row)]


def moved_at(residue: Residue, place: Place, noun: str) -> StepCounts:
    """All reorders or copies of a place; copies as calls of the innermost op whose number changed.

    `contiguous` calls `clone` calls `copy_`, and that is one copy.
    """
    rows = [row for row in residue.at(place) if MOVEMENTS[noun](row)]
    if noun == "copies":
        changes = {short(op): change for op, change in residue.op_changes(place).items() if is_copy(op)}
        counted = next((op for op in reversed(COPIES) if changes.get(op)), None)
        rows = [row for row in rows if short(row.name) == counted]
    return residue.counts(rows)


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
    more = Counter[str]()
    taken: frozenset[RowKey] = frozenset()
    for place in places:
        for noun in MOVEMENTS:
            rows = open_movements(residue, place, noun)
            more[noun] += moved_at(residue, place, noun).change if rows else 0
            taken |= residue.take(rows)
    values = {name: value for noun in MOVEMENTS for name, value in more_or_fewer(noun, more[noun]).items()}
    return values, taken


def more_or_fewer(noun: str, change: int) -> dict[str, Value]:
    """`extra_copies=2` or `fewer_copies=1`; nothing where there are as many."""
    return {f"{'extra' if change > 0 else 'fewer'}_{noun}": abs(change)} if change else {}


def _moved(residue: Residue, rows: Sequence[RowKey]) -> dict[str, Value]:
    """Between which layouts reorders lead, the most frequent first, and how much they write, as far as it is known."""
    calls: Counter[str] = Counter()
    written_bytes = 0
    for row in rows:
        detail, count = primitive_detail(row.detail), abs(residue.change(row))
        written_bytes += detail.written_bytes * count
        if detail.tags:
            calls[detail.tags] += count
    layouts: tuple[str, ...] = tuple(ranked(calls))
    return {"layouts": layouts, "written_bytes": written_bytes or None}
