"""How long the blocks of a suite take on a machine, and how that changes while cases get their answers and leave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePace:
    """What one case adds to blocks."""

    wall_s: float
    """Wall seconds of a block that it takes, typically: its set-up in both arms, warm-ups and samples."""
    stays: tuple[float, ...]
    """Chance that it is still measured in the n-th block of a gate that changes nothing in it, from the first block on;
    the last value holds for all later blocks."""

    def stay_in(self, block: int) -> float:
        """Chance that it is still measured in a block, counted from 1."""
        return self.stays[min(block, len(self.stays)) - 1] if self.stays else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The pace of a suite's gates."""

    block_s: float
    """Wall seconds of a block that holds every case; nan when unknown."""
    overhead_s: float
    """Wall seconds of a gate beside its blocks: arms, bundles, calibration of loops."""
    startup_s: float = math.nan
    """Wall seconds of a block beside its cases: starting processes, imports; nan when unknown, and then every case is
    reckoned to be measured in every block."""
    cases: Mapping[str, CasePace] = field(default_factory=dict)
    """By case id."""

    @property
    def knows_cases(self) -> bool:
        """Whether it is known what single cases take."""
        return math.isfinite(self.startup_s) and bool(self.cases)

    def blocks_within(self, budget_s: float, case_id: str | None = None) -> int:
        """Whole blocks that a budget holds; 0 where nothing is known.

        Args:
            budget_s: Wall seconds of the whole gate.
            case_id: The case that is measured to the end, while nothing has changed in the others, which leave as they
                do in gates of identical arms. None: every case is measured to the end.
        """
        if not self.block_s > 0:
            return 0
        left_s, last = budget_s - self.overhead_s, self._last_change(case_id)
        for blocks in range(last):
            taken_s = self._block_s(blocks + 1, case_id)
            if taken_s > left_s:
                return blocks
            left_s -= taken_s
        return last + max(0, math.floor(left_s / self._block_s(last + 1, case_id)))

    def minutes_for(self, blocks: int, case_id: str | None = None) -> float:
        """Minutes of a gate whose budget holds so many blocks; `case_id` as for `blocks_within`."""
        changing = min(blocks, self._last_change(case_id))
        changing_s = sum(self._block_s(number, case_id) for number in range(1, changing + 1))
        lasting_s = (blocks - changing) * self._block_s(changing + 1, case_id)
        return (self.overhead_s + changing_s + lasting_s) / 60.0

    def _last_change(self, case_id: str | None) -> int:
        """The block after which all blocks take equally long."""
        if case_id is None or not self.knows_cases:
            return 0
        return max(len(case.stays) for case in self.cases.values())

    def _block_s(self, block: int, case_id: str | None) -> float:
        """Wall seconds of a block, counted from 1."""
        if case_id is None or not self.knows_cases:
            return self.block_s
        return self.startup_s + sum(
            case.wall_s * (1.0 if name == case_id else case.stay_in(block)) for name, case in self.cases.items()
        )
