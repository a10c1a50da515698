"""How many blocks a gate of some length holds, and how long some blocks take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfguard.model.calibration import AAGate


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The pace of a suite on one machine."""

    block_s: float
    """Wall seconds of a block that holds every case; nan when unknown."""
    overhead_s: float
    """Wall seconds of a gate beside its blocks: arms, bundles, calibration of loops."""

    @classmethod
    def of(cls, gates: Sequence[AAGate]) -> Pace:
        """The typical pace of recorded gates."""
        return cls(
            block_s=statistics.median(gate.block_s for gate in gates) if gates else math.nan,
            overhead_s=statistics.median(gate.overhead_s for gate in gates) if gates else math.nan,
        )

    def blocks_within(self, budget_s: float) -> int:
        """Whole blocks that a budget holds; 0 where nothing is known."""
        if not self.block_s > 0:
            return 0
        return max(0, math.floor((budget_s - self.overhead_s) / self.block_s))

    def minutes_for(self, blocks: int) -> float:
        """Minutes of a gate whose budget holds so many blocks."""
        return (self.overhead_s + blocks * self.block_s) / 60.0
