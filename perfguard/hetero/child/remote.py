"""Workers on other hosts, over torch.distributed with gloo: messages, and the model as one flat tensor.

Rank 0 is the coordinator's process; each other rank is one worker. A remote worker trains a copy: it asks rank 0 for
the model, trains, and sends the change, which rank 0 adds to the shared model without locks. Who listens trusts the
network: nothing is encrypted, and whoever reaches the port may join.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import TCPStore

from perfguard.errors import HostUnfitError, MeasurementError
from perfguard.hetero.messages import FromWorker, Stop, ToWorker, WorkerLost, decode, encode

_FRAME = 1024  # Bytes of a message with its head; reasons of lost workers are cut to fit
_MESSAGE, _PULL, _PUSH = 1, 2, 3  # What a frame of a worker is
_ORDERS, _REPORTS, _MODEL = 1, 2, 3  # Tags, so that the three never mix
_FOREVER = timedelta(days=30)  # A worker may wait for as long as others train
_JOB = "job"


@contextmanager
def listening(address: tuple[str, int], job: bytes, workers: int, *, timeout_s: float) -> Iterator[None]:
    """Wait until so many workers have joined, each of which gets the job.

    Raises:
        HostUnfitError: The address cannot be used, or too few workers joined in time.
    """
    try:
        store = TCPStore(
            address[0], address[1], is_master=True, timeout=timedelta(seconds=timeout_s), wait_for_workers=False
        )
        store.set("world", str(workers + 1))
        store.set(_JOB, job.decode("latin-1"))
        _join(store, address, 0, workers + 1, timeout_s)
    except (RuntimeError, OSError) as error:
        raise HostUnfitError(
            f"{workers} remote workers did not join at {address[0]}:{address[1]} within {timeout_s:g} s "
            f"({_first_line(error)}); start each with `perfguard hetero work {address[0]}:{address[1]}`"
        ) from error
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


@contextmanager
def joined(address: tuple[str, int], *, timeout_s: float) -> Iterator[tuple[int, bytes]]:
    """Join a coordinator; gives the number of this worker, from 0, and the job.

    Raises:
        MeasurementError: Nobody listens there, or all places are taken.
    """
    try:
        store = TCPStore(
            address[0], address[1], is_master=False, timeout=timedelta(seconds=timeout_s), wait_for_workers=False
        )
        world, rank = int(store.get("world")), store.add("joined", 1)
        if rank >= world:
            raise MeasurementError(f"{address[0]}:{address[1]} has all of its {world - 1} remote workers already")
        job = store.get(_JOB).decode().encode("latin-1")
        _join(store, address, rank, world, timeout_s)
    except (RuntimeError, OSError) as error:
        raise MeasurementError(
            f"no coordinator could be joined at {address[0]}:{address[1]} within {timeout_s:g} s: {_first_line(error)}"
        ) from error
    try:
        yield rank - 1, job
    finally:
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def _join(store: Any, address: tuple[str, int], rank: int, world: int, timeout_s: float) -> None:
    interface = _interface_to(address)
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    wait = timedelta(seconds=timeout_s)
    store.set_timeout(wait)
    store.set(f"ready/{rank}", "")
    store.wait([f"ready/{each}" for each in range(world)], wait)  # gloo's own wait would be as long as the run's
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=_FOREVER)


def _interface_to(address: tuple[str, int]) -> str | None:
    """The network interface that leads to an address; None where none has the address of this end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        own = str(probe.getsockname()[0])
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == own for each in addresses):
            return str(name)
    return None


class RemoteChannel:
    """A remote worker's end: messages, and the model of rank 0."""

    def receive(self) -> ToWorker:
        """The next order; `Stop` where the coordinator is gone."""
        frame = torch.empty(_FRAME, dtype=torch.uint8)
        try:
            dist.recv(frame, 0, tag=_ORDERS)
        except RuntimeError:
            return Stop()
        return decode(_content(frame))  # type: ignore[return-value]

    def send(self, message: FromWorker) -> None:
        """Say something to the coordinator; nothing happens where it is gone."""
        with contextlib.suppress(RuntimeError):
            dist.send(_frame(_MESSAGE, encode(message)), 0, tag=_REPORTS)

    def pull(self, flat: torch.Tensor) -> None:
        """Get the shared model [parameters]."""
        dist.send(_frame(_PULL, b""), 0, tag=_REPORTS)
        dist.recv(flat, 0, tag=_MODEL)

    def push(self, change: torch.Tensor) -> None:
        """Add a change [parameters] to the shared model."""
        dist.send(_frame(_PUSH, b""), 0, tag=_REPORTS)
        dist.send(change, 0, tag=_MODEL)


