"""How steady the host is while a run is watched: canary, stolen time, blocks that the arm-blind rule leaves out."""

from __future__ import annotations

import statistics
from array import array
from bisect import insort

from perfguard.errors import MeasurementError
from perfguard.records.events import BlockFinished, CanaryTimed
from perfguard.records.run import BlockConditions, Stage
from perfguard.records.verdict import Policy

_MAX_VOID_FRACTION = Policy().max_void_fraction


class WatchedHost:
    """Conditions of the blocks so far."""

    def __init__(self) -> None:
        self.canary_ratio: float | None = None
        """The last canary over the typical one, minus 1; None before the first."""
        self.steal_ratio: float | None = None
        """Share of the last block's time that the hypervisor took; None where the host does not tell."""
        self._conditions: dict[Stage, dict[int, BlockConditions]] = {}
        self._voided: dict[Stage, frozenset[int]] = {}
        self._block_canary = array("d")
        self._canaries: list[float] = []

    @property
    def voided(self) -> frozenset[int]:
        """Blocks that are left out; blocks have one numbering for all stages."""
        return frozenset[int]().union(*self._voided.values())

    def begin_block(self) -> None:
        """The canaries from here on are another block's."""
        self._block_canary = array("d")

    def add_canary(self, event: CanaryTimed) -> None:
        """Take a canary into account."""
        self._block_canary.append(event.value_s)
        insort(self._canaries, event.value_s)
        typical_s = statistics.median(self._canaries)
        self.canary_ratio = event.value_s / typical_s - 1 if typical_s > 0 else None

    def finish_block(self, event: BlockFinished, stage: Stage) -> bool:
        """Apply the arm-blind rule to the block's stage; whether other blocks are left out than before."""
        from perfguard.stats.voiding import void_blocks

        self.steal_ratio = event.steal_ratio
        conditions = self._conditions.setdefault(stage, {})
        conditions[event.block] = BlockConditions(
            block=event.block,
            duration_s=event.duration_s,
            steal_ratio=event.steal_ratio,
            involuntary_switches=event.involuntary_switches,
            canary_s=(statistics.median(self._block_canary),) if self._block_canary else (),
        )
        try:
            voided = void_blocks(tuple(conditions.values()), _MAX_VOID_FRACTION).blocks
        except MeasurementError:  # a canary that is no time: the gate will say so
            voided = frozenset()
        is_other = voided != self._voided.get(stage, frozenset())
        self._voided[stage] = voided
        return is_other
