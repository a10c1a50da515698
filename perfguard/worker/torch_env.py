"""What the interpreter under test runs on; runs in the child, or alone as a script of Python 3.9 and later.

Only the standard library is imported at the top, and nothing of perfguard: the parent starts this very file
in environments that have no perfguard. Every fact is asked for by itself; one that fails is None.
`perfguard.records.machine.fingerprint.SoftwareFacts` is the typed twin.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENVIRONMENT = (
    # Thread counts, binding and waiting
    "OMP_*", "KMP_*", "GOMP_*", "MKL_*", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "LIBOMP_*",
    # Code paths
    "ONEDNN_*", "DNNL_*", "ATEN_CPU_CAPABILITY", "IPEX_*", "_IPEX_*", "NPY_*", "GLIBC_TUNABLES",
    # Memory
    "LD_PRELOAD", "MALLOC_*", "JEMALLOC_*", "TCMALLOC_*", "MIMALLOC_*", "THP_MEM_ALLOC_ENABLE", "TORCH_THP_*",
    # torch and Inductor
    "TORCHINDUCTOR_*", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "PYTORCH_JIT",
    "ENABLE_PYTORCH_EXECUTION_TRACE", "PYTORCH_NO_*",
    # Python
    "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHON_GIL", "PYTHONOPTIMIZE",
)  # fmt: skip
"""Variables that change CPU results. A star stands for any ending."""

_OPENMP = re.compile(r"lib(gomp|iomp5|omp)[-.\w]*\.so[.\d]*$")
_MALLOC = re.compile(r"lib(jemalloc|tcmalloc|mimalloc)[-.\w]*\.so[.\d]*$")
_LONG_FLAGS = ("CXX_FLAGS", "CUDA_FLAGS")


def collect() -> dict[str, object]:
    """All facts by name, ready for JSON. Imports torch, and IPEX only when `PERFGUARD_STACK=ipex`."""
    facts: dict[str, object] = {
        "python_version": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "glibc_version": _ask(lambda: " ".join(platform.libc_ver()).strip() or None),
        "ipex_version": _ask(lambda: importlib.metadata.version("intel_extension_for_pytorch")),
        "numpy_version": _ask(lambda: importlib.metadata.version("numpy")),
        "environment": _ask(lambda: _environment(os.environ)),
    }
    try:
        import torch

        if os.environ.get("PERFGUARD_STACK") == "ipex":
            import intel_extension_for_pytorch  # noqa: F401
    except BaseException as error:  # noqa: BLE001 - IPEX ends the process with SystemExit on old CPUs
        facts["problem"] = f"torch cannot be imported: {type(error).__name__}: {error}"
        return facts
    facts.update(_torch_facts(torch))
    libraries = _ask(_loaded_libraries)
    if libraries is not None:
        facts["openmp_runtimes"] = sorted(name for name in libraries if _OPENMP.search(name))
        facts["malloc_libraries"] = sorted(name for name in libraries if _MALLOC.search(name))
    return facts


def main() -> None:
    """Print the facts as one line of JSON, whatever the libraries print beside it."""
    with redirected(sys.stderr.fileno()):
        facts = collect()
    sys.stdout.write(json.dumps(facts) + "\n")


def _torch_facts(torch: Any) -> dict[str, object]:
    """What torch can be asked for; oneDNN and MKL name their code path in the header of their first output."""

    def convolve() -> None:
        image, weight = torch.ones(1, 16, 16, 16), torch.ones(16, 16, 3, 3)
        torch.ops.aten.mkldnn_convolution(image, weight, None, [0, 0], [1, 1], [1, 1], 1)

    def multiply() -> None:
        torch.mm(torch.ones(8, 8), torch.ones(8, 8))

    build: str = _ask(lambda: str(torch.__config__.show())) or ""
    asked: dict[str, Callable[[], object]] = {
        "torch_version": lambda: str(torch.__version__),
        "torch_git_version": lambda: str(torch.version.git_version),
        "torch_debug": lambda: bool(torch.version.debug),
        "torch_cxx11_abi": lambda: bool(torch.compiled_with_cxx11_abi()),
        "torch_build": lambda: _build_lines(build),
        "aten_isa": lambda: str(torch.backends.cpu.get_cpu_capability()),
        "onednn_version": lambda: _first(r"MKL-DNN v([\w.]+)|oneDNN v([\w.]+)", build),
        "onednn_isa": lambda: _first(r"info,cpu,isa:(.+)", _verbose_output(torch, "mkldnn", convolve)),
        "mkl_version": lambda: _first(r"Math Kernel Library Version ([\w.]+)", build),
        "mkl_isa": lambda: _first(r"architecture (.+?),? (?:Lnx|Win|OSX)\b", _verbose_output(torch, "mkl", multiply)),
        "intra_op_threads": lambda: int(torch.get_num_threads()),
        "inter_op_threads": lambda: int(torch.get_num_interop_threads()),
        "parallel_backend": lambda: _first(r"parallel backend: *(.+)", torch.__config__.parallel_info()),
        "flushes_denormals": lambda: flushes_denormals(torch),
        "float32_matmul_precision": lambda: str(torch.get_float32_matmul_precision()),
        "onednn_enabled": lambda: bool(torch.backends.mkldnn.enabled),
        "deterministic": lambda: bool(torch.are_deterministic_algorithms_enabled()),
    }
    return {name: _ask(question) for name, question in asked.items()}


def _ask(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception:  # noqa: BLE001 - versions differ in what they can be asked
        return None


def _environment(variables: Any) -> dict[str, str]:
    """The variables that are set; of paths only the file names, which say enough and name no home folder."""
    chosen = {}
    for name in sorted(variables):
        if any(name == known or (known.endswith("*") and name.startswith(known[:-1])) for known in ENVIRONMENT):
            words = re.split(r"([:\s,]+)", variables[name])
            chosen[name] = "".join(word.rpartition("/")[2] if "/" in word else word for word in words)
    return chosen


def _build_lines(build: str) -> list[str]:
    """The build summary: one setting a line, compiler flags left out."""
    lines: list[str] = []
    for line in build.splitlines():
        text = line.strip().lstrip("- ").rstrip()
        if text.startswith("Build settings:"):
            settings = re.findall(r"(\w+)=([^,]*),", text)
            lines.extend(f"{name}={value.strip()}" for name, value in settings if name not in _LONG_FLAGS)
        elif text:
            lines.append(text)
    return lines


def flushes_denormals(torch: Any) -> bool:
    """Whether this thread rounds denormals to zero."""
    return float(torch.full((1,), 1e-40).mul(1.0)[0]) == 0.0


def _loaded_libraries() -> list[str]:
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    paths = {line.split(None, 5)[5] for line in maps.splitlines() if len(line.split(None, 5)) == 6}
    return sorted({path.rpartition("/")[2] for path in paths if path.startswith("/")})


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return next((group.strip() for group in match.groups() if group), None) if match else None


def _verbose_output(torch: Any, backend: str, action: Callable[[], object]) -> str:
    """What a library prints to file descriptor 1 in its verbose mode; `sys.stdout` never sees it."""
    with tempfile.TemporaryFile() as file:
        with redirected(file.fileno()), torch.no_grad(), getattr(torch.backends, backend).verbose(1):
            action()
        file.seek(0)
        return file.read().decode("utf-8", "replace")


@contextmanager
def redirected(target: int) -> Iterator[None]:
    """Send what this process and those that it starts meanwhile print to file descriptor 1 to another descriptor."""
    saved = os.dup(1)
    _flush()
    try:
        os.dup2(target, 1)
        yield
    finally:
        _flush()
        os.dup2(saved, 1)
        os.close(saved)


def _flush() -> None:
    """Write out what Python and C still hold, so that it ends up on the side where it was printed."""
    import ctypes

    for stream in (sys.stdout, sys.__stdout__):
        with suppress(Exception):  # a script may have closed or replaced them
            stream.flush()  # type: ignore[union-attr]
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


if __name__ == "__main__":
    main()
