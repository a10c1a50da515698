"""What CPUs do at best: the fastest products of matrices, and the fastest passes over memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmCeiling:
    """A product of two square matrices."""

    dtype: str
    """`fp32`, `bf16` or `fp64`."""
    size: int
    """Rows and columns."""
    call_s: float
    """Seconds of the fastest product."""
    flops_per_s: float
    """Two floating-point operations for each multiplication with its addition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCeiling:
    """A pass over arrays in memory."""

    kernel: str
    """`copy` (reads one array, writes one) or `triad` (reads two, writes one)."""
    array_bytes: int
    """Size of each array."""
    call_s: float
    """Seconds of the fastest pass."""
    bytes_per_s: float
    """Bytes read and written by the program; what the caches fetch before a write is not counted, as in STREAM."""
