"""From arms as they were typed to blocks in the record: resolve and place them, calibrate their cases, measure."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.benchmarks.options import require_parameters, require_settings
from perfguard.host.parsers.software import decode_software
from perfguard.host.placement import sockets_of
from perfguard.host.probe import with_software
from perfguard.records.events import ArmReady, ArmsCompared, StageStarted
from perfguard.records.facts import Severity, Value, fact
from perfguard.records.machine.fingerprint import CpuSelection
from perfguard.records.plan import ArmSpec, MeasureSettings, Plan, ResolvedArm
from perfguard.records.result import ArmSummary
from perfguard.records.run import Arm, Stage
from perfguard.records.script_settings import SCRIPT_SETTINGS
from perfguard.records.spec import Case
from perfguard.records.verdict import Policy
from perfguard.runner.arms.attestation import (
    Attested,
    are_identical,
    attested,
    compare_attested,
    differ_in_texts_only,
    have_same_sources,
)
from perfguard.runner.arms.compiler_settings import sets_compiler_variables
from perfguard.runner.arms.environment import enlarge, mismatched_threads, pad_to_equal_size
from perfguard.runner.arms.resolve import ArmSettings, require_different_interpreters, resolve_arm
from perfguard.runner.blocks.calibrate import (
    ArmCalibration,
    ArmReport,
    BlockCost,
    block_cost,
    budget_shortage,
    calibrate_arm,
    fit_samples,
    plan_cases,
)
from perfguard.runner.blocks.measure import Measuring, measure_blocks, plan_blocks
from perfguard.runner.process.launching import CONTROL_PACKAGES, build_bundle
from perfguard.runner.process.starting import ProcessStarter
from perfguard.runner.scaling import require_room
from perfguard.runner.session import Request, Session

_BOTH = (Arm.BASELINE, Arm.CANDIDATE)
_PYPERF = "pyperf"  # A tenth of a second in each block otherwise
_COMPILER = "torch._dynamo"  # Making an optimizer imports it, which takes as long as torch
_CONTROL = "control"  # Its bundle, beside the arms' folders


class ArmLayout(Struct, frozen=True, kw_only=True):
    """Where arms are put, and how large their environments are beyond what they need: layout, never content."""

    workshop: str = "arms"  # Folder below the run's, begins with `arms`; its length moves every path in the workers
    path_padding: tuple[int, int] = (0, 0)  # Characters that the folders of baseline and candidate are longer
    environment_bytes: tuple[int, int] = (0, 0)  # Bytes that their environments are larger


def start_arms(
    session: Session, specs: Mapping[Arm, ArmSpec], place: ArmLayout | None = None
) -> tuple[ProcessStarter, dict[Arm, ResolvedArm]]:
    """Resolve the arms and make their environments equally large, or as unequal as `place` wants them.

    Raises:
        ArmError: An arm cannot be resolved.
    """
    place = place or ArmLayout()
    config, threads = session.request.loaded.config, session.selection.threads
    settings = ArmSettings(
        project=session.request.loaded.project,
        workshop=(session.folder.path / place.workshop).absolute(),
        path_padding=dict(zip(_BOTH, place.path_padding, strict=True)),
        interpreter=config.python,
        setup=config.setup,
        profile=config.env_profile,
        threads=threads,
        pass_through=config.pass_env,
        confine=bool(config.confine),
        readable=config.confined_reads,
        network=config.confined_network is True,
        setup_network=bool(config.confined_network),
    )
    sockets = sockets_of(session.fingerprint, session.selection.cpus)
    arms: dict[Arm, ResolvedArm] = {}
    for role, spec in specs.items():
        require_room(session.request.cases, dict(spec.parameters), sockets)
        session.request.progress(fact("step.preparing", arm=role.value, text=spec.text))
        arms[role] = resolve_arm(spec, role, settings, session.request.inherited)
        if session.request.script:
            require_settings(dict(spec.parameters), SCRIPT_SETTINGS)
        elif spec.parameters:
            untouched = require_parameters(dict(spec.parameters), session.request.cases, BENCHMARKS)
            if untouched:
                session.note(fact("arms.parameter_without_effect", arm=role.value, case_ids=untouched))
        for name, value in mismatched_threads(spec.environment, threads):
            found: dict[str, Value] = {"name": name, "value": value, "cpus": threads}
            session.note(fact("arms.too_many_threads", found, severity=Severity.NOTABLE, arm=role.value))
    environments = {role: dict(arm.environment) for role, arm in arms.items()}
    if len(arms) == 2:
        require_different_interpreters(arms[Arm.BASELINE], arms[Arm.CANDIDATE])
        padded = pad_to_equal_size(environments[Arm.BASELINE], environments[Arm.CANDIDATE])
        environments = dict(zip(_BOTH, map(enlarge, padded, place.environment_bytes), strict=True))
    control = settings.workshop / _CONTROL
    # Not an arm's: what the arms run may have changed theirs.
    build_bundle(control, tree=None, packages=CONTROL_PACKAGES)
    starter = ProcessStarter(
        arms=arms,
        environments=environments,
        cpus=session.selection.cpus,
        memory_node=session.selection.bind_memory_node,
        folder=session.folder.path.absolute(),
        control_bundle=str(control),
        sockets=sockets,
        preloads=_preloads(session.request, arms),
    )
    session.closing.callback(starter.close)
    return starter, arms


def _preloads(request: Request, arms: Mapping[Arm, ResolvedArm]) -> tuple[str, ...]:
    """What a fork server imports: the same in both arms, and nothing whose settings the arms' code still changes."""
    if not (request.script or needs_torch(request.cases)):
        return (_PYPERF,)
    roots = [root for arm in arms.values() for root in arm.code_roots]
    scripts = [str(Path(request.script).parent)] if request.script else []
    torch = ("torch",) if sets_compiler_variables([*roots, *scripts]) else ("torch", _COMPILER)
    return (_PYPERF, *torch)


