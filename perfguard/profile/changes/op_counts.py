"""What changed between two op counts: exact, in few facts, worst first.

A rule takes from the `Residue` what it explains. Causes come before effects: a lost memory format before the reorders
that it brings. The last rules take whatever is left, so that no difference is lost. Every rule is symmetric: with the
counts exchanged it finds the same changes, the other way round.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from perfguard.profile.changes.counted import (
    Change,
    ChangeRule,
    Place,
    Residue,
    RowKey,
    StepCounts,
    call_code,
    calls_by,
    changed,
    grouped,
    phases_of,
    ranked,
    severity_of,
)
from perfguard.profile.changes.fusions import convolutions, fusions, left_libraries, optimizers
from perfguard.profile.changes.movements import (
    MOVEMENTS,
    copies,
    is_reorder,
    moved_at,
    open_movements,
    other_reorders,
    reorders,
)
from perfguard.profile.changes.op_names import callees, computes, leading, short
from perfguard.profile.changes.pairs import account_of, pair_changes
from perfguard.profile.libraries.implementations import isa_class
from perfguard.profile.op_counts.steady import ALLOCATIONS, CACHE_MISS, UNPLACED
from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.steps.ops import OpCountChange, OpCountKind, OpCounts, StepPhase

_RULES = [rule.value for rule in ChangeRule]
_SEVERITIES = list(Severity)
_CALL_KINDS = (OpCountKind.OP, OpCountKind.PRIMITIVE)
_OF_MODULES = frozenset({StepPhase.FORWARD, StepPhase.LOSS, StepPhase.BACKWARD})
"""Phases in which a module's backward follows from its forward."""


def comparable(before: OpCounts, after: OpCounts) -> Fact | None:
    """Why stored op counts say nothing about other ones; None where every difference is a change.

    Another version of torch is no reason: what it counts otherwise is what an upgrade changed, and `compare_op_counts`
    says so. Two arms that were measured together are always comparable, because an instruction set that only one of
    them may use is then the finding.
    """
    if before.case_id != after.case_id:
        return fact("op_counts.other_case", case_id=after.case_id, counted=before.case_id)
    if isa_class(before.isa_class) != isa_class(after.isa_class):
        return fact("op_counts.other_isa", counted=before.isa_class or None, here=after.isa_class or None)
    return None


def compare_op_counts(before: OpCounts, after: OpCounts) -> tuple[OpCountChange, ...]:
    """What changed in what a step executes; empty where it is the same.

    Counts are compared exactly. Bytes of allocations may differ by less than `ALIGNMENT_BYTES` for each of them.
    Whether the two say anything about each other, `comparable` knows.

    Returns:
        Worst first; improvements last. With another torch, each fact has both versions.
    """
    return records_of(classify(before, after))


def records_of(changes: Sequence[Change]) -> tuple[OpCountChange, ...]:
    """Changes without the rows that they explain."""
    return tuple(change.record for change in changes)


def classify(before: OpCounts, after: OpCounts) -> Sequence[Change]:
    """The changes with the rows that each of them explains: together, every row that differs; worst first."""
    residue = Residue(before, after)
    found = [change for rule in _CAUSES for change in rule(residue)]
    found = _attach(residue, found)
    found += [*pair_changes(residue, minor=True), *_left_calls(residue), *other_reorders(residue)]
    if before.torch != after.torch:
        versions = {"torch_before": before.torch, "torch_after": after.torch}
        for number, change in enumerate(found):
            versioned = dataclasses.replace(change.record.fact, values={**change.record.fact.values, **versions})
            found[number] = replace(change, record=replace(change.record, fact=versioned))
    return sorted(found, key=lambda change: _reading_order(change.record))


def _reading_order(change: OpCountChange) -> tuple[int, int, int, str, str]:
    severity, rule = _SEVERITIES.index(change.fact.severity), _RULES.index(change.rule)
    return severity, rule, -abs(change.after - change.before), change.module, repr(change.fact)


def _compile_events(residue: Residue) -> Iterable[Change]:
    """Graph breaks, recompiles and whatever else the compiler reports, a change for each kind of event."""
    for name, rows in grouped(residue.open(OpCountKind.COMPILE), lambda row: row.name).items():
        counts = residue.counts(residue.all(OpCountKind.COMPILE, name))
        # Reasons that came, or, where none did, those that went.
        telling = [row for row in rows if residue.change(row) > 0] or rows
        values: dict[str, Value] = {"event": name, "reasons": tuple(sorted({row.detail for row in telling} - {""}))}
        yield changed(ChangeRule.COMPILE, "compile.changed", residue.take(rows), counts, values)


