"""The software stack, from what the interpreter under test reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfguard.host.parsers.parsing import parse_words
from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import SoftwareFacts

_MAX_ITEMS = 200
_MAX_TEXT = 512

_TEXTS = (
    "python_version", "python_implementation", "glibc_version",
    "torch_version", "torch_git_version", "parallel_backend", "float32_matmul_precision",
    "aten_isa", "onednn_version", "onednn_isa", "mkl_version", "mkl_isa",
    "ipex_version", "numpy_version",
)  # fmt: skip
_SWITCHES = ("torch_debug", "torch_cxx11_abi", "flushes_denormals", "onednn_enabled", "deterministic")
_COUNTS = ("intra_op_threads", "inter_op_threads")
_LISTS = ("torch_build", "openmp_runtimes", "malloc_libraries")

ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")  # By a part of their file names


def decode_software(data: object) -> SoftwareFacts:
    """Facts from a worker's answer; whatever is missing or of the wrong kind is None."""
    if not isinstance(data, Mapping):
        return SoftwareFacts(problem=fact("host.interpreter_no_answer"))
    facts: dict[str, Any] = {name: _text(data.get(name)) for name in _TEXTS}
    facts |= {name: value if isinstance(value := data.get(name), bool) else None for name in _SWITCHES}
    facts |= {name: _count(data.get(name)) for name in _COUNTS}
    facts |= {name: _texts(data.get(name)) for name in _LISTS}
    problem_text = _text(data.get("problem"))
    problem = fact("host.interpreter_problem", error=problem_text) if problem_text else None
    return SoftwareFacts(**facts, problem=problem, environment=_environment(data.get("environment")))


def allocator(software: SoftwareFacts) -> str | None:
    """The allocator in use: one that was preloaded, else the C library's; None when unknown."""
    if software.malloc_libraries is None:
        return None
    return next((name for library in software.malloc_libraries for name in ALLOCATORS if name in library), "system")


def _text(value: object) -> str | None:
    return parse_words(value[:_MAX_TEXT]) if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20 else None


def _texts(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(words for item in value[:_MAX_ITEMS] if (words := _text(item)) is not None)


def _environment(value: object) -> dict[str, str] | None:
    if not isinstance(value, Mapping):
        return None
    pairs = ((_text(name), content) for name, content in list(value.items())[:_MAX_ITEMS])
    return {name: _text(content) or "" for name, content in sorted(pairs, key=str) if name and isinstance(content, str)}