def _is_vouched_for(session: Session, arms: Mapping[Arm, ResolvedArm]) -> bool:
    """Whether arms that say that they run the same code can be believed.

    The worker says so, and code that is not trusted runs in it. Then only git's word counts: nothing differs between
    the trees but texts that no interpreter reads.
    """
    if not session.request.loaded.config.confine:
        return True
    sources = (arms[Arm.BASELINE].source_id, arms[Arm.CANDIDATE].source_id)
    if differ_in_texts_only(session.request.loaded.project, *sources):
        return True
    session.note(fact("arms.identity_unproven", severity=Severity.NOTABLE))
    return False


def prove_identity(session: Session, arms: Mapping[Arm, ResolvedArm]) -> None:
    """Find out by git alone whether both arms run the same code, so that nothing has to be measured."""
    baseline, candidate = (arms[role] for role in _BOTH)
    if session.request.injections or not have_same_sources(baseline, candidate, session.request.loaded.project):
        return
    session.identical = True
    for role, arm in arms.items():
        known = {"text": arm.spec.text, "source_id": arm.source_id, "interpreter": arm.interpreter}
        summary = ArmSummary(**known, python=None, torch=None, stack_id=None, commit=arm.commit)
        session.summaries.setdefault(role.value, summary)
    session.emit(ArmsCompared(identical=True))


def calibrate(
    session: Session,
    starter: ProcessStarter,
    arms: Mapping[Arm, ResolvedArm],
    cases: Sequence[Case] | None = None,
    *,
    measures_identical: bool = True,
    proves: bool = False,
) -> Plan:
    """Look at each arm, check and calibrate its cases, and attest that the arms are what they claim to be.

    The session learns whether they are identical; with `measures_identical` such arms are measured all the same, else
    their blocks need not fit the budget. With `proves` it also learns what each case runs of the trees. Without
    `cases`, those of the request are calibrated.

    Raises:
        MeasurementError: An arm cannot be started.
        ArmError: The arms do not run what they should.
    """
    chosen = session.request.cases if cases is None else tuple(cases)
    calibration = ArmCalibration(
        starter=starter,
        settings=session.settings,
        cpus=session.selection.cpus,
        needs_torch=needs_torch(chosen),
        should_stop=lambda: session.interrupts.asked,
        progress=session.request.progress,
        proves=proves,
    )
    reports: dict[Arm, ArmReport] = {}
    facts: dict[Arm, Attested] = {}
    for role, arm in arms.items():
        others = tuple(root for other in arms.values() if other is not arm for root in other.code_roots)
        reports[role] = calibrate_arm(role, chosen, calibration, roots=arm.code_roots, foreign_roots=others)
        facts[role] = attested(arm, reports[role].ready, reports[role].attested)
        session.proofs[role] = reports[role].proofs
        _introduce(session, role, arm, reports[role])
    if len(facts) == 2 and not session.interrupts.asked:  # else it was cut short, and what they import is not known
        baseline, candidate = (facts[role] for role in _BOTH)
        session.imported = frozenset(path for path, _ in baseline.code)
        is_same = are_identical(baseline, candidate)
        is_believed = not is_same or _is_vouched_for(session, arms)
        for note in compare_attested(baseline, candidate, is_believed=is_believed):
            session.note(note)
        session.identical = is_same and is_believed and not session.request.injections
        session.emit(ArmsCompared(identical=session.identical))
    session.folder.write_json("arms.json", {role.value: fact for role, fact in facts.items()})
    session.folder.write_json("fingerprint.json", session.fingerprint)
    found = tuple(reports.values())
    plans = plan_cases(
        chosen, found, settings=session.settings, injections=session.request.injections, emit=session.emit
    )
    if skipped := tuple(failure.case_id for failure in session.data.failures.values() if failure.skipped):
        session.note(fact("run.cases_skipped", case_ids=skipped))
    if not measures_identical and session.identical:
        return Plan(cases=plans, settings=session.settings)
    return Plan(cases=plans, settings=_fitted(session, block_cost(plans, found), is_compared=len(found) > 1))


