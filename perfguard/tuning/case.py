"""A case as what is tuned: its settings are arms, its trials ordinary recorded paired runs."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfguard.benchmarks.options import with_values
from perfguard.errors import ArmError, ExitCode, InterruptedRunError, MeasurementError
from perfguard.gate.bisect import RunGate, decisive_settings
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.gate.rules.rulings import ARM_INTRUDED
from perfguard.host.allocators import installed_allocators
from perfguard.host.probe import probe
from perfguard.profile.advice.trials import arm_text
from perfguard.profile.runs.profiling import ProfileSize, profile_arm
from perfguard.records.facts import Severity, fact
from perfguard.records.plan import FOR_FINAL_TRIAL, FOR_TRIALS, ArmSpec
from perfguard.records.result import RunResult
from perfguard.records.run import Arm
from perfguard.records.spec import BenchmarkSpec, Case
from perfguard.records.tuning import Hint, Inapplicable, Purpose, Setting, Toggle, Trial, TrialOutcome, TrialVerdict
from perfguard.records.verdict import GateOutcome, Outcome, Verdict
from perfguard.runner.arms import git
from perfguard.runner.measuring import needs_torch
from perfguard.runner.session import Request, choose_cpus
from perfguard.tuning.toggles import CaseToggles, chosen_toggles, toggles_of

TRIAL_BLOCKS = 12  # Most of a trial; a clear answer needs five
FINAL_BLOCKS = 20  # Of the final trial, which does not end early
_PROFILE = ProfileSize(processes=1, where=False)
_KEPT_IN = Path(".perfguard") / "tune"
_UNTIMED = frozenset({"budget_s"})  # Settings that an outcome does not depend on


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTarget:
    """A case, the arm that it runs in, and its toggles."""

    request: Request  # Of this one case
    arm: ArmSpec  # The reference
    benchmarks: Sequence[BenchmarkSpec]
    case_toggles: CaseToggles
    toggles: Sequence[Toggle]
    inapplicable: Sequence[Inapplicable]
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

    @property
    def machine_id(self) -> str:
        """The machine that is measured on."""
        return self.request.fingerprint.machine_id

    @property
    def journals(self) -> Path:
        """The folder of the journals."""
        return self.request.loaded.project / _KEPT_IN

    def scope(self) -> Mapping[str, object]:
        """What outcomes depend on, beside the two settings: case, arm, code, machine, software, libraries, settings."""
        return {
            **{name: value for name, value in decisive_settings(self.request).items() if name not in _UNTIMED},
            "arm": arm_text(self.arm),
            "source": _source_id(self.request.loaded.project, self.arm),
            "libraries": {name: str(path) for name, path in self.case_toggles.libraries.items()},
        }

    def profile(self) -> tuple[Hint, ...]:
        """Findings of one process of the reference; none where it does without torch or cannot be profiled."""
        if not needs_torch(self.request.cases):
            return ()
        try:
            report = profile_arm(replace(self.request, fingerprint=probe()), self.arm, _PROFILE)
        except MeasurementError as error:
            self.request.progress(
                fact("tune.not_profiled", severity=Severity.NOTABLE, error=str(error).splitlines()[0])
            )
            return ()
        if report.interrupted:
            raise InterruptedRunError("interrupted while the case was profiled")
        return tuple(Hint(code=found.code, share=found.share) for case in report.cases for found in case.findings)

    def measure(self, trial: Trial, budget_s: float) -> TrialOutcome:
        """Measure a trial as a paired run, with few blocks."""
        is_final = trial.purpose is Purpose.FINAL
        loaded = self.request.loaded
        most = min(loaded.config.max_blocks, FINAL_BLOCKS if is_final else TRIAL_BLOCKS)
        request = replace(
            self.request,
            fingerprint=probe(),  # each trial is a run of its own
            budget_s=budget_s,
            loaded=replace(loaded, config=replace(loaded.config, max_blocks=most)),
            gate=FOR_FINAL_TRIAL if is_final else FOR_TRIALS,
            notes=(*self.request.notes, fact("tune.trial_of", purpose=trial.purpose.value, case_id=self.name)),
        )
        try:
            result = self.run_gate(request, self._spec(trial.before), self._spec(trial.after))
        except (ArmError, MeasurementError) as error:
            reason = fact("tune.not_measurable", error=str(error).splitlines()[0])
            return TrialOutcome(verdict=TrialVerdict.FAILED, reasons=(reason,), is_kept=False)
        if result.exit_code == ExitCode.INTERRUPTED:
            raise InterruptedRunError("a trial was interrupted")
        return self._outcome(result, trial, most)

    def candidate(self, setting: Setting) -> str:
        """The arm with a setting, without the part that is the working tree."""
        return self._spec(setting).text

    def tuned(self, setting: Setting) -> str:
        """The id of the case with the setting's parameters; variables are not part of it."""
        return with_values(self.case, self.case_toggles.parameters(setting), self.benchmarks).id

    def command(self, setting: Setting) -> str:
        """The comparison of the reference with a setting."""
        arms = ("--baseline", self._spec(()).text, "--candidate", self._spec(setting).text)
        return shlex.join(("perfguard", "compare", *arms, "--case", self.name))

    def _spec(self, setting: Setting) -> ArmSpec:
        environment = {**dict(self.arm.environment), **self.case_toggles.variables(setting)}
        parameters = {**dict(self.arm.parameters), **self.case_toggles.parameters(setting)}
        spec = replace(
            self.arm, environment=tuple(sorted(environment.items())), parameters=tuple(sorted(parameters.items()))
        )
        return replace(spec, text=arm_text(spec))

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
        request=request, arm=arm, benchmarks=benchmarks, case_toggles=found, toggles=toggles, inapplicable=inapplicable
    )


def _verdict(judged: Verdict, lower: float | None, upper: float | None) -> TrialVerdict:
    """By the interval, once the arms compute the same and were measured, each alone."""
    if judged.outcome is Outcome.DIFFERENT:
        return TrialVerdict.DIFFERENT
    if judged.outcome in (Outcome.FAILED, Outcome.NO_BASELINE, Outcome.INCOMPARABLE):
        return TrialVerdict.FAILED
    if any(reason.code == ARM_INTRUDED for reason in judged.reasons):
        return TrialVerdict.OPEN
    if upper is not None and upper < 0:
        return TrialVerdict.FASTER
    return TrialVerdict.SLOWER if lower is not None and lower > 0 else TrialVerdict.OPEN


def _failed_arm(judged: Verdict) -> str | None:
    return next((reason.subject.arm for reason in judged.reasons if reason.subject.arm is not None), None)


def _source_id(project: Path, arm: ArmSpec) -> str:
    """Identity of the code under test: git's where it knows, else of the Python files."""
    directory = (project / (arm.directory or ".")).resolve()
    if not directory.is_dir():
        raise ArmError(f"arm {arm.text!r}: {directory} is not a directory")
    if arm.revision is not None and (repository := git.top_level(project)) is not None:
        return git.tree_of(repository, git.resolve_commit(repository, arm.revision))
    state = git.tree_state(directory)
    if state.tree is not None:
        return state.source_id
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*.py")):
        if not any(part.startswith(".") for part in path.relative_to(directory).parts) and path.is_file():
            digest.update(f"{path.relative_to(directory)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
