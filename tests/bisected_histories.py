"""Small histories to bisect, and a gate that measures nothing: it reads the speed out of the tree."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

from perfguard.records.estimate import Estimate, Interval
from perfguard.records.facts import recorded_text
from perfguard.records.result import RunResult
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import GateOutcome, GateResult, Outcome, Policy, Verdict
from perfguard.runner.arms import git
from tests.changed_values import replace
from tests.compared_cases import unmeasured

SUM, SORT = (
    Case(benchmark="tiny.sum", target="bench.py:sum", tags=("no-torch",)),
    Case(benchmark="tiny.sort", target="bench.py:sort", tags=("no-torch",)),
)
HALF_WIDTH = 0.004
OUTCOME_OF = {
    "regressed": GateOutcome.REGRESSED,
    "failed": GateOutcome.FAILED,
    "different": GateOutcome.DIFFERENT,
    "no-baseline": GateOutcome.NO_BASELINE,
    "inconclusive": GateOutcome.INCONCLUSIVE,
}


@dataclass
class Repository:
    """A repository whose file `speed` says how each case does: a percentage, or the name of an outcome."""

    path: object
    made: int = 0

    def commit(self, speed=None, *, sort="0", note=None, message=None):
        self.made += 1
        if speed is not None:
            (self.path / "speed").write_text(json.dumps({SUM.id: speed, SORT.id: sort}))
        if note is not None:
            (self.path / "notes").write_text(note)
        git.run_git(self.path, "add", "-A")
        git.run_git(self.path, "commit", "-q", "--allow-empty", "-m", message or f"change {self.made}")
        return git.resolve_commit(self.path, "HEAD")

    def history(self, *speeds):
        """A commit for each speed; notes differ, so that all trees do."""
        return [self.commit(speed, note=str(number)) for number, speed in enumerate(speeds)]

    def git(self, *arguments):
        return git.run_git(self.path, *arguments).decode().strip()


@dataclass
class FakeGate:
    """Judges by what is written in the trees."""

    repository: Repository
    asked: list = field(default_factory=list)
    requests: list = field(default_factory=list)
    host_is_unstable: bool = False
    interrupt_at: int | None = None
    error_at: dict = field(default_factory=dict)

    def __call__(self, request, baseline, candidate):
        assert self.repository.path == request.loaded.project
        commit = candidate.revision
        if commit in self.error_at:
            raise self.error_at[commit]
        if self.interrupt_at == len(self.asked):
            return result_of(request, None, exit_code=130, verdict="interrupted")
        self.asked.append(commit)
        self.requests.append(request)
        speeds = [json.loads(self.repository.git("show", f"{r}:speed")) for r in (baseline.revision, commit)]
        verdicts = tuple(
            verdict_of(case.id, speeds[0][case.id], speeds[1][case.id], request.loaded.config) for case in request.cases
        )
        worst = next((OUTCOME_OF[o] for o in OUTCOME_OF if any(v.outcome.value == o for v in verdicts)), None)
        outcome = GateOutcome.HOST_UNSTABLE if self.host_is_unstable else worst or GateOutcome.PASS
        return result_of(request, gate_of(verdicts, outcome), exit_code=0, verdict=outcome.value)


def verdict_of(case_id, before, after, config):
    estimate, outcome = None, None
    try:
        effect = (100 + float(after)) / (100 + float(before)) - 1
    except ValueError:
        outcome = Outcome(after)
    else:
        log_ratio = math.log1p(effect)
        lower, upper = log_ratio - HALF_WIDTH, log_ratio + HALF_WIDTH
        estimate = Estimate(
            log_ratio=log_ratio,
            standard_error=HALF_WIDTH / 2.2,
            block_sd=0.01,
            blocks=10,
            degrees_of_freedom=9,
            interval=Interval(lower=lower, upper=upper, level=0.95),
        )
        if lower > math.log1p(config.wide_margin):
            outcome = Outcome.REGRESSED
        elif max(-lower, upper) < math.log1p(config.equivalence):
            outcome = Outcome.UNCHANGED
        else:
            outcome = Outcome.INCONCLUSIVE
    comparison = unmeasured(case_id, estimate=estimate, margin_ratio=config.wide_margin)
    return Verdict(
        case_id=case_id,
        outcome=outcome,
        gating=Gating.GATING,
        reasons=(recorded_text(f"is {outcome.value}"),),
        comparison=comparison,
    )


def gate_of(verdicts, outcome):
    return GateResult(
        outcome=outcome,
        reasons=(recorded_text(f"is {outcome.value}"),),
        verdicts=verdicts,
        policy=Policy(),
        blocks_total=10,
        blocks_voided=0,
    )


def result_of(request, gate, *, exit_code, verdict):
    return RunResult(
        command="bisect",
        run_id="run",
        folder=".perfguard/runs/run",
        suite=request.suite,
        machine_id="m",
        machine="a machine",
        cpus=(0,),
        arms={},
        gate=gate,
        exit_code=exit_code,
        verdict=verdict,
        reasons=(recorded_text("because"),),
        duration_s=1.0,
    )


def replace_verdicts(gate):
    """The same gate on a host that is too unstable for a verdict."""

    def run(request, baseline, candidate):
        result = gate(request, baseline, candidate)
        verdicts = tuple(replace(verdict, outcome=Outcome.INCONCLUSIVE) for verdict in result.gate.verdicts)
        return replace(result, verdict="host-unstable", gate=gate_of(verdicts, GateOutcome.HOST_UNSTABLE))

    return run


def outcome_of(found):
    return found.outcome, found.exit_code
