"""One run of training, from its job to its outcome: data, shared model, workers, coordinator."""

from __future__ import annotations

import copy
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from perfguard.errors import HostUnfitError, MeasurementError, StoreError, UsageError
from perfguard.hetero.algorithms import limits_of, make_policy
from perfguard.hetero.child.checkpoints import read_checkpoint, write_checkpoint
from perfguard.hetero.child.data import Examples, open_examples, prepare
from perfguard.hetero.child.models import build_model, loss_sum
from perfguard.hetero.child.processes import PipeChannel, Processes
from perfguard.hetero.child.workers import Hogwild, Replica, Worker, serve
from perfguard.hetero.coordinator import Coordinator, EpochEnded, Goal, Happening, Member, Patience, Plan, Snapshot
from perfguard.hetero.driving import Drive, Listener, wait_until_ready
from perfguard.hetero.messages import WorkerLost
from perfguard.records.training import (
    Device,
    GroupConfig,
    GroupUse,
    Kind,
    TrainedOn,
    TrainingConfig,
    TrainingEpoch,
    TrainingJob,
    TrainingOutcome,
    WorkerPlace,
)

_READY_S = 120.0
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where torch puts tensors that processes share
_CHECKPOINT_S = 5.0  # Between two checkpoints, but for the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Who is told of a run."""

    started: Callable[[TrainedOn], None]
    epoch: Callable[[TrainingEpoch], None]
    used: Callable[[float, Mapping[str, GroupUse]], None]
    happened: Callable[[Happening], None]  # All else
    wants_stop: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class _Given:
    """What every worker gets: pickled, but for the parameters, which are shared."""

    config: TrainingConfig
    devices: Mapping[str, Device]
    model: nn.Module
    data: Path


def train(job: TrainingJob, follower: Follower) -> TrainingOutcome:
    """Train as a job says.

    Raises:
        UsageError: Data, model, algorithm or device cannot be used.
        HostUnfitError: There is no room for the data or the shared model.
        MeasurementError: No worker could be started.
        StoreError: The checkpoint to go on from cannot be used.
    """
    config, checkpoint = job.config, Path(job.checkpoint)
    torch.set_num_threads(1)
    place = prepare(config.data, Path(job.data_folder))
    examples = open_examples(place)
    torch.manual_seed(config.seed)
    model = build_model(config.model, examples.shape)
    snapshot = _resumed(checkpoint, model) if job.resumes else None
    _share(model)
    groups = {name: config.groups[name] for name in dict.fromkeys(place.group for place in job.workers)}
    devices = {name: _device_of(group) for name, group in groups.items()}
    coordinator = _coordinator(job, groups, examples, devices, snapshot)
    given = _Given(config, devices, model, place)
    with closing(Processes(job.workers, work, given)) as transport:
        ready = wait_until_ready(
            transport, [each.name for each in job.workers], timeout_s=_READY_S, clock=time.monotonic
        )
        if all(isinstance(message, WorkerLost) for message in ready):
            raise MeasurementError(f"no worker could be started: {_reason(ready)}")
        follower.started(_trained_on(examples, model, groups, devices, snapshot))
        began = time.monotonic() - (snapshot.at_s if snapshot else 0.0)
        keeper = _Keeper(coordinator, model, checkpoint, follower)
        drive = Drive(
            coordinator,
            transport,
            lambda: time.monotonic() - began,
            Listener(happened=keeper.happened, used=follower.used, wants_stop=follower.wants_stop),
        )
        ending = drive.run(ready)
        at_s = time.monotonic() - began
    keeper.keep_last()
    return TrainingOutcome(
        ending=ending,
        at_s=at_s,
        counters=coordinator.counters,
        utilisation=drive.busy.utilisation(at_s),
        schedule=tuple(drive.schedule),
        detail=_reason([lost for lost in ready if isinstance(lost, WorkerLost)]),
    )


@dataclass(slots=True)
class _Keeper:
    """Tells of epochs, and keeps the state at their ends."""

    coordinator: Coordinator
    model: nn.Module
    path: Path
    follower: Follower
    kept_at: float = 0.0
    latest: tuple[Snapshot, dict[str, torch.Tensor]] | None = None  # Not written yet

    def happened(self, happening: Happening) -> None:
        if not isinstance(happening, EpochEnded):
            self.follower.happened(happening)
            return
        coordinator = self.coordinator
        self.follower.epoch(
            TrainingEpoch(
                epoch=happening.epoch,
                at_s=happening.at_s,
                trained_s=happening.trained_s,
                loss_s=happening.loss_s,
                loss=happening.loss,
                updates=happening.updates,
                batches=dict(coordinator.batches),
            )
        )
        state = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.latest = (coordinator.snapshot(happening.at_s), state)
        if time.monotonic() - self.kept_at >= _CHECKPOINT_S:
            self.keep_last()

    def keep_last(self) -> None:
        """Write what is not written yet."""
        if self.latest is not None:
            write_checkpoint(self.path, *self.latest)
            self.kept_at, self.latest = time.monotonic(), None


