"""What the host did while a block ran: stolen time of the measured CPUs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_STEAL_FIELD = 7
"""Index of `steal` among the numbers of a /proc/stat cpu line. Source: proc_stat(5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StealSnapshot:
    """Stolen seconds of each CPU since boot."""

    stolen_s: dict[int, float]
    """By CPU number; empty where the kernel does not tell."""


def read_steal(root: Path = Path("/")) -> StealSnapshot:
    """Stolen time now."""
    stolen: dict[int, float] = {}
    try:
        text = (root / "proc" / "stat").read_text(encoding="ascii", errors="replace")
        tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        for line in text.splitlines():
            name, *numbers = line.split()
            if name.startswith("cpu") and name != "cpu" and len(numbers) > _STEAL_FIELD:
                stolen[int(name[3:])] = int(numbers[_STEAL_FIELD]) * tick_s
    except (OSError, ValueError):
        return StealSnapshot(stolen_s={})
    return StealSnapshot(stolen_s=stolen)


def steal_ratio(before: StealSnapshot, after: StealSnapshot, cpus: tuple[int, ...], elapsed_s: float) -> float | None:
    """Stolen over wall time of the worst measured CPU; None where unknown."""
    shares = [
        (after.stolen_s[cpu] - before.stolen_s[cpu]) / elapsed_s
        for cpu in cpus
        if cpu in before.stolen_s and cpu in after.stolen_s and elapsed_s > 0
    ]
    return max(shares, default=None)
