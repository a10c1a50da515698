"""Results of gates on pull requests, with everything that a comment may show."""

from __future__ import annotations

from typing import Any

from perfguard.records.facts import Severity, Subject, fact, recorded_text
from perfguard.records.result import ArmSummary, RunResult
from perfguard.records.spec import Gating
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import StepPhase
from perfguard.records.verdict import Confirmation, GateOutcome, GateResult, Outcome, Policy, SignalFinding, Verdict
from tests.changed_values import replace
from tests.compared_cases import compared, unmeasured
from tests.example_attribution import attribution_of

SLOWER = "step.resnet50[dtype=bf16]"
BASE, MERGE, HEAD = "b" * 40, "c" * 40, "f00dbeef" * 5


def judged(
    case_id: str, outcome: Outcome, effect: float | None = None, reason: str = "as measured", **fields: Any
) -> Verdict:
    """A verdict on one case."""
    gating = fields.pop("gating", Gating.GATING)
    comparison = unmeasured(case_id)
    if effect is not None:
        comparison = compared(case_id, effect, gating=gating)
        comparison = replace(comparison, candidate_median_s=1e-3 * (1 + effect))
    return Verdict(
        case_id=case_id,
        outcome=outcome,
        gating=gating,
        reasons=(recorded_text(reason),),
        comparison=comparison,
        **fields,
    )


def regressed(case_id: str = SLOWER, effect: float = 0.062, **fields: Any) -> Verdict:
    """A confirmed slowdown, with a culprit."""
    known: dict[str, Any] = {
        "reason": "6.20 % slower [+5.90 %, +6.50 %] in 10 paired blocks; p = 2e-09 after correction for 6 cases",
        "confirmation": Confirmation(confirmed=True, estimate=None, p_slower=0.001),
        "signals": (
            SignalFinding(
                signal="faults", outcome=Outcome.REGRESSED, gating=False, unit="", baseline=0.0, candidate=120.0,
                p_adjusted=0.001, fact=recorded_text("0 → 120 in 10 paired blocks"),
            ),
        ),
        **fields,
    }  # fmt: skip
    return judged(case_id, Outcome.REGRESSED, effect, **known)


def gate_result(outcome: GateOutcome, reason: str, *verdicts: Verdict, **fields: Any) -> RunResult:
    """A gate of two revisions on one machine."""
    arm = {"interpreter": "/py", "python": "3.11.7", "torch": "2.13.0", "stack_id": "torch-2.13.0-ab12cd34"}
    gate = GateResult(
        outcome=outcome,
        reasons=(recorded_text(reason),),
        verdicts=verdicts,
        policy=Policy(),
        blocks_total=10,
        blocks_voided=1,
        missing_signals=(fact("signal.missing", signal="energy", why="this machine has no energy counters"),),
        notes=(fact("host.block_disturbed", block=3, is_voided=True, control_ratio=0.4),),
    )
    codes = {"pass": 0, "regressed": 1, "inconclusive": 4}
    defaults: dict[str, Any] = {
        "command": "gate",
        "run_id": "20260921T142640-abcdef",
        "folder": "/project/.perfguard/runs/20260921T142640-abcdef",
        "suite": "pr",
        "machine_id": "intel-sapphirerapids-1s8c-0123abcd",
        "machine": "Intel Xeon (sapphirerapids), 8 cores",
        "cpus": (2, 3),
        "arms": {
            "baseline": ArmSummary(text=f"git:{BASE}", source_id="s1", **arm),
            "candidate": ArmSummary(text=f"git:{MERGE}", source_id="s2", **arm),
        },
        "gate": gate,
        "exit_code": codes.get(outcome.value, 3),
        "verdict": outcome.value,
        "reasons": (recorded_text(reason),),
        "notes": (fact("run.started", version="1.0", seed=7),),
        "duration_s": 125.0,
    }
    return RunResult(**{**defaults, **fields})


