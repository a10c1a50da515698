"""The user's own benchmarks: found in a child of the environment under test, since their files may import torch."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfguard.codec import from_builtins
from perfguard.errors import ConfigError
from perfguard.records.spec import BenchmarkSpec
from perfguard.runner.arms.captured import run_captured
from perfguard.runner.arms.environment import looks_secret
from perfguard.runner.process.bundle import START_SCRIPT, build_bundle
from perfguard.runner.process.launching import launched

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
