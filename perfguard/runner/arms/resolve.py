"""Arms that can be started: trees checked out, interpreters found, bundles written, environments made equal."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.errors import ArmError, did_you_mean
from perfguard.records.plan import ArmSpec, EnvProfile, ResolvedArm, Sandbox
from perfguard.records.run import Arm
from perfguard.runner.arms import git
from perfguard.runner.arms.environment import apply_overrides, base_environment
from perfguard.runner.arms.venvs import ENVIRONMENTS, environment_for_tree, ready_environment
from perfguard.runner.process.launching import build_bundle, compile_bundle, launched
from perfguard.runner.process.sandboxing import interpreter_of
from perfguard.store.files import remove_tree

_KINDS = ("git", "dir", "python", "env", "set", "stack")
_KNOWN = (*_KINDS, "stored")
_SPLIT = re.compile(r"\+(?=(?:" + "|".join(_KINDS) + r"):)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEXT_VARIABLE = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*=)")  # values may hold commas, as MALLOC_CONF does
STACKS = ("default", "ipex")
_ROLE_DIRECTORY = {Arm.BASELINE: "a", Arm.CANDIDATE: "b"}  # Path lengths must not differ between the arms
_WHOLE_REPOSITORY = "repository"
_SCRATCH = "tmp"
_ASK_TIMEOUT_S = 60.0
_PATHS = (".", "/", "~")  # Beginnings of paths
_EXAMPLES = (
    "stored, git:REV, dir:PATH, python:PATH, env:KEY=VALUE,…, set:NAME=VALUE,…, stack:ipex, or several joined with '+'"
)


def parse_arm(text: str) -> ArmSpec:
    """The arm that `text` describes: kinds with values, joined by `+`; a bare word is a revision, a bare path a folder.

    Raises:
        ArmError: Unknown kind, a part given twice, an empty value, `stored` combined with something else, or both a
            revision and a directory.
    """
    if text == "stored":
        return ArmSpec(text=text, stored=True)
    first, *others = _SPLIT.split(text)
    if _is_bare(first):
        first = f"{'dir' if first.startswith(_PATHS) else 'git'}:{first}"
        text = "+".join((first, *others))
    parts: dict[str, str] = {}
    for part in (first, *others):
        kind, colon, value = part.partition(":")
        if kind not in _KINDS or not colon:
            raise _unknown_kind(kind, text)
        if not value:
            raise ArmError(f"arm {text!r}: nothing follows {kind + ':'!r}")
        if kind in parts:
            raise ArmError(f"arm {text!r} gives {kind + ':'!r} twice; use one, env: and set: take several KEY=VALUE")
        parts[kind] = value
    if "git" in parts and "dir" in parts:
        raise ArmError(f"arm {text!r} names both a revision and a directory; an arm has one source tree")
    stack = parts.get("stack")
    if stack is not None and stack not in STACKS:
        raise ArmError(f"arm {text!r}: unknown stack {stack!r}; choose from {', '.join(STACKS)}")
    return ArmSpec(
        text=text,
        revision=parts.get("git"),
        directory=parts.get("dir"),
        interpreter=parts.get("python"),
        environment=_variables(parts.get("env"), text),
        parameters=_variables(parts.get("set"), text),
        stack=None if stack == "default" else stack,
    )


def _is_bare(part: str) -> bool:
    """Whether a part is a revision or a path without its kind."""
    return bool(part) and not part.startswith("+") and ":" not in part and part.partition("+")[0] not in _KNOWN


def _unknown_kind(kind: str, text: str) -> ArmError:
    if text.startswith("stored+"):
        return ArmError(f"arm {text!r}: 'stored' stands alone; nothing can be added to what was measured earlier")
    hint = did_you_mean(kind, _KNOWN)
    return ArmError(f"arm {text!r}: {kind!r} is no kind of arm; {hint}use {_EXAMPLES}")


def _variables(text: str | None, arm: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for pair in _NEXT_VARIABLE.split(text) if text else ():
        key, equals, value = pair.partition("=")
        if not equals or not _VARIABLE.fullmatch(key):
            raise ArmError(f"arm {arm!r}: {pair!r} is not KEY=VALUE")
        if key in found:
            raise ArmError(f"arm {arm!r} sets {key} twice")
        found[key] = value
    return tuple(sorted(found.items()))


class ArmSettings(Struct, frozen=True, kw_only=True):
    """What both arms share."""

    project: Path  # The user's project; revisions and relative directories refer to it
    workshop: Path  # Directory of this run's bundles, worktrees and links; absolute
    interpreter: str | None  # Interpreter from the configuration; None is perfguard's own
    setup: str | None  # Command that installs a git arm's tree into a venv of its own
    profile: EnvProfile  # How much of the environment is pinned
    threads: int  # CPUs of the mask
    pass_through: tuple[str, ...] = ()  # Further environment variables for the workers
    confine: bool = False  # Whether the arms' code runs in sandboxes
    readable: tuple[str, ...] = ()  # What it may read there beside its own and the system
    network: bool = False  # Whether it may use the network there
    setup_network: bool = False  # Whether the set-up command may
    path_padding: Mapping[Arm, int] = field(default_factory=dict)  # Characters that an arm's folder is longer


def require_revision(spec: ArmSpec, project: Path) -> None:
    """Refuse an arm whose revision git does not know, before anything is measured or waited for.

    Raises:
        ArmError: There is no such revision.
    """
    repository = git.top_level(project) if spec.revision is not None else None
    if repository is not None and spec.revision is not None:
        git.resolve_commit(repository, spec.revision)


def resolve_arm(spec: ArmSpec, role: Arm, settings: ArmSettings, inherited: Mapping[str, str]) -> ResolvedArm:
    """Make an arm ready to start.

    Raises:
        ArmError: The tree, revision, interpreter or stack does not exist or is unusable.
    """
    place = settings.workshop / (_ROLE_DIRECTORY[role] + "-" * settings.path_padding.get(role, 0))
    place.mkdir(parents=True)
    tree, source_id, commit = source_tree(spec, settings.project, place / "tree")
    sandbox = _sandbox(spec, settings, place, tree) if settings.confine else None
    interpreter = _interpreter(spec, settings, tree, source_id, sandbox)
    if sandbox is not None:
        if not Path(interpreter).is_relative_to(settings.project / ENVIRONMENTS):
            interpreter = interpreter_of(interpreter).executable
        sandbox = replace(sandbox, readable=(*sandbox.readable, *_folders_of(interpreter, settings)))
    from_tree = build_bundle(place / "lib", tree=tree)
    compile_bundle(place / "lib", interpreter, sandbox=sandbox)
    entries = [str(path) for path in (place / "lib", tree, tree / "src") if path.is_dir()]
    profile, threads, names = settings.profile, settings.threads, settings.pass_through
    base = base_environment(inherited, profile=profile, threads=threads, glibc=glibc_version(), pass_through=names)
    if spec.stack is not None:
        base["PERFGUARD_STACK"] = spec.stack
    if spec.parameters:
        base["PERFGUARD_SET"] = json.dumps(dict(spec.parameters))
    environment = apply_overrides(base, spec.environment)
    if settings.confine:
        environment["TMPDIR"] = environment["PERFGUARD_KERNEL_CACHE"] = str(place / _SCRATCH)
    environment["PYTHONPATH"] = os.pathsep.join(entries)
    return ResolvedArm(
        role=role,
        spec=spec,
        interpreter=interpreter,
        tree=str(tree),
        bundle=str(place / "lib"),
        code_roots=tuple(map(str, (*from_tree, tree))),
        source_id=source_id,
        commit=commit,
        environment=tuple(sorted(environment.items())),
        sandbox=sandbox,
    )


def _sandbox(spec: ArmSpec, settings: ArmSettings, place: Path, tree: Path) -> Sandbox:
    """It may change what is temporary, and the worktree, which nobody keeps; not the user's own directory."""
    (place / _SCRATCH).mkdir()
    real = str(tree.resolve())
    return Sandbox(
        writable=(str(place / _SCRATCH), *([real] if spec.revision is not None else ())),
        readable=(str(place), real, *settings.readable),
        hidden=hidden_folders(settings.project),
        network=settings.network,
    )


