"""What measuring an item gives, whichever item it is."""

from __future__ import annotations

from msgspec import Struct

from perfguard.study.evidence import ClassesCompared, KernelPair, ModelDonut, Scaling, ToggleCompared

LEVEL = 0.95  # Confidence of the intervals
Item = ModelDonut | ClassesCompared | KernelPair | ToggleCompared | Scaling


class Measured(Struct, frozen=True, kw_only=True):
    """One item with what it was measured on."""

    value: Item
    torch: str  # Version of the environment under test
    cpus: tuple[int, ...]  # CPUs that it ran on
