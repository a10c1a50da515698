"""The environment of a worker: what perfguard decides, what passes through, and the padding that keeps arms alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from perfguard.records.plan import EnvProfile

PASSED_THROUGH = (
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", "USER", "LOGNAME",
    "SSL_CERT_FILE", "CXX", "CC", "TORCHINDUCTOR_CACHE_DIR", "PERFGUARD_KERNEL_CACHE", "PERFGUARD_TASKS",
    "XDG_CACHE_HOME", "XDG_DATA_HOME", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_PLUGINS",
)  # fmt: skip
"""Variables that a worker needs to start at all; everything else is dropped, tokens included."""

_MEASURED = re.compile(
    r"^(OMP_|KMP_|GOMP_|MKL_|ONEDNN_|DNNL_|MKLDNN_|ATEN_|OPENBLAS_|MALLOC_|GLIBC_TUNABLES$|LD_PRELOAD$|THP_MEM_|TORCH|"
    r"PYTORCH_|IPEX_|TBB_|CCL_|_RJEM_|JEMALLOC_|TCMALLOC_|MIMALLOC_|PYTHONMALLOC$|PYTHONOPTIMIZE$)"
)
"""Variables known to change what PyTorch does on a CPU."""

_FOUR_GIB = 4 * 1024**3
_EIGHT_GIB = 8 * 1024**3
_TOP_PAD_BYTES = 256 * 1024**2

ALLOCATOR_TUNABLES = (
    f"glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold={_FOUR_GIB}:glibc.malloc.trim_threshold={_EIGHT_GIB}:"
    f"glibc.malloc.top_pad={_TOP_PAD_BYTES}"
)
"""Memory is taken once, in huge pages, and never given back: glibc's default trims and refaults between iterations,
which was the largest noise source on a 2-vCPU guest (LayerNorm 257-527 us against 240-247 us)."""

_OLD_GLIBC_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(_FOUR_GIB),
    "MALLOC_TRIM_THRESHOLD_": str(_EIGHT_GIB),
    "MALLOC_TOP_PAD_": str(_TOP_PAD_BYTES),
}
_STABLE = {
    "OMP_DYNAMIC": "FALSE",
    "MKL_DYNAMIC": "FALSE",
    # Intel's OpenMP runtime would bind threads again and spin for 200 ms after each region, into the other arm's
    # sample. libgomp's threads spin for some milliseconds, too, which workers wait for between the turns.
    # OMP_WAIT_POLICY stays unset: `passive` cost 70 % (LayerNorm).
    "KMP_AFFINITY": "disabled",
    "KMP_BLOCKTIME": "1",
}


def base_environment(
    inherited: Mapping[str, str],
    *,
    profile: EnvProfile,
    threads: int,
    glibc: tuple[int, int] | None,
    pass_through: Sequence[str] = (),
) -> dict[str, str]:
    """The environment that both arms start from, out of perfguard's own.

    The profile `stable` pins allocator, threads and OpenMP; `production` leaves the user's values alone and only fills
    in the thread count where none is given. `glibc` is None when the C library is unknown or another one.
    """
    names = {*PASSED_THROUGH, *pass_through}
    environment = {key: value for key, value in inherited.items() if key in names}
    if profile is EnvProfile.PRODUCTION:
        environment.update({key: value for key, value in inherited.items() if _MEASURED.match(key)})
        environment.setdefault("OMP_NUM_THREADS", str(threads))
    else:
        allocator = {"GLIBC_TUNABLES": ALLOCATOR_TUNABLES} if (glibc or (0, 0)) >= (2, 35) else _OLD_GLIBC_ALLOCATOR
        environment |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), **_STABLE, **allocator}
    environment.update(PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1", PYTHONUNBUFFERED="1", PYTHONFAULTHANDLER="1")
    return environment


def ignored_variables(inherited: Mapping[str, str], profile: EnvProfile) -> tuple[str, ...]:
    """Variables of perfguard's own environment that would have changed the measurement but are not passed on."""
    return tuple(sorted(key for key in inherited if profile is not EnvProfile.PRODUCTION and _MEASURED.match(key)))


def mismatched_threads(overrides: Sequence[tuple[str, str]], threads: int) -> tuple[tuple[str, str], ...]:
    """An arm's own thread counts that differ from the CPUs it is pinned to.

    They are measured as asked for, since such a setting may be what is under test.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return tuple((name, value) for name, value in overrides if name in names and value and value != str(threads))


def apply_overrides(environment: Mapping[str, str], overrides: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The environment with an arm's own variables; an empty value removes the variable."""
    own = dict(overrides)
    return {key: value for key, value in {**environment, **own}.items() if value or key not in own}


def pad_to_equal_size(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Both environments with a padding variable, so that their blocks on the stack are equally long.

    The size of the environment shifts the stack, and layout alone can move timings by per cents.
    Source: Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously Wrong!", ASPLOS 2009.
    """
    shorter_by = _size(second) - _size(first)
    return (
        {**first, "PERFGUARD_PAD": "x" * max(0, shorter_by)},
        {**second, "PERFGUARD_PAD": "x" * max(0, -shorter_by)},
    )


def enlarge(environment: Mapping[str, str], extra_bytes: int) -> dict[str, str]:
    """The environment with a longer padding variable."""
    return {**environment, "PERFGUARD_PAD": environment.get("PERFGUARD_PAD", "") + "x" * extra_bytes}


def _size(environment: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) + 2 for key, value in environment.items())