def hidden_folders(project: Path) -> tuple[str, ...]:
    """The project, its repository, and where temporary files are: confined code sees its own tree alone."""
    return str(git.top_level(project) or project), str(project), tempfile.gettempdir()


def _folders_of(interpreter: str, settings: ArmSettings) -> tuple[str, ...]:
    """What an interpreter needs. A set-up command may have made it a link to anywhere, so that is not followed."""
    chosen = find_interpreter(settings.interpreter or sys.executable, settings.project) or sys.executable
    made = settings.project / ENVIRONMENTS
    if Path(interpreter).is_relative_to(made):
        return (str(Path(interpreter).parent.parent), *interpreter_of(chosen).folders)
    return interpreter_of(interpreter).folders


def clean_workshop(workshop: Path, project: Path) -> None:
    """Remove bundles, links and worktrees of a finished run."""
    repository = git.top_level(project)
    for place in workshop.glob("[ab]*"):
        for tree in (place / "tree", place / _WHOLE_REPOSITORY):
            if tree.is_symlink():
                tree.unlink()
            elif tree.exists() and repository is not None:
                git.remove_worktree(repository, tree)
    remove_tree(workshop)
    if repository is not None:
        git.run_git(repository, "worktree", "prune")  # those whose `.git` code of the arm has replaced


def glibc_version() -> tuple[int, int] | None:
    """Version of this machine's glibc; None with another C library."""
    name, version = platform.libc_ver()
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found and name == "glibc" else None


