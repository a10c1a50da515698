"""perfguard: `perfguard compare`."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.proof.gates_against_peers.making import BASE
from tests.proof.gates_against_peers.pinning import Ran, run
from tests.proof.gates_against_peers.places import SUITES_VENV, python_of
from tests.proof.gates_against_peers.tools.observation import Answer, Observation, Question
from tests.proof.gates_against_peers.variants import Variant

_SPARE_S = 300.0
_ANSWERS = {
    "pass": Answer.PASS,
    "regressed": Answer.RED,
    "inconclusive": Answer.INCONCLUSIVE,
    "host-unstable": Answer.INCONCLUSIVE,
    "different": Answer.INCONCLUSIVE,
}


class Perfguard:
    """perfguard's gate, with the settings it comes with."""

    name = "perfguard"
    rule = "sequential paired blocks, 0.8 % a gate over a margin of 0.5 %, flags confirmed"

    def can(self, variant: Variant) -> bool:
        """Everything that has two arms."""
        return not variant.stored

    def ask(self, question: Question) -> Observation:
        """Compare base and variant; arms that hash identical pass by construction, so what the times said counts."""
        return observed(compare(question, ()))

    def command(self, question: Question, cases: Sequence[str]) -> tuple[str, ...]:
        """The command line, as a user would type it in the victim's repository."""
        candidate = (
            f"dir:{question.made.trees[question.variant.name]}"
            if question.variant.is_deep
            else f"git:{question.variant.name}"
        )
        baseline = f"git:{BASE}"
        return (
            *(sys.executable, "-m", "perfguard", "compare", "--measure-anyway"),
            *("--baseline", _with(baseline, question.variant.baseline_environment)),
            *("--candidate", _with(candidate, question.variant.environment)),
            *(("--suite", "victim") if not cases else [w for case in cases for w in ("--case", case)]),
            *("--budget", f"{question.minutes * 60:.0f}", "--cpus", ",".join(map(str, question.cpus))),
            *("--threads", str(len(question.cpus)), "--python", str(python_of(SUITES_VENV))),
            *("--seed", str(question.seed), "--format", "json", "--no-progress"),
        )


def compare(question: Question, cases: Sequence[str]) -> Ran:
    """Run `perfguard compare` on some cases, or on the victim's suite."""
    # perfguard pins its workers itself and keeps itself off their CPUs; its parent gets the whole mask.
    return run(
        Perfguard().command(question, cases),
        cwd=question.made.repository,
        environment=dict(os.environ),
        cpus=sorted(os.sched_getaffinity(0)),
        timeout_s=question.minutes * 120 + _SPARE_S,
    )


def observed(done: Ran) -> Observation:
    """perfguard's JSON in the words of the proof."""
    try:
        result = json.loads(done.stdout)
    except ValueError:
        reason = (done.stderr.strip() or f"no JSON, exit code {done.code}")[-800:]
        return Observation(
            answer=Answer.ERROR, flagged=(), seconds=done.seconds, detail={"exit_code": done.code, "reason": reason}
        )
    gate = result["gate"]
    verdicts = gate["verdicts"] if gate else []
    # Arms that hash identical pass whatever the times say; the proof is about what the times say.
    outcome = (gate or {}).get("measured_outcome") or result["verdict"]
    red = [v["case_id"] for v in verdicts if v["outcome"] == "regressed" and v["gating"] == "gating"]
    estimates = {v["case_id"]: v["comparison"]["estimate"] for v in verdicts if v["comparison"]["estimate"]}
    return Observation(
        answer=_ANSWERS.get(outcome, Answer.ERROR),
        flagged=tuple(_case(name) for name in red),
        seconds=done.seconds,
        effects={_case(name): math.expm1(entry["log_ratio"]) for name, entry in estimates.items()},
        detail=_detail(result, done, verdicts, outcome),
    )


def _detail(result: dict[str, Any], done: Ran, verdicts: list[dict[str, Any]], outcome: str) -> dict[str, Any]:
    gate = result["gate"] or {}
    return {
        "exit_code": done.code,
        "outcome": outcome,
        "verdict": result["verdict"],
        "identical": gate.get("identical", False),
        "reasons": [reason["code"] for reason in result["reasons"]],
        "blocks": gate.get("blocks_total"),
        "voided": gate.get("blocks_voided"),
        "run": Path(result["folder"]).name,
        "cases": {
            _case(v["case_id"]): {
                "outcome": v["outcome"],
                "gating": v["gating"],
                "mde": _finite(v.get("mde_ratio")),
                "block_sd": _finite((v["comparison"]["estimate"] or {}).get("block_sd")),
                "confirmed": (v.get("confirmation") or {}).get("confirmed"),
                "signals": {s["signal"]: s["outcome"] for s in v.get("signals", ())},
                "mix_changed": (v.get("modes") or {}).get("mix_changed"),
            }
            for v in verdicts
        },
    }


def _case(case_id: str) -> str:
    return case_id.partition("[")[0]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _with(arm: str, environment: Sequence[tuple[str, str]]) -> str:
    return f"{arm}+env:{','.join(f'{key}={value}' for key, value in environment)}" if environment else arm