ADVICE = Finding(
    code="advice.reorders",
    severity=Severity.NOTABLE,
    subject=Subject(op="ResNet.layer3.*.conv1", place="train.py:88"),
    seen=(fact("seen.copies", kind="reorders", calls=2, time_s=1e-4, between=("abcd → acdb (f32)",)),),
    phases=(StepPhase.FORWARD,),
    places=2,
    share=0.031,
    command="perfguard compare --candidate env:X=1",
    since_baseline=(recorded_text("2 reorders more"),),
)

REGRESSED = gate_result(
    GateOutcome.REGRESSED,
    f"1 of 6 cases regressed: {SLOWER} (+6.20 %)",
    regressed(),
    judged("kernel.layer_norm[n=1024]", Outcome.UNCHANGED, 0.001),
    judged("kernel.linear[m=512,dtype=bf16]", Outcome.UNCHANGED, -0.002),
    judged("kernel.sdpa[causal=false]", Outcome.IMPROVED, -0.21, "21.0 % faster"),
    judged("step.dlrm", Outcome.INCONCLUSIVE, 0.012, "could not see effects under 3.10 % in 10 paired blocks"),
    judged("step.noisy", Outcome.INCONCLUSIVE, 0.03, "too noisy to gate", gating=Gating.ADVISORY),
    judged("kernel.embedding", Outcome.ALLOWED, 0.04, "4.00 % slower, allowed up to 5.00 % until 2027-01-01"),
    judged("kernel.new", Outcome.NO_BASELINE, None, "the baseline has no such case"),
    judged("kernel.crash", Outcome.FAILED, None, "the candidate failed: RuntimeError: out of memory"),
    op_count_changes={
        SLOWER: attribution_of(SLOWER).op_count_changes,
        "kernel.layer_norm[n=1024]": attribution_of(SLOWER).op_count_changes[1:],
    },
    attributions=(attribution_of(SLOWER),),
    findings={SLOWER: (ADVICE,)},
)
PASSED = gate_result(
    GateOutcome.PASS,
    "3 of 3 cases unchanged within ±2.00 %",
    *(judged(f"kernel.linear[m={m}]", Outcome.UNCHANGED, 0.001 * index) for index, m in enumerate((128, 512, 2048))),
    error_rate=fact(
        "rate.calibrated", false_alarms=0, gates=40, bound_ratio=0.072, is_certified=False, latest="2026-09-20"
    ),
)
INCONCLUSIVE = gate_result(
    GateOutcome.INCONCLUSIVE,
    "1 of 2 cases inconclusive: step.dlrm",
    judged("step.dlrm", Outcome.INCONCLUSIVE, 0.012, "could not see effects under 3.10 % in 10 paired blocks"),
    judged("kernel.relu", Outcome.UNCHANGED, 0.0),
)


def many_cases(number: int) -> RunResult:
    """A gate of a whole framework, of whose cases two per cent regressed."""
    slower = number // 50
    verdicts = [regressed(f"kernel.conv[id={index},dtype=bf16]", 0.02 + index / number) for index in range(slower)]
    verdicts += [
        judged(f"kernel.matmul[id={index},dtype=bf16]", Outcome.IMPROVED, -0.03, "faster") for index in range(slower)
    ]
    verdicts += [
        judged(f"kernel.add[id={index},dtype=bf16]", Outcome.UNCHANGED, 0.001) for index in range(number - 2 * slower)
    ]
    blamed, reorders = attribution_of(SLOWER).op_count_changes
    values = {**blamed.fact.values, "primitive": "matmul"}
    changes = (blamed, replace(blamed, fact=replace(blamed.fact, values=values)), reorders)
    return gate_result(
        GateOutcome.REGRESSED,
        f"{slower} of {number} cases regressed",
        *verdicts,
        op_count_changes={verdict.case_id: changes for verdict in verdicts[: 2 * slower]},
        attributions=tuple(attribution_of(verdict.case_id) for verdict in verdicts[:slower]),
        findings={verdict.case_id: (ADVICE,) for verdict in verdicts[:slower]},
    )


def other_environment() -> RunResult:
    """A gate whose candidate brings another torch."""
    candidate = replace(REGRESSED.arms["candidate"], torch="2.14.0", python="3.12.1", stack_id="torch-2.14.0-9f9f9f9f")
    return replace(REGRESSED, arms={**REGRESSED.arms, "candidate": candidate})
