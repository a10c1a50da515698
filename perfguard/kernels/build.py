"""Compiles a C++ operator on first use and keeps it for this torch, compiler and instruction set.

The library is linked with libtorch alone and starts no threads of its own. A build holds an advisory lock, which the
kernel of the operating system takes back when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

CACHE_VARIABLE = "PERFGUARD_KERNEL_CACHE"  # Folder of compiled operators; default: below the user's cache
LIMIT_S = 600.0  # Seconds after which a compiler is ended
_SUM = ".sha256"  # Checksum beside a library: loading one that was cut off would end the process

_ISA_FLAGS = {
    "AVX512": ("-DCPU_CAPABILITY_AVX512", "-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"),
    "AVX2": ("-DCPU_CAPABILITY_AVX2", "-mavx2", "-mfma", "-mf16c"),
}
"""What torch compiles its own vectorized kernels with; any other capability is compiled without vector instructions."""
_FLAGS = (
    *("-O3", "-std=c++20", "-fPIC", "-shared", "-DNDEBUG", "-w"),
    # Inline functions of torch's headers exist once for each instruction set, and must not replace each other.
    *("-fvisibility=hidden", "-fvisibility-inlines-hidden"),
)


class KernelWarning(UserWarning):
    """A compiled operator cannot be had here, and torch's own ops run in its place."""


@functools.cache
def compiled(name: str) -> Any | None:
    """The operators that `load` gives; None, with a warning, where they cannot be built."""
    try:
        return load(name)
    except BuildError as error:
        warnings.warn(f"the operator {name} runs as torch's own ops, several times slower: {error}", KernelWarning, 2)
        return None


class BuildError(Exception):
    """An operator cannot be built; the message says why and what to do."""


def _cache_folder() -> Path:
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perfguard" / "kernels"


@functools.cache
def load(name: str) -> Any:
    """The operators of `<name>.cpp` as a namespace of `torch.ops`, compiled into the cache unless they are there.

    Compiled for `torch.backends.cpu.get_cpu_capability()`, which `ATEN_CPU_CAPABILITY` lowers. The first call in a
    process decides.

    Raises:
        BuildError: No compiler, it fails, or the library cannot be loaded.
    """
    source = Path(__file__).with_name(f"{name}.cpp")
    compiler = _compiler()
    capability = torch.backends.cpu.get_cpu_capability()
    library = f"perfguard_{name}"  # The same in every build, so that profiles of two builds can be compared
    named = (f"-DPERFGUARD_LIBRARY={library}", f"-DCPU_CAPABILITY={capability}")
    flags = (*_FLAGS, *named, *_ISA_FLAGS.get(capability, ()))
    key = repr((source.read_text(encoding="utf-8"), torch.__version__, _version_of(compiler), flags))
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    place = _cache_folder() / f"{name}-torch{torch.__version__}-{capability.lower()}-{digest}.so"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place.with_suffix(".lock")):
            if not _loads(place):
                _compile(compiler, flags, source, place)
                torch.ops.load_library(str(place))
    except OSError as error:
        raise BuildError(f"{error}; set {CACHE_VARIABLE} to a folder that can be written") from error
    return getattr(torch.ops, library)


def _compiler() -> str:
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is None:
        raise BuildError(f"no C++ compiler: {compiler!r} is not on PATH; install g++ or set CXX")
    return compiler


@functools.cache
def _version_of(compiler: str) -> str:
    found = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return found.stdout.partition("\n")[0]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _loads(place: Path) -> bool:
    """Whether a library is there, whole, and can be loaded; if not, it is compiled again."""
    try:
        if _sum_of(place) != place.with_suffix(_SUM).read_text(encoding="ascii"):
            return False
        torch.ops.load_library(str(place))
    except (FileNotFoundError, UnicodeDecodeError):
        return False
    return True


def _sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _compile(compiler: str, flags: tuple[str, ...], source: Path, place: Path) -> None:
    try:
        from torch.utils import cpp_extension
    except ImportError as error:
        raise BuildError(f"torch's headers cannot be found: {error}; install setuptools") from error
    sys.stderr.write(f"perfguard: compiling {source.name} into {place}, once for this torch and compiler\n")
    includes = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    libraries = [*(f"-L{folder}" for folder in cpp_extension.library_paths()), "-lc10", "-ltorch_cpu"]
    with tempfile.TemporaryDirectory(dir=place.parent) as workshop:
        made = Path(workshop) / place.name
        command = [compiler, *flags, *includes, str(source), *libraries, "-o", str(made)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise BuildError(f"{compiler} took more than {LIMIT_S:.0f} s") from error
        if done.returncode:
            reasons = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise BuildError(f"{compiler} ended with {done.returncode}: {reasons[0] if reasons else 'no message'}")
        if not made.exists():
            raise BuildError(f"{compiler} made no library")
        place.with_suffix(_SUM).write_text(_sum_of(made), encoding="ascii")
        made.replace(place)
