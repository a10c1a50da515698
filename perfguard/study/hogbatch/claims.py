"""The paper's claims, and this project's targets, judged by the runs of a study."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from scipy import special

from perfguard.records.facts import Fact, fact
from perfguard.study.hogbatch.evidence import HogbatchEvidence, TrainedRun
from perfguard.study.shapes.shape import ShapeOutcome

CPU_SHARES: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "covtype": {"hogbatch": (0.99, 0.96), "adaptive": (0.78, 0.52)},
    "w8a": {"hogbatch": (0.98, 0.98), "adaptive": (0.77, 0.55)},
    "delicious": {"hogbatch": (0.855, 0.98), "adaptive": (0.705, 0.60)},
    "real-sim": {"hogbatch": (0.99, 0.98), "adaptive": (0.81, 0.53)},
}
"""The paper's part of the updates that the CPU makes, on its server (K80) and in the cloud (V100), from its bars."""

TARGETS = frozenset({"hogbatch.against_pytorch", "hogbatch.simulated"})
"""Claims that are targets of this project; the others are the paper's."""
FASTEST = 0.65  # Target: time to the loss over PyTorch's best
LEVEL = 0.95


class Ratio(Struct, frozen=True, kw_only=True):
    """A geometric mean over seeds, with its interval."""

    factor: float
    lower: float
    upper: float
    seeds: int


class Claim(Struct, frozen=True, kw_only=True):
    """One claim on one shape, judged."""

    shape: str
    outcome: ShapeOutcome
    claim: Fact


