"""What no other rule explains: views, allocations of tensors, executions of primitives whose ops did not change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from perfguard.profile.changes.count_rules.facts import Fact, Rule, gravity_of, how_often, listed, where
from perfguard.profile.changes.count_rules.movements import is_reorder
from perfguard.profile.changes.count_rules.op_names import leading, short
from perfguard.profile.changes.count_rules.residue import Place, Residue, RowKey
from perfguard.profile.op_counts.census import UNPLACED
from perfguard.records.steps.ops import CensusKind, StepPhase
from perfguard.units import format_count


def attach(residue: Residue, facts: Sequence[Fact]) -> list[Fact]:
    """The facts, with what is left at their places: views come with ops, primitives are executed by them.

    Calls of libraries that could not be placed can be any op's: they go to the last of the facts about ops.
    """
    of_calls: dict[Place, int] = {}
    about_ops = [number for number, fact in enumerate(facts) if any(row.kind is CensusKind.OP for row in fact.rows)]
    for number, fact in enumerate(facts):
        for row in fact.rows:
            if row.kind in {CensusKind.OP, CensusKind.PRIMITIVE}:
                of_calls.setdefault(row.place, number)
    left: dict[int, list[RowKey]] = defaultdict(list)
    for kind in (CensusKind.OP, CensusKind.PRIMITIVE):
        for row in residue.open(kind):
            if row.place.module == UNPLACED and about_ops:
                left[about_ops[-1]].append(row)
            elif row.place in of_calls:
                left[of_calls[row.place]].append(row)
    return [replace(fact, rows=fact.rows | residue.take(left[number])) for number, fact in enumerate(facts)]


def minor_calls(residue: Residue) -> list[Fact]:
    """`view called 12 instead of 10 times in forward of Net`: one fact for each phase, more and fewer."""
    found: dict[tuple[StepPhase, bool], list[RowKey]] = defaultdict(list)
    for row in residue.open(CensusKind.OP):
        found[row.place.phase, residue.change(row) > 0].append(row)
    facts = []
    for rows in found.values():
        names = leading(row.name for row in rows)
        facts.append(_called(residue, rows, names, listed(map(short, names)), "called"))
    return facts


def executions(residue: Residue) -> list[Fact]:
    """`matmul FWD_D executed twice as often (12 → 24) in forward of Net`: a fact for each primitive, more and fewer."""
    found: dict[tuple[str, bool], list[RowKey]] = defaultdict(list)
    for row in residue.open(CensusKind.PRIMITIVE):
        if not is_reorder(row):
            found[row.name, residue.change(row) > 0].append(row)
    return [_called(residue, rows, [name], name, "executed") for (name, _), rows in found.items()]


def other_reorders(residue: Residue) -> list[Fact]:
    """`4 reorders between other layouts in forward of Net`: as many as before."""
    rows = [row for row in residue.open(CensusKind.PRIMITIVE) if is_reorder(row)]
    if not rows:
        return []
    counts = residue.counts(rows)
    places = frozenset(row.place for row in rows)
    number = format_count(max(counts.before, counts.after), "reorder")
    return [
        Fact(
            rule=Rule.REORDERS,
            before=counts.before,
            after=counts.after,
            sentence=f"{number} between other layouts {where(places)}",
            places=places,
            rows=residue.take(rows),
        )
    ]


def _called(residue: Residue, rows: Sequence[RowKey], names: Sequence[str], told: str, verb: str) -> Fact:
    places = frozenset(row.place for row in rows)
    unexplained = [row for row in rows if row.name in names]
    counts = residue.counts(
        row for place in places for row in residue.at(place) if row.kind is rows[0].kind and row.name in names
    )
    # Where other facts took a part of these calls, only what is left can be told.
    if counts.change != sum(map(residue.change, unexplained)):
        counts = residue.counts(unexplained)
    return Fact(
        rule=Rule.CALLS,
        before=counts.before,
        after=counts.after,
        sentence=f"{told} {how_often(counts, verb, kinds=len(names))} {where(places)}",
        places=places,
        rows=residue.take(rows),
        gravity=gravity_of(counts.change),
    )
