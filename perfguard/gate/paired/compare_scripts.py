"""Two arms of a user's own script: how much faster one is, and whether both compute the same."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import InterruptedRunError, UsageError
from perfguard.gate.rules.rulings import different_results
from perfguard.records.estimate import Estimate
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.plan import ArmSpec
from perfguard.records.run import Arm, CaseChecks
from perfguard.records.script_settings import CHECKED_STEPS
from perfguard.records.steps.scripts import ScriptComparison
from perfguard.runner.arms.resolve import clean_workshop
from perfguard.runner.measuring import ArmLayout, aside, start_arms
from perfguard.runner.profiling.script_pairs import (
    Pairing,
    ScriptFailedError,
    ScriptPair,
    SettingIgnoredError,
    first_steps,
    pairs_of_script,
)
from perfguard.runner.profiling.scripts import Script
from perfguard.runner.session import Request, Session, open_session
from perfguard.stats.paired import block_effect, estimate_paired
from perfguard.units import as_text

LEVEL = 0.95  # Of the interval
MIN_PAIRS = 3  # Fewer say too little of how processes differ
CHECKED_PAIRS = 2  # Pairs after which results are compared for the first time
FEWEST_STEPS = 4  # Timed steps of each process


class Precision(Struct, frozen=True, kw_only=True):
    """When the steps of two arms have been compared well enough."""

    half_width: float = 0.01  # Of the interval for the log-ratio
    share_of_effect: float = 0.0
    """Half the width may also be this part of the log-ratio: at most a half, so that an end by it is always an answer.
    The ratio is then too far from one on average, as it is more likely to end where it looks large."""
    budget_s: float = 300.0  # Seconds after which no further pair is started, however wide the interval is


def script_of(path: Path, arguments: Sequence[str], *, timeout_s: float, skip: int = 5) -> Script:
    """A script whose steps can be compared; relative paths are of the current directory.

    Raises:
        UsageError: There is no such file.
    """
    found = path if path.is_absolute() else Path.cwd() / path
    if not found.is_file():
        raise UsageError(f"{path} is neither a case nor a file; see `perfguard list`, or give a script's path")
    skipped = max(skip, CHECKED_STEPS)
    return Script(path=found, arguments=tuple(arguments), skip=skipped, steps=FEWEST_STEPS, timeout_s=timeout_s)


class ScriptRun(Struct, frozen=True, kw_only=True):
    """A recorded run that compared two arms of a script."""

    run_id: str  # Name of its folder
    comparison: ScriptComparison
    is_interrupted: bool  # Whether the user ended it, so that there are fewer pairs than wanted


def compare_user_script(
    request: Request, before: ArmSpec, after: ArmSpec, script: Script, precision: Precision
) -> ScriptRun:
    """Compare the steps of a script in two arms, as a run of its own.

    Raises:
        PerfguardError: As `compare_scripts`.
    """
    with open_session(replace(request, cases=(), script=str(script.path)), mode="profile") as session:
        found = compare_scripts(session, before, after, script, precision)
        session.folder.write_json("script_comparison.json", found)
    return ScriptRun(run_id=session.folder.path.name, comparison=found, is_interrupted=session.interrupts.asked)


def compare_scripts(
    session: Session, before: ArmSpec, after: ArmSpec, script: Script, precision: Precision
) -> ScriptComparison:
    """Compare the steps of a script in two arms, in fresh pairs of processes whose steps take turns.

    Pairs are measured until the interval is narrow enough or the time is used up; by its width and not by its position,
    unless the precision allows for the effect. The losses and gradient norms of the first steps must agree within the
    tolerance of the wider dtype (decision 0004). The request of the session must name the script.

    Raises:
        InterruptedRunError: Interrupted before the first pair was complete.
        ScriptFailedError: The script fails in the first arm; that it fails in the second is a reason to refuse that.
        TooFewStepsError: The script makes too few steps.
        UsageError: The script ignores a setting of the first arm.
        PerfguardError: An arm cannot be started.
    """
    workshop = f"arms-{len(tuple(session.folder.path.glob('arms*/')))}"
    starter, _ = start_arms(session, {Arm.BASELINE: before, Arm.CANDIDATE: after}, ArmLayout(workshop=workshop))
    pairing = Pairing(
        starter=starter,
        settings=session.settings,
        cpus=session.selection.cpus,
        should_stop=lambda: session.interrupts.asked,
        progress=session.request.progress,
    )

    def repeated(pair: ScriptPair) -> dict[str, float]:
        return first_steps(script, pairing, Arm.BASELINE, data_seed=pair.data_seed)

    try:
        with aside(session.selection):
            return compare_pairs(pairs_of_script(script, pairing), repeated, precision)
    finally:
        clean_workshop(session.folder.path.absolute() / workshop, session.request.loaded.project)


def compare_pairs(
    source: Iterable[ScriptPair],
    repeated: Callable[[ScriptPair], dict[str, float]],
    precision: Precision,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> ScriptComparison:
    """Compare two arms by as many pairs as it takes; `source` is asked for one after the other.

    `repeated` gives what the first steps of the first arm compute when it runs once more under the seed of a pair, and
    is called only where the arms differ.

    Raises:
        InterruptedRunError: There is not one pair.
        ScriptFailedError: The script fails in the first arm.
        UsageError: The script ignores a setting of the first arm.
    """
    began, pairs = clock(), list[ScriptPair]()
    refused: tuple[Fact, ...] = ()
    try:
        for pair in source:
            pairs.append(pair)
            is_enough = _is_enough(pairs, precision, spent_s=clock() - began)
            if is_enough or len(pairs) >= CHECKED_PAIRS:
                refused = _different(pairs, repeated)
            if is_enough or refused:
                break
    except SettingIgnoredError as error:
        refused = (fact("script.ignored", severity=Severity.GRAVE, error=as_text(str(error))),)
    except ScriptFailedError as error:
        if error.arm is Arm.BASELINE:
            raise
        reason, _, detail = as_text(str(error)).partition("\n")
        refused = (fact("script.refused", severity=Severity.GRAVE, error=reason, detail=detail or None),)
    if not pairs and not refused:
        raise InterruptedRunError("interrupted before the steps of the script were compared")
    return _comparison(pairs, refused, seconds=clock() - began)


def _is_enough(pairs: Sequence[ScriptPair], precision: Precision, *, spent_s: float) -> bool:
    if spent_s + pairs[-1].wall_s > precision.budget_s:
        return True
    estimate = estimate_of(pairs)
    wanted = max(precision.half_width, precision.share_of_effect * abs(estimate.log_ratio))
    return len(pairs) >= MIN_PAIRS and (estimate.interval.upper - estimate.interval.lower) / 2 <= wanted


def estimate_of(pairs: Sequence[ScriptPair]) -> Estimate:
    """The log-ratio of the steps, candidate over baseline; a pair of processes is a block."""
    effects = [block_effect(pair.baseline_s, pair.candidate_s) for pair in pairs]
    return estimate_paired([each.log_ratio for each in effects], LEVEL, [each.variance for each in effects])


def _different(pairs: Sequence[ScriptPair], repeated: Callable[[ScriptPair], dict[str, float]]) -> tuple[Fact, ...]:
    """Why the second arm does not compute the same as the first; nothing where it does."""
    last, dtypes = pairs[-1], tuple(sorted({dtype for pair in pairs for dtype in pair.dtypes}))
    for pair in pairs:
        before, after = pair.checks[Arm.BASELINE], pair.checks[Arm.CANDIDATE]
        if missing := sorted(before.keys() ^ after.keys()):
            arm = (Arm.BASELINE if missing[0] in before else Arm.CANDIDATE).value
            return (fact("script.one_arm_only", severity=Severity.GRAVE, arm=arm, name=missing[0]),)
        for name, value in after.items():
            if math.isfinite(value) != math.isfinite(before[name]):
                return (fact("script.not_finite", severity=Severity.GRAVE, name=name),)
    found = _differences(((pair.checks[Arm.BASELINE], pair.checks[Arm.CANDIDATE]) for pair in pairs), dtypes)
    if not found:
        return ()
    if _differences([(last.checks[Arm.BASELINE], repeated(last))], dtypes):
        return (fact("script.not_reproducible", severity=Severity.GRAVE),)
    return found


def _differences(
    sides: Iterable[tuple[dict[str, float], dict[str, float]]], dtypes: tuple[str, ...]
) -> tuple[Fact, ...]:
    name = "script"
    checks = [
        CaseChecks(case_id=name, data_seed=None, baseline=before, candidate=after, dtypes=dtypes)
        for before, after in sides
    ]
    return different_results(checks).get(name, ())


def _comparison(pairs: Sequence[ScriptPair], refused: tuple[Fact, ...], *, seconds: float) -> ScriptComparison:
    notes, estimate = [], estimate_of(pairs)
    if pairs and not all(pair.checks[arm] for pair in pairs for arm in pair.checks):
        notes.append(fact("script.unchecked", severity=Severity.NOTABLE))
    return ScriptComparison(
        pairs=len(pairs),
        steps=sum(len(pair.baseline_s) for pair in pairs),
        ratio=None if math.isnan(estimate.log_ratio) else math.exp(estimate.log_ratio),
        lower=math.exp(estimate.interval.lower) if len(pairs) > 1 else None,
        upper=math.exp(estimate.interval.upper) if len(pairs) > 1 else None,
        before_s=_median(step_s for pair in pairs for step_s in pair.baseline_s),
        after_s=_median(step_s for pair in pairs for step_s in pair.candidate_s),
        refused=refused,
        settings=pairs[0].settings[Arm.CANDIDATE] if pairs else (),
        notes=tuple(notes),
        seconds=seconds,
    )


def _median(values: Iterable[float]) -> float | None:
    return median(known) if (known := list(values)) else None
