"""The worker bundle: the few files that an environment under test needs to be measured.

The environment itself holds no perfguard. Its interpreter gets a directory on its path with the worker, the benchmark
catalogue and pyperf, copied, so that the files of both arms lie at equally long paths and can be attested.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
from pathlib import Path

import perfguard
from perfguard.errors import MeasurementError
from perfguard.runner.process.launching import launched

START_SCRIPT = "start.py"
"""At the bundle's root: starts a module of the bundle, given by name."""
_MODULES = ("__init__.py", "errors.py", "units.py")
_PACKAGES = ("records", "worker", "benchmarks")
_OLDER_FOLDERS = {"kernels": "ops", "models": "networks"}
"""Folders of `benchmarks` by their names in checkouts before 0.2."""
_OLDER_PACKAGES = ("ops", "steps")
"""Modules of `benchmarks` that were packages in checkouts before 0.2, with a module for each kind of factory."""
_COMPILE_TIMEOUT_S = 120.0


def build_bundle(destination: Path, *, tree: Path | None) -> Path | None:
    """Fill `destination` with the worker bundle.

    Where `tree` is a checkout of perfguard itself, its benchmarks are what is under test, so they come from there.

    Returns:
        The directory below `destination` that holds code of the tree, or None.

    Raises:
        MeasurementError: pyperf is not installed beside perfguard, or the files cannot be written.
    """
    package = Path(perfguard.__file__).parent
    own_benchmarks = tree is not None and is_perfguard_checkout(tree)
    target = destination / "perfguard"
    try:
        target.mkdir(parents=True)
        for name in _MODULES:
            shutil.copy2(package / name, target / name)
        for name in _PACKAGES:
            source = tree / "perfguard" if tree is not None and own_benchmarks and name == "benchmarks" else package
            _copy_tree(source / name, target / name)
        if own_benchmarks:
            _adapt_older_checkout(target)
        _copy_tree(_pyperf_package(), destination / "pyperf")
        shutil.copy2(package / "worker" / START_SCRIPT, destination / START_SCRIPT)
    except OSError as error:
        raise MeasurementError(f"the worker bundle cannot be written to {destination}: {error}") from error
    return target / "benchmarks" if own_benchmarks else None


def compile_bundle(destination: Path, interpreter: str, *, confined: bool = False) -> None:
    """Write byte code for the interpreter under test, so that no block spends time on it; failing only costs time."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            launched(
                # -I and -S: the working directory may be a stranger's, and an arm's own site packages are no business
                # of a step that writes where the measuring code lies.
                [interpreter, "-I", "-S", "-m", "compileall", "-q", str(destination)],
                writable=(str(destination),) if confined else None,
            ),
            capture_output=True,
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )


def is_perfguard_checkout(tree: Path) -> bool:
    """Whether a source tree is perfguard's own repository."""
    return (tree / "perfguard" / "benchmarks" / "catalog.py").is_file()


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


def _pyperf_package() -> Path:
    spec = importlib.util.find_spec("pyperf")
    if spec is None or spec.origin is None:
        raise MeasurementError("pyperf is not installed beside perfguard; reinstall perfguard")
    return Path(spec.origin).parent


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "tests"))
