"""Cases that a change does not reach: both arms execute the same code for them and read the same files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from perfguard.errors import ArmError
from perfguard.records.facts import fact
from perfguard.records.plan import ResolvedArm
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.runner.arms import git
from perfguard.runner.arms.attestation import only_texts
from perfguard.runner.blocks.measure import plan_block
from perfguard.runner.measuring import needs_torch
from perfguard.runner.process.arm_worker import ArmWorker, CaseRefused, CodeProof
from perfguard.runner.process.worker_process import ProcessStarter, WorkerFailure
from perfguard.runner.session import Session

_SEEN_TO_BE_READ = (".py", ".toml", ".cfg", ".ini")
"""Changed files of other kinds may be read by native code, which nobody sees."""
_SHOWN = 4


def proven_untouched(
    session: Session, starter: ProcessStarter, arms: Mapping[Arm, ResolvedArm], cases: Sequence[Case]
) -> dict[str, int]:
    """Functions that each of these cases runs, where both arms run the same ones; other cases are missing.

    Nothing is proven of code that is not trusted, of arms that differ in anything but their trees, or where files
    changed that native code may read.
    """
    baseline, candidate = arms[Arm.BASELINE], arms[Arm.CANDIDATE]
    is_trusted = not session.request.loaded.config.confine and not session.request.injections
    if not is_trusted or _surroundings(baseline) != _surroundings(candidate):
        return {}
    changed = _changed_files(session.request.loaded.project, (baseline, candidate))
    if changed is None:
        return {}
    if opaque := [name for name in changed if not name.endswith(_SEEN_TO_BE_READ) and not only_texts([name])]:
        session.note(fact("arms.untouched_unproven", files=tuple(opaque[:_SHOWN]), more=max(0, len(opaque) - _SHOWN)))
        return {}
    first = _proofs(session, starter, baseline, cases)
    left = [case for case in cases if case.id in first and first[case.id].problem is None]
    second = _proofs(session, starter, candidate, left) if left else {}
    return {case.id: len(first[case.id].executed) for case in left if first[case.id] == second.get(case.id)}


def _changed_files(project: Path, arms: Sequence[ResolvedArm]) -> tuple[str, ...] | None:
    """Files that differ between the trees of two arms, relative to their repository; None where git cannot say."""
    committed = (arm.source_id.partition("+")[0] for arm in arms)  # what was added to a tree stands behind a plus
    found = git.changed_between_trees(project, *committed)
    for arm in arms:
        repository = git.top_level(Path(arm.tree)) if arm.tree is not None else None
        if found is None or repository is None:
            return None
        if arm.spec.revision is None:
            try:
                found += git.uncommitted_files(repository, Path())
            except ArmError:
                return None
    return found


def _surroundings(arm: ResolvedArm) -> tuple[object, ...]:
    return (arm.interpreter, arm.spec.stack, arm.spec.environment, arm.spec.parameters)


def _proofs(session: Session, starter: ProcessStarter, arm: ResolvedArm, cases: Sequence[Case]) -> dict[str, CodeProof]:
    """What each case runs in an arm; a worker that fails ends it, and what it has not said is not proven."""
    found: dict[str, CodeProof] = {}
    block = plan_block(1, index=0, seed=session.settings.seed)
    worker = ArmWorker(arm.role, starter.start(arm.role, block, None), session.settings)
    try:
        worker.hello({"import_torch": needs_torch(cases), "metadata": {}}, cpus=session.selection.cpus)
        for case in cases:
            if session.interrupts.asked:
                break
            session.request.progress(fact("step.proving", arm=arm.role.value, case_id=case.id))
            found[case.id] = worker.prove(case, seed=session.settings.seed, roots=arm.code_roots)
    except (WorkerFailure, CaseRefused):
        pass
    finally:
        worker.close()
    return found
