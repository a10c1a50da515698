"""The peers' decision rules: what each makes of given samples.

Every rule gives a *score*: by how much it thinks that the candidate is slower, as a ratio, or minus infinity where its
test finds no difference. A case is flagged where the score is above the rule's threshold. pyperf's and asv's scores
come from their own code; the others are re-implementations of what their documentation and source say.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyperf
from pyperf._compare import CompareData, CompareResult
from scipy import stats

from tests.proof.gates_against_peers.places import ASV_VENV, HERE, python_of
from tests.proof.gates_against_peers.stream import Design, Sample

NOT_SLOWER = -math.inf
Score = Callable[[Sample], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRule:
    """A peer's rule."""

    name: str
    """Of the tool, with what was chosen of its options."""
    score: Score
    """By how much the candidate is slower."""
    threshold: float
    """Scores above this are flagged."""
    design: Design
    """The order in which the tool measures by itself."""
    origin: str
    """`own code`, or `re-implemented` after what."""

    @property
    def designs(self) -> tuple[Design, ...]:
        """The orders in which it is shown samples: its own, and perfguard's."""
        return tuple(dict.fromkeys((self.design, Design.INTERLEAVED)))


def peer_rules(asv: Score) -> tuple[PeerRule, ...]:
    """All of them; `asv` answers with asv's own code."""
    sequential, rounds = Design.SEQUENTIAL, Design.ROUNDS
    return (
        PeerRule(
            name="pyperf compare_to --min-speed 2",
            score=pyperf_score,
            threshold=0.02,
            design=sequential,
            origin="own code",
        ),
        PeerRule(name="asv continuous", score=asv, threshold=0.1, design=rounds, origin="own code"),
        PeerRule(name="asv continuous -f 1.02", score=asv, threshold=0.02, design=rounds, origin="own code"),
        PeerRule(
            name="pytest-benchmark median:2%",
            score=median_score,
            threshold=0.02,
            design=sequential,
            origin="re-implemented: ratio of medians",
        ),
        PeerRule(
            name="pytest-benchmark min:5%",
            score=minimum_score,
            threshold=0.05,
            design=sequential,
            origin="re-implemented: ratio of minima",
        ),
        PeerRule(
            name="benchstat",
            score=benchstat_score,
            threshold=0.0,
            design=sequential,
            origin="re-implemented: Mann-Whitney, alpha 0.05, one value a process",
        ),
        PeerRule(
            name="criterion",
            score=criterion_score,
            threshold=0.01,
            design=sequential,
            origin="re-implemented: bootstrapped t, 0.05, noise threshold 1 %",
        ),
        PeerRule(
            name="torchbench 7 %",
            score=single_run_score,
            threshold=0.07,
            design=sequential,
            origin="re-implemented: one run an arm",
        ),
        PeerRule(
            name="github-action-benchmark 200 %",
            score=mean_score,
            threshold=1.0,
            design=sequential,
            origin="re-implemented: ratio of means",
        ),
    )


def pyperf_score(sample: Sample) -> float:
    """Student's t on all values of all processes at 95 %, then the ratio of the means.

    Source: pyperf 2.10, `_compare.py` and `_utils.py`, called here.
    """
    first, second = (_benchmark(processes) for processes in (sample.baseline, sample.candidate))
    result = CompareResult(CompareData("baseline", first), CompareData("candidate", second))
    return result.norm_mean - 1 if result.significant and result.norm_mean > 1 else NOT_SLOWER


def median_score(sample: Sample) -> float:
    """Ratio of the medians of all values.

    Source: pytest-benchmark 5, `utils.py`, PercentageRegressionCheck.
    """
    return statistics.median(_pooled(sample.candidate)) / statistics.median(_pooled(sample.baseline)) - 1


def minimum_score(sample: Sample) -> float:
    """Ratio of the smallest values. Source: as for `median_score`."""
    return min(_pooled(sample.candidate)) / min(_pooled(sample.baseline)) - 1


