"""Workers: what one does with a range of examples, and the loop in which it does so.

`Hogwild` reads and updates the shared model directly, without locks. `Replica` copies the model to its device, trains
the copy, and merges it back. Both train any module whose parameters lie in shared memory, by plain SGD.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from perfguard.hetero.child.data import Examples, Inputs
from perfguard.hetero.child.models import LossSum
from perfguard.hetero.messages import (
    Evaluate,
    ExecuteWork,
    FromWorker,
    Range,
    Report,
    ScheduleWork,
    Stop,
    Task,
    ToWorker,
    WorkerLost,
)
from perfguard.records.training import Merge


class Channel(Protocol):
    """A worker's end of a transport."""

    def receive(self) -> ToWorker:
        """The next order; `Stop` where the coordinator is gone."""

    def send(self, message: FromWorker) -> None:
        """Say something to the coordinator."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a range."""

    loss: float  # Sum over its examples
    updates: int = 0
    transfer_s: float = 0.0


class RangeWorker(Protocol):
    """Computes on ranges of examples."""

    def train(self, part: Range, updates: int, learning_rate: float) -> Done:
        """Update the shared model as many times, from equal pieces of the range."""

    def evaluate(self, part: Range) -> Done:
        """The loss of the shared model."""


def pieces_of(part: Range, count: int) -> Iterator[tuple[int, int]]:
    """Start and stop of equal pieces of a range, the longer ones first."""
    size, longer = divmod(part.size, count)
    start = part.start
    for number in range(count):
        stop = start + size + (number < longer)
        yield start, stop
        start = stop


def gradients_of(loss: torch.Tensor, parameters: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Parameters that are trained and take part in the loss, with their gradients."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    found = torch.autograd.grad(loss, trained, allow_unused=True)
    return [
        (parameter.data, gradient) for parameter, gradient in zip(trained, found, strict=True) if gradient is not None
    ]


@torch.no_grad()
def descend(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], learning_rate: float) -> None:
    """Plain SGD in place, of parameters by their gradients; a sparse gradient touches its rows alone."""
    dense = [pair for pair in pairs if not pair[1].is_sparse]
    if dense:
        torch._foreach_add_([pair[0] for pair in dense], [pair[1] for pair in dense], alpha=-learning_rate)
    for parameter, gradient in pairs:
        if gradient.is_sparse:
            parameter.index_add_(0, gradient._indices()[0], gradient._values(), alpha=-learning_rate)  # noqa: SLF001


@dataclass(slots=True)
class Hogwild:
    """Trains the shared model in place, beside other workers that do the same."""

    model: nn.Module  # Its parameters are shared
    examples: Examples
    loss_sum: LossSum

    def train(self, part: Range, updates: int, learning_rate: float) -> Done:
        """One update a piece, straight into the shared parameters."""
        parameters, total = list(self.model.parameters()), 0.0
        for start, stop in pieces_of(part, updates):
            inputs, targets = self.examples.batch(start, stop)
            loss = self.loss_sum(self.model(inputs), targets)
            descend(gradients_of(loss / (stop - start), parameters), learning_rate)
            total += loss.item()
        return Done(total, updates)

    @torch.no_grad()
    def evaluate(self, part: Range) -> Done:
        """The loss of the shared model as it is."""
        inputs, targets = self.examples.batch(part.start, part.stop)
        return Done(self.loss_sum(self.model(inputs), targets).item())


class Stream:
    """Trains by torch.optim.SGD, one update after the other, as a program without perfguard does."""

    def __init__(self, model: nn.Module, examples: Examples, loss_sum: LossSum) -> None:
        self._alone = Hogwild(model, examples, loss_sum)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def train(self, part: Range, updates: int, learning_rate: float) -> Done:
        """One update a piece."""
        alone, optimizer, total = self._alone, self._optimizer, 0.0
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        for start, stop in pieces_of(part, updates):
            inputs, targets = alone.examples.batch(start, stop)
            optimizer.zero_grad()
            loss = alone.loss_sum(alone.model(inputs), targets) / (stop - start)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item() * (stop - start)
        return Done(total, updates)

    def evaluate(self, part: Range) -> Done:
        """The loss of the model as it is."""
        return self._alone.evaluate(part)


class SharedModel(Protocol):
    """The shared model as a replica sees it."""

    def pull(self, own: Sequence[torch.Tensor]) -> None:
        """Copy the shared parameters into those of the replica."""

    def push(self, own: Sequence[torch.Tensor], pulled: Sequence[torch.Tensor]) -> None:
        """Merge the replica's parameters, which were `pulled` before it trained; those may be overwritten."""


