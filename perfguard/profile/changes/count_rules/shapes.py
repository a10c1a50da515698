"""The same ops on tensors of other shapes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Rule, listed, phases_of, where
from perfguard.profile.changes.count_rules.op_names import computes, leading, short
from perfguard.profile.changes.count_rules.told import told
from perfguard.profile.op_counts.census_details import op_detail, primitive_detail
from perfguard.records.steps.ops import CensusKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfguard.profile.changes.count_rules.residue import Pair, RowKey


def shapes(pairs: Sequence[Pair]) -> list[Fact]:
    """`212 ops on other shapes in forward and backward of ResNet: relu [32,64,…] → [64,64,…], …`: one fact for all.

    A larger batch changes every op, a wider layer all that follow it; which is which, the examples tell.
    """
    if not pairs:
        return []
    account = told(pairs)
    return [
        Fact(
            rule=Rule.SHAPES,
            before=account.calls,
            after=account.calls,
            sentence=f"{account.text} on other shapes {where(account.places)}: {_examples(pairs)}",
            places=account.places,
            rows=account.rows,
        )
    ]


def _examples(pairs: Sequence[Pair]) -> str:
    """Two of different ops of the earliest phase, those with the most calls."""
    pairs = [pair for pair in pairs if pair.lost.kind is CensusKind.OP] or pairs
    pairs = [pair for pair in pairs if computes(pair.lost.name)] or pairs
    first = phases_of(pair.lost.place for pair in pairs)[0]
    pairs = [pair for pair in pairs if pair.lost.place.phase is first]
    named_ops = set(leading(pair.lost.name for pair in pairs))
    calls: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        if pair.lost.name in named_ops:
            calls[short(pair.lost.name), _change_of(pair)] += pair.calls
    examples: dict[str, str] = {}
    for op, change in sorted(calls, key=lambda example: (-calls[example], example)):
        examples.setdefault(op, f"{op} {change}")
    return listed(examples.values(), limit=2)


def _change_of(pair: Pair) -> str:
    """`[32,64,56,56] → [64,64,56,56]`: the first tensor that differs."""
    before, after = (_shapes(row) for row in (pair.lost, pair.gained))
    differing = ((was, now) for was, now in zip(before, after, strict=False) if was != now)
    was, now = next(differing, (" ".join(before), " ".join(after)))
    return f"{was or 'none'} → {now or 'none'}"


def _shapes(row: RowKey) -> Sequence[str]:
    if row.kind is CensusKind.PRIMITIVE:
        return [primitive_detail(row.detail).problem]
    return op_detail(row.detail).shapes.split(" ")
