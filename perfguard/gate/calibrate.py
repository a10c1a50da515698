"""`calibrate`: the gate itself, run on arms that are the same, again and again; what it then says is stored."""

from __future__ import annotations

import os
import platform
import random
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from perfguard import __version__
from perfguard.errors import ExitCode, MeasurementError
from perfguard.gate.calibration.aa_gates import gates_of_suite, with_gates
from perfguard.gate.calibration.error_rate import CalibrationState, calibration_state, scope_difference
from perfguard.gate.calibration.machine_rates import (
    banked_gates,
    baselines_of,
    error_rate_for,
    gate_of,
    scope_of,
    scope_of_result,
    stored_calibration,
    utc_now,
    with_present_cases,
)
from perfguard.gate.calibration.summary import summarize
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.gate.rules.sequential import ANALYSES
from perfguard.host.identity import stack_id
from perfguard.host.parsers.software import decode_software
from perfguard.host.probe import probe
from perfguard.host.software import query_software
from perfguard.records.calibration import AAGate, Calibration, Scope
from perfguard.records.error_rate import CalibrationSummary
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.plan import ArmSpec
from perfguard.records.result import ArmSummary, RunResult
from perfguard.records.run_data import RunData
from perfguard.runner.arms import git
from perfguard.runner.arms.environment import base_environment
from perfguard.runner.arms.resolve import find_interpreter, glibc_version, parse_arm
from perfguard.runner.measuring import Place, needs_torch
from perfguard.runner.run_folder import read_events
from perfguard.runner.session import Request, choose_cpus
from perfguard.store.calibrations import calibration_file, load_calibration, save_calibration

LONGEST_PATH_PADDING = 96
"""Characters; a folder's name must stay below 255."""

LARGEST_ENVIRONMENT = 4096
"""Bytes: the stack moves through every offset in a page."""