def mean_score(sample: Sample) -> float:
    """Ratio of the means.

    Source: github-action-benchmark, `src/write.ts`: alert where current over previous is above `alert-threshold`.
    """
    return statistics.fmean(_pooled(sample.candidate)) / statistics.fmean(_pooled(sample.baseline)) - 1


def single_run_score(sample: Sample) -> float:
    """Ratio of the medians of one process of each arm.

    Source: pytorch/benchmark, `regression_detector.py`: single values of two runs.
    """
    return statistics.median(sample.candidate[0]) / statistics.median(sample.baseline[0]) - 1


def benchstat_score(sample: Sample) -> float:
    """Ratio of the medians where a two-sided Mann-Whitney test at 0.05 finds a difference; one value a process.

    Source: golang.org/x/perf/benchmath, `AssumeNothing`.
    """
    baseline = [statistics.median(process) for process in sample.baseline]
    candidate = [statistics.median(process) for process in sample.candidate]
    if stats.mannwhitneyu(baseline, candidate, alternative="two-sided").pvalue >= 0.05:
        return NOT_SLOWER
    return statistics.median(candidate) / statistics.median(baseline) - 1


def criterion_score(sample: Sample, *, resamples: int = 1000, seed: int = 1) -> float:
    """Lower end of the 95 % bootstrap interval of the mean's change, where a bootstrapped t-test finds one at 0.05.

    Source: criterion.rs, `analysis/compare.rs` and `report.rs`: `p < significance_level`, then the whole interval above
    the noise threshold. 1000 resamples instead of 100,000.
    """
    baseline, candidate = np.array(_pooled(sample.baseline)), np.array(_pooled(sample.candidate))
    draw = np.random.default_rng(seed)
    observed = _t(baseline[None], candidate[None])[0]
    pooled = np.concatenate([baseline, candidate])
    mixed = draw.choice(pooled, size=(resamples, pooled.size))
    null = _t(mixed[:, : baseline.size], mixed[:, baseline.size :])
    if np.mean(np.abs(null) > abs(observed)) >= 0.05:
        return NOT_SLOWER
    first = draw.choice(baseline, size=(resamples, baseline.size)).mean(axis=1)
    second = draw.choice(candidate, size=(resamples, candidate.size)).mean(axis=1)
    return float(np.quantile(second / first, 0.025)) - 1


@contextmanager
def asv_process() -> Iterator[Score]:
    """asv's own statistics as a score, from a process of the environment that has asv.

    Raises:
        SystemExit: asv is not installed.
    """
    python = python_of(ASV_VENV)
    if not python.is_file():
        raise SystemExit("asv is not installed yet; run the sub-command `prepare` first")
    process = subprocess.Popen(
        [str(python), str(HERE / "asv_rule.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
    )

    def asv_score(sample: Sample) -> float:
        process.stdin.write(json.dumps([_pooled(sample.baseline), _pooled(sample.candidate)]) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{HERE / 'asv_rule.py'} ended with {process.wait()}")
        answer = json.loads(line)
        return answer["ratio"] - 1 if answer["different"] else NOT_SLOWER

    try:
        yield asv_score
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _t(baseline: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Welch's t of each row; what criterion bootstraps."""
    spread = baseline.var(axis=1, ddof=1) / baseline.shape[1] + candidate.var(axis=1, ddof=1) / candidate.shape[1]
    return (candidate.mean(axis=1) - baseline.mean(axis=1)) / np.sqrt(np.maximum(spread, 1e-300))


def _pooled(processes: tuple[tuple[float, ...], ...]) -> list[float]:
    return [value for process in processes for value in process]


def _benchmark(processes: tuple[tuple[float, ...], ...]) -> pyperf.Benchmark:
    metadata = {"name": "case", "loops": 1}
    return pyperf.Benchmark([pyperf.Run(list(v), metadata=metadata, collect_metadata=False) for v in processes])
