"""Work that torch does with other ops: fused or in pieces, by optimizers, by convolutions, in a library or in none."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from perfguard.profile.changes.counted import (
    Change,
    ChangeRule,
    Place,
    Residue,
    RowKey,
    StepCounts,
    changed,
    grouped,
    phases_of,
    ranked,
    severity_of,
)
from perfguard.profile.changes.op_names import (
    CONVOLUTIONS,
    COPIES,
    FUSIONS,
    REORDER,
    Fusion,
    computes,
    is_piece_of,
    leading,
    short,
)
from perfguard.profile.libraries.join import NO_LIBRARY
from perfguard.profile.op_counts.details import op_detail
from perfguard.profile.op_counts.steady import CACHE_MISS, UNPLACED
from perfguard.profile.trace.op_groups import group_of
from perfguard.records.facts import Severity, Value
from perfguard.records.steps.ops import OpCountKind, StepPhase

_BROKEN, _JOINED = -1, 1  # Sign of the change of the fused op's calls
_LIST = re.compile(r"\{(?P<tensors>\d+):(?P<elements>\d+)\}")
"""The shape of a list of tensors: how many, and how many elements together."""
_STYLES = ("fused", "_foreach_", "")
"""How an optimizer updates, the least work first: what names of its ops contain."""
_SIDES: Sequence[Callable[[StepCounts], int]] = (lambda counts: counts.before, lambda counts: counts.after)
_CONVOLUTION_PRIMITIVES = ("convolution", "deconvolution", "reorder", "sgemm", "dgemm", "gemm_")
"""What convolutions execute in oneDNN and MKL."""
_BIAS_GRADIENT = "aten::sum"  # oneDNN computes it along with that of the weights


def fusions(residue: Residue) -> Iterable[Change]:
    """One change for each fused op, whether it was taken to pieces or put together.

    Copies and views at the same places belong to it: within a fused op there is no need for any.
    """
    for fusion in FUSIONS:
        fused = {row.place for row in residue.open(OpCountKind.OP) if short(row.name) in fusion.fused}
        replaced = {
            sign: [(place, found) for place in fused if (found := _place_of_pieces(residue, place, fusion, sign))]
            for sign in (_BROKEN, _JOINED)
        }
        for direction, places in replaced.items():
            if places:
                yield _fusion_change(residue, fusion, {place for both in places for place in both}, direction)


def _place_of_pieces(residue: Residue, place: Place, fusion: Fusion, direction: int) -> Place | None:
    """Where pieces changed, if calls of the fused op, all its names together, changed the other way here; else None.

    That is the same place or, where a module gave way to a few lines of code, the module around it.
    """
    changes = residue.op_changes(place)
    if sum(change for op, change in changes.items() if short(op) in fusion.fused) * direction <= 0:
        return None
    for other in (place, replace(place, module=place.module.rpartition(".")[0])):
        pieces = residue.op_changes(other).items()
        core = (change for op, change in pieces if is_piece_of(op, fusion) and group_of(op) is fusion.core)
        if any(change * direction < 0 for change in core):
            return other
    return None


def _fusion_change(residue: Residue, fusion: Fusion, places: set[Place], direction: int) -> Change:
    # Forward and backward are the same change; the earlier one has the names that people know.
    first = phases_of(places)[0]
    whole: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    for place in (place for place in places if place.phase is first):
        for op, change in residue.op_changes(place).items():
            if short(op) in fusion.fused and change * direction > 0:
                whole[op] += abs(change)
            elif is_piece_of(op, fusion) and change * direction < 0:
                pieces[op] += abs(change)
    lost, gained = (whole, pieces) if direction == _BROKEN else (pieces, whole)
    rows = [row for place in places for row in residue.at(place, OpCountKind.OP)]
    belonging = [row for row in rows if short(row.name) in fusion.fused or is_piece_of(row.name, fusion)]
    belonging += [row for row in rows if not computes(row.name)]
    named_ops = {*leading(whole), *leading(pieces)}
    return changed(
        ChangeRule.FUSION,
        f"{fusion.kind}.{'unfused' if direction == _BROKEN else 'fused'}",
        residue.take(belonging),
        residue.counts(row for row in rows if row.name in named_ops),
        {"lost": _most_called(lost), "gained": _most_called(gained)},
        places=places,
        severity=severity_of(-direction),
    )


def _most_called(calls: Counter[str]) -> tuple[str, ...]:
    return tuple(short(op) for op in ranked({op: calls[op] for op in leading(calls)}))


def optimizers(residue: Residue) -> Iterable[Change]:
    """One change for each optimizer that updates in another way, or does the same for other parameters."""
    places = {row.place for row in residue.open(OpCountKind.OP) if row.place.phase is StepPhase.OPTIMIZER}
    for place in sorted(place for place in places if place.module):
        rows = residue.at(place, OpCountKind.OP)
        (style, calls), (new_style, new_calls) = (_update(residue, rows, side) for side in _SIDES)
        lists = [_longest_list(residue, rows, side) for side in _SIDES]
        if not calls or not new_calls:
            continue  # an optimizer that only one side has is no other way of updating
        if style != new_style:
            code = optimizer_code(was_fused=style == 0, is_fused=new_style == 0)
            counts = StepCounts(before=sum(calls.values()), after=sum(new_calls.values()))
            names: dict[str, Value] = {"lost": tuple(calls), "gained": tuple(new_calls)}
            severity = severity_of(new_style - style)
            yield changed(ChangeRule.FUSION, code, residue.take(rows), counts, names, places=[place], severity=severity)
        elif all(lists) and lists[0] != lists[1]:
            (elements_before, before), (elements_after, after) = lists
            counts, severity = StepCounts(before=before, after=after), severity_of(elements_after - elements_before)
            values: dict[str, Value] = {"elements_before": elements_before, "elements_after": elements_after}
            code, taken = "optimizer.parameters_changed", residue.take(rows)
            yield changed(ChangeRule.SHAPES, code, taken, counts, values, places=[place], severity=severity)


def optimizer_code(*, was_fused: bool, is_fused: bool) -> str:
    """Code of an optimizer that executes other ops than before."""
    if was_fused == is_fused:
        return "optimizer.changed"
    return "optimizer.unfused" if was_fused else "optimizer.fused"


def _update(
    residue: Residue, rows: Iterable[RowKey], side: Callable[[StepCounts], int]
) -> tuple[int, Mapping[str, int]]:
    """How a side updates, as an index of `_STYLES`, and calls by op; of foreach ops and fused ones only those."""
    calls: Counter[str] = Counter()
    for row in rows:
        if computes(row.name):
            calls[short(row.name)] += side(residue.counts([row]))
    names = ranked(+calls)
    style = next((number for number, word in enumerate(_STYLES) if any(word in name for name in names)), 0)
    return style, {name: calls[name] for name in names if _STYLES[style] in name}


def _longest_list(residue: Residue, rows: Iterable[RowKey], side: Callable[[StepCounts], int]) -> tuple[int, ...]:
    """Elements and tensors of the longest list of tensors that ops of a side take; empty where none takes a list."""
    lists = (_LIST.match(op_detail(row.detail).shapes) for row in rows if side(residue.counts([row])))
    return max(((int(found["elements"]), int(found["tensors"])) for found in lists if found), default=())


def convolutions(residue: Residue) -> list[Change]:
    """Convolutions that torch computes with another op: in oneDNN, or in its own slow loops."""

    def exchange(place: Place) -> tuple[tuple[str, ...], tuple[str, ...]]:
        changes = {op: n for op, n in residue.op_changes(place).items() if short(op) in CONVOLUTIONS}
        lost = leading(op for op, change in changes.items() if change < 0)
        gained = leading(op for op, change in changes.items() if change > 0)
        return tuple(lost), tuple(gained)

    groups = grouped(sorted({row.place for row in residue.open(OpCountKind.OP)}), exchange)
    return [_convolution(residue, *ops, places) for ops, places in groups.items() if all(ops)]


def _convolution(residue: Residue, lost: tuple[str, ...], gained: tuple[str, ...], places: list[Place]) -> Change:
    counts = residue.counts(
        row for place in places for row in residue.at(place, OpCountKind.OP) if row.name in lost + gained
    )
    # The backward of oneDNN's convolution is no op of its own: it goes with the module.
    around = {*places, *(replace(place, phase=StepPhase.BACKWARD) for place in places)}
    rows = residue.take(row for place in around for row in residue.at(place) if _belongs_to_convolution(row))
    was_in_onednn, is_in_onednn = (any("mkldnn" in op for op in ops) for ops in (lost, gained))
    severity = Severity.NOTABLE
    if was_in_onednn != is_in_onednn:
        severity = Severity.GRAVE if was_in_onednn else Severity.INFO
    values: dict[str, Value] = {"lost": tuple(map(short, lost)), "gained": tuple(map(short, gained))}
    values["calls"] = max(counts.before, counts.after)
    return changed(ChangeRule.IMPLEMENTATION, "convolution.changed", rows, counts, values, severity=severity)


def _belongs_to_convolution(row: RowKey) -> bool:
    if row.kind is OpCountKind.PRIMITIVE:
        return row.name.startswith(_CONVOLUTION_PRIMITIVES)
    if row.kind is not OpCountKind.OP:
        return False
    if row.name == _BIAS_GRADIENT and row.place.phase is StepPhase.BACKWARD:
        return True
    return short(row.name) in CONVOLUTIONS or not computes(row.name)


def left_libraries(residue: Residue) -> Iterable[Change]:
    """The same ops, but another library runs them, or none."""
    busy = {row.place for row in residue.differing if row.kind is OpCountKind.OP and computes(row.name)}
    executed = [
        row
        for row in residue.open(OpCountKind.PRIMITIVE)
        if row.name not in {REORDER, CACHE_MISS} and row.place.module != UNPLACED and row.place not in busy
    ]
    groups: dict[tuple[str, str], list[RowKey]] = defaultdict(list)
    for place, there in sorted(grouped(executed, lambda row: row.place).items()):
        names = {row.name for row in there}
        rows = (row for row in residue.at(place, OpCountKind.PRIMITIVE) if row.name in names)
        both = [(residue.counts(same), same) for _, same in sorted(grouped(rows, lambda row: row.name).items())]
        gone = [row for counts, same in both if not counts.after for row in same]
        new = [row for counts, same in both if not counts.before for row in same]
        if gone or new:
            groups[_runner(residue, gone), _runner(residue, new)] += [*gone, *new]
    for (lost, gained), changing in groups.items():
        counts = residue.counts(changing)
        severity = {NO_LIBRARY: Severity.GRAVE}.get(gained, Severity.INFO if lost == NO_LIBRARY else Severity.NOTABLE)
        values: dict[str, Value] = {"lost": lost, "gained": gained, "calls": max(counts.before, counts.after)}
        taken = residue.take(changing)
        yield changed(ChangeRule.IMPLEMENTATION, "library.changed", taken, counts, values, severity=severity)


def _runner(residue: Residue, rows: Sequence[RowKey]) -> str:
    """`matmul brg_matmul:avx512_core`, `sgemm of MKL`; the most frequent one."""
    if not rows:
        return NO_LIBRARY
    row = max(rows, key=lambda row: (abs(residue.counts([row]).change), row))
    primitive = row.name.split()[0]
    return f"{primitive} {row.implementation}" if row.implementation else f"{primitive} of MKL"


def exchange_code(lost: Sequence[str], gained: Sequence[str]) -> str:
    """Code of ops that went and ops that came in their place, by their short names."""
    if not lost or not gained:
        noun = "copies" if all(name in COPIES for name in (*lost, *gained)) else "ops"
        return f"{noun}.{'removed' if lost else 'added'}"
    if not CONVOLUTIONS.isdisjoint(lost) and not CONVOLUTIONS.isdisjoint(gained):
        return "convolution.changed"
    for fusion in FUSIONS:
        for whole, pieces, verb in ((lost, gained, "unfused"), (gained, lost, "fused")):
            if not fusion.fused.isdisjoint(whole) and any(is_piece_of(f"aten::{name}", fusion) for name in pieces):
                return f"{fusion.kind}.{verb}"
    return "ops.replaced"
