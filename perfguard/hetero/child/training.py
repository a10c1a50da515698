"""One run of training, from its job to its outcome: data, shared model, workers, coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch import nn

from perfguard.errors import MeasurementError, StoreError, UsageError
from perfguard.hetero.addresses import parse_address
from perfguard.hetero.algorithms import make_policy
from perfguard.hetero.child.checkpoints import read_checkpoint, write_checkpoint
from perfguard.hetero.child.data import Examples, open_examples, prepare
from perfguard.hetero.child.local import (
    READY_S,
    Given,
    device_of,
    device_text,
    reasons_of,
    require_memory,
    share,
    torch_device,
    work,
)
from perfguard.hetero.child.models import build_model, loss_sum, require_outputs
from perfguard.hetero.child.processes import Processes
from perfguard.hetero.child.remote import RemoteChannel, RemoteModel, Remotes, joined, listening
from perfguard.hetero.child.workers import Replica, serve
from perfguard.hetero.coordinator import Coordinator, Snapshot
from perfguard.hetero.driving import Drive, Listener, wait_until_ready
from perfguard.hetero.happenings import EpochEnded, Happening, WorkerGone
from perfguard.hetero.messages import WorkerLost
from perfguard.hetero.planning import plan_of
from perfguard.records.training import (
    Device,
    GroupConfig,
    GroupUse,
    RemoteJob,
    TrainedOn,
    TrainingEpoch,
    TrainingJob,
    TrainingOutcome,
)

_CHECKPOINT_S = 5.0  # Between two checkpoints, but for the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """What is called while a run goes on."""

    started: Callable[[TrainedOn], None]
    epoch: Callable[[TrainingEpoch], None]
    used: Callable[[float, Mapping[str, GroupUse]], None]
    happened: Callable[[Happening], None]  # All else
    wants_stop: Callable[[], bool]


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
    place = prepare(config.data, Path(job.data_folder), follower.wants_stop)
    examples = open_examples(place)
    torch.manual_seed(config.seed)
    model = build_model(config.model, examples.shape)
    if config.model.factory is not None:
        require_outputs(config.model.factory, model, examples)
    snapshot = _resumed(checkpoint, model) if job.resumes else None
    share(model)
    require_memory(sum(not config.groups[place.group].is_remote for place in job.workers))
    groups = {name: config.groups[name] for name in dict.fromkeys(place.group for place in job.workers)}
    devices = {name: Device.CPU if group.is_remote else device_of(group) for name, group in groups.items()}
    plan = plan_of(config, job.workers, examples.shape.examples, devices)
    coordinator = Coordinator(plan, make_policy(config, plan.limits), start=snapshot)
    given = Given(config, devices, model, place)
    with _remotes(job, examples, model) as remotes, closing(_transport(job, given, remotes)) as transport:
        ready = wait_until_ready(
            transport,
            [each.name for each in job.workers],
            timeout_s=READY_S,
            clock=time.monotonic,
            wants_stop=follower.wants_stop,
        )
        if all(isinstance(message, WorkerLost) for message in ready):
            raise MeasurementError(f"no worker could be started: {reasons_of(ready)}")
        follower.started(_trained_on(examples, model, groups, devices, snapshot))
        began = time.monotonic() - (snapshot.at_s if snapshot else 0.0)
        keeper = _Keeper(coordinator, model, checkpoint, follower)
        drive = Drive(
            coordinator,
            transport,
            lambda: time.monotonic() - began,
            Listener(happened=keeper.happened, used=keeper.used, wants_stop=follower.wants_stop),
        )
        ending = drive.run(ready)
        at_s = time.monotonic() - began
    for worker in transport.killed:
        follower.happened(WorkerGone(at_s=at_s, worker=worker, reason="did not stop when it was asked to"))
    keeper.keep_last()
    return TrainingOutcome(
        ending=ending,
        at_s=at_s,
        counters=coordinator.counters,
        utilisation=drive.busy.utilisation(at_s),
        paces=drive.paces.paces(),
        schedule=tuple(drive.schedule),
        detail=reasons_of(ready),
        trained_s=coordinator.trained_s(at_s),
    )


@contextmanager
def _remotes(job: TrainingJob, examples: Examples, model: nn.Module) -> Iterator[Remotes | None]:
    """Workers on other hosts, once all have joined; None where there are none."""
    far = [place for place in job.workers if job.config.groups[place.group].is_remote]
    if not far:
        yield None
        return
    assert job.listen is not None  # noqa: S101 - the command has asked for it
    shape = examples.shape
    remote = RemoteJob(
        config=job.config,
        workers=tuple(place.name for place in far),
        groups=tuple(place.group for place in far),
        shape=(shape.examples, shape.features, shape.classes),
    )
    address = parse_address(job.listen)
    with listening(address, msgspec.json.encode(remote), len(far), timeout_s=job.join_s):
        yield Remotes(remote.workers, model)


def _transport(job: TrainingJob, given: Given, remotes: Remotes | None) -> Processes:
    near = [place for place in job.workers if not job.config.groups[place.group].is_remote]
    return Processes(near, work, given, remotes)


def work_remotely(address: str, data_folder: Path, *, threads: int, timeout_s: float) -> str:
    """Be one remote worker until the coordinator says stop; gives its name.

    Raises:
        MeasurementError: Nobody listens there, or all places are taken.
        UsageError: The data here is not that of the coordinator.
    """
    with joined(parse_address(address), timeout_s=timeout_s) as (number, content):
        job = msgspec.json.decode(content, type=RemoteJob)
        name, group = job.workers[number], job.config.groups[job.groups[number]]
        channel = RemoteChannel()
        try:
            torch.set_num_threads(threads)
            examples = open_examples(prepare(job.config.data, data_folder))
            shape = examples.shape
            if (shape.examples, shape.features, shape.classes) != job.shape:
                raise UsageError(f"the data here has {shape}, that of the coordinator {job.shape}")
            model = build_model(job.config.model, shape)
            shared = RemoteModel(channel, sum(parameter.numel() for parameter in model.parameters()))
            device = torch_device(device_of(group))
            worker = Replica(shared, model, examples, loss_sum(shape), device=device, speed=group.speed)
        except Exception as error:
            channel.send(WorkerLost.by(name, error))
            raise
        serve(name, worker, channel)
        return name


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

    def used(self, at_s: float, groups: Mapping[str, GroupUse]) -> None:
        """Tell of what groups do, and write a checkpoint while they do it."""
        self.follower.used(at_s, groups)
        if time.monotonic() - self.kept_at >= _CHECKPOINT_S:
            self.keep_last()

    def keep_last(self) -> None:
        """Write what is not written yet."""
        if self.latest is not None:
            write_checkpoint(self.path, *self.latest)
            self.kept_at, self.latest = time.monotonic(), None


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
        devices={
            name: "other hosts" if group.is_remote else device_text(group, devices[name])
            for name, group in groups.items()
        },
        torch=torch.__version__,
        resumed_epoch=snapshot.epoch if snapshot else None,
    )
