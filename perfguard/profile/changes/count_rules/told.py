"""What the sentences about paired calls have in common: how many there are, and which ops to name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfguard.profile.changes.count_rules.facts import listed, phases_of
from perfguard.profile.changes.count_rules.op_names import computes, leading, short
from perfguard.profile.changes.count_rules.residue import Pair, Place, RowKey
from perfguard.records.steps.ops import CensusKind
from perfguard.units import format_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Pairs as a sentence counts them."""

    calls: int
    """Of leading ops: a wrapper and what it calls are one. Of primitives, where no op differs."""
    text: str
    """`12 ops`, `1 primitive`."""
    names: str
    """`conv2d, relu and 4 more`: those of the earliest phase first, whose names people know, then the most frequent."""
    rows: frozenset[RowKey]
    """The rows of all pairs."""

    @property
    def places(self) -> frozenset[Place]:
        """Where they are."""
        return frozenset(row.place for row in self.rows)


def told(pairs: Iterable[Pair]) -> Told:
    """Count pairs, at least one."""
    pairs = list(pairs)
    ops = [pair for pair in pairs if pair.lost.kind is CensusKind.OP]
    ops = [pair for pair in ops if computes(pair.lost.name)] or ops
    calls = _leading_calls(ops) if ops else _primitive_calls(pairs)
    number = sum(calls.values())
    first = phases_of(pair.lost.place for pair in ops or pairs)[0]
    early = {_name(pair) for pair in ops or pairs if pair.lost.place.phase is first}
    return Told(
        calls=number,
        text=format_count(number, "op" if ops else "primitive"),
        names=listed(sorted(calls, key=lambda name: (name not in early, -calls[name], name))),
        rows=frozenset(row for pair in pairs for row in (pair.lost, pair.gained)),
    )


def _leading_calls(pairs: Sequence[Pair]) -> Counter[str]:
    at: dict[frozenset[Place], Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        at[frozenset({pair.lost.place, pair.gained.place})][pair.lost.name] += pair.calls
    calls: Counter[str] = Counter()
    for counted in at.values():
        for op in leading(counted):
            calls[short(op)] += counted[op]
    return calls


def _primitive_calls(pairs: Sequence[Pair]) -> Counter[str]:
    calls: Counter[str] = Counter()
    for pair in pairs:
        calls[_name(pair)] += pair.calls
    return calls


def _name(pair: Pair) -> str:
    return short(pair.lost.name) if pair.lost.kind is CensusKind.OP else pair.lost.name.split()[0]