def ratio_of(pairs: Sequence[tuple[float, float]], level: float = LEVEL) -> Ratio | None:
    """Numerator over denominator, by Student's t over the log-ratios of the seeds; None for fewer than two."""
    logs = [math.log(numerator / denominator) for numerator, denominator in pairs if numerator > 0 and denominator > 0]
    if len(logs) < 2:
        return None
    centre = statistics.fmean(logs)
    half = float(special.stdtrit(len(logs) - 1, (1 + level) / 2)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(factor=math.exp(centre), lower=math.exp(centre - half), upper=math.exp(centre + half), seeds=len(logs))


class Race(Struct, frozen=True, kw_only=True):
    """Two algorithms on one shape, seed by seed."""

    ratio: Ratio | None  # Seconds to the loss over those of the other one; None unless every run reached it
    reached: int  # Seeds with which this algorithm reached the loss
    others_reached: int  # Seeds with which the other one did
    seeds: int

    def below(self, limit: float) -> ShapeOutcome:
        """Whether the ratio is at most so large; a run that did not reach the loss in its time took longer."""
        if not self.seeds:
            return ShapeOutcome.NOT_MEASURED
        if self.ratio is not None:
            return _below(self.ratio, limit)
        if not self.reached and self.others_reached == self.seeds:
            return ShapeOutcome.FAILS
        is_alone = self.reached == self.seeds and not self.others_reached
        return ShapeOutcome.HOLDS if is_alone and limit >= 1 else ShapeOutcome.OPEN


def race(
    evidence: HogbatchEvidence, shape: str, algorithm: str, other: str, loss: float, *, level: float = LEVEL
) -> Race:
    """How two algorithms came to a loss."""
    others = {run.seed: run.time_to(loss) for run in evidence.raced(shape, other)}
    own = {run.seed: run.time_to(loss) for run in evidence.raced(shape, algorithm) if run.seed in others}
    pairs = [(own_s, others[seed]) for seed, own_s in own.items()]
    reached = [(one, two) for one, two in pairs if one is not None and two is not None]
    return Race(
        ratio=ratio_of(reached, level) if len(reached) == len(pairs) else None,
        reached=sum(one is not None for one, _ in pairs),
        others_reached=sum(two is not None for _, two in pairs),
        seeds=len(pairs),
    )


def claims_of(evidence: HogbatchEvidence) -> list[Claim]:
    """Every claim on every shape."""
    return [claim for shape in evidence.shapes for claim in _of_shape(evidence, shape)]


def _of_shape(evidence: HogbatchEvidence, shape: str) -> list[Claim]:
    return [
        _fastest(evidence, shape),
        *_sooner(evidence, shape),
        _epochs(evidence, shape),
        _balance(evidence, shape),
        _utilisation(evidence, shape),
        *_simulation(evidence, shape),
    ]


def _fastest(evidence: HogbatchEvidence, shape: str) -> Claim:
    """Target: the fastest algorithm needs at most 0.65 of PyTorch's time."""
    target, names = evidence.targets.get(shape, math.nan), ("cpu", "hogbatch", "adaptive")
    level = 1 - (1 - LEVEL) / len(names)  # Bonferroni's, since the best of them is judged
    races = {name: race(evidence, shape, name, "pytorch", target, level=level) for name in names}
    ratios = {name: found.ratio for name, found in races.items() if found.ratio is not None}
    if not ratios:
        outcomes = {found.below(FASTEST) for found in races.values()}
        outcome = outcomes.pop() if len(outcomes) == 1 else ShapeOutcome.OPEN
        return Claim(
            shape=shape, outcome=outcome, claim=fact("hogbatch.against_pytorch", algorithm="none", target=FASTEST)
        )
    name = min(ratios, key=lambda each: ratios[each].factor)
    return Claim(
        shape=shape,
        outcome=_below(ratios[name], FASTEST),
        claim=fact("hogbatch.against_pytorch", algorithm=name, target=FASTEST, **_values(ratios[name])),
    )


def _sooner(evidence: HogbatchEvidence, shape: str) -> list[Claim]:
    """Paper: with both devices the loss is reached sooner than with either alone."""
    target, found = evidence.targets.get(shape, math.nan), []
    for algorithm in ("hogbatch", "adaptive"):
        for alone in ("cpu", "large"):
            raced = race(evidence, shape, algorithm, alone, target)
            values: dict[str, Any] = _values(raced.ratio) if raced.ratio else {}
            if min(raced.reached, raced.others_reached) < raced.seeds:
                values |= {"reached": raced.reached, "alone_reached": raced.others_reached, "seeds": raced.seeds}
            claim = fact("hogbatch.sooner", algorithm=algorithm, alone=alone, **values)
            found.append(Claim(shape=shape, outcome=raced.below(1.0), claim=claim))
    return found


def _epochs(evidence: HogbatchEvidence, shape: str) -> Claim:
    """Paper: hogwild needs the fewest epochs, then adaptive, hogbatch, large batches."""
    target = evidence.targets.get(shape, math.nan)
    order = ("cpu", "adaptive", "hogbatch", "large")
    medians = {
        name: statistics.median([run.epochs_to(target) or math.inf for run in runs])
        for name in order
        if (runs := evidence.raced(shape, name))
    }
    values: dict[str, Any] = {f"{name}_epochs": count for name, count in medians.items() if math.isfinite(count)}
    claim = fact("hogbatch.epochs", **values)
    if len(medians) < len(order) or math.isnan(target):
        return Claim(shape=shape, outcome=ShapeOutcome.NOT_MEASURED, claim=claim)
    known = [medians[name] for name in order if math.isfinite(medians[name])]  # others ran out of time, not of epochs
    if not all(one <= two * 1.05 for one, two in pairwise(known)):
        return Claim(shape=shape, outcome=ShapeOutcome.FAILS, claim=claim)
    outcome = ShapeOutcome.HOLDS if len(known) == len(order) else ShapeOutcome.OPEN
    return Claim(shape=shape, outcome=outcome, claim=claim)


def _balance(evidence: HogbatchEvidence, shape: str) -> Claim:
    """Paper: the CPU makes nearly all updates in hogbatch, and far fewer in adaptive."""
    shares = {
        name: _median([_share(run, "cpu") for run in evidence.raced(shape, name)]) for name in ("hogbatch", "adaptive")
    }
    paper = CPU_SHARES.get(shape, {})
    claim = fact(
        "hogbatch.balance",
        hogbatch_share=shares["hogbatch"],
        adaptive_share=shares["adaptive"],
        paper_hogbatch=paper.get("hogbatch", ()),
        paper_adaptive=paper.get("adaptive", ()),
    )
    if shares["hogbatch"] is None or shares["adaptive"] is None:
        return Claim(shape=shape, outcome=ShapeOutcome.NOT_MEASURED, claim=claim)
    nearer = abs(shares["adaptive"] - 0.5) < abs(shares["hogbatch"] - 0.5)
    return Claim(shape=shape, outcome=_decided(nearer), claim=claim)


def _utilisation(evidence: HogbatchEvidence, shape: str) -> Claim:
    """Paper: adaptive uses the devices no better than hogbatch."""
    busy = {
        name: _median([statistics.fmean(run.busy.values()) for run in evidence.raced(shape, name) if run.busy])
        for name in ("hogbatch", "adaptive")
    }
    by_seed = {run.seed: statistics.fmean(run.busy.values()) for run in evidence.raced(shape, "hogbatch") if run.busy}
    adaptive = [run for run in evidence.raced(shape, "adaptive") if run.busy and run.seed in by_seed]
    ratio = ratio_of([(statistics.fmean(run.busy.values()), by_seed[run.seed]) for run in adaptive])
    values: dict[str, Any] = _values(ratio) if ratio else {}
    claim = fact("hogbatch.utilisation", hogbatch_share=busy["hogbatch"], adaptive_share=busy["adaptive"], **values)
    outcome = ShapeOutcome.NOT_MEASURED if ratio is None else _below(ratio, 1.0)
    return Claim(shape=shape, outcome=outcome, claim=claim)


def _simulation(evidence: HogbatchEvidence, shape: str) -> list[Claim]:
    """Target: the simulator is within 5 % of the shares and 10 % of the epoch times of live runs."""
    found = []
    for algorithm in ("hogbatch", "adaptive"):
        runs = [run for run in evidence.raced(shape, algorithm) if run.simulated_epoch_s > 0]
        shares = _median([abs(run.simulated_shares["cpu"] - _share(run, "cpu")) for run in runs])
        times = _median([abs(run.simulated_epoch_s / run.epoch_s - 1) for run in runs])
        claim = fact("hogbatch.simulated", algorithm=algorithm, difference_ratio=shares, epoch_ratio=times)
        outcome = ShapeOutcome.NOT_MEASURED
        if shares is not None and times is not None:
            outcome = _decided(shares <= 0.05 and times <= 0.10)
        found.append(Claim(shape=shape, outcome=outcome, claim=claim))
    return found


def _share(run: TrainedRun, group: str) -> float:
    total = sum(run.updates.values())
    return run.updates.get(group, 0) / total if total else math.nan


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) * 2 > len(values) else None


def _below(ratio: Ratio, limit: float) -> ShapeOutcome:
    if ratio.upper <= limit:
        return ShapeOutcome.HOLDS
    return ShapeOutcome.FAILS if ratio.lower > limit else ShapeOutcome.OPEN


def _decided(holds: bool) -> ShapeOutcome:  # noqa: FBT001 - a value
    return ShapeOutcome.HOLDS if holds else ShapeOutcome.FAILS


def _values(ratio: Ratio) -> dict[str, Any]:
    return {"factor": ratio.factor, "lower": ratio.lower, "upper": ratio.upper}
