"""Variables that keep libraries from the instructions that the machine has."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import Rule
from perfguard.profile.advice.subject import with_variables
from perfguard.records.steps.findings import Finding, Gain, Severity

ID = "capped-isa"

_CAPS: Mapping[str, frozenset[str]] = {
    "ONEDNN_MAX_CPU_ISA": frozenset({"ALL", "DEFAULT"}),
    "DNNL_MAX_CPU_ISA": frozenset({"ALL", "DEFAULT"}),
    "ATEN_CPU_CAPABILITY": frozenset({"AVX512"}),
    "MKL_ENABLE_INSTRUCTIONS": frozenset(),
    "MKL_CBWR": frozenset({"AUTO", "OFF"}),
}
"""Variables, with their values that cap nothing. ATen's `default` is its narrowest; oneDNN's is its widest."""

_GAIN = Gain(
    text="ONEDNN_MAX_CPU_ISA=AVX2 made a linear layer in bf16 38 times and a convolution in f32 9.5 % slower; but a "
    "cap may also help: MKL_CBWR=AVX2 took 390 instead of 477 ms on a Xeon 4114",
    source="perfguard's docs/measurements; intel-extension-for-pytorch#178",
)


def caps_of(evidence: Evidence) -> dict[str, str]:
    """Variables that are set to a cap."""
    widest = evidence.isa_class.upper()
    found = {name: evidence.environment.get(name, "") for name in _CAPS}
    return {name: value for name, value in found.items() if value and value.upper() not in {*_CAPS[name], widest}}


def _find(evidence: Evidence) -> list[Finding]:
    caps = caps_of(evidence)
    if not caps:
        return []
    widest = f"; the machine's widest for oneDNN is {evidence.isa_class}" if evidence.isa_class else ""
    return [
        Finding(
            id=ID,
            title="a variable caps the instruction set",
            severity=Severity.NOTABLE,
            seen=(f"{', '.join(f'{name}={value}' for name, value in caps.items())}{widest}",),
            where="",
            ops=(),
            share=None,
            gain=_GAIN,
            trial=with_variables(
                evidence.subject,
                dict.fromkeys(caps, ""),
                f"unset {', '.join(caps)}, unless results must stay as they are",
            ),
        )
    ]


RULE = Rule(id=ID, finds="variables that cap the instruction set of oneDNN, ATen or MKL", find=_find)
