"""The baseline of DistributedDataParallel: a worker that is several ranks, each with a part of every batch."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch._C._distributed_c10d import FileStore
from torch.nn.parallel import DistributedDataParallel

from perfguard.hetero.child.data import Examples, open_examples
from perfguard.hetero.child.models import LossSum, loss_sum
from perfguard.hetero.child.workers import Done, Hogwild, pieces_of
from perfguard.hetero.messages import Range, Task

_FOREVER = timedelta(days=30)  # Ranks wait for as long as losses are computed


class Ddp:
    """Rank 0: receives the orders and passes them on to the other ranks.

    Gradients are means over the ranks. Each rank has an equal part of a batch, but for the last ones of a short batch,
    so that the mean weighs their examples a little more; those without an example take the batch's first one.
    """

    def __init__(self, model: nn.Module, data: Path, sums: LossSum, cpus: Sequence[int]) -> None:
        self._alone = Hogwild(model, open_examples(data), sums)
        self._ranks = len(cpus)
        folder = tempfile.mkdtemp(prefix="perfguard-ddp-")
        store = f"{folder}/store"
        self._others = [
            mp.get_context("spawn").Process(
                target=_other, args=(rank, self._ranks, store, cpu, model, data), daemon=True
            )
            for rank, cpu in enumerate(cpus[1:], 1)
        ]
        for process in self._others:
            process.start()
        os.sched_setaffinity(0, {cpus[0]})
        self._trainer = _Trainer(0, self._ranks, store, model, self._alone.examples)
        shutil.rmtree(folder, ignore_errors=True)  # all ranks have met

    def train(self, part: Range, updates: int, learning_rate: float) -> Done:
        """One update a piece, together."""
        dist.broadcast(torch.tensor([part.start, part.stop, updates, learning_rate], dtype=torch.float64), 0)
        return Done(self._trainer.train(part, updates, learning_rate), updates)

    def evaluate(self, part: Range) -> Done:
        """The loss of the model as it is; by rank 0 alone."""
        return self._alone.evaluate(part)


class _Trainer:
    """One rank."""

    def __init__(self, rank: int, ranks: int, store: str, model: nn.Module, examples: Examples) -> None:
        dist.init_process_group("gloo", store=FileStore(store, ranks), rank=rank, world_size=ranks, timeout=_FOREVER)
        self._rank, self._ranks, self._examples = rank, ranks, examples
        self._model, self._sums = DistributedDataParallel(model), loss_sum(examples.shape)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def train(self, part: Range, updates: int, learning_rate: float) -> float:
        """This rank's part of each update; gives the sum of all its batches' losses, scaled to the whole batches."""
        total = 0.0
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        for start, stop in pieces_of(part, updates):
            first, last = self._own(start, stop)
            inputs, targets = self._examples.batch(first, last)
            self._optimizer.zero_grad()
            loss = self._sums(self._model(inputs), targets) / (last - first)
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            total += loss.item() * (stop - start)
        return total

    def _own(self, start: int, stop: int) -> tuple[int, int]:
        size = -(-(stop - start) // self._ranks)
        first = start + self._rank * size
        return (first, min(stop, first + size)) if first < stop else (start, start + 1)


def _other(  # noqa: PLR0917 - as a process gets them
    rank: int, ranks: int, store: str, cpu: int, model: nn.Module, data: Path
) -> None:
    """A rank that does as rank 0 says, until that is gone."""
    import copy

    os.sched_setaffinity(0, {cpu})
    torch.set_num_threads(1)
    trainer: Any = _Trainer(rank, ranks, store, copy.deepcopy(model), open_examples(data))
    order = torch.empty(4, dtype=torch.float64)
    while True:
        try:
            dist.broadcast(order, 0)
        except RuntimeError:
            return
        start, stop, updates, learning_rate = order.tolist()
        part = Range(ticket=0, task=Task.TRAIN, start=int(start), stop=int(stop))
        trainer.train(part, int(updates), learning_rate)
