"""Which blocks are left out because the host was disturbed; the rule never sees the arms' times.

Voiding by what the *host* did, not by what was measured, cannot favour an arm: under "no change" the blocks that stay
are as symmetric as all were.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
from msgspec import Struct

from perfguard.errors import MeasurementError
from perfguard.records.run import BlockConditions, Stage
from perfguard.records.run_data import RunData
from perfguard.records.verdict import Policy
from perfguard.stats.numeric import MAD_TO_SD

MAX_STEAL_RATIO = 0.05  # More than this share of the block's wall time stolen by the hypervisor voids the block

OUTLYING_SCALES = 4.0
"""Beyond the median by this many robust standard deviations is outlying. With three, 2 of 7 quiet blocks of a guest
were called disturbed now and then: the MAD of so few is often far too small."""

MIN_CONTROL_SCALE = 0.015
"""Floor of the control workload's robust SD, log scale: a block less than 6 % slow is never voided, however still the
others."""

MIN_SWITCHES_PER_S = 5.0
"""Fewer involuntary context switches than this beyond the typical block's never void a block: each costs microseconds,
at worst a time sample of one of hundreds of samples, which the trimmed mean cuts."""

MIN_FOREIGN_RATIO = 0.05
"""Other programs may take this much more of the measured CPUs than in the typical block before the block is voided."""

MIN_BLOCKS_FOR_OUTLIERS = 5  # Fewer blocks have no median worth calling normal; only the absolute limit applies
_Finding = tuple[int, float, str, float]  # The block, how far beyond its limit it is, the cause, and its value


class VoidedBlock(Struct, frozen=True, kw_only=True):
    """A block that is left out, and why."""

    block: int
    severity: float  # How far beyond its worst limit, 1 at the limit; orders the blocks
    causes: Mapping[str, float | int]
    """What was beyond its limit, worst first: `stolen_share`, `involuntary_switches`, `control_ratio` (how much slower
    than in the typical block), `foreign_share` (of the measured CPUs, taken by other programs)."""


class Voiding(Struct, frozen=True, kw_only=True):
    """What the arm-blind rule did to a run."""

    voided: tuple[VoidedBlock, ...]  # Left out, worst first
    spared: tuple[VoidedBlock, ...]  # Disturbed too, but kept because no more may be left out, worst first
    blocks_total: int
    allowed: int  # Blocks that the allowed share comes to

    @property
    def is_unstable(self) -> bool:
        """Whether more than the allowed share of the blocks was disturbed."""
        return len(self.voided) + len(self.spared) > self.allowed

    @property
    def blocks(self) -> frozenset[int]:
        """Numbers of the blocks left out."""
        return frozenset(block.block for block in self.voided)


def void_blocks(conditions: Sequence[BlockConditions], policy: Policy) -> Voiding:
    """Apply the rule: stolen time, involuntary switches, a slow control workload, load of other programs.

    Only *bad* directions count: a fast control workload or few switches void nothing. A signal that a block lacks is
    not held against it.

    There is one entry per block. At most the policy's share of them is voided, rounded to the nearest, and as many stay
    as a verdict needs: a disturbed block widens the interval, a missing one would leave the gate open.

    Raises:
        MeasurementError: A block is given twice, or a control workload sample is not a time.

    Source: Hampel identifier (median + k x 1.4826 MAD), Davies & Gather (1993), doi:10.1080/01621459.1993.10476339.
    """
    if len({entry.block for entry in conditions}) != len(conditions):
        raise MeasurementError("the conditions name a block twice; each block has one entry")
    findings: dict[int, list[tuple[float, str, float]]] = {}
    for block, severity, cause, value in (
        *_stolen(conditions),
        *_switched(conditions),
        *_slow(conditions),
        *_shared(conditions),
    ):
        findings.setdefault(block, []).append((severity, cause, value))
    disturbed = []
    for block, found in findings.items():
        worst_first = sorted(found, reverse=True)
        causes = {cause: value for _, cause, value in worst_first}
        disturbed.append(VoidedBlock(block=block, severity=worst_first[0][0], causes=causes))
    disturbed.sort(key=lambda entry: (-entry.severity, entry.block))
    allowed = math.floor(policy.max_void_fraction * len(conditions) + 0.5)
    most = min(allowed, max(len(conditions) - policy.min_blocks, 0))
    return Voiding(
        voided=tuple(disturbed[:most]), spared=tuple(disturbed[most:]), blocks_total=len(conditions), allowed=allowed
    )


def voided_blocks(data: RunData) -> frozenset[int]:
    """Numbers of the blocks that the rule leaves out of a recorded run; blocks have one numbering for all stages."""
    found: set[int] = set()
    for stage in Stage:
        with suppress(MeasurementError):  # a control workload that is no time: the gate says so
            found |= void_blocks(data.conditions(stage), Policy()).blocks
    return frozenset(found)


def _stolen(conditions: Sequence[BlockConditions]) -> Iterator[_Finding]:
    for entry in conditions:
        if entry.steal_ratio is not None and entry.steal_ratio > MAX_STEAL_RATIO:
            yield entry.block, entry.steal_ratio / MAX_STEAL_RATIO, "stolen_share", entry.steal_ratio


def _switched(conditions: Sequence[BlockConditions]) -> Iterator[_Finding]:
    known = [
        (e.block, e.involuntary_switches, e.duration_s)
        for e in conditions
        if e.involuntary_switches is not None and e.duration_s > 0
    ]
    if len(known) < MIN_BLOCKS_FOR_OUTLIERS:
        return
    # Counts grow with the block's length, so they are brought to the length of the typical block.
    typical_s = float(np.median([duration_s for _, _, duration_s in known]))
    counts = [switches * typical_s / duration_s for _, switches, duration_s in known]
    # Counts scatter by their root at least; without this floor one switch among zeros would void a block.
    floor = max(math.sqrt(max(1.0, float(np.median(counts)))), MIN_SWITCHES_PER_S * typical_s / OUTLYING_SCALES)
    for (block, switches, _), excess in zip(known, _excess(counts, floor), strict=True):
        if excess > 1:
            yield block, excess, "involuntary_switches", switches


def _slow(conditions: Sequence[BlockConditions]) -> Iterator[_Finding]:
    known = {entry.block: float(np.median(entry.control_s)) for entry in conditions if entry.control_s}
    if len(known) < MIN_BLOCKS_FOR_OUTLIERS:
        return
    if not all(math.isfinite(median_s) and median_s > 0 for median_s in known.values()):
        raise MeasurementError("a sample of the control workload is not a finite time above zero")
    log_s = np.log(list(known.values())).tolist()
    typical = float(np.median(log_s))
    for block, value, excess in zip(known, log_s, _excess(log_s, MIN_CONTROL_SCALE), strict=True):
        if excess > 1:
            yield block, excess, "control_ratio", math.expm1(value - typical)


def _shared(conditions: Sequence[BlockConditions]) -> Iterator[_Finding]:
    known = [(entry.block, entry.foreign_ratio) for entry in conditions if entry.foreign_ratio is not None]
    if len(known) < MIN_BLOCKS_FOR_OUTLIERS:
        return
    floor = MIN_FOREIGN_RATIO / OUTLYING_SCALES
    for (block, ratio), excess in zip(known, _excess([ratio for _, ratio in known], floor), strict=True):
        if excess > 1:
            yield block, excess, "foreign_share", ratio


def _excess(values: Sequence[float], min_scale: float) -> list[float]:
    """How far each value is beyond the typical one, 1 at the limit."""
    distances = np.asarray(values) - np.median(values)
    scale = max(min_scale, MAD_TO_SD * float(np.median(np.abs(distances))))
    excess: list[float] = (distances / (OUTLYING_SCALES * scale)).tolist()
    return excess
