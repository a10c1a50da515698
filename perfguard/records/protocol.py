"""The messages that the parent and a worker exchange: one JSON object a line, over two pipes.

A fork server starts the workers: a process of the arm that has torch imported. Each request on its socket is a JSON
object with the worker's `arguments`, and brings four descriptors: the log, the commands, the replies, and the status.
Into the last the server writes the worker's process id, a line, and how it ended, another one.

The parent writes commands, the worker answers with replies; both sides read this file. A worker carries out
one command at a time, so whoever holds the last command holds the **baton**: only that arm runs.

```
hello(job)          -> ready(facts, missing_signals)      torch is there, or imported now
prepare(case)       -> prepared(digest, checks, …) | failed   set-up of one case, not timed
bench(case, loops, …) -> waiting                          a pyperf benchmark is open, its next sample waits
go                  -> sample(value_s, …), then waiting | benched | failed
attest              -> attested(modules)
prove(case, roots)  -> proved(executed, read, problem)    what a case runs of the trees; before any is prepared
exit                -> (end of file)
```
Profiling has a worker of its own, chosen by `profile` in its job, and never shares one with timed samples:

```
profile(case, kind, trace, log)    -> profiled(wall_s, …)       one call of a prepared case
program(case)                      -> program(modules, denormals, …)   what runs it: who learns, what is denormal
script(path, arguments, skip)      -> waiting(settings, …) | ended(exit_code, …)   a user's script, up to step `skip`
step(kind, trace, log)             -> profiled, then it waits again | ended    its next step
stop                               -> ended                     the script is ended here
whole(path, arguments, kind, …)    -> profiled, then ended      a script that makes no optimizer step, as one step
replay(op)                         -> replayed(seconds_s or reason, …)  one op alone
ceilings(dtypes, cache_bytes)      -> ceilings(gemms, streams, …)
```
Any of them may be answered by `failed`.

Plain dictionaries on purpose: the worker runs in environments that hold nothing but this package and pyperf.
"""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

PROTOCOL_VERSION = 1
SERVER_VARIABLE = "PERFGUARD_SERVER"  # Environment variable with the descriptor of a fork server's socket
PRELOAD_VARIABLE = "PERFGUARD_PRELOAD"  # Environment variable with the modules that it imports first, between commas
PATH_VARIABLE = "PERFGUARD_PATH"  # Environment variable with the arm's import path, as PYTHONPATH has it
CONTROL_VARIABLE = "PERFGUARD_CONTROL"  # Environment variable with `READ_FD,WRITE_FD` of the worker's two pipes

MAX_LINE_BYTES = 8 * 1024 * 1024  # A longer line is rubbish, not a message
_MAX_DEPTH = 32
_MAX_INTEGER = 2**63 - 1

STEP_WINDOW = "perfguard::step"  # Name of the event around each profiled step in its trace
MODULE_PREFIX = "module:"  # What the names of the events around modules begin with: `module:ResNet.layer1.0.conv1`
LINE_PREFIX = "perfguard::line:"
"""What the names of the marks begin with that tell the line of the user's code: `perfguard::line:train.py:88`. A mark
holds from its start to the next one of its thread; nothing behind the prefix means no code of the user's."""

Message = dict[str, Any]


class StepKind(str, Enum):
    """How one step is looked at."""

    BARE = "bare"  # With clocks only
    TRACE = "trace"  # With torch's profiler: ops, shapes, modules
    JOINED = "joined"  # The same, with allocations and the logs of oneDNN and MKL; its times are good for nothing else
    WHERE = "where"  # The same as `trace`, with marks of the lines that run; only these are taken from it


class BinaryLines(Protocol):
    """The part of a binary file that `receive` needs."""

    def readline(self, size: int = ..., /) -> bytes:
        """One line with its newline, or b"" at the end."""


def encode(message: Message) -> bytes:
    """One line, compact and ASCII, ending in a newline."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """The message in a line.

    Raises:
        ValueError: It is not a JSON object of finite numbers, of a sane depth; the message shows its beginning.
    """
    message = None
    with contextlib.suppress(ValueError, RecursionError):
        message = _sound(json.loads(line), _MAX_DEPTH)
    if not isinstance(message, dict):
        raise ValueError(f"not a message: {line[:120]!r}")  # noqa: TRY004 - it is the content that is wrong
    return message


def _sound(value: Any, depth: int) -> Any:
    """The value, its texts without half surrogates. Raises ValueError: a number or the depth is beyond all measure."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(value)
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise ValueError(value)
    if isinstance(value, (list, dict)):
        if not depth:
            raise ValueError(depth)
        if isinstance(value, list):
            return [_sound(each, depth - 1) for each in value]
        return {_sound(key, 0): _sound(each, depth - 1) for key, each in value.items()}
    return value


def receive(reader: BinaryLines) -> Message | None:
    """The next message, or None at the end of the stream. Raises ValueError: a line is not a message."""
    line = reader.readline(MAX_LINE_BYTES)
    return decode(line) if line else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptExit:
    """How a script ended."""

    exit_code: int  # What Python would have exited with; 0 where it was ended
    problem: str | None = None  # What it raised, as one sentence; None where it came to its end, exited or was ended
    detail: str = ""  # Traceback of what it raised, from the script's own first frame on
    was_ended: bool = False  # Whether it was ended at a step boundary
