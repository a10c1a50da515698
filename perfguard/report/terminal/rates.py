"""Rates of computing and of moving data, for people."""

from __future__ import annotations

_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def format_flops(flops_per_s: float | None) -> str:
    """`23.4 GFLOP/s`; `-` for None."""
    return _rate(flops_per_s, "FLOP/s")


def format_bandwidth(bytes_per_s: float | None) -> str:
    """`11.2 GB/s`, decimal as bandwidths are; `-` for None."""
    return _rate(bytes_per_s, "B/s")


def _rate(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    for size, prefix in _STEPS:
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
