"""Cases that a change does not reach: both arms execute the same code for them and read the same files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from perfguard.errors import ArmError
from perfguard.records.facts import fact
from perfguard.records.plan import ResolvedArm
from perfguard.records.run import Arm
from perfguard.runner.arms import git
from perfguard.runner.arms.attestation import only_texts
from perfguard.runner.session import Session

_SEEN_TO_BE_READ = (".py", ".toml", ".cfg", ".ini")
"""Changed files of other kinds may be read by native code, which nobody sees."""
_SHOWN = 4


def can_be_proven(session: Session, arms: Mapping[Arm, ResolvedArm]) -> bool:
    """Whether records of what cases run can show that the change does not reach them.

    They cannot for code that is not trusted, for arms that differ in anything but their trees, and where files changed
    that native code may read.
    """
    baseline, candidate = arms[Arm.BASELINE], arms[Arm.CANDIDATE]
    is_trusted = not session.request.loaded.config.confine and not session.request.injections
    if not is_trusted or _surroundings(baseline) != _surroundings(candidate):
        return False
    changed = _changed_files(session.request.loaded.project, (baseline, candidate))
    if changed is None:
        return False
    opaque = [name for name in changed if not name.endswith(_SEEN_TO_BE_READ) and not only_texts([name])]
    if opaque:
        more = max(0, len(opaque) - _SHOWN) or None
        session.note(fact("arms.untouched_unproven", files=tuple(opaque[:_SHOWN]), more=more))
    return not opaque


def proven_untouched(session: Session, case_ids: Iterable[str]) -> dict[str, int]:
    """Functions that each of these cases runs, where both arms have the same record; other cases are missing."""
    first, second = (session.proofs.get(arm, {}) for arm in (Arm.BASELINE, Arm.CANDIDATE))
    return {
        case_id: len(proof.executed)
        for case_id in case_ids
        if (proof := first.get(case_id)) is not None and proof.problem is None and proof == second.get(case_id)
    }


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
