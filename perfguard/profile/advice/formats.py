"""Tensors in the wrong form: layouts that are lost, mixed or never tried, copies between them, misplaced dtypes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from perfguard.profile.advice.evidence import CHANNELS_LAST, FLOATING, LOW_PRECISION, CallTensor, Evidence, tensors_of
from perfguard.profile.advice.hints import WORTH_A_CHANGE, WORTH_TELLING, Hint, calls_of, longest_first, seen_calls
from perfguard.profile.changes.op_names import short
from perfguard.profile.op_counts.details import primitive_detail, primitive_detail_text
from perfguard.profile.trace.op_groups import LIBRARY_GROUPS, Group, group_of
from perfguard.records.facts import Severity, fact
from perfguard.records.steps.ops import OpTotal, StepPhase

LEAST_PRODUCT_SHARE = 0.1
"""Part of a step in convolutions or products from which another layout or dtype is worth a try: a third of a tenth of
the step, which is what the measured example saved, is still several times what a gate sees."""
LEAST_REORDER_SHARE = 0.05
"""Part of a step from which reorders are reported. Some are usual in training, where weights change with every step and
so are laid out again: of what oneDNN takes of a step, 5 % (RetinaNet, LSTM) to 16 % (ResNet18) are reorders in Fu et
al., "Deep Learning Models on CPUs" (2022), arXiv:2206.10034, Fig. 2."""

_CONVOLUTION = "aten::convolution"
"""Every convolution of eager mode passes through it once, with its tensors as the program gave them."""
_MOVES = frozenset({Group.COPY, Group.VIEWS, Group.CONVOLUTION})
"""Ops whose task it is to change a layout, or that leave the reading to others."""
_COPY = "aten::copy_"  # What every copy ends in
_DOUBLE = "f64"
_REDUCES = frozenset({Group.REDUCTION, Group.SOFTMAX, Group.LOSS})
_WRAPPERS = frozenset({"cross_entropy_loss", "nll_loss", "nll_loss_nd", "log_softmax", "softmax"})


def layout_lost(evidence: Evidence) -> Iterator[Hint]:
    """A channels_last model some of whose convolutions read another layout.

    Between the two, tensors are copied; and convolutions of 1x1 kernels, whose weights fit both layouts, hand the wrong
    one on.
    """
    convolutions, lost, uses_channels_last = _convolutions(evidence)
    if not uses_channels_last:
        return
    modules = {total.key.module for total in lost}
    at_these = [total for total in evidence.totals if total.key.module in modules and total.self_s > 0]
    copies = [total for total in at_these if group_of(total.key.op) is Group.COPY]
    concerned = [*copies, *(total for total in at_these if group_of(total.key.op) is Group.CONVOLUTION)]
    seen = fact(
        "seen.layout_lost",
        lost=calls_of(lost),
        convolutions=calls_of(convolutions),
        copies_s=evidence.seconds_of(copies),
    )
    yield Hint("layout_lost", [seen], ops=concerned, least_share=WORTH_TELLING)


def channels_last_untried(evidence: Evidence) -> Iterator[Hint]:
    """A model of convolutions that never uses channels_last."""
    convolutions, plain, uses_channels_last = _convolutions(evidence)
    if not plain or uses_channels_last:
        return
    ops = [total for total in evidence.totals if group_of(total.key.op) is Group.CONVOLUTION]
    # What has one channel, or one pixel, is both at once.
    seen = fact("seen.contiguous", convolutions=calls_of(convolutions), contiguous=calls_of(plain))
    least = LEAST_PRODUCT_SHARE
    yield Hint("channels_last_untried", [seen], ops=ops, severity=Severity.INFO, least_share=least)


def _convolutions(evidence: Evidence) -> tuple[list[OpTotal], list[OpTotal], bool]:
    """Those outside of backward, those of them that surely read another layout, and whether any uses channels_last."""
    found = [
        total
        for total in evidence.totals
        if total.key.op == _CONVOLUTION and total.key.phase is not StepPhase.BACKWARD and len(tensors_of(total.key)) > 1
    ]
    layouts = [[tensor.image_layout for tensor in tensors_of(total.key)[:2]] for total in found]
    others = [total for total, (read, _) in zip(found, layouts, strict=True) if read and read not in CHANNELS_LAST]
    return found, others, any(CHANNELS_LAST.intersection(pair) for pair in layouts)


def mixed_layouts(evidence: Evidence) -> Iterator[Hint]:
    """Ops that read one tensor in channels_last and another of the same shape contiguous, one of them by large steps.

    Mostly in backward: what follows the model's last convolution hands back contiguous gradients, and ops that take the
    layout of their first tensor hand them on.
    """
    mixed = [total for total in evidence.totals if _is_mixed(total)]
    yield Hint("mixed_layouts", [seen_calls(mixed)], ops=mixed, least_share=WORTH_TELLING)


def _is_mixed(total: OpTotal) -> bool:
    layouts: dict[tuple[int, ...], set[bool]] = defaultdict(set)
    for tensor in tensors_of(total.key) if group_of(total.key.op) not in _MOVES else ():
        if tensor.image_layout in CHANNELS_LAST | {"contiguous"}:
            layouts[tensor.shape].add(tensor.image_layout in CHANNELS_LAST)
    return any(len(kinds) > 1 for kinds in layouts.values())


def reorders(evidence: Evidence) -> Iterator[Hint]:
    """Tensors that oneDNN copies into another layout before or after a primitive."""
    found = [primitive for primitive in evidence.primitives if primitive.primitive == "reorder"]
    written_bytes, between = 0.0, []
    for each in found:
        detail = primitive_detail(primitive_detail_text(each.memory, each.problem))
        written_bytes += detail.written_bytes * each.calls
        dtypes = "/".join(dict.fromkeys(detail.dtypes.split()))
        between.append((f"{detail.tags or '?'} ({dtypes or '?'})", each.time_s))
    seen = fact(
        "seen.copies",
        kind="reorders",
        calls=calls_of(found),
        time_s=sum(each.time_s for each in found),
        between=longest_first(between),
        written_bytes=written_bytes,
    )
    yield Hint("reorders", [seen], primitives=found, least_share=LEAST_REORDER_SHARE)


def copies(evidence: Evidence, *, are_casts: bool) -> Iterator[Hint]:
    """Copies within one dtype: `.contiguous()`, `.clone()`, `reshape` where no view is possible.

    Casts are those between dtypes, as autocast makes them for every weight in every step.
    """
    kind = "casts" if are_casts else "copies"
    found: list[OpTotal] = []
    between: list[tuple[str, float]] = []
    for total in evidence.totals:
        tensors = tensors_of(total.key)
        if total.key.op != _COPY or len(tensors) < 2 or not (tensors[0].dtype and tensors[1].dtype):
            continue
        target, source = tensors[:2]
        if (source.dtype != target.dtype) is are_casts:
            found.append(total)
            between.append((_copied(source, target), evidence.seconds_of((total,))))
    time_s = evidence.seconds_of(found)
    seen = fact("seen.copies", kind=kind, calls=calls_of(found), time_s=time_s, between=longest_first(between)[:1])
    yield Hint(kind, [seen], ops=found, least_share=WORTH_A_CHANGE)


def _copied(source: CallTensor, target: CallTensor) -> str:
    """`channels_last → contiguous (f32)`, or `f32 → bf16`."""
    if source.dtype != target.dtype:
        return f"{source.dtype} → {target.dtype}"
    return f"{source.layout or '?'} → {target.layout or '?'} ({target.dtype})"


def bf16_untried(evidence: Evidence) -> Iterator[Hint]:
    """Steps whose products and convolutions are all in f32, on a machine with instructions for bf16."""
    if not (evidence.isa.bf16 or evidence.isa.amx_bf16):
        return
    products = [total for total in evidence.totals if group_of(total.key.op) in LIBRARY_GROUPS]
    dtypes = FLOATING & {tensor.dtype for total in products for tensor in tensors_of(total.key) if tensor.shape}
    if dtypes == {"f32"}:
        least = LEAST_PRODUCT_SHARE
        yield Hint("bf16_untried", [seen_calls(products)], ops=products, severity=Severity.INFO, least_share=least)


def double_precision(evidence: Evidence) -> Iterator[Hint]:
    """f64 that slipped into a narrower step, as numpy's arrays and Python's lists bring it.

    A step whose products are mostly of doubles is meant to be so: weights of f32 would refuse them. Calls count,
    not seconds: a slip that takes most of the step's time is the worst of them.
    """
    doubles: list[OpTotal] = []
    others: list[OpTotal] = []
    for total in evidence.totals:
        # Numbers of Python show as f64 tensors without dimensions.
        dtypes = FLOATING & {tensor.dtype for tensor in tensors_of(total.key) if tensor.shape}
        if dtypes and group_of(total.key.op) is not Group.VIEWS:
            (doubles if _DOUBLE in dtypes else others).append(total)
    products = [[t for t in totals if group_of(t.key.op) in LIBRARY_GROUPS] for totals in (doubles, others)]
    compared = products if any(products) else [doubles, others]
    if calls_of(compared[0]) < calls_of(compared[1]):
        seen = seen_calls(doubles, evidence.seconds_of(doubles))
        yield Hint("double_precision", [seen], ops=doubles, least_share=WORTH_TELLING)


def low_precision_loss(evidence: Evidence) -> Iterator[Hint]:
    """Losses that are reduced in bf16 or f16: cheaper by next to nothing, and wrong in the third digit."""
    reductions = [total for total in evidence.totals if _reduces(total)]
    low = [total for total in reductions if tensors_of(total.key)[0].dtype in LOW_PRECISION]
    # Autocast converts within the op that the program calls: the same op then runs once more on f32.
    in_full: Counter[tuple[str, str]] = Counter()
    for total in reductions:
        if tensors_of(total.key)[0].dtype not in LOW_PRECISION:
            in_full[total.key.module, total.key.op] += round(total.calls)
    reduced = [total for total in low if in_full[total.key.module, total.key.op] < total.calls]
    if reduced:
        ops = tuple(sorted({f"{short(total.key.op)} ({tensors_of(total.key)[0].dtype})" for total in reduced}))
        seen = fact("seen.calls", calls=calls_of(reduced), ops=ops)
        yield Hint("low_precision_loss", [seen], ops=reduced, severity=Severity.INFO)


def _reduces(total: OpTotal) -> bool:
    """Whether an op itself reduces a tensor of the loss: wrappers run what they call in a dtype of its own."""
    key, tensors = total.key, tensors_of(total.key)
    is_reduction = group_of(key.op) in _REDUCES and short(key.op) not in _WRAPPERS
    return key.phase is StepPhase.LOSS and is_reduction and bool(tensors) and tensors[0].elements > 1
