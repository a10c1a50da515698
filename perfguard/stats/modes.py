"""Cases with two speeds: each process picks a fast or a slow mode at its start, by layout or allocation, and keeps it.

Both arms of a block are processes of their own, so they pick independently. A block's log-ratio is then about `-s`, 0
or `+s`, where `s` is the distance of the modes, and the block says which arm was slow, free of the machine's drift:
what both arms share cancels. Levels are used only to tell "both slow" from "both fast" where the ratio is about 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace
from scipy import special

from perfguard.stats.paired import FloatArray

BoolArray = npt.NDArray[np.bool_]
MIN_BLOCKS = 6  # Fewer blocks, twelve processes, show no modes
MIN_CLUSTER = 3  # Blocks that must have their arms in different modes, and blocks that must have them in the same one
MIN_SHARE = 0.1  # The same as a share of the blocks
MIN_SEPARATION = 3.0
"""Ashman's D of the clusters of log-ratios must be above this; 2 is his limit of a clean separation."""
MIN_EVIDENCE = 10.0
"""Least difference of the information criteria, "very strong" (Kass & Raftery). Simulated rates for one mode, 1000 runs
each of 6 to 60 blocks: at most 0.8 % for normal noise, 0.9 % for t4, 1.2 % where a twentieth of the samples is ten
times as noisy; with 6 it would be 2.6 %."""

_T_DEGREES = 3.0
_T_LOG_CONSTANT = math.lgamma((_T_DEGREES + 1) / 2) - math.lgamma(_T_DEGREES / 2) - math.log(_T_DEGREES * math.pi) / 2
_T_STEPS = 30
_TINY = 1e-30


class Modes(Struct, frozen=True, kw_only=True):
    """Two modes, and which arm was in which in every block."""

    separation: float  # Log-ratio of the slow mode over the fast one, above 0
    evidence: float  # How far the information criterion of two modes lies under that of one
    baseline_slow: tuple[bool, ...]  # Whether the baseline was in its slow mode, by block in the order given
    candidate_slow: tuple[bool, ...]  # The same for the candidate

    @property
    def same(self) -> tuple[bool, ...]:
        """Whether both arms were in the same mode, by block."""
        return tuple(b == c for b, c in zip(self.baseline_slow, self.candidate_slow, strict=True))

    def p_mix(self) -> float:
        """Two-sided p of H0 `both arms pick the slow mode equally often`: the exact sign test over unequal blocks.

        Source: McNemar (1947), doi:10.1007/BF02295996, in its exact form.
        """
        pairs = list(zip(self.baseline_slow, self.candidate_slow, strict=True))
        moved = sorted(pairs.count(pair) for pair in ((False, True), (True, False)))
        return min(1.0, 2 * float(special.bdtr(moved[0], sum(moved), 0.5)))


class _Clusters(Struct, frozen=True):
    """A split of the sorted log-ratios into lower, middle and upper ones, equally far apart."""

    below: int
    middle: int
    above: int
    centre: float
    separation: float
    criterion: float
    spread: float


def find_modes(log_ratios: Sequence[float], levels: Sequence[float]) -> Modes | None:
    """The two modes of a case; None where its blocks show one.

    Log-ratios, candidate over baseline, and levels, the mean of both arms' log times, have the shape `(blocks,)`, in
    the order the blocks ran; levels may drift.

    Source: the integrated completed likelihood, Biernacki, Celeux & Govaert (2000), doi:10.1109/34.865189, over all
        splits, against the better of a normal distribution and Student's t; Ashman, Bird & Zepf (1994),
        doi:10.1086/117248, for the separation; Kass & Raftery (1995), doi:10.1080/01621459.1995.10476572.
    Assumes: arms pick their modes independently of each other; noise inside the modes is the same in both.
    """
    ratios = np.asarray(log_ratios, dtype=np.float64)
    if ratios.size < MIN_BLOCKS:
        return None
    clusters = _best_clusters(np.sort(ratios))
    if clusters.separation <= MIN_SEPARATION * clusters.spread:
        return None
    # One mode: the better of a normal distribution and Student's t, each with two parameters.
    normal = float(_normal_likelihood(np.maximum(np.array([ratios.var()]), _TINY), ratios.size)[0])
    evidence = 2 * math.log(ratios.size) - 2 * max(normal, _t_likelihood(ratios)) - clusters.criterion
    if evidence < MIN_EVIDENCE:
        return None
    clusters = _nearest_to_no_shift(clusters)
    ranks = np.argsort(np.argsort(ratios, kind="stable"), kind="stable")
    baseline_only, candidate_only = ranks < clusters.below, ranks >= ratios.size - clusters.above
    both = _both_slow(np.asarray(levels, dtype=np.float64), baseline_only | candidate_only, clusters.separation)
    return Modes(
        separation=clusters.separation,
        evidence=evidence,
        baseline_slow=tuple((baseline_only | both).tolist()),
        candidate_slow=tuple((candidate_only | both).tolist()),
    )


