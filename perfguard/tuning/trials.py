"""What trials of cases and of scripts share: arms with settings, the code that they run, verdicts and failures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import ArmError, InterruptedRunError, MeasurementError
from perfguard.gate.bisect import decisive_settings
from perfguard.host.probe import probe
from perfguard.profile.advice.trials import arm_text
from perfguard.profile.runs.profiling import ProfileSize
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.plan import ArmSpec
from perfguard.records.steps.profile import ProfileReport
from perfguard.records.tuning import Inapplicable, Setting, Toggle, ToggleHint, Trial, TrialOutcome, TrialVerdict
from perfguard.runner.arms import git
from perfguard.runner.session import Request
from perfguard.tuning.journal import KEPT_IN
from perfguard.tuning.toggles import KnownToggles

PROFILE = ProfileSize(processes=1, where=False)
"""How much of the reference is profiled: findings name toggles, they measure nothing."""

_PRELOAD = "LD_PRELOAD"
_UNTIMED = frozenset({"budget_s"})  # Settings that an outcome does not depend on


def arm_with(arm: ArmSpec, known: KnownToggles, setting: Setting) -> ArmSpec:
    """The arm with a setting on top of its own variables and parameters."""
    environment, variables = dict(arm.environment), known.variables(setting)
    if _PRELOAD in variables and environment.get(_PRELOAD):  # the arm's own libraries stay
        variables[_PRELOAD] += f":{environment[_PRELOAD]}"
    environment |= variables
    parameters = {**dict(arm.parameters), **known.parameters(setting)}
    spec = replace(arm, environment=tuple(sorted(environment.items())), parameters=tuple(sorted(parameters.items())))
    return replace(spec, text=arm_text(spec))


class ArmTarget(Struct, frozen=True, kw_only=True):
    """What is tuned by settings of an arm: the part of a target that cases and scripts share."""

    request: Request  # Of the case or the script alone
    arm: ArmSpec  # The reference
    known: KnownToggles
    toggles: Sequence[Toggle]
    inapplicable: Sequence[Inapplicable]

    @property
    def machine_id(self) -> str:
        """The machine that is measured on."""
        return self.request.fingerprint.machine_id

    @property
    def journals(self) -> Path:
        """The folder of the journals, in the project."""
        return self.request.loaded.project / KEPT_IN

    def spec(self, setting: Setting) -> ArmSpec:
        """The arm with a setting."""
        return arm_with(self.arm, self.known, setting)

    def candidate(self, setting: Setting) -> str:
        """The arm with a setting, as it is typed."""
        return self.spec(setting).text

    def variables(self, setting: Setting) -> Mapping[str, str]:
        """Allocator and threads as variables."""
        return self.known.variables(setting)


def shared_scope(request: Request, arm: ArmSpec, known: KnownToggles) -> dict[str, object]:
    """What outcomes depend on, beside the two settings: cases, arm, code, machine, software, libraries, settings."""
    return {
        **{name: value for name, value in decisive_settings(request).items() if name not in _UNTIMED},
        "arm": arm_text(arm),
        "source": _source_id(request.loaded.project, arm),
        "libraries": {name: str(path) for name, path in known.libraries.items()},
    }


def request_of(request: Request, trial: Trial, name: str, budget_s: float) -> Request:
    """The request of one trial: a run of its own, which says what it is for."""
    note = fact("tune.trial_of", purpose=trial.purpose.value, case_id=name)
    return replace(request, fingerprint=probe(), budget_s=budget_s, notes=(*request.notes, note))


def hints_of(profile: Callable[[], ProfileReport], progress: Callable[[Fact], None]) -> tuple[ToggleHint, ...]:
    """Findings of a profile, the worst first; none where the reference cannot be profiled.

    Raises:
        InterruptedRunError: The user ended it.
    """
    try:
        report = profile()
    except MeasurementError as error:
        progress(fact("tune.not_profiled", severity=Severity.NOTABLE, error=_first_line(error)))
        return ()
    if report.interrupted:
        raise InterruptedRunError("interrupted while the reference was profiled")
    return tuple(ToggleHint(code=found.code, share=found.share) for case in report.cases for found in case.findings)


def not_measurable(error: Exception) -> TrialOutcome:
    """The outcome of a trial that an error ended, which a later start tries again."""
    reason = fact("tune.not_measurable", error=_first_line(error))
    return TrialOutcome(verdict=TrialVerdict.FAILED, reasons=(reason,), is_kept=False)


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


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
