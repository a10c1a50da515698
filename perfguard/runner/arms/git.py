"""The few questions perfguard asks git, and bisections that it drives without a checkout."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import ArmError, UsageError
from perfguard.records.bisection import Answer, Commit

_TIMEOUT_S = 120.0
_CODE_SUFFIXES = (".py", ".so", ".pyd", ".pth")
_SEARCHED = 100  # Commits that are searched for lost code; each takes some milliseconds
_OWN_RULES = ("-c", "safe.bareRepository=explicit", "-c", "core.hooksPath=/dev/null")
"""A tree may hold what looks like a bare repository, with a configuration and hooks of its own; no hook is needed."""
_SUBMODULES = "--ignore-submodules=none"  # Whatever a tree's own `.gitmodules` wants to hide
NAMES_OF_CHANGES = ("diff", "--name-only", "--no-ext-diff", "--no-renames", _SUBMODULES, "-z")
"""Every file that is there on one side only is named: a module that becomes a text is no change of texts."""
_COMMIT_FORMAT = "--format=%T%x00%an%x00%aI%x00%s"


class TreeState(Struct, frozen=True, kw_only=True):
    """What a directory holds, as git sees it."""

    commit: str | None  # Full commit id; None outside git or before the first commit
    tree: str | None  # Git's id of the committed tree
    dirty: str | None  # Hash over what differs from the commit, untracked files included; None when clean

    @property
    def source_id(self) -> str:
        """One string that is equal for equal sources."""
        base = self.tree or "untracked"
        return f"{base}+{self.dirty}" if self.dirty else base


def run_git(directory: Path, *arguments: str, timeout_s: float = _TIMEOUT_S) -> bytes:
    """Output of a git command.

    Raises:
        ArmError: git is missing, hangs or refuses; with its own words.
    """
    try:
        done = subprocess.run(
            ["git", *_OWN_RULES, "-C", str(directory), *arguments], capture_output=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError:
        raise ArmError("git is not on the path; git: arms need it") from None
    except subprocess.TimeoutExpired:
        raise ArmError(f"git {arguments[0]} gave no answer in {timeout_s:.0f} s in {directory}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ArmError(f"git {' '.join(arguments)} failed in {directory}: {said[-1] if said else 'no message'}")
    return done.stdout


def top_level(directory: Path) -> Path | None:
    """The repository that a directory belongs to; None outside git."""
    try:
        return Path(run_git(directory, "rev-parse", "--show-toplevel").decode().strip())
    except ArmError:
        return None


def remote_urls(repository: Path) -> tuple[str, ...]:
    """Where the repository is fetched from; empty without a remote."""
    try:
        names = run_git(repository, "remote").decode().split()
        return tuple(run_git(repository, "remote", "get-url", name).decode(errors="replace").strip() for name in names)
    except ArmError:
        return ()


def path_in_repository(directory: Path) -> str:
    """Where a directory lies in its repository; empty at the top."""
    return run_git(directory, "rev-parse", "--show-prefix").decode().strip()


def resolve_commit(repository: Path, revision: str) -> str:
    """Full id of the commit that a revision names.

    Raises:
        ArmError: There is no such commit.
    """
    if revision.startswith("-"):
        raise ArmError(f"{revision!r} is not a revision")
    try:
        return run_git(repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
    except ArmError:
        raise ArmError(
            f"git knows no revision {revision!r} in {repository}; see `git log --oneline`, or fetch it first "
            "(a shallow clone holds only its tip)"
        ) from None


def date_of(repository: Path, commit: str) -> str:
    """The day of a commit, ISO 8601."""
    return run_git(repository, "show", "-s", "--format=%cs", commit).decode().strip()


def tree_of(repository: Path, commit: str) -> str:
    """Git's id of a commit's tree."""
    return run_git(repository, "rev-parse", f"{commit}^{{tree}}").decode().strip()


def code_id(repository: Path, commit: str, *, without: Path) -> str:
    """Identity of a commit's files, equal for commits that differ only below `without`, relative to the repository."""
    prefix = without.as_posix().encode() + b"/"
    digest = hashlib.sha256()
    for entry in run_git(repository, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
        if not entry.partition(b"\t")[2].startswith(prefix):
            digest.update(entry + b"\0")
    return digest.hexdigest()[:32]


def find_code(repository: Path, wanted: str, *, without: Path, since: str) -> str | None:
    """The newest commit behind HEAD, made after `since` (ISO 8601), with this `code_id`.

    None where there is none among the latest `_SEARCHED`.
    """
    found = run_git(repository, "rev-list", f"--max-count={_SEARCHED}", f"--since={since}", "HEAD").decode().split()
    return next((commit for commit in found if code_id(repository, commit, without=without) == wanted), None)


def is_ancestor(repository: Path, older: str, newer: str) -> bool:
    """Whether one commit contains another, or is it; a shallow clone may not know."""
    return run_git(repository, "rev-list", "--count", "--max-count=1", older, f"^{newer}").strip() == b"0"


def has_parent(repository: Path) -> bool:
    """Whether HEAD is not the first commit."""
    with suppress(ArmError):
        return bool(resolve_commit(repository, "HEAD~1"))
    return False


def is_shallow(repository: Path) -> bool:
    """Whether the clone holds only a part of the history."""
    return run_git(repository, "rev-parse", "--is-shallow-repository").strip() == b"true"


def describe_commit(repository: Path, commit: str) -> Commit:
    """What git knows of a commit."""
    return list_commits(repository, "--no-walk", commit)[0]


def list_commits(
    repository: Path, *revisions: str, first_parent: bool = False, paths: Sequence[str] = ()
) -> tuple[Commit, ...]:
    """Commits that some revisions contain and others do not, parents before children.

    Revisions are as `git rev-list` reads them: `main`, `^old`, `--not old`. With `first_parent` a merged branch is one
    commit. With `paths` only commits that touch one of them count; parents are then the nearest such ancestors.
    """
    order = ("--topo-order", "--reverse", *(["--first-parent"] if first_parent else ()))
    shown = ("--parents", "--encoding=UTF-8", _COMMIT_FORMAT)
    output = run_git(repository, "rev-list", *order, *shown, *revisions, "--", *paths)
    lines = output.decode(errors="replace").split("\n")[:-1]
    found = []
    for header, line in zip(lines[::2], lines[1::2], strict=True):
        _, commit, *parents = header.split(" ")
        described = dict(zip(("tree", "author", "authored_at", "subject"), line.split("\0", 3), strict=True))
        found.append(Commit(id=commit, parents=tuple(parents), **described))
    return tuple(found)


def changed_files(repository: Path, older: str, newer: str, paths: Sequence[Path]) -> tuple[str, ...]:
    """Files below `paths`, relative to the repository, that differ between two revisions."""
    specs = [f":(top,literal){path.as_posix()}" for path in paths]
    output = run_git(repository, *NAMES_OF_CHANGES, older, newer, "--", *specs)
    return tuple(name.decode(errors="replace") for name in output.split(b"\0") if name)


def changed_matches(repository: Path, older: str, newer: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """Files that match one of these patterns, relative to the repository, and differ between two revisions."""
    specs = [f":(top,glob){pattern}" for pattern in patterns]
    output = run_git(repository, *NAMES_OF_CHANGES, older, newer, "--", *specs)
    return tuple(name.decode(errors="replace") for name in output.split(b"\0") if name)


def tracks(repository: Path, paths: Sequence[Path]) -> bool:
    """Whether git tracks one of these files or folders, relative to the repository, or anything in them."""
    specs = [f":(top,literal){path.as_posix()}" for path in paths]
    return bool(specs) and bool(run_git(repository, "ls-files", "-z", "--", *specs))


def changed_between_trees(directory: Path, older: str, newer: str) -> tuple[str, ...] | None:
    """Files that differ between two trees; None where one of the names is no tree of this repository."""
    repository = top_level(directory)
    if repository is None or not all(re.fullmatch("[0-9a-f]{40}([0-9a-f]{24})?", name) for name in (older, newer)):
        return None
    with suppress(ArmError):
        return changed_files(repository, older, newer, ())
    return None


def line_changes(directory: Path, older: str, newer: str | None) -> str:
    """The difference of two trees in Python files, without context; without the newer one, to what lies in the folder.

    Paths are relative to the folder.

    Raises:
        ArmError: git fails.
    """
    names = [older] if newer is None else [older, newer]
    settings = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--relative", "--unified=0")
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    output = run_git(directory, "-c", "core.quotepath=off", "diff", *settings, *prefixes, *names, "--", "*.py")
    return output.decode(errors="replace")


def changed_names(directory: Path, older: str, newer: str | None) -> tuple[str, ...]:
    """Files that differ between two trees or, without the newer one, from what lies in the folder, new ones included.

    Raises:
        ArmError: git fails.
    """
    names = run_git(directory, *NAMES_OF_CHANGES, older, *([] if newer is None else [newer]))
    if newer is None:
        names += run_git(directory, "ls-files", "--others", "--exclude-standard", "-z")
    return tuple(name.decode(errors="surrogateescape") for name in names.split(b"\0") if name)


def has_ignored_code(directory: Path) -> bool:
    """Whether a directory holds code that git ignores, such as a compiled extension; environments are not meant."""
    listed = run_git(directory, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    for name in filter(None, listed.decode(errors="surrogateescape").split("\0")):
        path = directory / name
        is_hidden = any(part.startswith((".", "__pycache__")) for part in Path(name).parts)
        if is_hidden or (path / "pyvenv.cfg").is_file():
            continue
        if any(found.suffix in _CODE_SUFFIXES for found in (path, *(path.rglob("*") if path.is_dir() else ()))):
            return True
    return False


def uncommitted_files(repository: Path, folder: Path) -> tuple[str, ...]:
    """Files below a folder, both relative to the repository, that are new, changed or gone since the last commit."""
    specs = [] if folder == Path() else [f":(top,literal){folder.as_posix()}"]
    changed = run_git(repository, *NAMES_OF_CHANGES, "HEAD", "--", *specs)
    new = run_git(repository, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", *specs)
    return tuple(sorted({name.decode(errors="surrogateescape") for name in (changed + new).split(b"\0") if name}))


def merge_base(repository: Path, one: str, other: str) -> str:
    """The commit that two revisions have last in common.

    Raises:
        ArmError: There is none, or the clone does not hold it.
    """
    try:
        return run_git(repository, "merge-base", one, other).decode().strip()
    except ArmError:
        raise ArmError(
            f"git finds no common commit of {one} and {other}; a shallow clone may not hold it (fetch-depth: 0)"
        ) from None


def tree_state(directory: Path) -> TreeState:
    """What `directory` holds now."""
    repository = top_level(directory)
    with suppress(ArmError):
        if repository is not None:
            commit = resolve_commit(repository, "HEAD")
            return TreeState(commit=commit, tree=tree_of(repository, commit), dirty=_dirty_hash(repository))
    return TreeState(commit=None, tree=None, dirty=None)


def _dirty_hash(repository: Path) -> str | None:
    status = run_git(repository, "status", "--porcelain=v1", "-z", "--untracked-files=all", _SUBMODULES)
    if not status:
        return None
    digest = hashlib.sha256(status)
    digest.update(run_git(repository, "diff", "HEAD", "--binary", "--no-ext-diff", _SUBMODULES))
    untracked = run_git(repository, "ls-files", "--others", "--exclude-standard", "-z")
    for name in sorted(filter(None, untracked.split(b"\0"))):
        path = repository / name.decode(errors="surrogateescape")
        if path.is_file() and not path.is_symlink():
            digest.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def add_worktree(repository: Path, destination: Path, commit: str, *, files: bool = True) -> None:
    """Check a commit out at `destination`, detached; without files where nobody reads them."""
    run_git(repository, "worktree", "prune")
    checkout = "--checkout" if files else "--no-checkout"
    run_git(repository, "worktree", "add", "--detach", "--force", checkout, str(destination), commit)


def remove_worktree(repository: Path, destination: Path) -> None:
    """Remove what add_worktree made; nothing happens where it is gone already."""
    try:
        run_git(repository, "worktree", "remove", "--force", str(destination))
    except ArmError:
        run_git(repository, "worktree", "prune")


class CommitRange(Struct, frozen=True, kw_only=True):
    """Where to look."""

    good: str  # Revision that is fast
    bad: str = "HEAD"  # Revision that is slow; contains the good one
    first_parent: bool = False  # Take a merged branch as one commit
    paths: tuple[str, ...] = ()  # Only commits that touch one; absolute, or pathspecs that begin with a colon


class GitBisect(Struct, frozen=True, kw_only=True):
    """A bisection that git drives."""

    worktree: Path  # Where its state lives
    span: CommitRange  # Paths are relative to the worktree
    good: Commit
    bad: Commit

    def suspects(self) -> tuple[Commit, ...]:
        """Commits that may be the first bad one after all answers so far, parents before children."""
        ends = ("refs/bisect/bad", "--not", "--glob=refs/bisect/good-*")
        return list_commits(self.worktree, *ends, first_parent=self.span.first_parent, paths=self.span.paths)

    def chosen(self) -> str:
        """Id of the commit to test next."""
        return resolve_commit(self.worktree, "BISECT_HEAD")

    def tell(self, commit: Commit, answer: Answer) -> None:
        """Take in what a commit is; it is one of the suspects."""
        with suppress(ArmError):  # git also fails where only skipped commits are left, or none
            run_git(self.worktree, "bisect", answer.value, commit.id)


@contextmanager
def started_bisect(project: Path, span: CommitRange) -> Iterator[GitBisect]:
    """A bisection, gone with all its state at the end.

    Raises:
        UsageError: No repository, no such revision, or nothing between them; with what to do.
    """
    repository = top_level(project)
    if repository is None:
        raise UsageError(f"{project} is not inside a git repository; a bisection needs the history of one")
    good, bad = (describe_commit(repository, resolve_commit(repository, r)) for r in (span.good, span.bad))
    _require_ancestor(repository, good, bad, span)
    if not list_commits(repository, bad.id, f"^{good.id}", first_parent=span.first_parent, paths=span.paths):
        raise UsageError(f"no commit after {span.good} up to {span.bad} touches {', '.join(span.paths)}")
    relative = (path if path.startswith(":") else os.path.relpath(path, repository) for path in span.paths)
    with tempfile.TemporaryDirectory(prefix="perfguard-bisect-") as folder:
        worktree = Path(folder) / "tree"
        add_worktree(repository, worktree, good.id, files=False)
        try:
            search = GitBisect(worktree=worktree, span=replace(span, paths=tuple(relative)), good=good, bad=bad)
            options = ("--no-checkout", *(["--first-parent"] if span.first_parent else ()))
            run_git(worktree, "bisect", "start", *options, bad.id, good.id, "--", *search.span.paths)
            yield search
        finally:
            remove_worktree(repository, worktree)


def _require_ancestor(repository: Path, good: Commit, bad: Commit, span: CommitRange) -> None:
    if good.id == bad.id:
        raise UsageError(f"--good {span.good} and --bad {span.bad} are the same commit ({good.short_id}); name two")
    if is_ancestor(repository, good.id, bad.id):
        return
    problem = f"--good {span.good} ({good.short_id}) is not an ancestor of --bad {span.bad} ({bad.short_id})"
    if is_ancestor(repository, bad.id, good.id):
        raise UsageError(f"{problem}, but the other way round; exchange them")
    if is_shallow(repository):
        raise UsageError(f"{problem} as far as this shallow clone knows; run `git fetch --unshallow` first")
    raise UsageError(f"{problem}; name a good commit that it contains: try `git merge-base {span.good} {span.bad}`")
