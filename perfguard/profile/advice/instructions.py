"""Instruction sets: variables that cap them, and dtypes that they do not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import WORTH_TELLING, calls_of, on_ops, on_process
from perfguard.profile.advice.tensors import LOW_PRECISION
from perfguard.profile.advice.trials import with_variables
from perfguard.profile.libraries.implementations import Turn, turn_of
from perfguard.profile.op_counts.details import PrimitiveDetail
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.facts import Severity, fact
from perfguard.records.machine.fingerprint import Isa
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import PrimitiveTotal

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
_CONVERTS = "avx2_vnni_2"
"""Converts both dtypes in hardware, though it is narrower."""


def capped_isa(evidence: Evidence) -> list[Finding]:
    """Variables that keep libraries from the instructions that the machine has."""
    caps = _caps(evidence)
    if not caps:
        return []
    variables = tuple(f"{name}={value}" for name, value in caps.items())
    seen = fact("seen.variables", variables=variables, widest=evidence.isa_class or None)
    command = with_variables(evidence.target, dict.fromkeys(caps, ""))
    return on_process(evidence, "capped_isa", seen, severity=Severity.NOTABLE, command=command, caps=tuple(caps))


def _caps(evidence: Evidence) -> dict[str, str]:
    """Variables that are set to a cap."""
    widest = evidence.isa_class.upper()
    found = {name: evidence.environment.get(name, "") for name in _CAPS}
    return {name: value for name, value in found.items() if value and value.upper() not in {*_CAPS[name], widest}}


def emulated_dtypes(evidence: Evidence) -> list[Finding]:
    """Low precision on instructions that do not know it: every product converts to f32 and back."""
    return [finding for dtype in sorted(LOW_PRECISION) for finding in _emulated(evidence, dtype)]


def _emulated(evidence: Evidence, dtype: str) -> list[Finding]:
    ops = [
        total
        for total in evidence.totals
        if dtype in total.key.dtypes.split() and group_of(total.key.op) in _COMPUTED_BY_LIBRARIES
    ]
    emulated = [primitive for primitive in evidence.primitives if _is_emulated(primitive, dtype)]
    lacks_instructions = _is_native(dtype, evidence.isa) is False
    seen = []
    if lacks_instructions:
        onednn = evidence.isa.onednn
        widest = evidence.isa_class or (onednn.level if onednn is not None else None)
        seen.append(fact("seen.no_instructions", dtype=dtype, widest=widest))
    if emulated:
        seen.append(fact("seen.primitives", calls=calls_of(emulated), implementations=implementations_of(emulated)))
    if not seen:
        return []
    caps = () if lacks_instructions else tuple(_caps(evidence))
    command = with_variables(evidence.target, dict.fromkeys(caps, "")) if caps else None
    return on_ops(
        evidence,
        ops,
        "emulated_dtype",
        *seen,
        severity=Severity.GRAVE,
        least_share=WORTH_TELLING,
        command=command,
        dtype=dtype,
        caps=caps,
    )


def implementations_of(primitives: Sequence[PrimitiveTotal]) -> tuple[str, ...]:
    """What oneDNN chose for primitives, sorted."""
    return tuple(sorted({primitive.implementation for primitive in primitives}))


def _is_native(dtype: str, isa: Isa) -> bool | None:
    """Whether the machine computes in a dtype; None where its instructions are not known."""
    known = (isa.bf16, isa.amx_bf16) if dtype == "bf16" else (isa.fp16, isa.amx_fp16)
    if any(known):
        return True
    return None if None in known else False


def _is_emulated(primitive: PrimitiveTotal, dtype: str) -> bool:
    """Whether a primitive computes in a dtype with instructions that are known to lack it."""
    if primitive.primitive == "reorder" or _CONVERTS in primitive.implementation:
        return False
    dtypes = PrimitiveDetail(memory=primitive.memory, problem="", attributes="").dtypes.split()
    return dtype in dtypes and turn_of(_NARROWEST[dtype], primitive.implementation) is Turn.LOWER
