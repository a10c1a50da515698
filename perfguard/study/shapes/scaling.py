"""Table 2, threads and ranks, and Fig. 7, convergence by batch size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from perfguard.records.facts import fact
from perfguard.study.evidence import RankCell, StudyEvidence
from perfguard.study.paper import Convergence
from perfguard.study.shapes.shape import Figure, JudgedClaim, ShapeOutcome, decided


def ranks_shape(cells: Sequence[RankCell], evidence: StudyEvidence) -> JudgedClaim:
    """With equally many cores, more ranks of fewer threads are faster: for every two neighbouring cells."""
    by_cores: dict[int, list[RankCell]] = {}
    for cell in cells:
        by_cores.setdefault(cell.threads * cell.ranks, []).append(cell)
    compared = [sorted(group, key=lambda cell: cell.ranks) for group in by_cores.values() if len(group) > 1]
    pairs = [pair for group in compared for pair in itertools.pairwise(group)]
    gains = [_gain(fewer, more) for fewer, more in pairs]
    won = sum(low > 0 for low, _ in gains)
    claim = fact("study.ranks_win", pairs=len(pairs) or None, won=won)
    if not pairs:
        reason = fact("study.needs_ranks", cpus=len(evidence.machine.cpus))
        return JudgedClaim(figure=Figure.RANKS, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=(reason,))
    has_loss = any(high < 0 for _, high in gains)
    outcome = decided(not has_loss) if has_loss or won == len(pairs) else ShapeOutcome.OPEN
    why = (fact("study.few_cpus", cpus=max(by_cores)),) if outcome is ShapeOutcome.FAILS else ()
    return JudgedClaim(figure=Figure.RANKS, outcome=outcome, claim=claim, reasons=why)


def _gain(fewer: RankCell, more: RankCell) -> tuple[float, float]:
    """Ends of the 95 % interval of log(throughput of more ranks / of fewer), by Welch's t over rounds.

    Infinite where a cell has one round.
    """
    gain = math.log(more.throughput_per_s / fewer.throughput_per_s)
    if min(fewer.rounds, more.rounds) < 2:
        return -math.inf, math.inf
    parts = [((cell.sd_ratio or 0.0) ** 2 / cell.rounds, cell.rounds - 1) for cell in (fewer, more)]
    variance = sum(part for part, _ in parts)
    if not variance:
        return gain, gain
    freedom = variance**2 / sum(part**2 / max(1, degrees) for part, degrees in parts)
    half = -float(special.stdtrit(freedom, 0.025)) * math.sqrt(variance)
    return gain - half, gain + half


def convergence_shape(points: Convergence) -> JudgedClaim:
    """A larger batch needs more epochs: the fitted line rises, and the largest batch needs the most."""
    slope, _ = fitted(points)
    largest = points.ratio[-1]
    claim = fact(
        "study.convergence",
        benchmark=points.benchmark,
        batch_factor=points.batch[-1] / points.batch[0],
        factor=largest,
        slope=slope,
    )
    return JudgedClaim(
        figure=Figure.CONVERGENCE, outcome=decided(slope > 0 and largest == max(points.ratio)), claim=claim
    )


def fitted(points: Convergence) -> tuple[float, float]:
    """Slope and intercept of the least-squares line of ratio over normalised batch size."""
    x = np.array(points.batch) / points.batch[0]
    slope, intercept = np.polyfit(x, np.array(points.ratio), 1)
    return float(slope), float(intercept)