def _cache_misses(residue: Residue) -> Iterable[Change]:
    """Primitives that oneDNN makes again in each steady step: shapes keep changing, or the cache is too small."""
    rows = [row for row in residue.open(OpCountKind.PRIMITIVE) if row.name == CACHE_MISS]
    if rows:
        counts = residue.counts(residue.all(OpCountKind.PRIMITIVE, CACHE_MISS))
        values: dict[str, Value] = {"primitives": tuple(sorted({row.detail for row in rows}))}
        yield changed(ChangeRule.CACHE_MISSES, "cache_misses.changed", residue.take(rows), counts, values)


def _allocations(residue: Residue) -> Iterable[Change]:
    """What a step allocates, one change: it follows from what it executes, so that one cause shows in many places."""
    rows = residue.open(OpCountKind.ALLOCATION)
    if not rows:
        return
    of_step = residue.all(OpCountKind.ALLOCATION, ALLOCATIONS)
    counts, sizes = residue.counts(of_step), residue.sizes(of_step)
    values: dict[str, Value] = {"size_after_bytes": sizes.after}
    if counts.change:
        values["calls_before"] = counts.before
    if sizes.change:
        values["size_before_bytes"] = sizes.before
        values["more_bytes" if sizes.change > 0 else "fewer_bytes"] = abs(sizes.change)
    values["is_elsewhere"] = not counts.change and not sizes.change
    severity = severity_of(sizes.change or counts.change)
    yield changed(ChangeRule.ALLOCATIONS, "allocations.changed", residue.take(rows), counts, values, severity=severity)


def _moves(residue: Residue) -> Iterable[Change]:
    """The same calls in other modules, one change: a part of the model was renamed, or code went elsewhere.

    Ops that compute show where something went; views, copies and primitives go along between the same places. Phases
    are kept: the same op in another phase is other work, such as a forward that is repeated in backward.
    """
    ops = [row for row in residue.open(OpCountKind.OP) if computes(row.name)]
    pairs = residue.pair(ops, lambda row: (row.place.phase, _what(row)))
    if not pairs:
        return
    links = {(min(both), max(both)) for pair in pairs for both in [(pair.lost.place, pair.gained.place)]}
    along = [
        pair
        for link in sorted(links)
        for rows in [[row for place in link for row in residue.open_at(place) if row.kind in _CALL_KINDS]]
        for pair in residue.pair(rows, _what)
    ]
    account = account_of([*pairs, *along])
    (source, target), *others = ranked(calls_by(pairs, lambda pair: (pair.lost.place.module, pair.gained.place.module)))
    values: dict[str, Value] = {**account.values, "source": source or "no module", "target": target or "no module"}
    values["others"] = len(others) or None
    rows = account.rows | _take_allocations(residue, account.places)
    yield changed(ChangeRule.CALLS, "ops.moved", rows, account.counts, values, severity=Severity.INFO)


def _what(row: RowKey) -> Hashable:
    return row.kind, row.name, row.detail, row.implementation


def _take_allocations(residue: Residue, places: Iterable[Place]) -> frozenset[RowKey]:
    """Allocations of these places, if they are the same together: then they only went along."""
    rows = [row for place in places for row in residue.open_at(place) if row.kind is OpCountKind.ALLOCATION]
    if residue.counts(rows).change or residue.sizes(rows).change:
        return frozenset()
    return residue.take(rows)


def _call_changes(residue: Residue) -> Iterable[Change]:
    """Ops that are called more or less often: one change for all modules with the same ops.

    Backward, reorders and copies that grow with them belong to them.
    """
    found: dict[tuple[StepPhase, bool, tuple[str, ...]], list[tuple[Place, StepCounts, frozenset[RowKey]]]] = {}
    for (_, more), names in _changed_ops(residue).items():
        first = next(place for phase in StepPhase for place in names if place.phase is phase)
        ops = leading(names[first])
        there = [row for row in residue.at(first, OpCountKind.OP) if row.name in ops]
        open_there = [row for row in residue.open_at(first) if row in there]
        counts = _counts_of(residue, there, open_there)
        rows = _take_calls(residue, names, counts)
        found.setdefault((first.phase, more, tuple(ops)), []).append((first, counts, rows))
    for (phase, _, named), modules in found.items():
        places, counted, explained = zip(*modules, strict=True)
        rows, counts = frozenset[RowKey]().union(*explained), sum(counted, StepCounts())
        has_backward = phase is not StepPhase.BACKWARD and StepPhase.BACKWARD in phases_of(row.place for row in rows)
        values: dict[str, Value] = {"ops": tuple(map(short, named)), "with_backward": has_backward}
        yield changed(ChangeRule.CALLS, call_code(counts.before, counts.after), rows, counts, values, places=places)


