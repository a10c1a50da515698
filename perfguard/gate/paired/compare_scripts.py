"""Two arms of a user's own script: how much faster one is, and whether both compute the same."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from perfguard.errors import InterruptedRunError, UsageError
from perfguard.gate.rules.rulings import different_results
from perfguard.records.estimate import Estimate
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.plan import ArmSpec
from perfguard.records.run import Arm, CaseChecks
from perfguard.records.script_settings import CHECKED_STEPS
from perfguard.records.steps.scripts import ScriptComparison
from perfguard.runner.arms.resolve import clean_workshop
from perfguard.runner.measuring import Place, aside, start_arms
from perfguard.runner.profiling.script_pairs import Pairing, ScriptPair, first_steps, pairs_of_script
from perfguard.runner.profiling.scripts import Script
from perfguard.runner.session import Session
from perfguard.stats.paired import block_effect, estimate_paired
from perfguard.units import as_text

LEVEL = 0.95  # Of the interval
MIN_PAIRS = 3  # Fewer say too little of how processes differ
CHECKED_PAIRS = 2  # Pairs after which results are compared for the first time
FEWEST_STEPS = 4  # Timed steps of each process


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """When the steps of two arms have been compared well enough."""

    half_width: float = 0.01  # Of the interval for the log-ratio
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


def compare_scripts(
    session: Session, before: ArmSpec, after: ArmSpec, script: Script, precision: Precision
) -> ScriptComparison:
    """Compare the steps of a script in two arms, in fresh pairs of processes whose steps take turns.

    Pairs are measured until the interval is narrow enough, by its width and not by its position, or the time is used
    up. The losses and gradient norms of the first steps must agree within the tolerance of the wider dtype
    (decision 0004). The request of the session must name the script.

    Raises:
        InterruptedRunError: Interrupted before the first pair was complete.
        PerfguardError: An arm cannot be started, or the script fails or makes too few steps.
    """
    began = time.monotonic()
    workshop = f"arms-{len(tuple(session.folder.path.glob('arms*/')))}"
    starter, _ = start_arms(session, {Arm.BASELINE: before, Arm.CANDIDATE: after}, Place(workshop=workshop))
    pairing = Pairing(
        starter=starter,
        settings=session.settings,
        cpus=session.selection.cpus,
        should_stop=lambda: session.interrupts.asked,
        progress=session.request.progress,
    )
    dtypes = tuple(dict(arm.parameters)["dtype"] for arm in (before, after) if "dtype" in dict(arm.parameters))
    pairs: list[ScriptPair] = []
    refused: tuple[Fact, ...] = ()
    try:
        with aside(session.selection):
            for pair in pairs_of_script(script, pairing):
                pairs.append(pair)
                if len(pairs) >= CHECKED_PAIRS:
                    refused = _different(script, pairing, pairs, dtypes)
                if refused or _is_enough(pairs, precision, spent_s=time.monotonic() - began):
                    break
    except UsageError as error:
        refused = (fact("script.refused", severity=Severity.GRAVE, error=as_text(str(error))),)
    finally:
        clean_workshop(session.folder.path.absolute() / workshop, session.request.loaded.project)
    if not pairs and not refused:
        raise InterruptedRunError("interrupted before the steps of the script were compared")
    return _comparison(pairs, refused, seconds=time.monotonic() - began)


def _is_enough(pairs: Sequence[ScriptPair], precision: Precision, *, spent_s: float) -> bool:
    if spent_s + pairs[-1].wall_s > precision.budget_s:
        return True
    interval = estimate_of(pairs).interval
    return len(pairs) >= MIN_PAIRS and (interval.upper - interval.lower) / 2 <= precision.half_width


def estimate_of(pairs: Sequence[ScriptPair]) -> Estimate:
    """The log-ratio of the steps, candidate over baseline; a pair of processes is a block."""
    effects = [block_effect(pair.baseline_s, pair.candidate_s) for pair in pairs]
    return estimate_paired([each.log_ratio for each in effects], LEVEL, [each.variance for each in effects])


def _different(
    script: Script, pairing: Pairing, pairs: Sequence[ScriptPair], dtypes: tuple[str, ...]
) -> tuple[Fact, ...]:
    """Why the second arm does not compute the same as the first; nothing where it does."""
    last = pairs[-1]
    for name, value in last.checks[Arm.CANDIDATE].items():
        if not math.isfinite(value) and math.isfinite(last.checks[Arm.BASELINE].get(name, math.nan)):
            return (fact("script.not_finite", severity=Severity.GRAVE, name=name),)
    found = _differences(((pair.checks[Arm.BASELINE], pair.checks[Arm.CANDIDATE]) for pair in pairs), dtypes)
    if not found:
        return ()
    again = first_steps(script, pairing, Arm.BASELINE, data_seed=last.data_seed)
    if _differences([(last.checks[Arm.BASELINE], again)], dtypes):
        return (fact("script.not_reproducible", severity=Severity.GRAVE, name=script.path.name),)
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
