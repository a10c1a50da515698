"""The workers of this host: what each gets, what it computes with, and the model that they share."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import nn

from perfguard.errors import HostUnfitError, UsageError
from perfguard.hetero.child.data import open_examples
from perfguard.hetero.child.ddp import Ddp
from perfguard.hetero.child.models import loss_sum
from perfguard.hetero.child.processes import PipeChannel
from perfguard.hetero.child.workers import Hogwild, LocalModel, RangeWorker, Replica, Stream, serve
from perfguard.hetero.messages import FromWorker, WorkerLost
from perfguard.records.training import Device, GroupConfig, Kind, TrainingConfig, WorkerPlace

READY_S = 120.0  # Longest start of a worker
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where torch puts tensors that processes share


@dataclass(frozen=True, slots=True)
class Given:
    """What every worker of this host gets: pickled, but for the parameters, which are shared."""

    config: TrainingConfig
    devices: Mapping[str, Device]
    model: nn.Module
    data: Path


def work(place: WorkerPlace, channel: PipeChannel, given: Given) -> None:
    """A worker's process."""
    group = given.config.groups[place.group]
    torch.set_num_threads(1 if group.kind is Kind.DDP else group.threads)
    try:
        worker = _worker(group, given.devices[place.group], given, place.cpus)
    except Exception as error:  # noqa: BLE001 - of a device, say; the others go on
        channel.send(WorkerLost.by(place.name, error))
        return
    serve(place.name, worker, channel)


def _worker(group: GroupConfig, device: Device, given: Given, cpus: Sequence[int]) -> RangeWorker:
    examples = open_examples(given.data)
    sums = loss_sum(examples.shape)
    if group.kind is Kind.STREAM:
        return Stream(given.model, examples, sums)
    if group.kind is Kind.DDP:
        return Ddp(given.model, given.data, sums, cpus)
    if group.kind is Kind.HOGWILD:
        return Hogwild(given.model, examples, sums)
    own = copy.deepcopy(given.model)
    place = torch_device(device)
    shared = LocalModel(list(given.model.parameters()), group.merge, place)
    return Replica(shared, own, examples, sums, device=place, speed=group.speed)


def share(model: nn.Module) -> None:
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


def require_memory(workers: int) -> None:
    """Check that there is memory for so many workers, each of which imports what this process has imported.

    Raises:
        HostUnfitError: There is not enough of it.
    """
    used = psutil.Process().memory_info()
    needed, free = workers * (used.rss - used.shared), psutil.virtual_memory().available
    if needed > free:
        raise HostUnfitError(
            f"{workers:,} workers need about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free; "
            "give the groups fewer workers"
        )


def device_of(group: GroupConfig) -> Device:
    """What a group computes on here.

    Raises:
        UsageError: It asks for a GPU, and torch finds none.
    """
    has_gpu = torch.cuda.is_available()
    if group.device is Device.CUDA and not has_gpu:
        raise UsageError("device cuda: torch finds no GPU here; use --device cpu, or emulated:30 to study the policies")
    if group.device is Device.AUTO:
        return Device.CUDA if has_gpu and group.kind is Kind.REPLICA else Device.CPU
    return group.device


def torch_device(device: Device) -> torch.device:
    """The device as torch knows it."""
    return torch.device("cuda" if device is Device.CUDA else "cpu")


def device_text(group: GroupConfig, device: Device) -> str:
    """What a group computes on, by its name."""
    if device is Device.CUDA:
        return torch.cuda.get_device_name()
    if device is Device.EMULATED:
        return f"emulated accelerator, {group.speed:g} times as fast as one CPU"
    return "CPU"


def reasons_of(messages: Iterable[FromWorker]) -> str:
    """Why workers are lost, each reason once."""
    return "; ".join(dict.fromkeys(message.reason for message in messages if isinstance(message, WorkerLost)))
