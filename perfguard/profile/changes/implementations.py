"""Work that is computed otherwise: by another kernel, in no library any more, by another op of torch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from perfguard.profile.changes.counted import Change, Rule, changed, explained
from perfguard.profile.changes.op_names import CONVOLUTIONS, computes, leading, short
from perfguard.profile.changes.pairs import REORDER, account_of
from perfguard.profile.changes.residue import Counts, Pair, Place, Residue, RowKey
from perfguard.profile.libraries.implementations import Turn, turn_of
from perfguard.profile.libraries.join import NO_LIBRARY
from perfguard.profile.op_counts.details import primitive_detail
from perfguard.profile.op_counts.steady import CACHE_MISS, UNPLACED
from perfguard.records.facts import Severity, Value
from perfguard.records.steps.ops import OpCountKind, StepPhase

_SEVERITY: Mapping[Turn, Severity] = {
    Turn.FALLBACK: Severity.GRAVE,
    Turn.LOWER: Severity.NOTABLE,
    Turn.SIDEWAYS: Severity.NOTABLE,
    Turn.HIGHER: Severity.INFO,
    Turn.RECOVERED: Severity.INFO,
}
_PRIMITIVES = ("convolution", "deconvolution", "reorder", "sgemm", "dgemm", "gemm_")
"""What convolutions execute in oneDNN and MKL."""
_BIAS_GRADIENT = "aten::sum"
"""oneDNN computes it along with that of the weights."""


def implementations(pairs: Sequence[Pair]) -> list[Change]:
    """One change for all choices of a primitive that turned the same way: a capped ISA changes dozens of them."""
    groups: dict[tuple[str, Turn], list[Pair]] = defaultdict(list)
    for pair in pairs:
        turn = turn_of(pair.lost.implementation, pair.gained.implementation)
        groups[pair.lost.name.split()[0], turn].append(pair)
    found = []
    for (primitive, turn), group in groups.items():
        account = account_of(group)
        (lost, gained), *others = choices_of(group)
        found.append(
            changed(
                Rule.IMPLEMENTATION,
                "implementation.changed",
                Counts(before=account.calls, after=account.calls),
                account.places,
                account.rows,
                severity=_SEVERITY[turn],
                primitive=primitive,
                lost=lost,
                gained=gained,
                others=len(others) or None,
                calls=account.calls,
            )
        )
    return found


def choices_of(pairs: Iterable[Pair]) -> list[tuple[str, str]]:
    """`brg_conv_fwd:avx512_core` and `jit:avx2` for each pair of choices, the most frequent first."""
    calls: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        lost, gained = (row.implementation or "none" for row in (pair.lost, pair.gained))
        if lost == gained:
            lost, gained = (
                primitive_detail(row.detail).attributes or "no attributes" for row in (pair.lost, pair.gained)
            )
        calls[lost, gained] += pair.calls
    return sorted(calls, key=lambda choice: (-calls[choice], choice))


def left_libraries(residue: Residue) -> list[Change]:
    """The same ops, but another library runs them, or none."""
    busy = {row.place for row in residue.differing if row.kind is OpCountKind.OP and computes(row.name)}
    executed = [
        row
        for row in residue.open(OpCountKind.PRIMITIVE)
        if row.name not in {REORDER, CACHE_MISS} and row.place.module != UNPLACED
    ]
    groups: dict[tuple[str, str], list[RowKey]] = defaultdict(list)
    for place in sorted({row.place for row in executed} - busy):
        gone, new = _gone_and_new(residue, place, {row.name for row in executed if row.place == place})
        if gone or new:
            groups[_runner(residue, gone), _runner(residue, new)] += [*gone, *new]
    found = []
    for (lost, gained), rows in groups.items():
        counts = residue.counts(rows)
        severity = {NO_LIBRARY: Severity.GRAVE}.get(gained, Severity.INFO if lost == NO_LIBRARY else Severity.NOTABLE)
        values: dict[str, Value] = {"lost": lost, "gained": gained, "calls": max(counts.before, counts.after)}
        found.append(explained(residue, Rule.IMPLEMENTATION, "library.changed", rows, severity=severity, values=values))
    return found


def _gone_and_new(residue: Residue, place: Place, names: Iterable[str]) -> tuple[list[RowKey], list[RowKey]]:
    gone, new = [], []
    for name in sorted(names):
        rows = [row for row in residue.at(place) if row.kind is OpCountKind.PRIMITIVE and row.name == name]
        counts = residue.counts(rows)
        if not counts.after:
            gone += rows
        elif not counts.before:
            new += rows
    return gone, new


def _runner(residue: Residue, rows: Sequence[RowKey]) -> str:
    """`matmul brg_matmul:avx512_core`, `sgemm of MKL`; the most frequent one."""
    if not rows:
        return NO_LIBRARY
    row = max(rows, key=lambda row: (abs(residue.counts([row]).change), row))
    primitive = row.name.split()[0]
    return f"{primitive} {row.implementation}" if row.implementation else f"{primitive} of MKL"


def convolutions(residue: Residue) -> list[Change]:
    """Convolutions that torch computes with another op: in oneDNN, or in its own slow loops."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Place]] = defaultdict(list)
    for place in sorted({row.place for row in residue.open(OpCountKind.OP)}):
        changes = {op: n for op, n in residue.op_changes(place).items() if short(op) in CONVOLUTIONS}
        lost = tuple(leading(op for op, change in changes.items() if change < 0))
        gained = tuple(leading(op for op, change in changes.items() if change > 0))
        if lost and gained:
            groups[lost, gained].append(place)
    return [_convolution(residue, lost, gained, places) for (lost, gained), places in groups.items()]


def _convolution(residue: Residue, lost: tuple[str, ...], gained: tuple[str, ...], places: list[Place]) -> Change:
    ops = (row for place in places for row in residue.at(place) if row.kind is OpCountKind.OP)
    counts = residue.counts(row for row in ops if row.name in lost + gained)
    # The backward of oneDNN's convolution is no op of its own: it goes with the module.
    backward = [Place(phase=StepPhase.BACKWARD, module=place.module) for place in places]
    rows = residue.take(
        row for place in {*places, *backward} for row in residue.at(place) if _belongs_to_convolution(row)
    )
    was_in_onednn, is_in_onednn = (any("mkldnn" in op for op in ops) for ops in (lost, gained))
    severity = Severity.NOTABLE
    if was_in_onednn != is_in_onednn:
        severity = Severity.GRAVE if was_in_onednn else Severity.INFO
    return changed(
        Rule.IMPLEMENTATION,
        "convolution.changed",
        counts,
        {row.place for row in rows},
        rows,
        severity=severity,
        lost=tuple(map(short, lost)),
        gained=tuple(map(short, gained)),
        calls=max(counts.before, counts.after),
    )


def _belongs_to_convolution(row: RowKey) -> bool:
    if row.kind is OpCountKind.PRIMITIVE:
        return row.name.startswith(_PRIMITIVES)
    if row.kind is not OpCountKind.OP:
        return False
    if row.name == _BIAS_GRADIENT and row.place.phase is StepPhase.BACKWARD:
        return True
    return short(row.name) in CONVOLUTIONS or not computes(row.name)
