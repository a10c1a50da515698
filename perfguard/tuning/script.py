"""A user's own script as what is tuned: settings made from outside, compared by steps that take turns."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from perfguard.errors import ArmError, InterruptedRunError, MeasurementError, UsageError
from perfguard.gate.paired.compare_scripts import MIN_PAIRS, Precision, ScriptRun, compare_user_script, script_of
from perfguard.host.allocators import installed_allocators
from perfguard.host.probe import probe
from perfguard.profile.runs.profiling import profile_user_script
from perfguard.records.plan import ArmSpec
from perfguard.records.steps.scripts import ScriptComparison
from perfguard.records.tuning import Purpose, Setting, ToggleHint, Trial, TrialOutcome, TrialVerdict, verdict_of
from perfguard.runner.profiling.script_pairs import ScriptFailedError, TooFewStepsError
from perfguard.runner.profiling.scripts import Script
from perfguard.runner.session import Request, choose_cpus
from perfguard.tuning.toggles import chosen_toggles, toggles_of_script
from perfguard.tuning.trials import PROFILE, ArmTarget, hints_of, not_measurable, request_of, shared_scope
from perfguard.units import as_text

_SKIPPED = 5  # Steps of the script before the profiled ones

CompareScript = Callable[[Request, ArmSpec, ArmSpec, Script, Precision], ScriptRun]
"""Compares two arms of a script; `compare_user_script`, or a fake of it."""

_VERDICTS = {"script.ignored": TrialVerdict.IGNORED, "script.refused": TrialVerdict.FAILED}
"""By the code of a refusal; all others say that the arms compute different things."""


class ScriptTarget(ArmTarget, frozen=True, kw_only=True):
    """A script with its arguments, the arm that it runs in, and its toggles."""

    script: Script
    typed: Path  # The script as it was typed
    compare: CompareScript = compare_user_script

    @property
    def name(self) -> str:
        """The script with its arguments, as typed."""
        return as_text(shlex.join((str(self.typed), *self.script.arguments)))

    @property
    def benchmark(self) -> str:
        """None."""
        return ""

    def scope(self) -> Mapping[str, object]:
        """What outcomes depend on, beside the two settings: what all targets share, the script's file and arguments.

        Raises:
            UsageError: The file cannot be read.
        """
        try:
            content = self.script.path.read_bytes()
        except OSError as error:
            raise UsageError(f"{self.typed} cannot be read: {error.strerror or error}") from error
        return {
            **shared_scope(self.request, self.arm, self.known),
            "script": as_text(str(self.script.path)),
            "content": hashlib.sha256(content).hexdigest(),
            "arguments": tuple(map(as_text, self.script.arguments)),
            "timeout_s": self.script.timeout_s,
        }

    def profile(self) -> tuple[ToggleHint, ...]:
        """Findings of one process of the reference; none where it cannot be profiled.

        Raises:
            InterruptedRunError: The user ended it.
            UsageError: The script ignores a setting of the arm.
        """
        script = self.script
        request = replace(self.request, fingerprint=probe(), budget_s=script.timeout_s)
        return hints_of(
            lambda: profile_user_script(request, self.arm, PROFILE, self.typed, script.arguments, skip=_SKIPPED),
            request.progress,
        )

    def measure(self, trial: Trial, budget_s: float) -> TrialOutcome:
        """Measure a trial as a paired run, until its interval is as narrow as what the project counts as unchanged.

        A clear gain or loss ends it earlier; not the final trial, whose figure is the one to report.

        Raises:
            InterruptedRunError: The user ended it.
            MeasurementError: The reference fails, makes too few steps, or computes something else each time.
        """
        wanted, equivalence = Precision(budget_s=budget_s), self.request.loaded.config.equivalence
        is_final = trial.purpose is Purpose.FINAL
        precision = (
            replace(wanted, half_width=min(wanted.half_width, equivalence))
            if is_final
            else replace(wanted, half_width=equivalence, share_of_effect=0.5)
        )
        request = request_of(self.request, trial, self.name, budget_s)
        try:
            run = self.compare(request, self.spec(trial.before), self.spec(trial.after), self.script, precision)
        except (ArmError, MeasurementError) as error:
            if not trial.before and isinstance(error, (ScriptFailedError, TooFewStepsError)):
                raise
            return not_measurable(error)
        if run.is_interrupted:
            raise InterruptedRunError("a trial was interrupted")
        if not trial.before and any(reason.code == "script.not_reproducible" for reason in run.comparison.refused):
            raise MeasurementError(
                f"{self.typed} computes something else each time that it runs with the same seeds, so no setting can "
                "be checked; let it draw random numbers from torch, numpy or random, and seed them once"
            )
        return _outcome(run, precision)

    def tuned(self, setting: Setting) -> str:  # noqa: ARG002 - no setting changes it
        """The script, which stays as it is."""
        return self.name

    def command(self, setting: Setting) -> str:
        """The comparison of the reference with a setting."""
        arms = ("--baseline", self.spec(()).text, "--candidate", self.spec(setting).text)
        return as_text(shlex.join(("perfguard", "profile", *arms, str(self.typed), *self.script.arguments)))


def script_target(
    request: Request,
    arm: ArmSpec,
    typed: Path,
    arguments: Sequence[str],
    *,
    timeout_s: float,
    names: Sequence[str] = (),
) -> ScriptTarget:
    """A script in an arm, with the toggles of these names, or all that apply; its start or a step may take so long.

    Raises:
        UsageError: There is no such file, or no toggle of a name.
    """
    script = script_of(typed, arguments, timeout_s=timeout_s, skip=_SKIPPED)
    known = toggles_of_script(
        libraries=installed_allocators(request.inherited),
        threads=choose_cpus(request.loaded, request.fingerprint).threads,
        arm_parameters=dict(arm.parameters),
    )
    toggles, inapplicable = chosen_toggles(known.toggles, known.inapplicable, names)
    return ScriptTarget(
        request=replace(request, cases=(), script=str(script.path)),
        arm=arm,
        script=script,
        typed=typed,
        known=known,
        toggles=toggles,
        inapplicable=inapplicable,
    )


def _outcome(run: ScriptRun, precision: Precision) -> TrialOutcome:
    found = run.comparison
    lower, upper = (_log(end) for end in (found.lower, found.upper))
    verdict = _verdict(found, lower, upper)
    is_open = verdict is TrialVerdict.OPEN
    is_narrow = (
        found.pairs >= MIN_PAIRS
        and lower is not None
        and upper is not None
        and (upper - lower) / 2 <= precision.half_width
    )
    return TrialOutcome(
        verdict=verdict,
        log_ratio=_log(found.ratio),
        lower=lower,
        upper=upper,
        blocks=found.pairs,
        before_s=found.before_s,
        after_s=found.after_s,
        is_cut_short=is_open and not is_narrow,
        reasons=(*found.refused, *found.notes),
        run_id=run.run_id,
        duration_s=found.seconds,
    )


def _verdict(found: ScriptComparison, lower: float | None, upper: float | None) -> TrialVerdict:
    if found.refused:
        return _VERDICTS.get(found.refused[0].code, TrialVerdict.DIFFERENT)
    return verdict_of(lower, upper) if found.pairs >= MIN_PAIRS else TrialVerdict.OPEN


def _log(ratio: float | None) -> float | None:
    return math.log(ratio) if ratio is not None and ratio > 0 and math.isfinite(ratio) else None
