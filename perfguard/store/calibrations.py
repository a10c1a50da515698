"""Calibrations and plans: `calibration.json` and `plan.json` in `baselines/<machine_id>/<suite>/`, to be committed.

Banked gates lie apart, in `.perfguard/calibration/<machine_id>/<suite>.json`, until `calibrate` takes them in.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from perfguard.codec import to_json
from perfguard.errors import StoreError
from perfguard.records.calibration import CALIBRATION_SCHEMA, PLAN_SCHEMA, TIME_FORMAT, Calibration, SuitePlan
from perfguard.records.verdict import GateOutcome
from perfguard.store.files import load_json, write_text

T = TypeVar("T")

_LARGEST = 1e18  # Of any number in a calibration
_LARGEST_LOG_RATIO = 50.0  # Identical arms never differ by so much: it is a factor of 5e21

_NUMBERS = re.compile(r"\[\n\s*(-?[0-9][^\[\]{}\"]*?)\n\s*\]")
"""An array of numbers over several lines; JSON strings hold no line breaks, so nothing else can look like it."""


def calibration_file(baselines: Path, machine_id: str, suite: str) -> Path:
    """Where a committed calibration lies."""
    return baselines / machine_id / suite / "calibration.json"


def banked_file(project: Path, machine_id: str, suite: str) -> Path:
    """Where banked gates wait; not committed."""
    return project / ".perfguard" / "calibration" / machine_id / f"{suite}.json"


def plan_file(baselines: Path, machine_id: str, suite: str) -> Path:
    """Where a suite's plan lies."""
    return baselines / machine_id / suite / "plan.json"


def load_calibration(path: Path) -> Calibration | None:
    """The calibration in a file; None where there is no file.

    A run that stands there twice, as a merge may leave it, counts once.

    Raises:
        StoreError: It is corrupt or of another schema.
    """
    found = _load(path, Calibration, CALIBRATION_SCHEMA, "perfguard calibrate")
    if found is None:
        return None
    if problem := _problem(found):
        raise StoreError(
            f"{path} is corrupt ({problem}); restore it from git, or remove it and run `perfguard calibrate`"
        )
    return replace(found, gates=tuple({gate.run_id: gate for gate in found.gates}.values()))


def save_calibration(path: Path, calibration: Calibration) -> None:
    """Replace the file in one step, or raise StoreError."""
    write_text(path, calibration_text(calibration))


def load_plan(path: Path) -> SuitePlan | None:
    """The plan in a file; None where there is no file. Raises StoreError: it is corrupt or of another schema."""
    return _load(path, SuitePlan, PLAN_SCHEMA, "perfguard plan --write")


def save_plan(path: Path, plan: SuitePlan) -> None:
    """Replace the file in one step, or raise StoreError."""
    write_text(path, to_json(plan, indent=1) + "\n")


def calibration_text(calibration: Calibration) -> str:
    """JSON with sorted keys and one line for each list of numbers: a further gate adds lines and changes none."""
    return _NUMBERS.sub(lambda found: "[" + " ".join(found[1].split()) + "]", to_json(calibration, indent=1)) + "\n"


def _problem(calibration: Calibration) -> str | None:
    """What no gate can have written; None where everything is plausible."""
    scope = calibration.scope
    if not (0 < scope.alpha < 0.5 and 0 <= scope.margin_ratio < 1):
        return f"alpha {scope.alpha} or margin_ratio {scope.margin_ratio} is impossible"
    for gate in calibration.gates:
        effects = [value for sample in gate.cases.values() for value in sample.block_log_ratios]
        amounts = [gate.block_s, gate.overhead_s, gate.duration_s, gate.startup_s, gate.blocks]
        for sample in gate.cases.values():
            amounts += [sample.sample_variance, sample.wall_s, sample.samples, sample.blocks, *sample.block_variances]
        known = [amount for amount in amounts if amount is not None]
        is_possible = all(0 <= value < _LARGEST for value in known)  # nan is not
        if not is_possible or not all(abs(value) <= _LARGEST_LOG_RATIO for value in effects):
            return f"a value of run {gate.run_id} is impossible"
        if gate.outcome not in {outcome.value for outcome in GateOutcome}:
            return f"outcome {gate.outcome!r} of run {gate.run_id} is unknown"
        try:
            datetime.strptime(gate.finished_at, TIME_FORMAT)  # noqa: DTZ007 - only its form is of interest
        except ValueError:
            return f"finished_at {gate.finished_at!r} of run {gate.run_id} is no time"
    return None


def _load(path: Path, kind: type[T], schema: int, remedy: str) -> T | None:
    return load_json(
        path,
        kind,
        schema=schema,
        if_corrupt=f"restore it from git, or remove it and run `{remedy}`",
        if_foreign=f"update perfguard, or remove the file and run `{remedy}`",
    )
