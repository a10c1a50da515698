"""Ops and primitives in another dtype, with the casts that it takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Rule, more_or_fewer, where
from perfguard.profile.changes.count_rules.movements import around
from perfguard.profile.changes.count_rules.op_names import CASTS, short
from perfguard.profile.changes.count_rules.told import Told, told
from perfguard.profile.op_counts.census_details import dtypes_of, op_detail
from perfguard.records.steps.ops import CensusKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfguard.profile.changes.count_rules.residue import Pair, Residue, RowKey


def dtypes(residue: Residue, pairs: Sequence[Pair]) -> list[Fact]:
    """`96 ops in f32 instead of bf16 in forward and backward of Bert: linear, …; 72 casts fewer`.

    One fact for each dtype that gave way to another, whatever the ops; neither is better on every machine.
    """
    groups: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[_change_of(pair)].append(pair)
    return [_fact(residue, before, after, told(group)) for (before, after), group in groups.items()]


def _fact(residue: Residue, before: str, after: str, account: Told) -> Fact:
    casts, rows = _take_casts(residue, account)
    end = f"; {more_or_fewer(casts, 'cast')}" if casts else ""
    return Fact(
        rule=Rule.DTYPE,
        before=account.calls,
        after=account.calls,
        sentence=f"{account.text} in {after} instead of {before} {where(account.places)}: {account.names}{end}",
        places=account.places,
        rows=account.rows | rows,
    )


def _change_of(pair: Pair) -> tuple[str, str]:
    """The dtypes that only one side has, `bf16` and `f32`; all of them where only their order differs."""
    before, after = (dtypes_of(row.kind, row.detail) for row in (pair.lost, pair.gained))
    only_before, only_after = Counter(before) - Counter(after), Counter(after) - Counter(before)
    if not only_before and not only_after:
        return " ".join(before), " ".join(after)
    return _listed(only_before), _listed(only_after)


def _listed(dtypes: Counter[str]) -> str:
    return "/".join(sorted(dtypes)) or "none"


def _take_casts(residue: Residue, account: Told) -> tuple[int, frozenset[RowKey]]:
    """How many more casts there are around, and their rows; `to` calls `_to_copy` calls `copy_`, which is one cast."""
    casts = 0
    rows: frozenset[RowKey] = frozenset()
    for place in sorted(around(account.places)):
        found = [row for row in residue.open_at(place) if _is_cast(row)]
        changes = {short(op): change for op, change in residue.op_changes(place).items()}
        casts += next((changes[op] for op in ("_to_copy", "to", "copy_") if changes.get(op) and found), 0)
        rows |= residue.take(found)
    return casts, rows


def _is_cast(row: RowKey) -> bool:
    """Whether a row counts casts; a `copy_` between equal dtypes is none."""
    if row.kind is not CensusKind.OP or short(row.name) not in CASTS:
        return False
    return short(row.name) != "copy_" or len(set(op_detail(row.detail).dtypes.split())) > 1
