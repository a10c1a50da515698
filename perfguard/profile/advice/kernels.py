"""Slow kernels: oneDNN's reference, products in place of convolutions, emulated dtypes, capped instruction sets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from perfguard.profile.advice.evidence import LOW_PRECISION, Evidence, tensors_of
from perfguard.profile.advice.hints import WORTH_TELLING, Hint, calls_of, seen_calls
from perfguard.profile.changes.op_names import CONVOLUTIONS, short
from perfguard.profile.libraries.implementations import Turn, turn_of
from perfguard.profile.op_counts.details import primitive_detail
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.facts import Severity, fact
from perfguard.records.machine.fingerprint import Isa
from perfguard.records.steps.ops import OpKey, PrimitiveTotal

_OPTIMISED = "jit"
_PRODUCT = "gemm"
_CONVOLUTIONS = frozenset({"convolution", "deconvolution"})
_COMPOSED = frozenset({"rnn"})
"""Primitives that oneDNN calls `ref` because they loop over optimised products. Source: oneDNN
src/cpu/rnn/ref_rnn.hpp."""
_SMALL_IMAGE = 20_480  # Values up to which torch calls an image small
_SLOW_CONVOLUTIONS = CONVOLUTIONS - {"mkldnn_convolution", "_nnpack_spatial_convolution"}

_CAPS: Mapping[str, frozenset[str]] = {
    "ONEDNN_MAX_CPU_ISA": frozenset({"ALL", "DEFAULT"}),
    "DNNL_MAX_CPU_ISA": frozenset({"ALL", "DEFAULT"}),
    "ATEN_CPU_CAPABILITY": frozenset({"AVX512"}),
    "MKL_ENABLE_INSTRUCTIONS": frozenset(),
    "MKL_CBWR": frozenset({"AUTO", "OFF"}),
}
"""Variables, with their values that cap nothing. ATen's `default` is its narrowest; oneDNN's is its widest."""
_COMPUTED_BY_LIBRARIES = frozenset({Group.CONVOLUTION, Group.MATMUL, Group.RECURRENT, Group.ATTENTION})
_NARROWEST = {"bf16": "jit:avx512_core_bf16", "f16": "jit:avx512_core_fp16"}
"""The narrowest AVX-512 that computes in a dtype."""
_CONVERTS = "avx2_vnni_2"  # Converts both dtypes in hardware, though it is narrower


def reference_kernels(evidence: Evidence) -> Iterator[Hint]:
    """Primitives that oneDNN has no optimised kernel for, and convolutions that do not reach it."""
    fallbacks: dict[str, list[PrimitiveTotal]] = defaultdict(list)
    for primitive in evidence.primitives:
        if _is_fallback(primitive):
            fallbacks[primitive.primitive].append(primitive)
    for name, primitives in sorted(fallbacks.items()):
        is_reference = any(map(_is_reference, primitives))
        longest = max(primitives, key=lambda primitive: primitive.time_s)
        seen = fact(
            "seen.primitives",
            calls=calls_of(primitives),
            implementations=_implementations(primitives),
            time_s=sum(primitive.time_s for primitive in primitives),
            longest=" ".join(filter(None, (longest.direction, longest.problem, longest.memory))),
        )
        yield Hint(
            "reference_kernel",
            [seen],
            primitives=primitives,
            severity=Severity.GRAVE if is_reference else Severity.NOTABLE,
            least_share=WORTH_TELLING,
            values={"primitive": name, "is_reference": is_reference},
        )
    slow = [t for t in evidence.totals if short(t.key.op) in _SLOW_CONVOLUTIONS and not _is_by_choice(t.key)]
    seen = seen_calls(slow, evidence.seconds_of(slow))
    yield Hint("slow_convolution", [seen], ops=slow, severity=Severity.GRAVE, least_share=WORTH_TELLING)


def _is_fallback(primitive: PrimitiveTotal) -> bool:
    if primitive.primitive in _COMPOSED or turn_of(_OPTIMISED, primitive.implementation) is not Turn.FALLBACK:
        return False
    return _is_reference(primitive) or primitive.primitive in _CONVOLUTIONS


def _is_reference(primitive: PrimitiveTotal) -> bool:
    return turn_of(_PRODUCT, primitive.implementation) is Turn.LOWER


def _is_by_choice(key: OpKey) -> bool:
    """Whether torch takes its own convolution although it could call oneDNN, since it is as fast.

    In f32 that is for kernels of 1x1, which are plain products, and for one small image.
    Source: aten/src/ATen/native/Convolution.cpp, `use_mkldnn`.
    """
    tensors = tensors_of(key)
    if "backward" in key.op:  # the gradient comes first
        tensors = tensors[1:]
    if len(tensors) < 2 or tensors[0].dtype in LOW_PRECISION:
        return False
    image, kernel = tensors[:2]
    is_small = image.shape[:1] == (1,) and image.elements <= _SMALL_IMAGE
    return is_small or set(kernel.shape[2:]) == {1}


def capped_isa(evidence: Evidence) -> Iterator[Hint]:
    """Variables that keep libraries from the instructions that the machine has."""
    caps = _caps(evidence)
    if caps:
        variables = tuple(f"{name}={value}" for name, value in caps.items())
        seen = fact("seen.variables", variables=variables, widest=evidence.isa_class or None)
        yield Hint(
            "capped_isa",
            [seen],
            severity=Severity.NOTABLE,
            variables=dict.fromkeys(caps, ""),
            values={"caps": tuple(caps)},
        )


def _caps(evidence: Evidence) -> dict[str, str]:
    """Variables that are set to a cap."""
    widest = evidence.isa_class.upper()
    found = {name: evidence.environment.get(name, "") for name in _CAPS}
    return {name: value for name, value in found.items() if value and value.upper() not in {*_CAPS[name], widest}}


def emulated_dtypes(evidence: Evidence) -> Iterator[Hint]:
    """Low precision on instructions that do not know it: every product converts to f32 and back."""
    for dtype in sorted(LOW_PRECISION):
        emulated = [primitive for primitive in evidence.primitives if _is_emulated(primitive, dtype)]
        lacks_instructions = _lacks(evidence.isa, dtype)
        seen = []
        if lacks_instructions:
            onednn = evidence.isa.onednn
            widest = evidence.isa_class or (onednn.level if onednn is not None else None)
            seen.append(fact("seen.no_instructions", dtype=dtype, widest=widest))
        if emulated:
            seen.append(fact("seen.primitives", calls=calls_of(emulated), implementations=_implementations(emulated)))
        if not seen:
            continue
        caps = () if lacks_instructions else tuple(_caps(evidence))
        computed = [total for total in evidence.totals if group_of(total.key.op) in _COMPUTED_BY_LIBRARIES]
        yield Hint(
            "emulated_dtype",
            seen,
            ops=[total for total in computed if dtype in total.key.dtypes.split()],
            severity=Severity.GRAVE,
            least_share=WORTH_TELLING,
            variables=dict.fromkeys(caps, ""),
            values={"dtype": dtype, "caps": caps},
        )


def _implementations(primitives: Sequence[PrimitiveTotal]) -> tuple[str, ...]:
    return tuple(sorted({primitive.implementation for primitive in primitives}))


def _lacks(isa: Isa, dtype: str) -> bool:
    """Whether it is known that the machine cannot compute in a dtype."""
    known = (isa.bf16, isa.amx_bf16) if dtype == "bf16" else (isa.fp16, isa.amx_fp16)
    return all(each is False for each in known)


def _is_emulated(primitive: PrimitiveTotal, dtype: str) -> bool:
    """Whether a primitive computes in a dtype with instructions that are known to lack it."""
    if primitive.primitive == "reorder" or _CONVERTS in primitive.implementation:
        return False
    dtypes = primitive_detail(primitive.memory).dtypes.split()
    return dtype in dtypes and turn_of(_NARROWEST[dtype], primitive.implementation) is Turn.LOWER
