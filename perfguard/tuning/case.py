"""A case as what is tuned: its settings are arms, its trials ordinary recorded paired runs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfguard.benchmarks.options import with_values
from perfguard.errors import ArmError, ExitCode, InterruptedRunError, MeasurementError
from perfguard.gate.bisect import RunGate
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.gate.rules.measuring_guards import ARM_INTRUDED
from perfguard.host.allocators import installed_allocators
from perfguard.host.probe import probe
from perfguard.profile.runs.profiling import profile_arm
from perfguard.records.plan import FOR_FINAL_TRIAL, FOR_TRIALS, ArmSpec
from perfguard.records.result import RunResult
from perfguard.records.run import Arm
from perfguard.records.spec import BenchmarkSpec, Case
from perfguard.records.tuning import Purpose, Setting, ToggleHint, Trial, TrialOutcome, TrialVerdict, verdict_of
from perfguard.records.verdict import GateOutcome, Outcome, Verdict
from perfguard.runner.measuring import needs_torch
from perfguard.runner.session import Request, choose_cpus
from perfguard.tuning.toggles import chosen_toggles, toggles_of
from perfguard.tuning.trials import PROFILE, ArmTarget, hints_of, not_measurable, request_of, shared_scope

TRIAL_BLOCKS = 12  # Most of a trial; a clear answer needs five
FINAL_BLOCKS = 20  # Of the final trial, which does not end early


class CaseTarget(ArmTarget, frozen=True, kw_only=True):
    """A case, the arm that it runs in, and its toggles."""

    benchmarks: Sequence[BenchmarkSpec]
    run_gate: RunGate = compare_arms

    @property
    def case(self) -> Case:
        """The case of the reference."""
        return self.request.cases[0]

    @property
    def name(self) -> str:
        """The case id."""
        return self.case.id

    @property
    def benchmark(self) -> str:
        """The name of the case's benchmark."""
        return self.case.benchmark

    def scope(self) -> Mapping[str, object]:
        """What outcomes depend on, beside the two settings: case, arm, code, machine, software, libraries, settings."""
        return shared_scope(self.request, self.arm, self.known)

    def profile(self) -> tuple[ToggleHint, ...]:
        """Findings of one process of the reference; none where it does without torch or cannot be profiled."""
        if not needs_torch(self.request.cases):
            return ()
        request = replace(self.request, fingerprint=probe())
        return hints_of(lambda: profile_arm(request, self.arm, PROFILE), request.progress)

    def measure(self, trial: Trial, budget_s: float) -> TrialOutcome:
        """Measure a trial as a paired run, with few blocks."""
        is_final = trial.purpose is Purpose.FINAL
        loaded = self.request.loaded
        most = min(loaded.config.max_blocks, FINAL_BLOCKS if is_final else TRIAL_BLOCKS)
        request = replace(
            request_of(self.request, trial, self.name, budget_s),
            loaded=replace(loaded, config=replace(loaded.config, max_blocks=most)),
            gate=FOR_FINAL_TRIAL if is_final else FOR_TRIALS,
        )
        try:
            result = self.run_gate(request, self.spec(trial.before), self.spec(trial.after))
        except (ArmError, MeasurementError) as error:
            return not_measurable(error)
        if result.exit_code == ExitCode.INTERRUPTED:
            raise InterruptedRunError("a trial was interrupted")
        return self._outcome(result, trial, most)

    def tuned(self, setting: Setting) -> str:
        """The id of the case with the setting's parameters; variables are not part of it."""
        return with_values(self.case, self.known.parameters(setting), self.benchmarks).id

    def command(self, setting: Setting) -> str:
        """The comparison of the reference with a setting."""
        arms = ("--baseline", self.spec(()).text, "--candidate", self.spec(setting).text)
        return shlex.join(("perfguard", "compare", *arms, "--case", self.name))

    def _outcome(self, result: RunResult, trial: Trial, most: int) -> TrialOutcome:
        judged = next(
            (each for each in (result.gate.verdicts if result.gate else ()) if each.case_id == self.name), None
        )
        run_id, duration_s = result.run_id, result.duration_s
        if judged is None or result.gate is None:
            return TrialOutcome(
                verdict=TrialVerdict.FAILED, run_id=run_id, duration_s=duration_s, reasons=result.reasons
            )
        if judged.outcome is Outcome.FAILED and not trial.before and _failed_arm(judged) == Arm.BASELINE.value:
            raise MeasurementError(
                f"{self.name} cannot be measured as it is; `perfguard show {result.run_id}` says why"
            )
        estimate = judged.comparison.estimate
        values = (estimate.log_ratio, estimate.interval.lower, estimate.interval.upper) if estimate else (math.nan,) * 3
        log_ratio, lower, upper = (value if math.isfinite(value) else None for value in values)
        is_disturbed = result.gate.outcome is GateOutcome.HOST_UNSTABLE
        is_thin = estimate is None or estimate.blocks < result.gate.policy.min_blocks
        verdict = _verdict(judged, None if is_thin else lower, None if is_thin or is_disturbed else upper)
        is_open = verdict is TrialVerdict.OPEN
        return TrialOutcome(
            verdict=verdict,
            log_ratio=log_ratio,
            lower=lower,
            upper=upper,
            blocks=estimate.blocks if estimate else 0,
            before_s=judged.comparison.baseline_median_s,
            after_s=judged.comparison.candidate_median_s,
            is_cut_short=is_open and judged.outcome is not Outcome.UNCHANGED and result.gate.blocks_total < most,
            is_kept=not is_disturbed,
            reasons=judged.reasons,
            run_id=run_id,
            duration_s=duration_s,
        )


def case_target(
    request: Request, arm: ArmSpec, benchmarks: Sequence[BenchmarkSpec], names: Sequence[str] = ()
) -> CaseTarget:
    """The request's one case in an arm, with the toggles of these names, or all that apply.

    Raises:
        UsageError: There is no toggle of a name.
    """
    found = toggles_of(
        request.cases[0],
        benchmarks,
        libraries=installed_allocators(request.inherited),
        threads=choose_cpus(request.loaded, request.fingerprint).threads,
        arm_parameters=dict(arm.parameters),
    )
    toggles, inapplicable = chosen_toggles(found.toggles, found.inapplicable, names)
    return CaseTarget(
        request=request, arm=arm, benchmarks=benchmarks, known=found, toggles=toggles, inapplicable=inapplicable
    )


def _verdict(judged: Verdict, lower: float | None, upper: float | None) -> TrialVerdict:
    """By the interval, once the arms compute the same and were measured, each alone."""
    if judged.outcome is Outcome.DIFFERENT:
        return TrialVerdict.DIFFERENT
    if judged.outcome in (Outcome.FAILED, Outcome.INVALID, Outcome.NO_BASELINE, Outcome.INCOMPARABLE):
        return TrialVerdict.FAILED
    if any(reason.code == ARM_INTRUDED for reason in judged.reasons):
        return TrialVerdict.OPEN
    return verdict_of(lower, upper)


def _failed_arm(judged: Verdict) -> str | None:
    return next((reason.subject.arm for reason in judged.reasons if reason.subject.arm is not None), None)
