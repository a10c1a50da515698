"""Ops and primitives on tensors of another memory layout, with the reorders and copies that it takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Gravity, Rule, where
from perfguard.profile.changes.count_rules.implementation import choice_texts
from perfguard.profile.changes.count_rules.movements import around, take_movements
from perfguard.profile.changes.count_rules.told import told
from perfguard.profile.op_counts.census_details import channels_last_of, op_detail, primitive_detail
from perfguard.records.steps.ops import CensusKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfguard.profile.changes.count_rules.residue import Pair, Residue


def layouts(residue: Residue, pairs: Sequence[Pair]) -> list[Fact]:
    """`channels_last lost by 40 ops in forward and backward of ResNet: conv2d, …; 12 reorders more, 3 copies more`.

    One fact for all that lost channels_last, one for all that gained it, one for all other layouts.
    """
    groups: dict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        change = _channels_last(pair)
        groups[(change > 0) - (change < 0)].append(pair)
    return [_fact(residue, group, direction) for direction, group in sorted(groups.items())]


def _fact(residue: Residue, pairs: Sequence[Pair], direction: int) -> Fact:
    account = told(pairs)
    rows, ends = account.rows, [account.names]
    if direction:
        verb = "lost" if direction < 0 else "gained"
        text = f"channels_last {verb} by {account.text} {where(account.places)}"
        moved, more = take_movements(residue, around(account.places))
        rows |= more
        chosen = choice_texts(p for p in pairs if p.lost.implementation != p.gained.implementation)
        ends += [moved, *chosen[:1]]
    else:
        text = f"{account.text} on other layouts ({_example(pairs)}) {where(account.places)}"
    return Fact(
        rule=Rule.LAYOUT,
        before=0 if direction > 0 else account.calls,
        after=0 if direction < 0 else account.calls,
        sentence=f"{text}: {'; '.join(filter(None, ends))}",
        places=account.places,
        rows=rows,
        gravity=Gravity.HARMLESS if direction > 0 else Gravity.NOTABLE,
    )


def _channels_last(pair: Pair) -> int:
    before, after = (channels_last_of(row.kind, row.detail) for row in (pair.lost, pair.gained))
    return after - before


def _example(pairs: Sequence[Pair]) -> str:
    """`contiguous → strided`: what the most calls turned from and to."""
    calls: Counter[str] = Counter()
    for pair in pairs:
        before, after = (_layouts(pair, row.detail) for row in (pair.lost, pair.gained))
        for was, now in zip(before, after, strict=False):
            if was != now:
                calls[f"{was} → {now}"] += pair.calls
    return min(calls, key=lambda text: (-calls[text], text)) if calls else "other strides"


def _layouts(pair: Pair, detail: str) -> Sequence[str]:
    if pair.lost.kind is CensusKind.OP:
        return op_detail(detail).layouts.split()
    return [descriptor.tag for descriptor in primitive_detail(detail).descriptors]
