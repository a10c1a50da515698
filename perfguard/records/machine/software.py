"""The software stack of the interpreter under test; None always means unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfguard.records.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareFacts:
    """What the interpreter under test runs on."""

    python_version: str | None = None
    """`3.11.7`."""
    python_implementation: str | None = None
    """`CPython`, ..."""
    glibc_version: str | None = None
    """C library, `glibc 2.36`."""
    torch_version: str | None = None
    """None when torch cannot be imported."""
    torch_git_version: str | None = None
    """Commit that torch was built from."""
    torch_debug: bool | None = None
    """Whether torch is a debug build."""
    torch_cxx11_abi: bool | None = None
    """Whether torch uses the C++11 ABI."""
    torch_build: tuple[str, ...] | None = None
    """Lines of torch's build summary, long flags left out."""
    aten_isa: str | None = None
    """Effective vector level of torch's own kernels."""
    onednn_version: str | None = None
    """oneDNN inside torch."""
    onednn_isa: str | None = None
    """oneDNN's own sentence about the instruction set it uses."""
    mkl_version: str | None = None
    """MKL inside torch."""
    mkl_isa: str | None = None
    """MKL's own words about the instruction set it uses."""
    intra_op_threads: int | None = None
    """`torch.get_num_threads()` with the environment as it was."""
    inter_op_threads: int | None = None
    """`torch.get_num_interop_threads()`."""
    parallel_backend: str | None = None
    """`OpenMP`, ..."""
    openmp_runtimes: tuple[str, ...] | None = None
    """File names of the OpenMP libraries that are really loaded."""
    malloc_libraries: tuple[str, ...] | None = None
    """File names of allocators loaded beside the C library's."""
    ipex_version: str | None = None
    """Installed intel_extension_for_pytorch; None when there is none."""
    numpy_version: str | None = None
    """Installed NumPy."""
    flushes_denormals: bool | None = None
    """Whether this interpreter rounds denormal numbers to zero after importing torch."""
    float32_matmul_precision: str | None = None
    """`highest`, `high` or `medium`."""
    onednn_enabled: bool | None = None
    """Whether torch may use oneDNN."""
    deterministic: bool | None = None
    """Whether deterministic algorithms are forced."""
    environment: Mapping[str, str] | None = None
    """Variables that change CPU results, those that are set; paths cut to file names."""
    problem: Fact | None = None
    """Why torch could not be asked, one line."""
