"""Primitives that run with another implementation, or in no library any more."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Gravity, Rule, where
from perfguard.profile.changes.count_rules.op_names import computes
from perfguard.profile.changes.count_rules.pairs import REORDER
from perfguard.profile.changes.count_rules.told import told
from perfguard.profile.libraries.implementations import Turn, turn_of
from perfguard.profile.op_counts.census import CACHE_MISS, UNPLACED
from perfguard.profile.op_counts.census_details import primitive_detail
from perfguard.records.steps.ops import CensusKind
from perfguard.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perfguard.profile.changes.count_rules.residue import Pair, Place, Residue, RowKey

_GRAVITY: Mapping[Turn, Gravity] = {
    Turn.FALLBACK: Gravity.GRAVE,
    Turn.LOWER: Gravity.NOTABLE,
    Turn.SIDEWAYS: Gravity.NOTABLE,
    Turn.HIGHER: Gravity.HARMLESS,
    Turn.RECOVERED: Gravity.HARMLESS,
}

_NO_LIBRARY = "no library"


def implementations(pairs: Sequence[Pair]) -> list[Fact]:
    """`convolution: brg_conv_fwd:avx512_core_bf16 → ref:any (and 2 more like it), 156 calls in forward …`.

    One fact for all choices of a primitive that turned the same way: a capped instruction set changes dozens of them.
    """
    groups: dict[tuple[str, Turn], list[Pair]] = defaultdict(list)
    for pair in pairs:
        turn = turn_of(pair.lost.implementation, pair.gained.implementation)
        groups[pair.lost.name.split()[0], turn].append(pair)
    return [_fact(primitive, turn, group) for (primitive, turn), group in groups.items()]


def choice_texts(pairs: Iterable[Pair]) -> list[str]:
    """`brg_conv_fwd:avx512_core → jit:avx2` for each pair of choices, the most frequent first."""
    calls: Counter[str] = Counter()
    for pair in pairs:
        calls[_choices(pair)] += pair.calls
    return sorted(calls, key=lambda text: (-calls[text], text))


def left_libraries(residue: Residue) -> list[Fact]:
    """`matmul brg_matmul:avx512_core → no library, 12 calls in forward …`: the same ops, but others run them."""
    busy = {row.place for row in residue.differing if row.kind is CensusKind.OP and computes(row.name)}
    found: dict[tuple[str, str], list[RowKey]] = defaultdict(list)
    executed = [
        row
        for row in residue.open(CensusKind.PRIMITIVE)
        if row.name not in {REORDER, CACHE_MISS} and row.place.module != UNPLACED
    ]
    for place in sorted({row.place for row in executed} - busy):
        lost, gained = _gone_and_new(residue, place, {row.name for row in executed if row.place == place})
        if lost or gained:
            found[_runner(residue, lost), _runner(residue, gained)] += [*lost, *gained]
    return [_left(residue, lost, gained, rows) for (lost, gained), rows in found.items()]


def _fact(primitive: str, turn: Turn, pairs: Sequence[Pair]) -> Fact:
    account = told(pairs)
    first, *others = choice_texts(pairs)
    more = f" (and {len(others)} more like it)" if others else ""
    calls = format_count(account.calls, "call")
    return Fact(
        rule=Rule.IMPLEMENTATION,
        before=account.calls,
        after=account.calls,
        sentence=f"{primitive}: {first}{more}, {calls} {where(account.places)}",
        places=account.places,
        rows=account.rows,
        gravity=_GRAVITY[turn],
    )


def _choices(pair: Pair) -> str:
    rows = pair.lost, pair.gained
    lost, gained = (row.implementation or "none" for row in rows)
    if lost == gained:
        lost, gained = (primitive_detail(row.detail).attributes or "no attributes" for row in rows)
    return f"{lost} → {gained}"


def _gone_and_new(residue: Residue, place: Place, names: Iterable[str]) -> tuple[list[RowKey], list[RowKey]]:
    gone, new = [], []
    for name in sorted(names):
        rows = [row for row in residue.at(place) if row.kind is CensusKind.PRIMITIVE and row.name == name]
        counts = residue.counts(rows)
        if not counts.after:
            gone += rows
        elif not counts.before:
            new += rows
    return gone, new


def _runner(residue: Residue, rows: Sequence[RowKey]) -> str:
    """`matmul brg_matmul:avx512_core`, `sgemm of MKL`; the most frequent one."""
    if not rows:
        return _NO_LIBRARY
    row = max(rows, key=lambda row: (abs(residue.counts([row]).change), row))
    primitive = row.name.split()[0]
    return f"{primitive} {row.implementation}" if row.implementation else f"{primitive} of MKL"


def _left(residue: Residue, lost: str, gained: str, rows: Sequence[RowKey]) -> Fact:
    counts = residue.counts(rows)
    calls = format_count(max(counts.before, counts.after), "call")
    places = frozenset(row.place for row in rows)
    gravity = Gravity.NOTABLE
    if gained == _NO_LIBRARY:
        gravity = Gravity.GRAVE
    elif lost == _NO_LIBRARY:
        gravity = Gravity.HARMLESS
    return Fact(
        rule=Rule.IMPLEMENTATION,
        before=counts.before,
        after=counts.after,
        sentence=f"{lost} → {gained}, {calls} {where(places)}",
        places=places,
        rows=residue.take(rows),
        gravity=gravity,
    )