class RunGate(Protocol):
    """Measures and judges one gate; `compare_arms`, or a fake of it."""

    def __call__(
        self, request: Request, baseline: ArmSpec, candidate: ArmSpec, *, place: Place | None = None
    ) -> RunResult:
        """The gate's result."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOptions:
    """How much to calibrate."""

    gates: int
    """A/A gates to run; with `resume` the number to have in the end."""
    placebo: bool = True
    """Put the arms at unequally long paths, with unequally large environments."""
    resume: bool = False
    """Count what is stored for this machine and software already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What a calibration came to."""

    path: Path
    """Where it is stored."""
    scope: Scope
    """What it was held against."""
    calibration: Calibration | None
    """All gates of this scope; None where there is none."""
    state: CalibrationState
    """Whether it holds."""
    summary: CalibrationSummary | None
    """What it adds up to."""
    error_rate: Fact
    """What gates say of it."""
    notes: tuple[Fact, ...] = ()
    """What the reader should know."""
    interrupted: bool = False
    """Whether the user ended it early."""


def calibrate_machine(request: Request, options: CalibrateOptions, *, run_gate: RunGate = compare_arms) -> Calibrated:
    """Run A/A gates and store each as soon as it has finished.

    Args:
        request: The suite to calibrate, with the budget of one gate.
        options: How many gates.
        run_gate: Runs one gate.

    Raises:
        StoreError: The stored calibration cannot be read or written.
        MeasurementError: A case fails; the gates before are kept.
        PerfguardError: A gate could not be run; the gates before are kept.
    """
    machine_id = request.fingerprint.machine_id
    stored = stored_calibration(request, machine_id)
    scope = current_scope(request)
    kept = stored if stored is not None and scope_difference(stored.scope, scope) is None else None
    notes = (*_left_behind(stored, scope), *_of_other_cases(request, machine_id, stored))
    calibration = _take_in(request, kept, banked_gates(request.loaded, scope, request.suite), scope)
    missing = options.gates - (len(calibration.gates) if options.resume and calibration else 0)
    seed = request.loaded.config.seed
    base = secrets.randbelow(2**31) if seed is None else seed
    interrupted = False
    for number in range(1, missing + 1):
        request.progress(fact("step.aa_gate", number=number, gates=missing))
        draw = random.Random(f"{base}:{len(calibration.gates) if calibration else 0}")  # noqa: S311 - a layout, no secret
        result = run_gate(
            _seeded(request, draw), *same_arms(request), place=_placebo(draw) if options.placebo else None
        )
        if result.exit_code == ExitCode.INTERRUPTED:
            interrupted = True
            break
        gate = _judged(result, placebo=options.placebo)
        calibration = _store(request, calibration, [gate], scope_of_result(result, request))
        request.progress(
            fact("step.aa_gate_stored", number=number, gates=missing, outcome=gate.outcome, blocks=gate.blocks)
        )
    measured = scope if calibration is None else calibration.scope
    return _described(request, calibration, measured, notes=notes, interrupted=interrupted)


def known_error_rate(request: Request) -> Calibrated:
    """The stored calibration of this machine and suite, held against the machine and software of now.

    Raises:
        StoreError: It is corrupt.
    """
    scope = current_scope(request)
    return _described(request, stored_calibration(request, scope.machine_id), scope)


def current_scope(request: Request) -> Scope:
    """What a gate of these cases would be now, without measuring; asks the interpreter under test for its software."""
    loaded, fingerprint = request.loaded, request.fingerprint
    config, selection = loaded.config, choose_cpus(loaded, fingerprint)
    interpreter = find_interpreter(config.python, loaded.project) if config.python else sys.executable
    software = decode_software({})
    if needs_torch(request.cases):
        environment = base_environment(
            os.environ,
            profile=config.env_profile,
            threads=selection.threads,
            glibc=glibc_version(),
            pass_through=config.pass_env,
        )
        software = query_software(Path(interpreter or sys.executable), environment=environment)
    own_python = platform.python_version() if interpreter == sys.executable else None
    arm = ArmSummary(
        text="",
        source_id=None,
        interpreter=interpreter,
        python=software.python_version or own_python,
        torch=software.torch_version,
        stack_id=None if software.problem else stack_id(software),
    )
    return scope_of(config, machine_id=fingerprint.machine_id, cpus=len(selection.cpus), arm=arm)


def same_arms(request: Request) -> tuple[ArmSpec, ArmSpec]:
    """The last commit twice; the working directory twice where there is no repository."""
    text = "dir:." if git.top_level(request.loaded.project) is None else "git:HEAD"
    return parse_arm(text), parse_arm(text)


def _described(
    request: Request,
    calibration: Calibration | None,
    scope: Scope,
    *,
    notes: Sequence[Fact] = (),
    interrupted: bool = False,
) -> Calibrated:
    state = calibration_state(calibration, scope, now=utc_now())
    max_blocks = request.loaded.config.max_blocks
    summary = summarize(calibration, analyses=ANALYSES, max_blocks=max_blocks) if calibration else None
    return Calibrated(
        scope=scope,
        path=calibration_file(baselines_of(request.loaded), scope.machine_id, request.suite),
        calibration=calibration,
        state=state,
        summary=summary,
        error_rate=error_rate_for(request, state, summary),
        notes=tuple(notes),
        interrupted=interrupted,
    )


def _left_behind(stored: Calibration | None, scope: Scope) -> tuple[Fact, ...]:
    difference = None if stored is None else scope_difference(stored.scope, scope)
    if stored is None or difference is None:
        return ()
    return (fact("calibration.replaced", severity=Severity.NOTABLE, gates=len(stored.gates)), difference)


def _of_other_cases(request: Request, machine_id: str, kept: Calibration | None) -> tuple[Fact, ...]:
    whole = load_calibration(calibration_file(baselines_of(request.loaded), machine_id, request.suite))
    others = len(whole.gates) - (len(kept.gates) if kept is not None else 0) if whole is not None else 0
    if not others:
        return ()
    return (fact("calibration.of_other_cases", severity=Severity.NOTABLE, gates=others),)


def _take_in(
    request: Request, calibration: Calibration | None, banked: Sequence[AAGate], scope: Scope
) -> Calibration | None:
    """The calibration with the gates that were banked since, stored."""
    known = {gate.run_id for gate in calibration.gates} if calibration else set()
    new = [gate for gate in banked if gate.run_id not in known]
    new = list(gates_of_suite(new, (case.id for case in request.cases)))
    if not new:
        return calibration
    request.progress(fact("step.banked_gates", gates=len(new)))
    return _store(request, calibration, new, scope)


def _store(request: Request, calibration: Calibration | None, gates: Sequence[AAGate], scope: Scope) -> Calibration:
    merged = with_gates(calibration, gates, scope=scope, suite=request.suite, perfguard=__version__)
    merged = with_present_cases(merged, request) or merged
    save_calibration(calibration_file(baselines_of(request.loaded), scope.machine_id, request.suite), merged)
    return merged


def _seeded(request: Request, draw: random.Random) -> Request:
    config = replace(request.loaded.config, seed=draw.randrange(2**31))
    # Each gate is a run of its own: hours later, the machine may be in another state.
    fingerprint = probe()
    return replace(request, loaded=replace(request.loaded, config=config), fingerprint=fingerprint, measure_anyway=True)


def _placebo(draw: random.Random) -> Place:
    """Another path length and another environment size for each arm, drawn alike for both, so no arm is favoured."""
    paths = draw.sample(range(LONGEST_PATH_PADDING), 2)
    environments = draw.sample(range(LARGEST_ENVIRONMENT), 2)
    return Place(path_padding=(paths[0], paths[1]), environment_bytes=(environments[0], environments[1]))


def _judged(result: RunResult, *, placebo: bool) -> AAGate:
    data = RunData.of(read_events(Path(result.folder) / "events.jsonl"))
    for failure in data.failures.values():
        if failure.skipped:
            continue
        raise MeasurementError(
            f"{failure.case_id} failed ({failure.quoted}), so the gate was not stored; fix it, or "
            f"calibrate another suite (run {result.run_id})"
        )
    if not data.blocks_finished:
        raise MeasurementError(
            f"the budget ended before a block was measured (run {result.run_id}); raise --budget, seconds for one gate"
        )
    return gate_of(result, data, placebo=placebo, banked=False)
