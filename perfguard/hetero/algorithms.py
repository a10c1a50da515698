"""Algorithms by name: which groups of workers train, and which policy decides their batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfguard.errors import UsageError, did_you_mean
from perfguard.hetero.policies import AdaptiveBatches, AdditiveBatches, BatchLimits, BatchPolicy, FixedBatches
from perfguard.records.training import GroupConfig, Kind, TrainingConfig

ENTRY_POINTS = "perfguard.hetero_policies"
"""Group of entry points: each a function of a `TrainingConfig` and the limits by group that returns a `BatchPolicy`."""

MakePolicy = Callable[[TrainingConfig, Mapping[str, BatchLimits]], BatchPolicy]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One way to train."""

    doc: str
    kinds: frozenset[Kind]  # Groups that take part
    make_policy: MakePolicy


def _fixed(_: TrainingConfig, limits: Mapping[str, BatchLimits]) -> BatchPolicy:
    return FixedBatches(limits=limits)


def _adaptive(config: TrainingConfig, limits: Mapping[str, BatchLimits]) -> BatchPolicy:
    hogwild = frozenset(name for name in limits if config.groups[name].kind is Kind.HOGWILD)
    return AdaptiveBatches(limits=limits, alpha=config.alpha, beta=config.beta, discounted=hogwild)


def _additive(config: TrainingConfig, limits: Mapping[str, BatchLimits]) -> BatchPolicy:
    return AdditiveBatches(limits=limits, step=config.step, period=config.period)


_ALL = frozenset({Kind.HOGWILD, Kind.REPLICA})
ALGORITHMS: Mapping[str, Algorithm] = {
    "pytorch": Algorithm(
        doc="torch.optim.SGD in one process, for comparison", kinds=frozenset({Kind.STREAM}), make_policy=_fixed
    ),
    "ddp": Algorithm(
        doc="DistributedDataParallel over gloo, for comparison", kinds=frozenset({Kind.DDP}), make_policy=_fixed
    ),
    "cpu": Algorithm(doc="hogwild workers alone", kinds=frozenset({Kind.HOGWILD}), make_policy=_fixed),
    "large": Algorithm(doc="replicas with large batches alone", kinds=frozenset({Kind.REPLICA}), make_policy=_fixed),
    "hogbatch": Algorithm(doc="both, with fixed batches (CPU+GPU Hogbatch)", kinds=_ALL, make_policy=_fixed),
    "adaptive": Algorithm(
        doc="both, batches follow the share of updates (Adaptive Hogbatch)", kinds=_ALL, make_policy=_adaptive
    ),
    "additive": Algorithm(
        doc="both, batches change by a step after each period (the successor's rule)", kinds=_ALL, make_policy=_additive
    ),
}


def kinds_of(name: str) -> frozenset[Kind]:
    """The groups that an algorithm trains with; all of them for one of an entry point."""
    return ALGORITHMS[name].kinds if name in ALGORITHMS else _ALL


def _entry_points(**chosen: str) -> Any:
    from importlib.metadata import entry_points  # 30 ms, which commands that only show a training need not wait for

    return entry_points(**chosen)


def require_algorithm(name: str) -> None:
    """Raise UsageError where no algorithm has this name."""
    if name in ALGORITHMS:
        return
    own = [point.name for point in _entry_points(group=ENTRY_POINTS)]
    known = [*ALGORITHMS, *own]
    if name not in known:
        hint = did_you_mean(name, known)
        raise UsageError(
            f"algorithm {name!r} is unknown; {hint}choose from {', '.join(known)}, or register a policy as an entry "
            f"point of {ENTRY_POINTS!r}"
        )


def make_policy(config: TrainingConfig, limits: Mapping[str, BatchLimits]) -> BatchPolicy:
    """The policy of a run's algorithm.

    Raises:
        UsageError: There is none of this name, or it cannot be made.
    """
    require_algorithm(config.algorithm)
    if config.algorithm in ALGORITHMS:
        return ALGORITHMS[config.algorithm].make_policy(config, limits)
    (point, *_) = _entry_points(group=ENTRY_POINTS, name=config.algorithm)
    try:
        policy: BatchPolicy = point.load()(config, limits)
    except Exception as error:  # whatever foreign code raises
        raise UsageError(
            f"policy {config.algorithm!r} ({point.value}) failed: {type(error).__name__}: {error}"
        ) from error
    return policy


def limits_of(group: GroupConfig) -> BatchLimits:
    """The limits of a group's batches."""
    return BatchLimits(
        initial=group.batch,
        minimum=group.batch if group.minimum is None else group.minimum,
        maximum=group.batch if group.maximum is None else group.maximum,
    )
