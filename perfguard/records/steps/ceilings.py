"""What the CPUs do at best, kernel by kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmCeiling:
    """A product of two square matrices."""

    dtype: str  # `fp32`, `bf16` or `fp64`
    size: int  # Rows and columns
    call_s: float  # Seconds of the fastest product
    flops_per_s: float  # Two floating-point operations for each multiplication with its addition


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCeiling:
    """A pass over arrays in memory."""

    kernel: str  # `copy` (reads one array, writes one) or `triad` (reads two, writes one)
    array_bytes: int
    call_s: float  # Seconds of the fastest pass
    bytes_per_s: float  # Read and written by the program, without fetches before writes, as in STREAM
