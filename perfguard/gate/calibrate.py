"""`calibrate`: the gate itself, run on arms that are the same, again and again; what it then says is stored."""

from __future__ import annotations

import os
import platform
import random
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import ExitCode, MeasurementError
from perfguard.gate.calibration.aa_gates import gates_of_scope, gates_of_suite, with_gates
from perfguard.gate.calibration.error_rate import CalibrationState, scope_difference
from perfguard.gate.calibration.machine_rates import (
    calibration_place,
    gate_of,
    rate_of,
    scope_of,
    scope_of_result,
    stored_calibration,
    with_present_cases,
)
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.host.identity import stack_id
from perfguard.host.parsers.software import decode_software
from perfguard.host.probe import probe, query_software
from perfguard.records.calibration import AAGate, Calibration, CalibrationSummary, Scope
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.result import ArmSummary, RunResult
from perfguard.records.run_data import RunData
from perfguard.runner.arms import git
from perfguard.runner.arms.environment import base_environment
from perfguard.runner.arms.resolve import find_interpreter, glibc_version, parse_arm
from perfguard.runner.measuring import ArmLayout, needs_torch
from perfguard.runner.run_folder import read_events
from perfguard.runner.session import Request, choose_cpus
from perfguard.store.calibrations import banked_file, load_calibration, save_calibration

LONGEST_PATH_PADDING = 96  # Characters; a folder's name must stay below 255
LARGEST_ENVIRONMENT = 4096  # Bytes: the stack moves through every offset in a page

RunGate = Callable[..., RunResult]  # Measures and judges one gate; `compare_arms`, or a fake of it


class Calibrated(Struct, frozen=True, kw_only=True):
    """What a calibration came to."""

    path: Path
    scope: Scope  # What it was held against
    calibration: Calibration | None  # All gates of this scope; None where there is none
    state: CalibrationState
    summary: CalibrationSummary | None
    error_rate: Fact
    notes: tuple[Fact, ...] = ()
    interrupted: bool = False


def calibrate_machine(
    request: Request, *, gates: int, placebo: bool = True, resume: bool = False, run_gate: RunGate = compare_arms
) -> Calibrated:
    """Run A/A gates of the request's suite, each with its budget, and store each as soon as it has finished.

    To resume is to count what is stored for this machine and software already. A placebo puts the arms at unequally
    long paths, with unequally large environments.

    Raises:
        StoreError: The stored calibration cannot be read or written.
        MeasurementError: A case fails; the gates before are kept.
        PerfguardError: A gate could not be run; the gates before are kept.
    """
    machine_id = request.fingerprint.machine_id
    stored = stored_calibration(request, machine_id)
    scope = current_scope(request)
    difference = scope_difference(stored.scope, scope) if stored is not None else None
    notes = []
    if stored is not None and difference is not None:
        notes = [fact("calibration.replaced", severity=Severity.NOTABLE, gates=len(stored.gates)), difference]
    whole = load_calibration(calibration_place(request, machine_id))
    if others := (len(whole.gates) if whole else 0) - (len(stored.gates) if stored else 0):
        notes.append(fact("calibration.of_other_cases", severity=Severity.NOTABLE, gates=others))
    calibration = _take_in(request, stored if difference is None else None, scope)
    missing = gates - (len(calibration.gates) if resume and calibration else 0)
    seed = request.loaded.config.seed
    base = secrets.randbelow(2**31) if seed is None else seed
    # The last commit twice; the working directory twice where there is no repository.
    arm = parse_arm("dir:." if git.top_level(request.loaded.project) is None else "git:HEAD")
    interrupted = False
    for number in range(1, missing + 1):
        request.progress(fact("step.aa_gate", number=number, gates=missing))
        draw = random.Random(f"{base}:{len(calibration.gates) if calibration else 0}")  # noqa: S311 - a layout, no secret
        seeded = _seeded(request, draw)
        result = run_gate(seeded, arm, arm, place=_placebo(draw) if placebo else None)
        if result.exit_code == ExitCode.INTERRUPTED:
            interrupted = True
            break
        gate = _judged(result, placebo=placebo)
        calibration = _store(request, calibration, [gate], scope_of_result(result, request))
        outcome, blocks = gate.outcome, gate.blocks
        request.progress(fact("step.aa_gate_stored", number=number, gates=missing, outcome=outcome, blocks=blocks))
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
    if request.script or needs_torch(request.cases):
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


def _described(
    request: Request,
    calibration: Calibration | None,
    scope: Scope,
    *,
    notes: Sequence[Fact] = (),
    interrupted: bool = False,
) -> Calibrated:
    state, summary, error_rate = rate_of(request, calibration, scope)
    return Calibrated(
        scope=scope,
        path=calibration_place(request, scope.machine_id),
        calibration=calibration,
        state=state,
        summary=summary,
        error_rate=error_rate,
        notes=tuple(notes),
        interrupted=interrupted,
    )


def _take_in(request: Request, calibration: Calibration | None, scope: Scope) -> Calibration | None:
    """The calibration with the gates that were banked since, stored."""
    stored = load_calibration(banked_file(request.loaded.project, scope.machine_id, request.suite))
    known = {gate.run_id for gate in calibration.gates} if calibration else set()
    unknown = [gate for gate in gates_of_scope(stored, scope) if gate.run_id not in known]
    new = gates_of_suite(unknown, (case.id for case in request.cases))
    if not new:
        return calibration
    request.progress(fact("step.banked_gates", gates=len(new)))
    return _store(request, calibration, new, scope)


def _store(request: Request, calibration: Calibration | None, gates: Sequence[AAGate], scope: Scope) -> Calibration:
    merged = with_gates(calibration, gates, scope=scope, suite=request.suite)
    merged = with_present_cases(merged, request) or merged
    save_calibration(calibration_place(request, scope.machine_id), merged)
    return merged


def _seeded(request: Request, draw: random.Random) -> Request:
    config = replace(request.loaded.config, seed=draw.randrange(2**31))
    # Each gate is a run of its own: hours later, the machine may be in another state.
    fingerprint = probe()
    return replace(request, loaded=replace(request.loaded, config=config), fingerprint=fingerprint, measure_anyway=True)


def _placebo(draw: random.Random) -> ArmLayout:
    """Another path length and another environment size for each arm, drawn alike for both, so no arm is favoured."""
    paths = draw.sample(range(LONGEST_PATH_PADDING), 2)
    environments = draw.sample(range(LARGEST_ENVIRONMENT), 2)
    return ArmLayout(path_padding=(paths[0], paths[1]), environment_bytes=(environments[0], environments[1]))


def _judged(result: RunResult, *, placebo: bool) -> AAGate:
    data = RunData.of(read_events(Path(result.folder) / "events.jsonl"))
    if failure := next((failure for failure in data.failures.values() if not failure.skipped), None):
        raise MeasurementError(
            f"{failure.case_id} failed ({failure.quoted}), so the gate was not stored; fix it, or "
            f"calibrate another suite (run {result.run_id})"
        )
    if not data.blocks_finished:
        raise MeasurementError(
            f"the budget ended before a block was measured (run {result.run_id}); raise --budget, seconds for one gate"
        )
    return gate_of(result, data, placebo=placebo, banked=False)
