"""One rank: a process that sets a case up and makes its steps on command, on cores of its own."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

from perfguard.records.protocol import Message
from perfguard.worker.attest import imported_files
from perfguard.worker.cases import load_factory, move_memory, set_up
from perfguard.worker.pipes import Control, control_of_parent
from perfguard.worker.results import checks_of, digest_of
from perfguard.worker.serve import import_stack, kind_and_reason
from perfguard.worker.timing.samples import settle, time_iterations
from perfguard.worker.timing.signals import Meters

_PR_SET_PDEATHSIG = 1
_LOOPBACK = "lo"
_CLOCK = time.perf_counter  # The same for all processes; bound before any code under test, which may replace it


class Rank:
    """State of one rank: its place, the case, and what it has set up."""

    def __init__(self, control: Control, meters: Meters) -> None:
        """`meters` were opened before anything could start a thread."""
        self._control = control
        self._meters = meters
        self._place: Message = {}
        self._case: Message = {}
        self._factory: Callable[..., Any] = _not_started
        self._calls: dict[int, Callable[[], object]] = {}
        self._results: dict[int, object] = {}

    def serve(self) -> None:
        """Answer commands until the end of the stream."""
        handlers: dict[str, Callable[[Message], Message]] = {
            "start": self._start,
            "join": self._join,
            "set_up": self._set_up,
            "ready": self._ready,
            "check": self._check,
            "imported": lambda _: {"files": imported_files()},
        }
        while (command := self._control.receive()) is not None:
            try:
                self._control.send("done", **handlers[command["do"]](command))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the process's boundary: every failure is a reply
                traceback.print_exc()  # into the worker's log
                self._control.send("failed", **kind_and_reason(error))

    def _start(self, command: Message) -> Message:
        self._place, self._case = command["place"], command["case"]
        os.sched_setaffinity(0, self._place["cpus"])  # before any library sees another mask
        import_stack({})
        self._factory = load_factory(self._case["target"])
        return {}

    def _join(self, command: Message) -> Message:
        """Make the group over which DistributedDataParallel averages, with the variables that torchrun would set.

        The ranks find each other through a file: torch's TCPStore would listen on every interface of the host.
        """
        from torch.distributed import FileStore, init_process_group  # type: ignore[attr-defined]

        rank, ranks = self._place["rank"], self._place["ranks"]
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        os.environ.update({name: str(value) for name, value in places.items()})
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)
        init_process_group("gloo", store=FileStore(command["store"], ranks), rank=rank, world_size=ranks)
        return {}

    def _set_up(self, command: Message) -> Message:
        index, seed = command["index"], command["seed"] + self._place["rank"]
        if index:
            move_memory(random.Random(f"{seed}:{index}:{self._case['id']}"))  # noqa: S311 - a memory layout, not a secret
        self._calls[index] = set_up(self._factory, self._case, seed)
        if self._place["exchanges"]:
            _require_exchange(self._case["target"])
        return {}

    def _ready(self, command: Message) -> Message:
        """Collect garbage, say so, and time the steps when the worker says go."""
        index, iterations, call = command["index"], command["iterations"], self._calls[command["index"]]
        gc.collect()
        self._control.send("done")
        if self._control.receive() is None:
            raise SystemExit
        gc.disable()
        before = self._meters.start()
        started_s = _CLOCK()
        elapsed = time_iterations(call, iterations, command["spin_s"])
        ended_s = _CLOCK()
        after = self._meters.stop()
        gc.enable()
        self._results[index] = elapsed.result
        settle()  # threads that spin on would take a CPU from nobody here, but from the other arm
        return {
            "started_s": started_s,
            "ended_s": ended_s,
            "result": digest_of(elapsed.result, self._case["id"]),
            "used": self._meters.between(before, after, iterations=iterations),
            "affinity": sorted(os.sched_getaffinity(0)),
        }

    def _check(self, command: Message) -> Message:
        index = command["index"]
        return {"checks": checks_of(self._calls[index], self._results[index], self._case)}


def _not_started() -> None:
    raise RuntimeError("the rank has not been started")


class NoExchangeError(Exception):
    """The benchmark does not average its gradients."""

    is_plain = True


def _require_exchange(target: str) -> None:
    """Refuse a factory, as that of an older tree, that leaves its model out of DistributedDataParallel."""
    from torch.nn.parallel import DistributedDataParallel

    if not any(isinstance(each, DistributedDataParallel) for each in gc.get_objects()):
        raise NoExchangeError(
            f"{target} of this arm wraps no model in DistributedDataParallel; measure it with parallel=plain"
        )


def main() -> None:
    """Answer the worker, and die with it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    Rank(control_of_parent("perfguard rank"), Meters()).serve()


if __name__ == "__main__":
    main()
