"""How foreign code is started: pinned where it is measured, confined where it is not trusted.

An environment under test holds no perfguard. Its interpreter gets a directory on its path, the worker bundle, with the
worker, the benchmark catalogue and pyperf, copied, so that the files of both arms lie at equally long paths and can be
attested.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec.structs import replace

import perfguard
from perfguard.errors import MeasurementError
from perfguard.records.plan import Sandbox
from perfguard.runner.process.limits import limited_groups
from perfguard.runner.process.sandboxing import Holder, bubblewrapped, holder

START_SCRIPT = "start.py"  # At the bundle's root: starts a module of the bundle, given by name
_MODULES = ("__init__.py", "errors.py", "units.py")
CONTROL_PACKAGES = ("records", "worker")  # What the control workload needs
_PACKAGES = (*CONTROL_PACKAGES, "benchmarks", "kernels", "hetero", "tasks")
_UNDER_TEST = (
    "benchmarks",
    "kernels",
    "hetero",
    "tasks",
)  # Packages that come from the tree where it is a checkout of perfguard
_OLDER_FOLDERS = {"kernels": "ops", "models": "networks"}  # Of `benchmarks`, by their names before 0.2
_OLDER_PACKAGES = ("ops", "steps")  # Modules of `benchmarks` that were packages of modules before 0.2
_COMPILE_TIMEOUT_S = 120.0
_MOST_KEPT_BYTES = 16 << 20  # Of what a command prints


def launched(
    arguments: Sequence[str],
    *,
    cpus: Sequence[int] = (),
    memory_node: int | None = None,
    sandbox: Sandbox | None = None,
    is_tied: bool = False,
) -> list[str]:
    """The command that prepares a process of ours and then becomes another one, which begins with an absolute path.

    Empty `cpus` leave the affinity mask alone, a `memory_node` of None the memory policy, and a `sandbox` of None every
    right. What is prepared dies with this process; without any of the three only if it `is_tied`.
    """
    if not cpus and memory_node is None and sandbox is None and not is_tied:
        return list(arguments)
    folders = "-"
    groups = "-" if sandbox is None else os.pathsep.join(map(str, limited_groups()))
    if sandbox is not None and holder() is Holder.BUBBLEWRAP:
        arguments = bubblewrapped(arguments, sandbox)
    elif sandbox is not None:
        folders = os.pathsep.join(sandbox.writable)
    launcher = str(Path(__file__).with_name("launcher.py"))
    mask = ",".join(map(str, cpus)) or "-"
    node = "-" if memory_node is None else str(memory_node)
    return [sys.executable, "-I", launcher, str(os.getpid()), mask, node, folders, groups, "--", *arguments]


def run_captured(
    arguments: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    ends_what_it_started: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command and keep what it prints, in files: a pipe is at its end only when everything that holds it is.

    Of more than 16 MiB the last ones are kept. With `ends_what_it_started` what it leaves running in its process group
    is killed.

    Raises:
        OSError: It cannot be started.
        subprocess.TimeoutExpired: It took too long, and was killed.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            arguments,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=ends_what_it_started,
        )
        try:
            returncode = process.wait(timeout_s)
        finally:
            if ends_what_it_started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()  # does nothing to one that has ended
            process.wait()
        printed, problems = map(_last_of, (out, errors))
        return subprocess.CompletedProcess(arguments, returncode, stdout=printed, stderr=problems)


def _last_of(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_KEPT_BYTES))
    return file.read().decode(errors="replace")


def build_bundle(destination: Path, *, tree: Path | None, packages: Sequence[str] = _PACKAGES) -> tuple[Path, ...]:
    """Fill `destination` with the worker bundle: these packages of perfguard, and pyperf.

    Where `tree` is a checkout of perfguard itself, its benchmarks and kernels are under test, and come from there.

    Returns:
        The directories below `destination` that hold code of the tree.

    Raises:
        MeasurementError: pyperf is not installed beside perfguard, or the files cannot be written.
    """
    package = Path(perfguard.__file__).parent
    own = [
        name
        for name in _UNDER_TEST
        if tree is not None and is_perfguard_checkout(tree) and (tree / "perfguard" / name).is_dir()
    ]
    target = destination / "perfguard"
    try:
        target.mkdir(parents=True)
        for name in _MODULES:
            shutil.copy2(package / name, target / name)
        for name in packages:
            if tree is not None and name in own:
                _copy_tree(tree / "perfguard" / name, target / name)
            else:
                _copy_compiled(package / name, target / name)
        if own:
            _adapt_older_checkout(target)
        spec = importlib.util.find_spec("pyperf")
        if spec is None or spec.origin is None:
            raise MeasurementError("pyperf is not installed beside perfguard; reinstall perfguard")
        _copy_compiled(Path(spec.origin).parent, destination / "pyperf")
        shutil.copy2(package / "worker" / START_SCRIPT, destination / START_SCRIPT)
    except (OSError, RecursionError) as error:  # folders in folders without an end
        raise MeasurementError(f"the worker bundle cannot be written to {destination}: {error}") from error
    return tuple(target / name for name in own)


def compile_bundle(destination: Path, interpreter: str, *, sandbox: Sandbox | None = None) -> None:
    """Write byte code for the interpreter under test, so that no block spends time on it; failing only costs time."""
    # -I and -S: the working directory may be a stranger's, and an arm's own site packages are no business of a step
    # that writes where the measuring code lies.
    command = [interpreter, "-I", "-S", "-m", "compileall", "-q", str(destination)]
    if sandbox is not None:
        sandbox = replace(sandbox, writable=(str(destination),))
    command = launched(command, sandbox=sandbox)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, capture_output=True, timeout=_COMPILE_TIMEOUT_S, check=False)


def is_perfguard_checkout(tree: Path) -> bool:
    """Whether a source tree is perfguard's own repository; one behind a link is not of the tree."""
    package = tree / "perfguard"
    return (package / "benchmarks" / "catalog.py").is_file() and not package.is_symlink()


def _adapt_older_checkout(target: Path) -> None:
    """Give the benchmarks of an older checkout the names that they and today's worker import."""
    for old, new in _OLDER_FOLDERS.items():
        if (target / "benchmarks" / old).is_dir():
            _copy_tree(target / "benchmarks" / old, target / "benchmarks" / new)
            (target / "model").mkdir(exist_ok=True)
            (target / "model" / "spec.py").write_text("from perfguard.records.spec import *\n")
    for package in _OLDER_PACKAGES:
        folder = target / "benchmarks" / package
        if folder.is_dir():
            modules = sorted(path.stem for path in folder.glob("[!_]*.py"))
            imports = (f"from perfguard.benchmarks.{package}.{module} import *\n" for module in modules)
            (folder / "__init__.py").write_text("".join(imports))


def _copy_tree(source: Path, target: Path) -> None:
    """Without byte code, which need not be what the sources of a tree under test say; and without links.

    A link of a tree that nobody trusts may lead to the user's files, to itself, or to a device.
    """
    unwanted = shutil.ignore_patterns("__pycache__", "*.pyc", "tests")

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {*unwanted(folder, names), *(name for name in names if Path(folder, name).is_symlink())}

    if not source.is_symlink():
        shutil.copytree(source, target, ignore=left_out)


def _copy_compiled(source: Path, target: Path) -> None:
    """With byte code, which stays valid since the sources keep their times; not with files that are being written."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("tests", "*.pyc.*"))
