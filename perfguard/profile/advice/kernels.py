"""Work without an optimised kernel: oneDNN's reference, products in place of convolutions, slow ones of torch."""

from __future__ import annotations

from collections import defaultdict

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.instructions import implementations_of
from perfguard.profile.advice.making import WORTH_TELLING, calls_of, names_of, on_ops, on_primitives
from perfguard.profile.advice.tensors import LOW_PRECISION, tensors_of
from perfguard.profile.changes.op_names import CONVOLUTIONS, short
from perfguard.profile.libraries.implementations import Turn, turn_of
from perfguard.records.facts import Severity, fact
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import OpKey, OpTotal, PrimitiveTotal

_OPTIMISED = "jit"
_PRODUCT = "gemm"
_CONVOLUTIONS = frozenset({"convolution", "deconvolution"})
_COMPOSED = frozenset({"rnn"})
"""Primitives that oneDNN calls `ref` because they loop over optimised products. Source: oneDNN
src/cpu/rnn/ref_rnn.hpp."""
_SMALL_IMAGE = 20_480
"""Values up to which torch calls an image small."""
_FAST_CONVOLUTIONS = frozenset({"mkldnn_convolution", "_nnpack_spatial_convolution"})


def reference_kernels(evidence: Evidence) -> list[Finding]:
    """Primitives that oneDNN has no optimised kernel for, and convolutions that do not reach it."""
    by_primitive: dict[str, list[PrimitiveTotal]] = defaultdict(list)
    for primitive in evidence.primitives:
        if _is_fallback(primitive):
            by_primitive[primitive.primitive].append(primitive)
    found = [finding for name in sorted(by_primitive) for finding in _of_primitive(evidence, name, by_primitive[name])]
    slow = [total for total in evidence.totals if _is_slow_convolution(total)]
    seen = fact("seen.calls", calls=calls_of(slow), ops=names_of(slow), time_s=evidence.seconds_of(slow))
    severity, least = Severity.GRAVE, WORTH_TELLING
    return found + on_ops(evidence, slow, "slow_convolution", seen, severity=severity, least_share=least)


def _of_primitive(evidence: Evidence, name: str, primitives: list[PrimitiveTotal]) -> list[Finding]:
    is_reference = any(map(_is_reference, primitives))
    longest = max(primitives, key=lambda primitive: primitive.time_s)
    seen = fact(
        "seen.primitives",
        calls=calls_of(primitives),
        implementations=implementations_of(primitives),
        time_s=sum(primitive.time_s for primitive in primitives),
        longest=" ".join(filter(None, (longest.direction, longest.problem, longest.memory))),
    )
    severity, least = Severity.GRAVE if is_reference else Severity.NOTABLE, WORTH_TELLING
    return on_primitives(
        evidence,
        primitives,
        "reference_kernel",
        seen,
        severity=severity,
        least_share=least,
        primitive=name,
        is_reference=is_reference,
    )


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
