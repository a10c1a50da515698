"""The user's own benchmarks: found in a child of the environment under test, since their files may import torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfguard.codec import from_builtins
from perfguard.errors import ConfigError
from perfguard.records.facts import Fact
from perfguard.records.spec import BenchmarkSpec
from perfguard.runner.arms.environment import looks_secret
from perfguard.runner.process.bundle import START_SCRIPT, build_bundle
from perfguard.runner.process.launching import launched, run_captured

_TIMEOUT_S = 300.0


def discover(
    project: Path, patterns: Sequence[str], interpreter: str, *, confined: bool = False
) -> tuple[BenchmarkSpec, ...]:
    """Specs of all benchmarks in the files that the patterns match, relative to the project.

    Args:
        project: Where the files are.
        patterns: Globs.
        interpreter: Imports them.
        confined: Whether they may change no file, and see no credentials.

    Raises:
        ConfigError: A pattern matches nothing, a file cannot be imported, or the interpreter fails.
    """
    files = matching_files(project, patterns, key="benchmarks")
    if not files:
        return ()
    answer = ask_child(interpreter, project, "perfguard.worker.discover", files, confined=confined)
    raise_errors(answer)
    return tuple(from_builtins(spec, BenchmarkSpec, source="a declared benchmark") for spec in answer["benchmarks"])


def matching_files(project: Path, patterns: Sequence[str], *, key: str) -> list[str]:
    """The Python files that globs of a setting match, relative to the project.

    Raises:
        ConfigError: A glob leads out of the project or matches nothing.
    """
    files: list[str] = []
    for pattern in patterns:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ConfigError(f"{key}: {pattern!r} must be relative to the project and stay inside it")
        found = sorted(str(p.relative_to(project)) for p in project.glob(pattern) if p.suffix == ".py")
        if not found:
            raise ConfigError(f"{key}: {pattern!r} matches no .py file in {project}")
        files.extend(name for name in found if name not in files)
    return files


def raise_errors(answer: dict[str, Any]) -> None:
    """Raise ConfigError where the child could not import a file."""
    for error in answer.get("errors", ()):
        raise ConfigError(f"{error['path']} cannot be imported:\n{error['detail'].strip()}")


def ask_child(
    interpreter: str, project: Path, module: str, arguments: Sequence[str], *, confined: bool
) -> dict[str, Any]:
    """What a module of the worker prints, in an environment under test.

    Raises:
        ConfigError: The interpreter fails.
    """
    with tempfile.TemporaryDirectory(prefix="perfguard-") as place:
        bundle = Path(place) / "lib"
        build_bundle(bundle, tree=None)
        return _ask(interpreter, bundle, project, (module, *arguments), confined=confined)


def _ask(interpreter: str, bundle: Path, project: Path, arguments: Sequence[str], *, confined: bool) -> dict[str, Any]:
    paths = [str(bundle), str(project)] + ([str(project / "src")] if (project / "src").is_dir() else [])
    environment = {
        **{name: value for name, value in os.environ.items() if not (confined and looks_secret(name))},
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
    }
    try:
        done = run_captured(
            launched([interpreter, str(bundle / START_SCRIPT), *arguments], writable=() if confined else None),
            directory=project,
            environment=environment,
            timeout_s=_TIMEOUT_S,
            ends_what_it_started=True,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{interpreter} cannot look for benchmarks: {error}") from error
    except ValueError:
        tail = done.stderr.strip().splitlines()[-3:]
        raise ConfigError(f"{interpreter} cannot look for benchmarks: {' | '.join(tail) or 'no answer'}") from None
    if not isinstance(answer, dict):
        raise ConfigError(f"{interpreter} gave no usable answer about benchmarks")
    return answer


_MODULE = "perfguard.worker.adopted.discover"
_TEXT_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
_BENCHMARK_DIR = "benchmarks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suites:
    """What a project's configuration names, relative to the project."""

    asv: str | None = None
    """asv's configuration file."""
    pytest: tuple[str, ...] = ()
    """Globs of test files."""
    timer: tuple[str, ...] = ()
    """Globs of files with `torch.utils.benchmark.Timer`."""

    def __bool__(self) -> bool:
        return bool(self.asv or self.pytest or self.timer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What was found in them."""

    benchmarks: tuple[BenchmarkSpec, ...] = ()
    """Specs whose targets name a tool."""
    notes: tuple[Fact, ...] = ()
    """What is not timed, or otherwise than the tool would."""


def adopt(project: Path, suites: Suites, interpreter: str, *, confined: bool = False) -> Adopted:
    """The cases of other tools' suites.

    Args:
        project: Where the suites are.
        suites: Their places.
        interpreter: Imports them.
        confined: Whether they may change no file, and see no credentials.

    Raises:
        ConfigError: A place does not exist, a suite cannot be imported, or the interpreter fails.
    """
    if not suites:
        return Adopted()
    wanted = {
        "asv": [] if suites.asv is None else [asv_directory(project, suites.asv)],
        "pytest": matching_files(project, suites.pytest, key="pytest"),
        "timer": matching_files(project, suites.timer, key="timer"),
    }
    wanted = {tool: places for tool, places in wanted.items() if places}
    answer = ask_child(interpreter, project, _MODULE, [json.dumps(wanted)], confined=confined)
    raise_errors(answer)
    return Adopted(
        benchmarks=tuple(
            from_builtins(spec, BenchmarkSpec, source="an adopted suite") for spec in answer["benchmarks"]
        ),
        notes=tuple(from_builtins(note, Fact, source="an adopted suite") for note in answer.get("notes", ())),
    )


def asv_directory(project: Path, name: str) -> str:
    """The benchmark directory that asv's configuration file names, relative to the project.

    Raises:
        ConfigError: The file cannot be read, or its directory lies outside the project.
    """
    path = project / name
    try:
        settings = json.loads(without_comments(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"asv: {path} cannot be read as asv's configuration: {error}") from error
    directory = settings.get("benchmark_dir", _BENCHMARK_DIR) if isinstance(settings, dict) else None
    if not isinstance(directory, str):
        raise ConfigError(f"asv: {path} names no benchmark_dir that is a text")
    place = (path.parent / directory).resolve()
    if not place.is_dir():
        raise ConfigError(f"asv: {path} names the benchmark_dir {directory!r}, which is no directory")
    if not place.is_relative_to(project.resolve()):
        raise ConfigError(f"asv: the benchmark_dir of {path} must be inside the project")
    return str(place.relative_to(project.resolve()))


def without_comments(text: str) -> str:
    """The JSON of asv without its comments and trailing commas."""
    for superfluous in (_TEXT_OR_COMMENT, _TRAILING_COMMA):
        text = superfluous.sub(lambda found: found.group(1) or "", text)
    return text


def clashing(benchmarks: Sequence[BenchmarkSpec]) -> str | None:
    """A case id that stands for two targets, if there is one."""
    from perfguard.records.spec import expand

    known: dict[str, str] = {}
    for case in (case for spec in benchmarks for case in expand(spec)):
        if known.setdefault(case.id, case.target) != case.target:
            return case.id
    return None