def source_tree(spec: ArmSpec, project: Path, place: Path) -> tuple[Path, str, str | None]:
    """The source tree at `place`, a worktree or a link of the same length, its identity, and its commit.

    Raises:
        ArmError: It does not exist.
    """
    if spec.revision is not None:
        repository = git.top_level(project)
        if repository is None:
            raise ArmError(f"arm {spec.text!r}: {project} is not inside a git repository; use dir:PATH")
        commit = git.resolve_commit(repository, spec.revision)
        below = project.resolve().relative_to(repository.resolve())
        # Of a project inside a larger repository, a link to the project's directory in a worktree.
        worktree = place if below == Path() else place.with_name(_WHOLE_REPOSITORY)
        git.add_worktree(repository, worktree, commit)
        if worktree != place:
            place.symlink_to(worktree / below, target_is_directory=True)
        if not place.is_dir():
            raise ArmError(f"arm {spec.text!r}: {project} does not exist in that revision")
        if place.resolve() != worktree.resolve() / below:
            raise ArmError(f"arm {spec.text!r}: {project} is a link to another place in that revision")
        return place, git.tree_of(repository, commit), commit
    directory = (project / (spec.directory or ".")).resolve()
    if not directory.is_dir():
        raise ArmError(f"arm {spec.text!r}: {directory} is not a directory")
    place.symlink_to(directory, target_is_directory=True)
    state = git.tree_state(directory)
    return place, state.source_id if state.tree else f"dir:{directory}", state.commit


def _interpreter(spec: ArmSpec, settings: ArmSettings, tree: Path, source_id: str, sandbox: Sandbox | None) -> str:
    if spec.stack is not None:
        if spec.interpreter is not None:
            raise ArmError(f"arm {spec.text!r}: stack: brings its own interpreter; drop python:")
        return str(ready_environment(spec.stack))
    if spec.revision is not None and settings.setup and spec.interpreter is None:
        base, command, project = settings.interpreter or sys.executable, settings.setup, settings.project
        if sandbox is not None:
            sandbox = replace(sandbox, network=settings.setup_network)
        made = environment_for_tree(
            tree, source_id, command=command, base_interpreter=base, project=project, sandbox=sandbox
        )
        return str(made)
    chosen = spec.interpreter or settings.interpreter or sys.executable
    path = find_interpreter(chosen, settings.project)
    if path is not None and sandbox is not None:
        require_own_interpreter(path, settings.project)
    if path is None:
        raise ArmError(f"arm {spec.text!r}: there is no interpreter {chosen!r}; give the path of a python executable")
    if not _is_python(path, sandbox):
        raise ArmError(f"arm {spec.text!r}: {path} is not a Python interpreter; give the path of a python executable")
    return path


def _is_python(path: str, sandbox: Sandbox | None) -> bool:
    """Whether a program runs Python code; asked in isolation, so that no variable of the arm can confuse it."""
    if sandbox is not None:
        known = interpreter_of(path)
        path, sandbox = known.executable, replace(sandbox, readable=known.folders, writable=())
    command = launched([path, "-I", "-c", "print(6 * 7)"], sandbox=sandbox)
    try:
        done = subprocess.run(command, capture_output=True, timeout=_ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.stdout.strip() == b"42"


def find_interpreter(text: str, project: Path) -> str | None:
    """The executable that a name, a path or a virtual environment stands for, relative to the project; or None."""
    if os.sep not in text and (found := shutil.which(text)) is not None:
        return found
    # Not resolved: a venv's python is a link, and following it would leave the venv.
    path = Path(os.path.abspath(project / Path(text).expanduser()))  # noqa: PTH100 - resolve() would follow the link
    if path.is_dir():
        path = path / "bin" / "python"
    return str(path) if path.is_file() and os.access(path, os.X_OK) else None


def require_own_interpreter(path: str, project: Path) -> None:
    """Refuse an interpreter that the checkout brings: it is run before anything is confined, and asked what it is.

    Raises:
        ArmError: Git tracks it, its environment, or a link on the way to it.
    """
    repository = git.top_level(project)
    if repository is None:
        return
    for found in dict.fromkeys((Path(path), Path(path).resolve())):
        for root in (repository, repository.resolve()):
            if found.is_relative_to(root):
                below = found.relative_to(root)
                parts = [root.joinpath(*below.parts[:count]) for count in range(1, len(below.parts))]
                asked = [found, found.parent.parent, *(part for part in parts if part.is_symlink())]
                if git.tracks(repository, [each.relative_to(root) for each in asked if each != root]):
                    raise ArmError(
                        f"the interpreter {path} is part of the checkout, so its code is not trusted; name one outside"
                    )


def require_different_interpreters(baseline: ResolvedArm, candidate: ResolvedArm) -> None:
    """Raise ArmError where the arms ask for two interpreters but get one."""
    asked = (baseline.spec.interpreter, candidate.spec.interpreter)
    found = [(os.path.realpath(path), Path(path).parent) for path in (baseline.interpreter, candidate.interpreter)]
    if None not in asked and asked[0] != asked[1] and found[0] == found[1]:
        raise ArmError(
            f"both arms use {baseline.interpreter}, although {asked[0]!r} and {asked[1]!r} were asked for; "
            "name two different environments"
        )
