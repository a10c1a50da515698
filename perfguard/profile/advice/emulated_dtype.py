"""Low precision on instructions that do not know it: every product converts to f32 and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.instruction_caps import caps_of
from perfguard.profile.advice.places import listed
from perfguard.profile.advice.rule import WORTH_TELLING, Rule, finding_on
from perfguard.profile.advice.subject import after_edit, with_variables
from perfguard.profile.advice.tensors import LOW_PRECISION
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.libraries.implementations import Turn, turn_of
from perfguard.profile.op_counts.census_details import PrimitiveDetail
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.machine.fingerprint import Isa
from perfguard.records.steps.findings import Finding, Gain, Severity
from perfguard.records.steps.ops import OpTotal, PrimitiveTotal
from perfguard.units import format_calls, format_share

ID = "emulated-dtype"

_COMPUTED_BY_LIBRARIES = frozenset({Group.CONVOLUTION, Group.MATMUL, Group.RECURRENT, Group.ATTENTION})
_NARROWEST = {"bf16": "jit:avx512_core_bf16", "f16": "jit:avx512_core_fp16"}
"""The narrowest AVX-512 that computes in a dtype."""
_CONVERTS = "avx2_vnni_2"
"""Converts both dtypes in hardware, though it is narrower."""

_GAIN = Gain(
    text="without native bf16 a linear layer in bf16 was 38 times and a BERT step 10.7 times slower than with it; "
    "products in bf16 and f16 on AVX2 were 44 to 500 times slower than in f32",
    source="perfguard's docs/measurements; pytorch#146508, pytorch#118499",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """What a step computes in one dtype."""

    dtype: str
    ops: Sequence[OpTotal]
    """Ops on its tensors that libraries compute as a rule."""
    emulated: Sequence[PrimitiveTotal]
    """Primitives that oneDNN runs with instructions that do not know it."""


def _find(evidence: Evidence) -> list[Finding]:
    found = []
    for use in _uses(evidence):
        native = _is_native(use.dtype, evidence.isa)
        share = evidence.share_of(use.ops)
        if share is not None and share >= WORTH_TELLING and (native is False or use.emulated):
            found.append(_finding(evidence, use, native=native))
    return found


def _uses(evidence: Evidence) -> Iterable[_Use]:
    for dtype in sorted(LOW_PRECISION):
        ops = [
            total
            for total in evidence.totals
            if dtype in total.key.dtypes.split() and group_of(total.key.op) in _COMPUTED_BY_LIBRARIES
        ]
        emulated = [primitive for primitive in evidence.primitives if _is_emulated(primitive, dtype)]
        yield _Use(dtype=dtype, ops=ops, emulated=emulated)


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


def _finding(evidence: Evidence, use: _Use, *, native: bool | None) -> Finding:
    seen = [f"ops in {use.dtype} take {format_share(evidence.share_of(use.ops))} of the step"]
    if native is False:
        seen.append(f"this machine has no instructions for it{_known_level(evidence)}")
    if use.emulated:
        calls = format_calls(math.fsum(primitive.calls for primitive in use.emulated))
        chosen = listed(sorted({primitive.implementation for primitive in use.emulated}))
        seen.append(f"oneDNN runs {calls} a step with {chosen}")
    caps = caps_of(evidence)
    if native is not False and caps:
        trial = with_variables(evidence.subject, dict.fromkeys(caps, ""), f"unset {', '.join(caps)}")
    else:
        trial = after_edit(
            evidence.subject, "train in f32 on machines like this one: leave autocast out, or make it optional"
        )
    return finding_on(
        evidence,
        use.ops,
        rule_id=ID,
        title=f"{use.dtype} is emulated",
        severity=Severity.GRAVE,
        seen=seen,
        gain=_GAIN,
        trial=trial,
    )


def _known_level(evidence: Evidence) -> str:
    level = evidence.isa_class or (evidence.isa.onednn.level if evidence.isa.onednn is not None else "")
    return f"; oneDNN's widest is {level}" if level else ""


RULE = Rule(
    id=ID,
    finds="bf16 and f16 on machines, or under caps, without instructions for them",
    find=_find,
    changes=frozenset({ChangeRule.DTYPE}),
)
