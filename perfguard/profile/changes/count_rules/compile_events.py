"""Graph breaks, recompiles and whatever else the compiler reports."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Rule, gravity_of, listed
from perfguard.records.steps.ops import CensusKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfguard.profile.changes.count_rules.residue import Residue, RowKey

_LABELS: Mapping[str, str] = {
    "graph_break": "graph breaks",
    "recompile": "recompiles",
    "unique_graphs": "compiled graphs",
    "frames": "frames seen by the compiler",
}


def compile_events(residue: Residue) -> list[Fact]:
    """`graph breaks: 0 → 2 (call of a builtin)`: one fact for each kind of event."""
    by_name: dict[str, list[RowKey]] = defaultdict(list)
    for row in residue.open(CensusKind.COMPILE):
        by_name[row.name].append(row)
    return [_fact(residue, name, rows) for name, rows in by_name.items()]


def _fact(residue: Residue, name: str, rows: list[RowKey]) -> Fact:
    counts = residue.counts(residue.all(CensusKind.COMPILE, name))
    # Reasons that came, or, where none did, those that went.
    telling = [row for row in rows if residue.change(row) > 0] or rows
    reasons = listed(sorted({row.detail for row in telling if row.detail}), limit=2)
    label = _LABELS.get(name, name.replace("_", " "))
    numbers = f"{counts.before:,} → {counts.after:,}" if counts.change else "as many, for other reasons"
    text = f"{label}: {numbers}"
    return Fact(
        rule=Rule.COMPILE,
        before=counts.before,
        after=counts.after,
        sentence=f"{text} ({reasons})" if reasons else text,
        places=frozenset(row.place for row in rows),
        rows=residue.take(rows),
        gravity=gravity_of(counts.change),
    )
