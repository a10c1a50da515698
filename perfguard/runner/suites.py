"""Which cases a command measures: the built-in ones, the user's own, and those of other tools' suites.

The user's files may import torch, so a child of the environment under test looks for benchmarks in them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perfguard.benchmarks.catalog import BENCHMARKS, SUITES
from perfguard.benchmarks.selection import select, suite_cases
from perfguard.codec import from_builtins
from perfguard.config import LoadedConfig, suite_specs
from perfguard.errors import ConfigError, PerfguardError
from perfguard.records.facts import Fact
from perfguard.records.plan import Sandbox
from perfguard.records.spec import BenchmarkSpec, Case, Catalog, expand
from perfguard.runner.arms.credentials import without_secrets
from perfguard.runner.arms.resolve import find_interpreter, hidden_folders, require_own_interpreter
from perfguard.runner.process.launching import START_SCRIPT, build_bundle, launched, run_captured
from perfguard.runner.process.sandboxing import interpreter_of

_TIMEOUT_S = 300.0
_MODULE = "perfguard.worker.adopted.discover"
_TEXT_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
_BENCHMARK_DIR = "benchmarks"


def discover(
    project: Path, patterns: Sequence[str], interpreter: str, *, sandbox: Sandbox | None = None
) -> tuple[BenchmarkSpec, ...]:
    """Specs of all benchmarks in the files of the project that the patterns match; they are imported in the sandbox.

    Raises:
        ConfigError: A pattern matches nothing, a file cannot be imported, or the interpreter fails.
    """
    files = matching_files(project, patterns, key="benchmarks")
    if not files:
        return ()
    answer = ask_child(interpreter, project, "perfguard.worker.discover", files, sandbox)
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


def ask_child(
    interpreter: str, project: Path, module: str, arguments: Sequence[str], sandbox: Sandbox | None
) -> dict[str, Any]:
    """What a module of the worker prints, in an environment under test; in a sandbox it sees no credentials.

    Raises:
        ConfigError: The interpreter fails, or cannot import a file.
    """
    environment = dict(os.environ) if sandbox is None else without_secrets(os.environ)
    with tempfile.TemporaryDirectory(prefix="perfguard-") as place:
        bundle = Path(place) / "lib"
        build_bundle(bundle, tree=None)
        paths = [str(path) for path in (bundle, project, project / "src") if path.is_dir()]
        environment |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"}
        command = [interpreter, str(bundle / START_SCRIPT), module, *arguments]
        if sandbox is not None:
            sandbox = replace(sandbox, readable=(*sandbox.readable, place))
        return _ask(launched(command, sandbox=sandbox), interpreter, project, environment)


def _ask(command: Sequence[str], interpreter: str, project: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    try:
        done = run_captured(
            command, directory=project, environment=environment, timeout_s=_TIMEOUT_S, ends_what_it_started=True
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{interpreter} cannot look for benchmarks: {error}") from error
    except ValueError:
        tail = done.stderr.strip().splitlines()[-3:]
        raise ConfigError(f"{interpreter} cannot look for benchmarks: {' | '.join(tail) or 'no answer'}") from None
    if not isinstance(answer, dict):
        raise ConfigError(f"{interpreter} gave no usable answer about benchmarks")
    for failed in answer.get("errors", ()):
        raise ConfigError(f"{failed['path']} cannot be imported:\n{failed['detail'].strip()}{_hint(failed['detail'])}")
    return answer


def _hint(detail: str) -> str:
    if "No module named 'torch'" not in detail:
        return ""
    return (
        "\ntorch is not in this environment: pip install 'perfguard[torch]', or name one that has it: "
        "PERFGUARD_PYTHON, or `python` in perfguard.toml"
    )


class Suites(Struct, frozen=True, kw_only=True):
    """What a project's configuration names, relative to the project."""

    asv: str | None = None  # asv's configuration file
    pytest: tuple[str, ...] = ()  # Globs of test files
    timer: tuple[str, ...] = ()  # Globs of files with `torch.utils.benchmark.Timer`

    def __bool__(self) -> bool:
        return bool(self.asv or self.pytest or self.timer)


class Adopted(Struct, frozen=True, kw_only=True):
    """What was found in them."""

    benchmarks: tuple[BenchmarkSpec, ...] = ()  # Specs whose targets name a tool
    notes: tuple[Fact, ...] = ()  # What is not timed, or not as the tool would


