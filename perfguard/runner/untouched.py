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
from perfguard.runner.arms.resolve import clean_workshop, source_tree
from perfguard.runner.imports import ImportReader, OpaqueSourceError, importable_files, read_source
from perfguard.runner.session import Session

_SEEN_TO_BE_READ = (".py", ".toml", ".cfg", ".ini")
"""Changed files of other kinds may be read by native code, which nobody sees."""
_SHOWN = 4
_AS_COMMITTED = "arms-as-committed"  # Folder of a run with checkouts that no code of an arm has seen
_PLACES = {Arm.BASELINE: "a", Arm.CANDIDATE: "b"}


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
    project, workshop = session.request.loaded.project, session.folder.path / _AS_COMMITTED
    try:
        roots = {role: _roots(arms[role], project, workshop / name) for role, name in _PLACES.items()}
        if _top_level(roots[Arm.CANDIDATE]) - _top_level(roots[Arm.BASELINE]):
            return  # it may stand before an installed module of that name
        readers = {role: ImportReader(places) for role, places in roots.items()}
        found: dict[str, tuple[frozenset[tuple[str, bytes]], ...]] = {}
        for case in cases:
            with contextlib.suppress(OpaqueSourceError):
                found[case.id] = tuple(_sources(readers[role], case.target) for role in _PLACES)
    except ArmError:
        return
    finally:
        clean_workshop(workshop, project)
    reached = {name.partition(":")[2] for sides in found.values() for side in sides for name, _ in side}
    imported = {path for path in session.imported if any(f"/{name}".endswith(f"/{path}") for name in changed)}
    if all(path.removeprefix("src/") in reached or path in reached for path in imported):
        # Else imports happen that the sources do not show.
        for case_id, (first, second) in found.items():
            if first == second and not _stands_before(changed, (name for name, _ in first)):
                yield CaseUntouched(case_id=case_id, files=len(first))


def _stands_before(changed: Iterable[str], reached: Iterable[str]) -> bool:
    """Whether a changed file is a module by the name of a reached one, as the package `a/__init__.py` is of `a.py`."""
    modules = tuple(f"/{_module(name.partition(':')[2])}" for name in reached)
    return any(f"/{_module(name)}".endswith(modules) for name in changed)


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__")


def _roots(arm: ResolvedArm, project: Path, place: Path) -> list[Path]:
    """Where the arm's code is imported from; its tree as it was committed, since its own code may change its worktree.

    Raises:
        ArmError: It cannot be checked out.
    """
    place.mkdir(parents=True)
    tree = Path(arm.tree or project)
    fresh = source_tree(arm.spec, project, place / "tree")[0] if arm.spec.revision is not None else tree
    found = [fresh if Path(root) == tree else Path(root) for root in arm.code_roots]
    return [*found, *([fresh / "src"] if (fresh / "src").is_dir() else [])]


def _top_level(roots: Iterable[Path]) -> set[str]:
    """Names of modules and packages that can be imported from the roots."""
    files = {path.stem for root in roots for path in root.glob("*.py")}
    return files | {path.parent.name for root in roots for path in root.glob("*/__init__.py")}


def _sources(reader: ImportReader, target: str) -> frozenset[tuple[str, bytes]]:
    """Path and content of each file that a case may import."""
    parts = (name.partition(":") for name in importable_files(reader, target))
    found = ((root, path, reader.roots[int(root)]) for root, _, path in parts)
    return frozenset((f"{number}:{path}", read_source(root / path, root)) for number, path, root in found)


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