def _changed_ops(residue: Residue) -> Mapping[tuple[Place, bool], Mapping[Place, Sequence[str]]]:
    """The changed ops of each place, by module, phases that follow from one another together, and by more and fewer."""
    found: dict[tuple[Place, bool], dict[Place, list[str]]] = defaultdict(dict)
    for place in sorted({row.place for row in residue.open(OpCountKind.OP)}):
        group = replace(place, phase=StepPhase.FORWARD) if place.phase in _OF_MODULES else place
        for op, change in _changes_at(residue, place).items():
            found[group, change > 0].setdefault(place, []).append(op)
    return found


def _changes_at(residue: Residue, place: Place) -> Mapping[str, int]:
    """How much more often, or less, ops compute something.

    Autocast calls an op again once it has cast its tensors: where calls of a wrapper changed, but none of those below
    it, the same is computed.
    """
    changes = residue.op_changes(place)
    there = {short(row.name): row.name for row in residue.at(place, OpCountKind.OP)}
    found = {}
    for op, change in changes.items():
        below = [there[callee] for callee in callees(op) if callee in there]
        if change and computes(op) and (not below or any(changes.get(callee) for callee in below)):
            found[op] = change
    return found


def _take_calls(residue: Residue, names: Mapping[Place, Sequence[str]], counts: StepCounts) -> frozenset[RowKey]:
    """Explain these ops by their calls, with the reorders and copies of which each call has as many as before."""
    rows: frozenset[RowKey] = frozenset()
    for place, there in names.items():
        rows |= residue.take(row for row in residue.at(place, OpCountKind.OP) if row.name in there)
        for noun in MOVEMENTS:
            moved = moved_at(residue, place, noun)
            if moved.before * counts.after == moved.after * counts.before:
                rows |= residue.take(open_movements(residue, place, noun))
    return rows


def _attach(residue: Residue, changes: Sequence[Change]) -> list[Change]:
    """The changes, with what is left at their places: views come with ops, primitives are executed by them.

    Calls of libraries that could not be placed can be any op's: they go to the last of the changes of ops.
    """
    of_calls: dict[Place, int] = {}
    of_ops = [number for number, one in enumerate(changes) if any(row.kind is OpCountKind.OP for row in one.rows)]
    for number, change in enumerate(changes):
        for row in change.rows:
            if row.kind in _CALL_KINDS:
                of_calls.setdefault(row.place, number)
    left: dict[int, list[RowKey]] = defaultdict(list)
    for row in (row for kind in _CALL_KINDS for row in residue.open(kind)):
        if row.place.module == UNPLACED and of_ops:
            left[of_ops[-1]].append(row)
        elif row.place in of_calls:
            left[of_calls[row.place]].append(row)
    return [replace(one, rows=one.rows | residue.take(left[number])) for number, one in enumerate(changes)]


def _left_calls(residue: Residue) -> Iterable[Change]:
    """Calls that come with nothing else, more and fewer.

    Views and new tensors are one change for each phase; executions by the same ops are one for each primitive.
    """
    rows = [row for kind in _CALL_KINDS for row in residue.open(kind) if not is_reorder(row)]

    def group(row: RowKey) -> Hashable:
        with_it = row.place.phase if row.kind is OpCountKind.OP else row.name
        return row.kind, with_it, residue.change(row) > 0

    for there in grouped(rows, group).values():
        kind, names, places = there[0].kind, leading(row.name for row in there), {row.place for row in there}
        unexplained = [row for row in there if row.name in names]
        every = [row for place in places for row in residue.at(place, kind) if row.name in names]
        counts = _counts_of(residue, every, unexplained)
        code = call_code(counts.before, counts.after)
        yield changed(ChangeRule.CALLS, code, residue.take(there), counts, {"ops": tuple(map(short, names))})


def _counts_of(residue: Residue, rows: Sequence[RowKey], unexplained: Sequence[RowKey]) -> StepCounts:
    """Counts of rows; of their unexplained ones where other changes took a part: only what is left can be said."""
    counts = residue.counts(rows)
    is_whole = counts.change == sum(map(residue.change, unexplained))
    return counts if is_whole else residue.counts(unexplained)


_CAUSES: Sequence[Callable[[Residue], Iterable[Change]]] = (
    _compile_events,
    _cache_misses,
    _moves,
    _allocations,
    optimizers,
    fusions,
    convolutions,
    pair_changes,
    left_libraries,
    _call_changes,
    reorders,
    copies,
)
"""Rules in the order in which they take from the residue."""