def work(place: WorkerPlace, channel: PipeChannel, given: _Given) -> None:
    """A worker's process."""
    group = given.config.groups[place.group]
    torch.set_num_threads(group.threads)
    try:
        worker = _worker(group, given.devices[place.group], given)
    except Exception as error:  # noqa: BLE001 - of a device, say; the others go on
        channel.send(WorkerLost(worker=place.name, reason=f"{type(error).__name__}: {error}"[:500]))
        return
    serve(place.name, worker, channel)


def _worker(group: GroupConfig, device: Device, given: _Given) -> Worker:
    examples = open_examples(given.data)
    sums = loss_sum(examples.shape)
    if group.kind is Kind.HOGWILD:
        return Hogwild(given.model, examples, sums)
    own = copy.deepcopy(given.model)
    place = torch.device("cuda" if device is Device.CUDA else "cpu")
    return Replica(given.model, own, examples, sums, device=place, merge=group.merge, speed=group.speed)


def _coordinator(
    job: TrainingJob,
    groups: Mapping[str, GroupConfig],
    examples: Examples,
    devices: Mapping[str, Device],
    snapshot: Snapshot | None,
) -> Coordinator:
    config = job.config
    limits = {name: limits_of(group) for name, group in groups.items()}
    # As in the authors' code, a GPU computes the losses alone; without one all workers do.
    has_gpu = Device.CUDA in devices.values()
    plan = Plan(
        examples=examples.shape.examples,
        members=[
            Member(name=place.name, group=place.group, makes_losses=not has_gpu or devices[place.group] is Device.CUDA)
            for place in job.workers
        ],
        limits=limits,
        loss_batch=config.loss_batch,
        goal=Goal(
            epochs=config.epochs,
            target_loss=config.target_loss,
            time_s=float("inf") if config.time_s is None else config.time_s,
        ),
        learning_rate=config.learning_rate,
        reference_batch=config.reference_batch,
        pieces={name: group.updates for name, group in groups.items()},
        tail=config.tail,
        patience=Patience(floor_s=config.patience_s),
    )
    return Coordinator(plan, make_policy(config, limits), start=snapshot)


def _share(model: nn.Module) -> None:
    """Put parameters and buffers into shared memory.

    Raises:
        HostUnfitError: There is not enough of it.
    """
    size = sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))
    free = shutil.disk_usage(_SHARED_MEMORY).free if os.path.isdir(_SHARED_MEMORY) else size  # noqa: PTH112
    if size > free:
        raise HostUnfitError(
            f"the model needs {size / 1e6:.1f} MB of shared memory, and {_SHARED_MEMORY} has {free / 1e6:.1f} MB left; "
            "make it larger (docker: --shm-size), or the model smaller"
        )
    model.share_memory()


def _device_of(group: GroupConfig) -> Device:
    has_gpu = torch.cuda.is_available()
    if group.device is Device.CUDA and not has_gpu:
        raise UsageError("device cuda: torch finds no GPU here; use --device cpu, or emulated:30 to study the policies")
    if group.device is Device.AUTO:
        return Device.CUDA if has_gpu and group.kind is Kind.REPLICA else Device.CPU
    return group.device


def _resumed(path: Path, model: nn.Module) -> Snapshot:
    snapshot, state = read_checkpoint(path)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise StoreError(f"{path} is of another model: {str(error).splitlines()[0]}") from error
    return snapshot


def _trained_on(
    examples: Examples,
    model: nn.Module,
    groups: Mapping[str, GroupConfig],
    devices: Mapping[str, Device],
    snapshot: Snapshot | None,
) -> TrainedOn:
    shape = examples.shape
    return TrainedOn(
        examples=shape.examples,
        features=shape.features,
        classes=shape.classes,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        is_sparse=shape.is_sparse,
        is_multilabel=shape.is_multilabel,
        devices={name: _device_text(group, devices[name]) for name, group in groups.items()},
        torch=torch.__version__,
        resumed_epoch=snapshot.epoch if snapshot else None,
    )


def _device_text(group: GroupConfig, device: Device) -> str:
    if device is Device.CUDA:
        return torch.cuda.get_device_name()
    if device is Device.EMULATED:
        return f"emulated accelerator, {group.speed:g} times as fast as one CPU"
    return "CPU"


def _reason(messages: Sequence[object]) -> str:
    return "; ".join(dict.fromkeys(message.reason for message in messages if isinstance(message, WorkerLost)))
