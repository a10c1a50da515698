"""One op alone: called again and again with tensors like those of a recorded call, in this process and on its CPUs.

What it takes then is what it could take within a step: code and data are in the caches as far as they fit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from perfguard.records.protocol import Message
from perfguard.worker.profiling.op_arguments import OpArguments, RecordedCall, UnknownArgumentError, arguments_of

DEFAULT_BUDGET_S = 0.1
"""Seconds that one op is timed for."""

_WARM_CALLS = 3
_BATCH_S = 0.0005
"""A batch of calls is timed as one, so that the clock costs next to nothing."""
_MAX_BATCH = 1000
_MAX_WRITING_BATCH = 8
"""An op that writes to its arguments gets them back as they were after this many calls: values that grow or fade away
turn into infinities or denormals, which take another time."""
_MIN_BATCHES, _MAX_BATCHES = 5, 201
_REASON_CHARACTERS = 200

_NO_DATA = ("sparse", "coalesce", "_indices", "_values", "set_", "resize_", "record_stream")
"""Parts of names of ops whose work is in what a trace does not tell."""


class NotReplayableError(Exception):
    """An op cannot be called from what its trace tells; the message is a sentence whose subject is the op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """An op's time alone."""

    call_s: float
    """Median seconds of one call."""
    batches: int
    """Timed batches that it is the median of."""
    overload: str
    """Which of the op's overloads fitted."""
    assumed: tuple[str, ...]
    """What the trace does not tell and had to be guessed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runnable:
    overload: Any
    arguments: OpArguments

    def call(self) -> object:
        return self.overload(*self.arguments.positional, **self.arguments.named)


def answer(command: Message) -> Message:
    """The fields of the reply to a command with an `op`: its time, or the `reason` why it has none."""
    fields: Message = {"call_s": None, "reason": None}
    try:
        fields |= asdict(replay(RecordedCall.of(command["op"]), budget_s=command.get("budget_s", DEFAULT_BUDGET_S)))
    except NotReplayableError as error:
        fields["reason"] = str(error)
    return {**fields, "affinity": sorted(os.sched_getaffinity(0))}


def replay(call: RecordedCall, *, seed: int = 0, budget_s: float = DEFAULT_BUDGET_S) -> Replayed:
    """Time one op.

    Args:
        call: The recorded call.
        seed: Of the values that its tensors get.
        budget_s: Seconds to time it for, beside making its arguments and warming up.

    Raises:
        NotReplayableError: It has no overload that takes these arguments, or it fails with values that are made up.
    """
    import torch

    if any(part in call.op for part in _NO_DATA):
        raise NotReplayableError("its work depends on data that a trace does not hold")
    with torch.no_grad():
        runnable = _fitting(call, seed)
        if torch.Tag.inplace_view in runnable.overload.tags:
            raise NotReplayableError("it changes the shape of its argument, so each call is another")
        restore = _restorer(runnable)
        try:
            batches = time_call(
                runnable.call,
                budget_s=budget_s,
                max_batch=_MAX_WRITING_BATCH if restore else _MAX_BATCH,
                restore=restore,
            )
        except Exception as error:
            raise NotReplayableError(f"it cannot be called twice: {_first_line(error)}") from error
    return Replayed(
        call_s=median(batches),
        batches=len(batches),
        overload=str(runnable.overload).rpartition(".")[2],
        assumed=runnable.arguments.assumed,
    )


def time_call(
    call: Callable[[], object],
    *,
    budget_s: float,
    max_batch: int = _MAX_BATCH,
    restore: Callable[[], None] | None = None,
) -> list[float]:
    """Seconds of one call, from several batches of calls.

    Args:
        call: Is called a few times before it is timed.
        budget_s: Batches are added until they take this long together, but a few in any case.
        max_batch: Largest number of calls in a batch.
        restore: Undoes before each batch what the calls did; untimed.
    """
    clock = time.perf_counter
    once_s = _BATCH_S
    for _ in range(_WARM_CALLS):
        started = clock()
        call()
        once_s = clock() - started
    size = min(max_batch, max(1, round(_BATCH_S / max(once_s, 1e-9))))
    batches: list[float] = []
    spent_s = 0.0
    while len(batches) < _MIN_BATCHES or (spent_s < budget_s and len(batches) < _MAX_BATCHES):
        if restore is not None:
            restore()
        started = clock()
        for _ in range(size):
            call()
        elapsed_s = clock() - started
        spent_s += elapsed_s
        batches.append(elapsed_s / size)
    return batches


def _fitting(call: RecordedCall, seed: int) -> _Runnable:
    """The first overload that takes the recorded arguments and computes something from them."""
    reason = "it has no overload of this name"
    for overload in _overloads(call):
        try:
            runnable = _Runnable(overload=overload, arguments=arguments_of(call, overload, seed=seed))
        except UnknownArgumentError as error:
            reason = str(error)
            continue
        try:
            runnable.call()
        except Exception as error:
            # An overload that takes the arguments is the right one, whatever comes of it.
            raise NotReplayableError(f"it fails on values that are made up: {_first_line(error)}") from error
        return runnable
    raise NotReplayableError(reason)


def _overloads(call: RecordedCall) -> Sequence[Any]:
    import torch

    namespace, _, name = call.op.partition("::")
    packet: Any = getattr(getattr(torch.ops, namespace, None), name, None) if name else None
    if not hasattr(packet, "overloads"):
        raise NotReplayableError("it is no op of the dispatcher, or its library is not loaded")
    names = packet.overloads() if call.overload is None else [call.overload or "default"]
    return [getattr(packet, each) for each in names if hasattr(packet, each)]


def _restorer(runnable: _Runnable) -> Callable[[], None] | None:
    """What gives the tensors that an op writes to their first values back; None where it writes to none."""
    import torch

    schema = runnable.overload._schema  # noqa: SLF001 - torch has no public way to a schema
    if not schema.is_mutable:
        return None
    written: list[tuple[torch.Tensor, torch.Tensor]] = []
    values = (*runnable.arguments.positional, *runnable.arguments.named.values())
    for argument, value in zip(schema.arguments, values, strict=True):
        if isinstance(value, list) or (argument.alias_info is not None and argument.alias_info.is_write):
            tensors = value if isinstance(value, list) else [value]
            written.extend((each, each.clone()) for each in tensors if isinstance(each, torch.Tensor))

    def restore() -> None:
        for tensor, first in written:
            tensor.copy_(first)

    return restore


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_REASON_CHARACTERS]
