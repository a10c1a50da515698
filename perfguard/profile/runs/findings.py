"""What a profile amounts to as advice: its evidence put together, and what the rules make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from perfguard.codec import from_builtins
from perfguard.errors import StoreError
from perfguard.host.parsers.software import decode_software
from perfguard.profile.advice.advise import advise
from perfguard.profile.advice.evidence import Evidence, shortest_calls
from perfguard.profile.advice.trials import Program
from perfguard.profile.runs.profiles import ArmFindings
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.protocol import Message
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import Attribution
from perfguard.records.steps.program import ProgramFacts
from perfguard.runner.profiling.cases import ProfiledProcess


def findings_for(
    target: Program,
    found: ArmFindings,
    processes: Sequence[ProfiledProcess],
    *,
    fingerprint: Fingerprint,
    ready: Message,
    isa_class: str,
    cpus: int,
    comparison: Attribution | None = None,
) -> tuple[Finding, ...]:
    """Advice on one profiled arm and case, the worst first.

    Args:
        target: What was profiled.
        found: What its steps say.
        processes: The processes that they ran in.
        fingerprint: The machine.
        ready: What a worker of the arm said of itself.
        isa_class: The widest instruction set of the machine.
        cpus: CPUs that the worker could run on.
        comparison: How it differs from the baseline; None where it was not compared.
    """
    joined = found.joined
    primitives = joined.primitives if joined is not None else ()
    costs_s = [files.step.event_s for p in processes for files in p.traced if files.step.event_s is not None]
    faults = [step.minor_faults for p in processes for step in p.bare]
    return advise(
        Evidence(
            target=target,
            totals=found.totals,
            primitives=primitives,
            op_counts=joined.op_counts if joined is not None else None,
            event_s=median(costs_s) if costs_s else 0.0,
            fingerprint=fingerprint,
            software=decode_software(ready.get("software") or {}),
            isa_class=isa_class,
            threads=ready.get("torch_threads"),
            cpus=cpus,
            faults=median(faults) if faults else None,
            program=_program(processes),
            shortest_call_s=shortest_calls(found.profile.profile),
            comparison=comparison,
        )
    )


def _program(processes: Sequence[ProfiledProcess]) -> ProgramFacts | None:
    """What the first process that was asked said; None where that makes no sense: advice must not end a run."""
    told: Mapping[str, Any] | None = next((p.program for p in processes if p.program is not None), None)
    if told is None:
        return None
    try:
        return from_builtins(told, ProgramFacts, source="what the worker says of its program")
    except StoreError:
        return None