class Remotes:
    """The coordinator's end: a thread for each remote worker hears it, and gives and takes the model."""

    def __init__(self, names: Sequence[str], model: nn.Module) -> None:
        self._ranks = {name: rank for rank, name in enumerate(names, 1)}
        self._parameters = [parameter.data for parameter in model.parameters()]
        self._heard: deque[FromWorker] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._threads = [
            threading.Thread(target=self._hear, args=(name, rank), daemon=True) for name, rank in self._ranks.items()
        ]
        for thread in self._threads:
            thread.start()

    def fileno(self) -> int:
        """Readable where something was heard."""
        return self._wake

    def drain(self) -> list[FromWorker]:
        """What was heard since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        return [self._heard.popleft() for _ in range(len(self._heard))]

    def owns(self, worker: str) -> bool:
        """Whether this is one of the remote workers."""
        return worker in self._ranks

    def send(self, worker: str, order: ToWorker) -> None:
        """Hand an order to a worker; one that is gone is no error here."""
        with contextlib.suppress(RuntimeError):
            dist.send(_frame(_MESSAGE, encode(order)), self._ranks[worker], tag=_ORDERS)

    def _hear(self, name: str, rank: int) -> None:
        frame = torch.empty(_FRAME, dtype=torch.uint8)
        size = sum(parameter.numel() for parameter in self._parameters)
        flat = torch.empty(size)
        try:
            while True:
                dist.recv(frame, rank, tag=_REPORTS)
                kind = int(frame[0])
                if kind == _MESSAGE:
                    self._say(_said_by(name, decode(_content(frame))))
                elif kind == _PULL:
                    dist.send(_flattened(self._parameters, flat), rank, tag=_MODEL)
                elif kind == _PUSH:
                    dist.recv(flat, rank, tag=_MODEL)
                    _add_flat(self._parameters, flat)
        except (RuntimeError, ValueError) as error:
            self._say(WorkerLost(worker=name, reason=f"its host is gone: {_first_line(error)}"))

    def _say(self, message: FromWorker) -> None:
        self._heard.append(message)
        os.eventfd_write(self._wake, 1)


class RemoteModel:
    """The shared model of rank 0 as a replica on another host sees it; changes are added there."""

    def __init__(self, channel: RemoteChannel, size: int) -> None:
        self._channel, self._flat = channel, torch.empty(size)

    def pull(self, own: Sequence[torch.Tensor]) -> None:
        """Copy the shared parameters."""
        self._channel.pull(self._flat)
        start = 0
        for parameter in own:
            parameter.copy_(self._flat[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()

    def push(self, own: Sequence[torch.Tensor], pulled: Sequence[torch.Tensor]) -> None:
        """Send what the replica has changed."""
        for trained, before in zip(own, pulled, strict=True):
            before.neg_().add_(trained)
        self._channel.push(_flattened(pulled, self._flat))


def _said_by(name: str, message: FromWorker | ToWorker) -> FromWorker:
    """The message, if it is one that this worker may send.

    Raises:
        ValueError: It is an order, or names another worker.
    """
    if not isinstance(message, FromWorker) or message.worker != name:
        raise ValueError(f"{name} sent an order, or a message of another worker")
    return message


def _flattened(tensors: Sequence[torch.Tensor], flat: torch.Tensor) -> torch.Tensor:
    start = 0
    for tensor in tensors:
        flat[start : start + tensor.numel()].copy_(tensor.reshape(-1))
        start += tensor.numel()
    return flat


@torch.no_grad()
def _add_flat(tensors: Sequence[torch.Tensor], flat: torch.Tensor) -> None:
    start = 0
    for tensor in tensors:
        tensor.add_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()


def _frame(kind: int, content: bytes) -> torch.Tensor:
    content = content[: _FRAME - 3]
    head = bytes([kind, *len(content).to_bytes(2, "little")])
    return torch.frombuffer(bytearray((head + content).ljust(_FRAME, b"\0")), dtype=torch.uint8)


def _content(frame: torch.Tensor) -> bytes:
    raw = frame.numpy().tobytes()
    return raw[3 : 3 + int.from_bytes(raw[1:3], "little")]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