def _best_clusters(ratios: FloatArray) -> _Clusters:
    """The split with the lowest criterion among all that have enough blocks on both sides."""
    size = ratios.size
    cuts = np.arange(size + 1)
    first, last = np.meshgrid(cuts, cuts, indexing="ij")
    least = max(MIN_CLUSTER, math.ceil(MIN_SHARE * size))
    allowed = (last - first >= least) & (size - (last - first) >= least)
    first, last = first[allowed], last[allowed]
    below, middle, above = first, last - first, size - last
    # Least squares of `centre + separation * z` with z = -1, 0, 1, for all splits at once.
    sums = np.concatenate([[0.0], np.cumsum(ratios)])
    total, contrast = sums[size], (sums[size] - sums[last]) - sums[first]
    lean, unequal = above - below, above + below
    determinant = size * unequal - lean * lean
    centre = (unequal * total - lean * contrast) / determinant
    separation = (size * contrast - lean * total) / determinant
    residual = np.maximum(float(ratios @ ratios) - centre * total - separation * contrast, _TINY)
    parameters = 3 + (below > 0).astype(int) + (above > 0).astype(int)
    counts = np.array([below, middle, above])
    entropy = (counts * np.log(np.maximum(counts, 1) / size)).sum(axis=0)
    fit = entropy + _normal_likelihood(residual / size, size)
    criterion = np.where(separation > 0, parameters * math.log(size) - 2 * fit, np.inf)
    best = int(np.argmin(criterion))
    return _Clusters(
        below=int(below[best]),
        middle=int(middle[best]),
        above=int(above[best]),
        centre=float(centre[best]),
        separation=float(separation[best]),
        criterion=float(criterion[best]),
        spread=math.sqrt(float(residual[best]) / (size - 2)),
    )


def _nearest_to_no_shift(clusters: _Clusters) -> _Clusters:
    """With two clusters only, either can be the blocks with equal arms; the smaller shift within the modes is meant."""
    below, middle, above = clusters.below, clusters.middle, clusters.above
    if below and above:
        return clusters
    if below == 0:
        below, middle, above, shift = middle, above, 0, clusters.separation
    else:
        below, middle, above, shift = 0, below, middle, -clusters.separation
    centre = clusters.centre + shift
    if abs(clusters.centre) <= abs(centre):
        return clusters
    return replace(clusters, below=below, middle=middle, above=above, centre=centre)


def _both_slow(levels: FloatArray, unequal: BoolArray, separation: float) -> BoolArray:
    """Where equal arms were both slow: the choice that leaves the machine's own level with the shortest path.

    The level of a block lies above the machine's by the separation where both arms are slow, and by half of it where
    one is. A drift or a step of the machine costs its own length once, whatever is chosen.
    """
    offsets = np.where(unequal[:, None], separation / 2, [0.0, separation])  # unequal arms: the same twice, no choice
    machine = levels[:, None] - offsets
    costs, choices = np.zeros(2), []
    for before, now in pairwise(machine):
        paths = costs[None, :] + np.abs(now[:, None] - before[None, :])
        choices.append(paths.argmin(axis=1))
        costs = paths.min(axis=1)
    states = [int(costs.argmin())]
    for chosen in reversed(choices):
        states.append(int(chosen[states[-1]]))
    both_slow: BoolArray = np.array(states[::-1]) == 1
    return both_slow


def _t_likelihood(ratios: FloatArray) -> float:
    """Log-likelihood of Student's t with three degrees of freedom, its place and scale fitted by reweighting."""
    centre = float(np.median(ratios))
    scale = max(float(np.median(np.abs(ratios - centre))), math.sqrt(_TINY))
    for _ in range(_T_STEPS):
        weights = (_T_DEGREES + 1) / (_T_DEGREES + ((ratios - centre) / scale) ** 2)
        centre = float(weights @ ratios / weights.sum())
        scale = max(math.sqrt(float(np.mean(weights * (ratios - centre) ** 2))), math.sqrt(_TINY))
    kernel = (_T_DEGREES + 1) / 2 * np.log1p(((ratios - centre) / scale) ** 2 / _T_DEGREES)
    return ratios.size * (_T_LOG_CONSTANT - math.log(scale)) - float(kernel.sum())


def _normal_likelihood(variances: FloatArray, size: int) -> FloatArray:
    likelihood: FloatArray = -size / 2 * (math.log(2 * math.pi) + np.log(variances) + 1)
    return likelihood