def adopt(project: Path, suites: Suites, interpreter: str, *, sandbox: Sandbox | None = None) -> Adopted:
    """The cases of other tools' suites in a project; they are imported in the sandbox.

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
    answer = ask_child(interpreter, project, _MODULE, [json.dumps(wanted)], sandbox)
    source = "an adopted suite"
    benchmarks = tuple(from_builtins(spec, BenchmarkSpec, source=source) for spec in answer["benchmarks"])
    notes = tuple(from_builtins(note, Fact, source=source) for note in answer.get("notes", ()))
    return Adopted(benchmarks=benchmarks, notes=notes)


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
    known: dict[str, str] = {}
    for case in (case for spec in benchmarks for case in expand(spec)):
        if known.setdefault(case.id, case.target) != case.target:
            return case.id
    return None


def load_catalog(loaded: LoadedConfig) -> Catalog:
    """Built-in and user benchmarks and suites; a user's suite replaces a built-in one of the same name.

    Raises:
        ConfigError: A user's file cannot be imported, or a benchmark takes a built-in name.
    """
    config = loaded.config
    own, notes = _own_benchmarks(loaded)
    taken = {spec.name for spec in BENCHMARKS}
    for spec in own:
        if spec.name in taken:
            raise ConfigError(f"{spec.target}: the name {spec.name!r} is built in; choose another")
    named = {suite.name: suite for suite in (*SUITES, *suite_specs(config))}
    return Catalog(benchmarks=(*BENCHMARKS, *own), suites=tuple(named.values()), notes=notes)


def has_benchmark(loaded: LoadedConfig, case_ids: Collection[str] | None = None) -> Callable[[str], bool]:
    """Says of a case's id whether the project still has its benchmark; yes where its files cannot be read.

    The files, which may import torch, are not read where all of `case_ids`, the ones that matter, are built in.
    """
    built_in = {spec.name for spec in BENCHMARKS}
    if case_ids is not None and built_in.issuperset(map(_benchmark_of, case_ids)):
        return lambda _: True
    try:
        names = {spec.name for spec in load_catalog(loaded).benchmarks}
    except PerfguardError:
        return lambda _: True
    return lambda case_id: _benchmark_of(case_id) in names


def _benchmark_of(case_id: str) -> str:
    return case_id.partition("[")[0]


def _own_benchmarks(loaded: LoadedConfig) -> tuple[tuple[BenchmarkSpec, ...], tuple[Fact, ...]]:
    """Benchmarks that the user's files declare or other tools' suites hold, and what is to be said of them."""
    config = loaded.config
    suites = Suites(asv=config.asv, pytest=config.pytest, timer=config.timer)
    if not config.benchmarks and not suites:
        return (), ()
    interpreter = _interpreter(loaded)
    sandbox = None
    if config.confine:
        require_own_interpreter(interpreter, loaded.project)
        known = interpreter_of(interpreter)
        interpreter, readable = known.executable, (str(loaded.rules), *known.folders, *config.confined_reads)
        sandbox = Sandbox(readable=readable, hidden=hidden_folders(loaded.project))
    declared = discover(loaded.rules, config.benchmarks, interpreter, sandbox=sandbox)
    adopted = adopt(loaded.rules, suites, interpreter, sandbox=sandbox)
    own = (*declared, *adopted.benchmarks)
    if (clash := clashing(own)) is not None:
        raise ConfigError(
            f"two cases are called {clash!r}; name one of them otherwise, or leave one of their files out"
        )
    return own, adopted.notes


def _interpreter(loaded: LoadedConfig) -> str:
    asked = loaded.config.python
    if asked is None:
        return sys.executable
    found = find_interpreter(asked, loaded.project)
    if found is None:
        origin = loaded.origins.get("python", "built-in")
        raise ConfigError(f"{origin}: there is no interpreter {asked!r}; give the path of a python executable")
    return found


def selected_cases(catalog: Catalog, *, suite: str, patterns: Sequence[str]) -> tuple[Case, ...]:
    """The cases of `patterns` where some are given, else of the suite.

    Raises:
        UsageError: Unknown suite.
        NothingSelectedError: A pattern matches nothing.
    """
    return select(catalog, patterns) if patterns else suite_cases(catalog, suite)


def budget_of(catalog: Catalog, loaded: LoadedConfig, suite: str) -> float:
    """Wall-clock budget: the configured one, else the suite's."""
    if loaded.config.budget_s is not None:
        return loaded.config.budget_s
    return next((s.budget_s for s in catalog.suites if s.name == suite), 600.0)
