"""What these CPUs can do at best, measured with torch's own kernels: matrix products, and streams through memory.

Best of repeated runs, not their median: a ceiling is what the machine can do when nothing is in the way.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from perfguard.records.protocol import Message
from perfguard.records.steps.ceilings import GemmCeiling, StreamCeiling
from perfguard.worker.profiling.replay import time_call

GEMM_SIZES = (256, 512, 1024, 2048)
"""Products of square matrices; small ones suffer from packing, large ones from nothing but their time."""

_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp64": "float64"}
_GEMM_BUDGET_S = 0.5
_STREAM_BUDGET_S = 1.0
_LONGEST_CALL_S = 0.5
"""A size is left out when it would take longer than this, as on CPUs that only emulate a dtype."""
_BEYOND_CACHE = 4  # Arrays are this many times as large as the last-level cache. Source: STREAM's run rules.
_SMALLEST_ARRAY_BYTES = 64 * 1024**2
_MEMORY_RATIO = 0.125  # Largest part of the free memory for one of the three arrays
_ELEMENT_BYTES = 4


def answer(command: Message) -> Message:
    """The fields of the reply to a command with `dtypes` and, where the parent knows better, `cache_bytes`."""
    import torch

    cache_bytes = command.get("cache_bytes") or last_level_cache_bytes()
    array_bytes = stream_array_bytes(cache_bytes, free_memory_bytes())
    return {
        "gemms": [asdict(gemm) for gemm in measure_gemms(command["dtypes"], GEMM_SIZES)],
        "streams": [asdict(stream) for stream in measure_streams(array_bytes)],
        "cache_bytes": cache_bytes,
        "is_beyond_caches": is_beyond_caches(array_bytes, cache_bytes),
        "threads": torch.get_num_threads(),
        "affinity": sorted(os.sched_getaffinity(0)),
    }


def measure_gemms(dtypes: Sequence[str], sizes: Sequence[int]) -> Iterator[GemmCeiling]:
    """Products of each dtype and size, ascending, until one would take too long.

    Raises KeyError: A dtype is none of `fp32`, `bf16`, `fp64`.
    """
    import torch

    for dtype in dtypes:
        expected_s = 0.0
        for size, after in itertools.zip_longest(sizes, sizes[1:]):
            if expected_s > _LONGEST_CALL_S:
                break
            shape, kind = (size, size), getattr(torch, _DTYPES[dtype])
            operands = [torch.full(shape, 0.5, dtype=kind).uniform_() for _ in range(3)]
            call_s = _fastest(partial(torch.mm, *operands[:2], out=operands[2]), _GEMM_BUDGET_S)
            expected_s = call_s * ((after or size) / size) ** 3
            yield GemmCeiling(dtype=dtype, size=size, call_s=call_s, flops_per_s=2 * size**3 / call_s)


def measure_streams(array_bytes: int) -> Iterator[StreamCeiling]:
    """Copy and triad over three arrays of a size; `stream_array_bytes` gives a fitting one."""
    import torch

    elements = array_bytes // _ELEMENT_BYTES
    # Written by all threads, so that on a machine with several memory nodes each finds its part nearby.
    first, second, target = (torch.full((elements,), 0.5, dtype=torch.float32) for _ in range(3))
    kernels: tuple[tuple[str, int, Callable[[], object]], ...] = (
        ("copy", 2, lambda: target.copy_(first)),
        ("triad", 3, lambda: torch.add(first, second, alpha=3.0, out=target)),
    )
    size_bytes = elements * _ELEMENT_BYTES
    for name, arrays, kernel in kernels:
        call_s = _fastest(kernel, _STREAM_BUDGET_S)
        bytes_per_s = arrays * size_bytes / call_s
        yield StreamCeiling(kernel=name, array_bytes=size_bytes, call_s=call_s, bytes_per_s=bytes_per_s)


def stream_array_bytes(cache_bytes: int, free_bytes: int) -> int:
    """Size of an array that is well beyond the caches, or as large as the free memory allows."""
    wanted = max(_BEYOND_CACHE * cache_bytes, _SMALLEST_ARRAY_BYTES)
    return min(wanted, int(free_bytes * _MEMORY_RATIO)) // _ELEMENT_BYTES * _ELEMENT_BYTES


def is_beyond_caches(array_bytes: int, cache_bytes: int) -> bool:
    """Whether a stream over such arrays measures memory, not caches."""
    return array_bytes >= _BEYOND_CACHE * cache_bytes


def last_level_cache_bytes(root: Path = Path("/")) -> int:
    """Bytes of the last-level caches of the CPUs that this process may run on; 0 where the kernel does not say."""
    caches: dict[str, int] = {}
    for cpu in os.sched_getaffinity(0):
        found = sorted(_caches_of(root / f"sys/devices/system/cpu/cpu{cpu}/cache"))
        caches.update({shared_by: size_bytes for _, shared_by, size_bytes in found[-1:]})
    return sum(caches.values())


def free_memory_bytes(root: Path = Path("/")) -> int:
    """Memory that can be had without swapping; 1 GiB where the kernel does not say."""
    for line in (root / "proc/meminfo").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return 1024**3


def _caches_of(folder: Path) -> Iterator[tuple[int, str, int]]:
    """Level, CPUs that share it, and bytes of each data cache of a CPU."""
    for cache in folder.glob("index*"):
        names = ("type", "level", "shared_cpu_list", "size")
        try:
            kind, level, shared_by, size = ((cache / name).read_text(encoding="ascii").strip() for name in names)
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            yield int(level), shared_by, int(size[:-1]) * 1024


def _fastest(call: Callable[[], object], budget_s: float) -> float:
    import torch

    with torch.no_grad():
        return min(time_call(call, budget_s=budget_s))
