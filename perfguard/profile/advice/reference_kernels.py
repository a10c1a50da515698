"""Work without an optimised kernel: oneDNN's reference, products in place of convolutions, slow ones of torch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.places import listed
from perfguard.profile.advice.rule import WORTH_TELLING, Rule, finding_on, place_of_primitives
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.advice.tensors import LOW_PRECISION, tensors_of
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.changes.op_names import CONVOLUTIONS, short
from perfguard.profile.libraries.implementations import Turn, turn_of
from perfguard.records.steps.findings import Finding, Gain, Severity
from perfguard.records.steps.ops import OpKey, OpTotal, PrimitiveTotal
from perfguard.units import format_calls, format_number, format_seconds, format_share

ID = "reference-kernel"

_OPTIMISED = "jit"
_PRODUCT = "gemm"
_CONVOLUTIONS = frozenset({"convolution", "deconvolution"})
_COMPOSED = frozenset({"rnn"})
"""Primitives that oneDNN calls `ref` because they loop over optimised products. Source: oneDNN
src/cpu/rnn/ref_rnn.hpp."""
_SMALL_IMAGE = 20_480
"""Values up to which torch calls an image small."""
_FAST_CONVOLUTIONS = frozenset({"mkldnn_convolution", "_nnpack_spatial_convolution"})

_GAIN = Gain(
    text="a matrix product in f16 took 8.26 ms with an optimised kernel and 15,527 ms with the reference; "
    "convolutions in bf16 that lost theirs were 4 to 16 times slower",
    source="pytorch#193951, pytorch#183815",
)
_CHANGE = (
    "try the same shapes in f32 and in channels_last, and another release of torch: which problems have an optimised "
    "kernel differs from one oneDNN to the next"
)


def _find(evidence: Evidence) -> list[Finding]:
    by_primitive: dict[str, list[PrimitiveTotal]] = defaultdict(list)
    for primitive in evidence.primitives:
        if _is_fallback(primitive):
            by_primitive[primitive.primitive].append(primitive)
    found = [_of_primitive(evidence, name, primitives) for name, primitives in sorted(by_primitive.items())]
    found.append(_of_ops(evidence, [total for total in evidence.totals if _is_slow_convolution(total)]))
    return [finding for finding in found if finding.share is not None and finding.share >= WORTH_TELLING]


def _is_fallback(primitive: PrimitiveTotal) -> bool:
    if primitive.primitive in _COMPOSED or turn_of(_OPTIMISED, primitive.implementation) is not Turn.FALLBACK:
        return False
    return _is_reference(primitive) or primitive.primitive in _CONVOLUTIONS


def _is_reference(primitive: PrimitiveTotal) -> bool:
    return turn_of(_PRODUCT, primitive.implementation) is Turn.LOWER


def _is_slow_convolution(total: OpTotal) -> bool:
    return short(total.key.op) in CONVOLUTIONS - _FAST_CONVOLUTIONS and not _is_by_choice(total.key)


def _is_by_choice(key: OpKey) -> bool:
    """Whether torch takes its own convolution although it could call oneDNN, since it is as fast.

    In f32 that is for kernels of 1x1, which are plain products, and for one small image.
    Source: aten/src/ATen/native/Convolution.cpp, `use_mkldnn`.
    """
    tensors = tensors_of(key)
    position = 1 if "backward" in key.op else 0  # the gradient comes first
    if len(tensors) < position + 2 or tensors[position].dtype in LOW_PRECISION:
        return False
    image, kernel = tensors[position : position + 2]
    is_small = image.shape[:1] == (1,) and image.elements <= _SMALL_IMAGE
    return is_small or set(kernel.shape[2:]) == {1}


def _of_primitive(evidence: Evidence, name: str, primitives: Sequence[PrimitiveTotal]) -> Finding:
    time_s = math.fsum(primitive.time_s for primitive in primitives)
    calls = math.fsum(primitive.calls for primitive in primitives)
    share = evidence.ratio_of(time_s)
    chosen = listed(sorted({primitive.implementation for primitive in primitives}))
    longest = max(primitives, key=lambda primitive: primitive.time_s)
    is_reference = any(map(_is_reference, primitives))
    kind = "reference code" if is_reference else "a plain matrix product"
    return Finding(
        id=ID,
        title=f"{name} of oneDNN runs as {kind}",
        severity=Severity.GRAVE if is_reference else Severity.NOTABLE,
        seen=(
            f"{format_number(calls)} calls of {chosen} take {format_seconds(time_s)}, {format_share(share)} of a step",
            f"the longest: {' '.join(filter(None, (longest.direction, longest.problem, longest.memory)))}",
        ),
        where=place_of_primitives(primitives),
        ops=(),
        share=share,
        gain=_GAIN,
        trial=after_edit(evidence.subject, _CHANGE),
    )


def _of_ops(evidence: Evidence, totals: Sequence[OpTotal]) -> Finding:
    calls = format_calls(math.fsum(total.calls for total in totals))
    names = listed(sorted({short(total.key.op) for total in totals}))
    return finding_on(
        evidence,
        totals,
        rule_id=ID,
        title="convolutions run outside of oneDNN",
        severity=Severity.GRAVE,
        seen=(f"{calls} a step of {names}: {format_seconds(evidence.seconds_of(totals))}",),
        gain=_GAIN,
        trial=after_edit(evidence.subject, f"{_CHANGE}; look whether torch.backends.mkldnn is switched off"),
    )


RULE = Rule(
    id=ID,
    finds="primitives and convolutions without an optimised kernel",
    find=_find,
    changes=frozenset({ChangeRule.IMPLEMENTATION}),
)
