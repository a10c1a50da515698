"""From the settings of a run to its workers' places on the CPUs, and to the coordinator's plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfguard.errors import UsageError
from perfguard.hetero.algorithms import kinds_of, limits_of
from perfguard.hetero.plan import Goal, Member, Patience, TrainingPlan
from perfguard.hetero.policies import BatchLimits
from perfguard.records.training import Device, GroupConfig, Kind, TrainingConfig, WorkerPlace


def is_file(source: str) -> bool:
    """Whether data comes from a file: its name has a dot or a slash."""
    return not source.startswith("sklearn:") and ("/" in source or "." in source)


def places(config: TrainingConfig, cpus: Sequence[int]) -> tuple[WorkerPlace, ...]:
    """The workers of the groups that the algorithm uses, each on CPUs of its own where there are enough.

    Groups with a number of workers choose first, in their order; the others share what is left. Where CPUs are too
    few they are used again from the first one on.

    Raises:
        UsageError: The algorithm uses none of the groups.
    """
    used = {name: group for name, group in config.groups.items() if group.kind in kinds_of(config.algorithm)}
    if not used:
        wanted = " or ".join(sorted(kind.value for kind in kinds_of(config.algorithm)))
        raise UsageError(f"algorithm {config.algorithm!r} needs a group of kind {wanted}; there is none")
    counts = {name: group.workers or (0 if group.kind is Kind.HOGWILD else 1) for name, group in used.items()}
    left = len(cpus) - sum(counts[name] * group.threads for name, group in used.items() if not group.is_remote)
    for name, count in counts.items():
        if not count:
            counts[name] = max(1, left // used[name].threads // sum(not other for other in counts.values()))
            left -= counts[name] * used[name].threads
    found, first = [], 0
    for name, group in used.items():
        if group.is_remote:
            found += [WorkerPlace(name=f"{name}-{number}", group=name, cpus=()) for number in range(counts[name])]
            continue
        for number in range(counts[name]):
            own = {cpus[(first + offset) % len(cpus)] for offset in range(group.threads)}
            found.append(WorkerPlace(name=f"{name}-{number}", group=name, cpus=tuple(sorted(own))))
            first += group.threads
    return tuple(found)


def _limits(name: str, group: GroupConfig) -> BatchLimits:
    try:
        return limits_of(group)
    except UsageError as error:
        raise UsageError(f"groups.{name}: {error}") from None


def plan_of(
    config: TrainingConfig, workers: Sequence[WorkerPlace], examples: int, devices: Mapping[str, Device]
) -> TrainingPlan:
    """What a coordinator is to do.

    As in the authors' code, a GPU computes the losses alone; without one all workers do.

    Raises:
        UsageError: Batches, data and workers do not fit.
    """
    groups = {name: config.groups[name] for name in dict.fromkeys(place.group for place in workers)}
    has_gpu = Device.CUDA in devices.values()
    return TrainingPlan(
        examples=examples,
        members=[
            Member(name=place.name, group=place.group, makes_losses=not has_gpu or devices[place.group] is Device.CUDA)
            for place in workers
        ],
        limits={name: _limits(name, group) for name, group in groups.items()},
        loss_batch=config.loss_batch,
        goal=Goal(
            epochs=config.epochs,
            target_loss=config.target_loss,
            time_s=math.inf if config.time_s is None else config.time_s,
        ),
        learning_rate=config.learning_rate,
        reference_batch=config.reference_batch,
        pieces={name: group.updates for name, group in groups.items()},
        tail=config.tail,
        patience=Patience(floor_s=config.patience_s),
    )