class LocalModel:
    """The shared model in this host's memory; a GPU's copies go through pinned memory."""

    def __init__(self, parameters: Sequence[torch.Tensor], merge: Merge, device: torch.device) -> None:
        self._shared, self._merge = [parameter.data for parameter in parameters], merge
        is_gpu = device.type == "cuda"
        self._staging = [torch.empty_like(each).pin_memory() for each in self._shared] if is_gpu else None

    def pull(self, own: Sequence[torch.Tensor]) -> None:
        """Copy the shared parameters."""
        for at, (shared, copied) in enumerate(zip(self._shared, own, strict=True)):
            if self._staging is None:
                copied.copy_(shared)
            else:
                copied.copy_(self._staging[at].copy_(shared), non_blocking=True)

    def push(self, own: Sequence[torch.Tensor], pulled: Sequence[torch.Tensor]) -> None:
        """Replace the shared parameters, or add what the replica has changed."""
        for at, (shared, trained, before) in enumerate(zip(self._shared, own, pulled, strict=True)):
            result = trained if self._merge is Merge.OVERWRITE else before.neg_().add_(trained)
            if self._staging is not None:
                result = self._staging[at].copy_(result)
            if self._merge is Merge.OVERWRITE:
                shared.copy_(result)
            else:
                shared.add_(result)


class Replica:
    """Trains a copy of the shared model on a device, and merges it back.

    An emulated device of speed s computes on every s-th example, so a range takes about 1/s of a CPU's time.
    """

    def __init__(
        self, shared: SharedModel, copy: nn.Module, examples: Examples, loss_sum: LossSum, *,
        device: torch.device, speed: float = 1.0,
    ) -> None:  # fmt: skip
        self._shared, self._model = shared, copy.to(device)
        self._parameters = list(self._model.parameters())
        self._own = [parameter.data for parameter in self._parameters]
        self._examples, self._loss_sum = examples, loss_sum
        self._device, self._every = device, max(1, round(speed))
        self._pulled = [torch.empty_like(own) for own in self._own]
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def train(self, part: Range, updates: int, learning_rate: float) -> Done:
        """Copy the model, make the updates there, and merge."""
        with torch.cuda.stream(self._stream):
            transfer_s, total = self._pull(), 0.0
            for start, stop in pieces_of(part, updates):
                (inputs, targets), moved_s = self._batch(start, stop)
                transfer_s += moved_s
                loss = self._loss_sum(self._model(inputs), targets)
                used = len(targets)
                descend(gradients_of(loss / used, self._parameters), learning_rate)
                total += loss.item() * (stop - start) / used
            return Done(total, updates, transfer_s + self._push())

    @torch.no_grad()
    def evaluate(self, part: Range) -> Done:
        """The loss of the shared model, computed on the device."""
        with torch.cuda.stream(self._stream):
            transfer_s = self._pull()
            (inputs, targets), moved_s = self._batch(part.start, part.stop)
            loss = self._loss_sum(self._model(inputs), targets).item()
            return Done(loss * part.size / len(targets), 0, transfer_s + moved_s)

    @torch.no_grad()
    def _pull(self) -> float:
        began = time.perf_counter()
        self._shared.pull(self._own)
        torch._foreach_copy_(self._pulled, self._own)
        self._wait()
        return time.perf_counter() - began

    @torch.no_grad()
    def _push(self) -> float:
        self._wait()  # what was computed is no copying
        began = time.perf_counter()
        self._shared.push(self._own, self._pulled)
        return time.perf_counter() - began

    def _batch(self, start: int, stop: int) -> tuple[tuple[Inputs, torch.Tensor], float]:
        inputs, targets = self._examples.batch(start, stop, self._every)
        if self._stream is None:
            return (inputs, targets), 0.0
        began = time.perf_counter()
        moved: Inputs = (
            tuple(map(self._moved, inputs)) if isinstance(inputs, tuple) else self._moved(inputs)  # type: ignore[assignment]
        )
        labels = self._moved(targets)
        self._wait()
        return (moved, labels), time.perf_counter() - began

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def serve(name: str, worker: RangeWorker, channel: Channel, clock: Callable[[], float] = time.perf_counter) -> None:
    """Carry out the coordinator's orders until it says stop; report a failure to it, and end."""
    channel.send(ScheduleWork(worker=name))
    free = clock()
    while not isinstance(order := channel.receive(), Stop):
        began = clock()
        try:
            done = _done(worker, order)
        except Exception as error:  # noqa: BLE001 - of the model or the device; the others go on
            channel.send(_lost(name, error, order.range))
            return
        ended = clock()
        channel.send(
            Report(
                worker=name,
                ticket=order.range.ticket,
                loss=done.loss,
                updates=done.updates,
                busy_s=ended - began - done.transfer_s,
                waiting_s=began - free,
                transfer_s=done.transfer_s,
            )
        )
        free = ended


def _done(worker: RangeWorker, order: ExecuteWork | Evaluate) -> Done:
    if isinstance(order, Evaluate):
        return worker.evaluate(order.range)
    done = worker.train(order.range, order.updates, order.learning_rate)
    return done if math.isfinite(done.loss) else Done(math.nan, done.updates, done.transfer_s)


def _lost(worker: str, error: Exception, part: Range) -> WorkerLost:
    if not isinstance(error, torch.OutOfMemoryError):
        return WorkerLost.by(worker, error)
    settings = "its group's batch and maximum" if part.task is Task.TRAIN else "loss_batch"
    return WorkerLost(worker=worker, reason=f"out of memory on its device, on {part.size:,} examples; lower {settings}")
