"""Cases that a change does not reach: both arms execute the same code for them and read the same files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from perfguard.errors import ArmError
from perfguard.records.events import CaseUntouched
from perfguard.records.facts import fact
from perfguard.records.plan import ResolvedArm
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.runner.arms import git
from perfguard.runner.arms.attestation import only_texts
from perfguard.runner.imports import OpaqueSourceError, importable_files
from perfguard.runner.session import Session

_SEEN_TO_BE_READ = (".py", ".toml", ".cfg", ".ini")
"""Changed files of other kinds may be read by native code, which nobody sees."""
_SHOWN = 4


def can_be_proven(session: Session, arms: Mapping[Arm, ResolvedArm]) -> bool:
    """Whether records of what cases run can show that the change does not reach them.

    They cannot for code that is not trusted, for arms that differ in anything but their trees, and where files changed
    that native code may read.
    """
    changed = None if session.request.loaded.config.confine else _changed_files(session, arms)
    return changed is not None and _are_seen(session, changed, _SEEN_TO_BE_READ)


def proven_by_records(session: Session, case_ids: Iterable[str]) -> Iterator[CaseUntouched]:
    """Those of the cases for which both arms have the same record of what they run."""
    first, second = (session.proofs.get(arm, {}) for arm in (Arm.BASELINE, Arm.CANDIDATE))
    for case_id in case_ids:
        proof = first.get(case_id)
        if proof is not None and proof.problem is None and proof == second.get(case_id):
            yield CaseUntouched(case_id=case_id, functions=len(proof.executed))


def proven_by_imports(
    session: Session, arms: Mapping[Arm, ResolvedArm], cases: Iterable[Case]
) -> Iterator[CaseUntouched]:
    """Of code that is not trusted, those of the cases that may import nothing that changed.

    The sources say it, which are the same in both trees as far as a case can reach.
    """
    changed = _changed_files(session, arms)
    if changed is None or not _are_seen(session, changed, (".py",)):
        return
    for case in cases:
        with contextlib.suppress(OpaqueSourceError):
            first, second = (_sources(arms[role], case.target) for role in (Arm.BASELINE, Arm.CANDIDATE))
            if first == second:
                yield CaseUntouched(case_id=case.id, files=len(first))


def _sources(arm: ResolvedArm, target: str) -> frozenset[tuple[str, bytes]]:
    """Path and content of each file that a case may import."""
    roots = [Path(root) for root in arm.code_roots]
    names = importable_files(roots, target)
    parts = (name.partition(":") for name in names)
    return frozenset((f"{root}:{path}", (roots[int(root)] / path).read_bytes()) for root, _, path in parts)


def _are_seen(session: Session, changed: Sequence[str], suffixes: tuple[str, ...]) -> bool:
    """Whether all changed files are of kinds whose use is seen; else it is noted."""
    opaque = [name for name in changed if not name.endswith(suffixes) and not only_texts([name])]
    if opaque:
        more = max(0, len(opaque) - _SHOWN) or None
        session.note(fact("arms.untouched_unproven", files=tuple(opaque[:_SHOWN]), more=more))
    return not opaque


def _changed_files(session: Session, arms: Mapping[Arm, ResolvedArm]) -> tuple[str, ...] | None:
    """Files that differ between the trees of both arms; None where git cannot say, or where more differs than trees."""
    sides = (arms[Arm.BASELINE], arms[Arm.CANDIDATE])
    surroundings = [(arm.interpreter, arm.spec.stack, arm.spec.environment, arm.spec.parameters) for arm in sides]
    if session.request.injections or surroundings[0] != surroundings[1]:
        return None
    committed = (arm.source_id.partition("+")[0] for arm in sides)  # what was added to a tree stands behind a plus
    found = git.changed_between_trees(session.request.loaded.project, *committed)
    for arm in sides:
        repository = git.top_level(Path(arm.tree)) if arm.tree is not None else None
        if found is None or repository is None:
            return None
        if arm.spec.revision is None:
            try:
                found += git.uncommitted_files(repository, Path())
            except ArmError:
                return None
    return found
