"""What a repository needs for its first gate: a configuration, a benchmark, workflows, a line in `.gitignore`."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from pathlib import Path, PurePosixPath

from perfguard import __version__
from perfguard.cli.starting_config import starting_config
from perfguard.config import load_config, read_toml
from perfguard.errors import UsageError
from perfguard.runner.arms import git

ACTION = f"OWNER/perfguard@v{__version__}"
"""The action of this version, as the written workflows name it."""
BENCHMARK = "benchmarks/perf_first_step.py"
_CONFIG = "perfguard.toml"
_IGNORED = ".perfguard/"
_WORKFLOWS = ("perf.yml", "perf-report.yml", "baseline.yml")
_TOKEN = "PERFGUARD_ACTION"  # noqa: S105 - a word in the templates
_ACTION = re.compile(r"[\w.-]+/[\w./-]+@(?P<ref>[\w./+-]+)", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_UNPINNED = "# zizmor: ignore[unpinned-uses] put the tag's commit in its place"


class Fate(Enum):
    """What becomes of a file."""

    WRITTEN = "written"
    REPLACED = "replaced"
    EXTENDED = "extended"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One file of the scaffold."""

    name: str
    """Path relative to the directory, with slashes."""
    fate: Fate
    """Decided before anything is written."""
    content: bytes
    """All that the file will hold; of no use where it is kept."""
    note: str = ""
    """What the reader should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaffold:
    """What is to be written where."""

    directory: Path
    """The project's; it need not exist yet."""
    files: tuple[PlannedFile, ...]
    """In the order in which a reader wants to hear of them."""
    hints: tuple[str, ...]
    """What stands between these files and a first gate."""

    @property
    def changed(self) -> tuple[PlannedFile, ...]:
        """The files that are not kept as they are."""
        return tuple(file for file in self.files if file.fate is not Fate.KEPT)


def plan_scaffold(
    directory: Path, environment: Mapping[str, str], *, workflows: bool, force: bool, action: str = ACTION
) -> Scaffold:
    """Decide what becomes of each file; writes nothing.

    Args:
        directory: The project's.
        environment: As for `load_config`.
        workflows: Whether GitHub's are wanted; they are left out where GitHub would not read them.
        force: Replace files that are there. A configuration in `pyproject.toml` stays in any case.
        action: What the workflows use, `OWNER/NAME@REF`.

    Raises:
        UsageError: The action is not written like that, or something that is no file is in a file's place.
        ConfigError: There is a configuration already, and it is wrong.
    """
    if not _ACTION.fullmatch(action):
        raise UsageError(f"--action {action!r} is not written OWNER/NAME@REF")
    repository = git.top_level(_nearest_existing(directory))
    at_top = repository is None or repository.resolve() == directory.resolve()
    files = [
        _config(directory, environment, force=force),
        _planned(directory, BENCHMARK, _template("perf_first_step.py.in"), force=force),
    ]
    if workflows and at_top:
        files += _workflows(directory, action, force=force)
    files.append(_gitignore(directory))
    return Scaffold(
        directory=directory, files=tuple(files), hints=tuple(_hints(repository, files, wanted=workflows, action=action))
    )


def write_scaffold(scaffold: Scaffold) -> None:
    """Write what is planned; a file is there whole or not at all.

    Raises:
        UsageError: A file cannot be written.
    """
    for file in scaffold.changed:
        path = scaffold.directory / file.name
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(file.content)
            if path.exists():
                shutil.copymode(path, temporary)
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise UsageError(
                f"{path} cannot be written: {error.strerror}; fix that and run this again; what was written is kept"
            ) from error


def _config(directory: Path, environment: Mapping[str, str], *, force: bool) -> PlannedFile:
    file = _planned(directory, _CONFIG, starting_config(), force=force)
    if file.fate is Fate.WRITTEN and _is_configured_in(directory / "pyproject.toml"):
        # A perfguard.toml beside it would win over it, silently.
        file = PlannedFile(name="pyproject.toml", fate=Fate.KEPT, content=b"", note="settings are in [tool.perfguard]")
    if file.fate is not Fate.KEPT:
        return file
    patterns = load_config(directory, environment).config.benchmarks
    if any(PurePosixPath(BENCHMARK).match(pattern.replace("**/", "")) for pattern in patterns):
        return file
    note = f'add "{BENCHMARK}" to `benchmarks` there, and `first_step` to a suite'
    return PlannedFile(name=file.name, fate=Fate.KEPT, content=b"", note=note)


def _is_configured_in(pyproject: Path) -> bool:
    if not pyproject.is_file():
        return False
    tools = read_toml(pyproject).get("tool")
    return isinstance(tools, dict) and "perfguard" in tools


def _workflows(directory: Path, action: str, *, force: bool) -> Iterator[PlannedFile]:
    reference = _ACTION.fullmatch(action)
    pinned = reference is not None and _COMMIT.fullmatch(reference["ref"])
    uses = action if pinned else f"{action} {_UNPINNED}"
    for name in _WORKFLOWS:
        content = _template(f"workflows/{name}").replace(_TOKEN, uses)
        yield _planned(directory, f".github/workflows/{name}", content, force=force)


def _planned(directory: Path, name: str, content: str, *, force: bool) -> PlannedFile:
    path = directory / name
    for folder in (parent for parent in path.parents if parent.is_relative_to(directory)):
        if os.path.lexists(folder) and not folder.is_dir():
            raise UsageError(f"{folder} is in the way: it is no directory; move it, or choose another --dir")
    if path.is_dir():
        raise UsageError(f"{path} is in the way: it is a directory; move it, or choose another --dir")
    there = os.path.lexists(path)
    if there and not force:
        return PlannedFile(name=name, fate=Fate.KEPT, content=b"")
    return PlannedFile(name=name, fate=Fate.REPLACED if there else Fate.WRITTEN, content=content.encode())


def _gitignore(directory: Path) -> PlannedFile:
    """Runs are left in `.perfguard/`; a file that is there is only added to."""
    name, path = ".gitignore", directory / ".gitignore"
    if not os.path.lexists(path):
        return PlannedFile(name=name, fate=Fate.WRITTEN, content=f"{_IGNORED}\n".encode())
    try:
        held = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; fix it, or move it away") from error
    lines = {line.strip() for line in held.splitlines()}
    if lines & {b".perfguard", b".perfguard/", b"/.perfguard", b"/.perfguard/"}:
        return PlannedFile(name=name, fate=Fate.KEPT, content=held)
    newline = b"\r\n" if b"\r\n" in held else b"\n"
    between = newline if held and not held.endswith(b"\n") else b""
    added = held + between + _IGNORED.encode() + newline
    return PlannedFile(name=name, fate=Fate.EXTENDED, content=added, note=f"by the line {_IGNORED}")


def _hints(repository: Path | None, files: list[PlannedFile], *, wanted: bool, action: str) -> Iterator[str]:
    if repository is None:
        yield "this is no git repository, and a gate compares commits: start with `git init`"
    workflows = [file for file in files if file.name.startswith(".github/")]
    if wanted and not workflows:
        yield f"no workflows were planned: GitHub reads them in the top folder of a repository only, here {repository}"
    if any(file.fate is not Fate.KEPT for file in workflows) and action.startswith("OWNER/"):
        yield f"the workflows name the action {action}: put its owner there, or write them again with --force --action"


def _nearest_existing(directory: Path) -> Path:
    return next((place for place in (directory, *directory.resolve().parents) if place.is_dir()), Path())


def _template(name: str) -> str:
    return (resources.files("perfguard") / "templates" / name).read_text(encoding="utf-8")
