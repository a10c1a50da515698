"""What a worker answers, as values: whatever is not of its form fails the worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Struct, field

from perfguard.records.facts import Fact
from perfguard.records.protocol import Message, ScriptExit, StepKind
from perfguard.records.script_settings import SettingUse
from perfguard.records.steps.ceilings import GemmCeiling, StreamCeiling
from perfguard.runner.process.worker_process import WorkerFailure

T = TypeVar("T")
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]  # What adds up without an overflow
WHY_NOT_IN_FORM = "does code of the benchmark change perfguard's own?"


class _Interpreter(Struct, frozen=True, kw_only=True):
    executable: str
    prefix: str
    version: str
    implementation: str


class Ready(Struct, frozen=True, kw_only=True):
    """The parts of a `ready` that are used; the rest is checked where it is read."""

    affinity_before: tuple[int, ...]
    affinity_after: tuple[int, ...]
    interpreter: _Interpreter | None = None
    import_s: Seconds = 0.0
    missing_signals: dict[str, str] = field(default_factory=dict)
    software: dict[str, Any] | None = None


class Placed(Struct, frozen=True, kw_only=True):
    """Where the worker may run, as part of most answers."""

    affinity: tuple[int, ...]


class ProgramAnswer(Struct, frozen=True, kw_only=True):
    """What the worker knows of the program behind a case."""

    program: dict[str, Any]


class Prepared(Struct, frozen=True, kw_only=True):
    """A case as it was set up."""

    digest: float  # Result of its first call, reduced to one number
    checks: dict[str, float] = field(default_factory=dict)  # Named numbers of that call, the same for equal seeds
    instance_s: Seconds | None = None  # Of one further set-up; None where it was not checked
    compile_events: dict[str, int] = field(default_factory=dict)
    """What torch.compile did meanwhile, by name: `unique_graphs`, `frames`, `graph_break: REASON`, `recompile: REASON`.
    Graph breaks are counted when code is compiled, so those of a steady step are found here."""


class Varied(Struct, frozen=True, kw_only=True):
    """The inputs of the next sample."""

    is_varied: bool  # Whether the benchmark could draw them anew


class Looked(Struct, frozen=True, kw_only=True):
    """What the last call of a sample returned."""

    checks: dict[str, float]  # Named numbers of it, the same for equal seeds


class ProfiledStep(Struct, frozen=True, kw_only=True):
    """One step as the worker reports it, looked at in one of the ways of `StepKind`."""

    kind: StepKind  # How it was looked at
    wall_s: float  # Wall seconds of the step, with whatever the profiler costs
    thread_s: float  # CPU seconds of the thread that called it
    process_s: float  # CPU seconds of all threads of the process
    minor_faults: int  # Minor page faults of the process
    event_s: float | None  # What the profiler costs for the event of an op that does nothing; None for bare steps
    own_share: float | None  # Part of that cost inside the event, 0 to 1, not in its parent; None for bare steps
    module_s: float | None  # What it costs for the event of a module, hooks included; None for bare steps
    compile_events: dict[str, int]  # What torch.compile still did in the step, named as in `Prepared`
    logs: tuple[str, ...]  # The libraries whose log was written: `onednn`, `mkl`


class CodeProof(Struct, frozen=True, kw_only=True):
    """What a case executed and read of an arm's trees."""

    executed: tuple[tuple[str, str, str], ...]  # Path, qualified name and SHA-256 of each code object
    read: tuple[tuple[str, str], ...]  # Path and SHA-256 of each file, or of a folder's names
    problem: str | None  # Why it is not all, by `perfguard.worker.proof.prove`; None where it is


def decoded(reply: Message, kind: type[T]) -> T:
    """A worker's reply as a value.

    Raises:
        WorkerFailure: It is not of that form: the code that is measured runs in the worker's process.
    """
    try:
        return msgspec.convert(reply, kind)
    except msgspec.ValidationError as error:
        raise WorkerFailure(
            f"the worker's answer {reply.get('reply')!r} is not of the form that it has ({error}); {WHY_NOT_IN_FORM}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEnd(ScriptExit):
    """How a script ended, and what it had done by then."""

    steps: int  # Optimizer steps that it made; 0 means that it can only be profiled as a whole
    settings: tuple[SettingUse, ...] = ()  # What became of the arm's settings


class HeldScript(Struct, frozen=True, kw_only=True):
    """A script that waits at a step boundary."""

    settings: tuple[SettingUse, ...] = ()  # What became of the arm's settings until then
    checks: dict[str, float] = field(default_factory=dict)
    """What the first steps computed: `loss_1`, `gradient_norm_1` and so on; may be empty."""
    dtypes: tuple[str, ...] = ()  # `bf16` or `fp16`, where the first steps used them


class WholeScript(Struct, frozen=True, kw_only=True):
    """A script that was profiled as one step, from its beginning to its end."""

    step: ProfiledStep  # The step; cut short where the script raised something
    end: ScriptEnd  # How it ended


class RecordedOp(Struct, frozen=True, kw_only=True):
    """An op's call in the four lists of its event in a trace, one entry for each argument."""

    op: str  # `aten::convolution`
    dims: Sequence[Any]  # `Input Dims`
    types: Sequence[str]  # `Input type`
    strides: Sequence[Any] = ()  # `Input Strides`; empty where the trace has none: then tensors are contiguous
    concrete: Sequence[str] = ()  # `Concrete Inputs`
    overload: str | None = None  # None where the trace does not say: the first that fits is taken


class ReplayedOp(Struct, frozen=True, kw_only=True):
    """An op's time alone."""

    call_s: float | None  # Median seconds of one call; None where it could not be replayed
    reason: Fact | None  # Why not
    overload: str | None = None  # The overload that was called
    batches: int = 0  # Timed batches of calls that the time is the median of
    assumed: tuple[str, ...] = ()  # What the trace does not tell and had to be guessed: `approximate='none'`


class Ceilings(Struct, frozen=True, kw_only=True):
    """What the worker's CPUs do at best with its torch and its threads."""

    gemms: tuple[GemmCeiling, ...]  # By dtype, sizes ascending; a size that would take too long is missing
    streams: tuple[StreamCeiling, ...]  # Copy and triad
    cache_bytes: int  # Last-level caches of the CPUs; 0 where they are unknown
    is_beyond_caches: bool  # Whether the arrays are well beyond them; if not, the bandwidth may be the caches'
    threads: int  # Threads that torch used
