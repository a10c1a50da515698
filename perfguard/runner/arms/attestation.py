"""Whether both arms ran what they claim to run. A comparison of a thing with itself must not pass for more."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfguard.codec import from_builtins
from perfguard.errors import ArmError, StoreError
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.plan import ResolvedArm
from perfguard.records.protocol import Message
from perfguard.runner.arms import git

_SHOWN = 6  # Longer lists are cut in notes; `arms.json` in the run's folder holds them whole


class Attested(Struct, frozen=True, kw_only=True):
    """What an arm really ran."""

    text: str  # The arm as typed
    source_id: str  # Identity of its source tree
    interpreter: str  # Executable
    code: tuple[tuple[str, str], ...]  # Path and SHA-256 of each imported file of the tree, sorted
    distributions: tuple[str, ...]  # `name==version` of everything installed
    environment: tuple[tuple[str, str], ...]  # The arm's own variables
    parameters: tuple[tuple[str, str], ...]  # That the arm sets for its cases
    torch_file: str | None  # Where torch was imported from


class _Imported(Struct, frozen=True, kw_only=True):
    """A module that did not come from where it should."""

    name: str
    path: str


class _Hashed(Struct, frozen=True, kw_only=True):
    """An imported file of the tree."""

    path: str
    sha256: str


class _Report(Struct, frozen=True, kw_only=True):
    """What a worker says of the code that it imported."""

    modules: tuple[_Hashed, ...]
    distributions: tuple[str, ...]  # `name==version`
    foreign: tuple[_Imported, ...]  # From the other arm's tree
    shadowed: tuple[_Imported, ...]  # From elsewhere, though the tree has it
    torch_file: str | None = None


def attested(arm: ResolvedArm, ready: Message, report: Message) -> Attested:
    """The arm's identity from its worker's report.

    Raises:
        ArmError: Code came from the other arm's tree, or from an installed copy instead of the tree, or the report is
            none.
    """
    try:
        said = from_builtins(report, _Report, source="it")
        for module in said.foreign:
            raise ArmError(
                f"the {arm.role.value} imported {module.name!r} from the other arm's tree ({module.path!r}); an "
                "editable install or a PYTHONPATH of the interpreter points there: give each arm its own environment "
                "(setup command)"
            )
        for module in said.shadowed:
            raise ArmError(
                f"the {arm.role.value} imported {module.name!r} from {module.path!r}, not from its own tree "
                f"{arm.spec.text!r}: both arms would run that copy; uninstall it, or give git arms a setup command "
                "(--setup 'pip install .')"
            )
        return Attested(
            text=arm.spec.text,
            source_id=arm.source_id,
            interpreter=ready["interpreter"]["executable"],
            code=tuple(sorted((module.path, module.sha256) for module in said.modules)),
            distributions=said.distributions,
            environment=arm.spec.environment,
            parameters=arm.spec.parameters,
            torch_file=said.torch_file,
        )
    except (KeyError, TypeError, StoreError) as error:
        raise ArmError(
            f"what the worker of the {arm.role.value} says of its code is not of the form that it has "
            f"({type(error).__name__}: {error}); does code of a benchmark change perfguard's own?"
        ) from error


def are_identical(baseline: Attested, candidate: Attested) -> bool:
    """Whether the arms are A/A by construction: the same files, packages, interpreter, variables and parameters."""
    compared = attrgetter("interpreter", "environment", "parameters", "distributions", "code")
    return bool(compared(baseline) == compared(candidate))


def have_same_sources(baseline: ResolvedArm, candidate: ResolvedArm, project: Path) -> bool:
    """Whether the arms are identical by git alone, before anything is started.

    They have the same interpreter, variables and parameters, and their trees differ in nothing but texts that no
    interpreter reads. Code that git ignores may be in one directory alone, so where there is some, workers have to
    tell.
    """
    first, second = baseline.spec, candidate.spec
    shared = [
        (arm.interpreter, arm.spec.stack, arm.spec.environment, arm.spec.parameters) for arm in (baseline, candidate)
    ]
    if shared[0] != shared[1] or not differ_in_texts_only(project, baseline.source_id, candidate.source_id):
        return False
    places = [(project / (spec.directory or ".")).resolve() for spec in (first, second)]
    directories = [place for place, spec in zip(places, (first, second), strict=True) if spec.revision is None]
    if places[0] == places[1] and len(directories) != 1:
        return True
    is_same_part = git.path_in_repository(places[0]) == git.path_in_repository(places[1])
    return is_same_part and not any(map(git.has_ignored_code, directories))


def differ_in_texts_only(project: Path, older: str, newer: str) -> bool:
    """Whether two source trees are equal, or git knows that only documents and workflows changed."""
    if older == newer:
        return True
    changed = git.changed_between_trees(project, older, newer)
    return changed is not None and only_texts(changed)


def only_texts(names: Sequence[str]) -> bool:
    """Whether these files are documents and workflows, which no interpreter reads."""
    return all(
        name.endswith((".md", ".rst")) or (name.startswith(".github/") and name.endswith((".yml", ".yaml")))
        for name in names
    )


def compare_attested(baseline: Attested, candidate: Attested, *, is_believed: bool = True) -> Sequence[Fact]:
    """Notes on what differs between the arms; `is_believed` is whether workers that say the same are identical.

    Raises:
        ArmError: The source trees differ, but nothing of either was imported, so the difference was never measured.
    """
    same_stack = are_identical(baseline, replace(candidate, code=baseline.code))
    if same_stack and baseline.source_id != candidate.source_id and not (baseline.code or candidate.code):
        raise ArmError(
            f"{baseline.text!r} and {candidate.text!r} hold different sources, but no selected case imports anything "
            "from them, so both arms would run the same code; declare benchmarks that use your code (`benchmarks` in "
            "perfguard.toml), or compare interpreters (python:) or environments (env:)"
        )
    notes: list[Fact] = []
    if same_stack and baseline.code == candidate.code and is_believed:
        notes.append(fact("arms.same_code"))
    old, new = dict(baseline.code), dict(candidate.code)
    if changed := sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)):
        more = max(0, len(changed) - _SHOWN) or None
        notes.append(fact("arms.files_differ", files=tuple(changed[:_SHOWN]), more=more))
    if baseline.distributions != candidate.distributions:
        notes.append(_changed_distributions(baseline, candidate))
    return notes


def _changed_distributions(baseline: Attested, candidate: Attested) -> Fact:
    """What is installed in other versions, torch first; what only one side has is counted."""
    old, new = (
        {name: version for name, _, version in (item.partition("==") for item in arm.distributions)}
        for arm in (baseline, candidate)
    )
    first = ("torch", "numpy", "intel_extension_for_pytorch")
    differing = (name for name in old.keys() & new.keys() if old[name] != new[name])
    changed = sorted(differing, key=lambda name: (name not in first, name))
    return fact(
        "arms.packages_differ",
        severity=Severity.NOTABLE,
        changed=tuple(f"{name} {old[name]} → {new[name]}" for name in changed[:_SHOWN]),
        more=max(0, len(changed) - _SHOWN) or None,
        only_in_baseline=len(old.keys() - new.keys()) or None,
        only_in_candidate=len(new.keys() - old.keys()) or None,
    )
