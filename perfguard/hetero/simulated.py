"""A configuration run by the simulator: balance, utilisation and seconds of an epoch, as a live run has them, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from perfguard.hetero.algorithms import make_policy
from perfguard.hetero.coordinator import Coordinator
from perfguard.hetero.happenings import BatchChanged, EpochEnded
from perfguard.hetero.planning import plan_of
from perfguard.hetero.simulator import Speed, simulate
from perfguard.records.training import (
    Counters,
    Device,
    Kind,
    TrainingConfig,
    TrainingEpoch,
    TrainingOutcome,
    WorkerPlace,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What a run came to, whether live or simulated."""

    shares: Mapping[str, float]  # By group: part of all updates
    busy: Mapping[str, float]  # By group: part of its workers' time of training that was computing or copying
    batches: Mapping[str, int]  # By group: examples of the last request
    epoch_s: float  # Seconds of training an epoch, on average


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a simulation rests on; its speeds are those of a run or of a computer."""

    algorithm: str
    epochs: int
    examples: int
    source: str  # Of the examples, as in `DataConfig`
    run_id: str | None = None
    computer: str | None = None  # What it is
    faster: float | None = None  # Times that replicas are as fast as a hogwild worker, where that was asked for


def simulated(
    config: TrainingConfig,
    workers: Sequence[WorkerPlace],
    examples: int,
    speeds: Mapping[str, Speed],
    *,
    has_gpu: bool = False,
) -> Balance:
    """What a run comes to with these speeds by group.

    Raises:
        UsageError: Batches, data and workers do not fit.
    """
    endless = replace(config, target_loss=None, time_s=None)
    devices = {
        name: Device.CUDA if has_gpu and group.kind is Kind.REPLICA else Device.CPU
        for name, group in config.groups.items()
    }
    plan = plan_of(endless, workers, examples, devices)
    coordinator = Coordinator(plan, make_policy(config, plan.limits))
    happened = simulate(coordinator, {place.name: speeds[place.group] for place in workers})
    last = [each for each in happened if isinstance(each, EpochEnded)][-1]
    batches = {each.group: each.batch for each in happened if isinstance(each, BatchChanged)}
    groups = {place.name: place.group for place in workers}
    return _balance(last.updates, coordinator.counters, groups, batches, last.trained_s, last.epoch)


def live(epochs: Sequence[TrainingEpoch], outcome: TrainingOutcome, workers: Sequence[WorkerPlace]) -> Balance | None:
    """What a run came to; None before its first epoch."""
    if not epochs or not epochs[-1].epoch:
        return None
    last, groups = epochs[-1], {place.name: place.group for place in workers}
    found = _balance(last.updates, outcome.counters, groups, last.batches, last.trained_s, last.epoch)
    if not outcome.trained_s:
        return found
    # Workers' times hold those of the unfinished epoch, too.
    busy = {name: share * last.trained_s / outcome.trained_s for name, share in found.busy.items()}
    return dataclasses.replace(found, busy=busy)


def _balance(  # noqa: PLR0917 - two callers, here
    updates: Mapping[str, int],
    counters: Mapping[str, Counters],
    groups: Mapping[str, str],
    batches: Mapping[str, int],
    trained_s: float,
    epochs: int,
) -> Balance:
    total = sum(updates.values()) or 1
    busy = {group: [count.training_s for name, count in counters.items() if groups[name] == group] for group in updates}
    return Balance(
        shares={group: count / total for group, count in updates.items()},
        busy={group: sum(each) / len(each) / trained_s if trained_s else 0.0 for group, each in busy.items()},
        batches=batches,
        epoch_s=trained_s / epochs,
    )