def _fitted(session: Session, cost: BlockCost, *, is_compared: bool) -> MeasureSettings:
    """Fewer samples where blocks would be too long for the budget; where that does not help either, it is noted."""
    left_s, wanted = session.left_s(), session.settings.samples
    samples = fit_samples(cost, session.settings, left_s=left_s)
    settings = replace(session.settings, samples=samples)
    least = Policy().min_blocks if is_compared else 0
    shortage = budget_shortage(cost, settings, least=least, budget_s=session.request.budget_s, left_s=left_s)
    if shortage is not None:
        session.note(shortage)
    elif samples < wanted:
        session.note(fact("run.fewer_samples", samples=samples, wanted=wanted))
    return settings


class MeasuringLimits(Struct, frozen=True, kw_only=True):
    """When to stop measuring."""

    budget_s: float  # Wall seconds from now
    max_blocks: int  # Blocks
    least_blocks: int = 0  # Blocks that a verdict needs: where only the last one is missing, it exceeds the budget
    samples: int | None = None  # Samples of each arm, case and block; None for the plan's


def measure(
    session: Session,
    starter: ProcessStarter,
    plan: Plan,
    *,
    arms: tuple[Arm, ...],
    pause_s: float = 0.0,
    stage: Stage = Stage.MAIN,
    limits: MeasuringLimits | None = None,
    answered: Callable[[], frozenset[str]] = frozenset,
) -> int:
    """Measure blocks within what is left of the budget, or within other limits; gives the number of blocks.

    `pause_s` seconds lie between blocks. After every block `answered` gives the cases that need no more measuring.
    """
    settings = replace(plan.settings, budget_s=session.left_s())
    if limits is not None:
        samples = limits.samples or settings.samples
        settings = replace(settings, budget_s=limits.budget_s, max_blocks=limits.max_blocks, samples=samples)
    if stage is Stage.MAIN:
        session.folder.write_json("plan.json", {"cases": plan.cases, "settings": settings, "cpus": session.selection})
    else:
        session.emit(StageStarted(stage=stage, case_ids=tuple(each.case.id for each in plan.cases)))
    measuring = Measuring(
        starter=starter,
        emit=session.emit,
        should_stop=lambda: session.interrupts.asked,
        settings=settings,
        cpus=session.selection.cpus,
        arms=arms,
        needs_torch=needs_torch(session.request.cases),
        pause_s=pause_s,
        least_blocks=limits.least_blocks if limits is not None else 0,
        answered=answered,
    )
    blocks = plan_blocks(len(plan.cases), seed=settings.seed, first=session.data.next_block)
    with aside(session.selection):
        return measure_blocks(blocks, plan.cases, measuring)


@contextlib.contextmanager
def aside(selection: CpuSelection) -> Iterator[None]:
    """Keep this process off the measured CPUs, where another one is left to it."""
    before = os.sched_getaffinity(0)
    if selection.housekeeping:
        os.sched_setaffinity(0, selection.housekeeping)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def needs_torch(cases: Sequence[Case]) -> bool:
    """Whether workers import torch before anything else; always, except where a user's suite is tagged `no-torch`."""
    return any("no-torch" not in case.tags for case in cases)


def _introduce(session: Session, role: Arm, arm: ResolvedArm, report: ArmReport) -> None:
    """Emit what an arm turned out to be; the candidate's software completes the fingerprint."""
    software = decode_software(report.ready.get("software") or {})
    completed = with_software(session.fingerprint, software)
    if role is Arm.CANDIDATE:
        session.fingerprint = completed
    interpreter = report.ready["interpreter"]
    known = {
        "text": arm.spec.text,
        "source_id": arm.source_id,
        "interpreter": interpreter["executable"],
        "python": interpreter["version"],
        "torch": software.torch_version,
        "stack_id": completed.stack_id,
        "commit": arm.commit,
    }
    session.summaries.setdefault(role.value, ArmSummary(**known))  # a stored baseline stays the baseline
    import_s, missing = float(report.ready.get("import_s", 0.0)), dict(report.ready.get("missing_signals") or {})
    session.emit(
        ArmReady(arm=role, import_s=import_s, missing_signals=missing, parameters=dict(arm.spec.parameters), **known)
    )
