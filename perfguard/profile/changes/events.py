"""Changes that are counted for the whole step: compiler events, primitive-cache misses, allocations."""

from __future__ import annotations

from collections import defaultdict

from perfguard.profile.changes.counted import Change, Rule, explained, severity_of
from perfguard.profile.changes.residue import Residue, RowKey
from perfguard.profile.op_counts.steady import ALLOCATIONS, CACHE_MISS
from perfguard.records.facts import Value
from perfguard.records.steps.ops import OpCountKind


def compile_events(residue: Residue) -> list[Change]:
    """Graph breaks, recompiles and whatever else the compiler reports, a change for each kind of event."""
    by_name: dict[str, list[RowKey]] = defaultdict(list)
    for row in residue.open(OpCountKind.COMPILE):
        by_name[row.name].append(row)
    found = []
    for name, rows in by_name.items():
        counts = residue.counts(residue.all(OpCountKind.COMPILE, name))
        # Reasons that came, or, where none did, those that went.
        telling = [row for row in rows if residue.change(row) > 0] or rows
        reasons = tuple(sorted({row.detail for row in telling if row.detail}))
        found.append(
            explained(residue, Rule.COMPILE, "compile.changed", rows, counts=counts, event=name, reasons=reasons)
        )
    return found


def cache_misses(residue: Residue) -> list[Change]:
    """Primitives that oneDNN makes again in each steady step: shapes keep changing, or the cache is too small."""
    rows = [row for row in residue.open(OpCountKind.PRIMITIVE) if row.name == CACHE_MISS]
    if not rows:
        return []
    counts = residue.counts(residue.all(OpCountKind.PRIMITIVE, CACHE_MISS))
    primitives = tuple(sorted({row.detail for row in rows}))
    return [explained(residue, Rule.CACHE_MISSES, "cache_misses.changed", rows, counts=counts, primitives=primitives)]


def allocations(residue: Residue) -> list[Change]:
    """What a step allocates, one change: it follows from what it executes, so that one cause shows in many places."""
    rows = residue.open(OpCountKind.ALLOCATION)
    if not rows:
        return []
    of_step = residue.all(OpCountKind.ALLOCATION, ALLOCATIONS)
    counts, sizes = residue.counts(of_step), residue.sizes(of_step)
    amounts: dict[str, Value] = {"size_after_bytes": sizes.after}
    if counts.change:
        amounts["calls_before"] = counts.before
    if sizes.change:
        amounts["size_before_bytes"] = sizes.before
        amounts["more_bytes" if sizes.change > 0 else "fewer_bytes"] = abs(sizes.change)
    amounts["is_elsewhere"] = not counts.change and not sizes.change
    severity = severity_of(sizes.change or counts.change)
    return [
        explained(
            residue, Rule.ALLOCATIONS, "allocations.changed", rows, counts=counts, severity=severity, values=amounts
        )
    ]
