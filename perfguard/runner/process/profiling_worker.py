"""A worker that profiles: besides prepared cases also a user's script, ops alone, and what the CPUs can do at best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perfguard.records.facts import Fact, fact
from perfguard.records.protocol import Message, ScriptExit, StepKind
from perfguard.records.steps.projection import GemmCeiling, StreamCeiling
from perfguard.runner.process.arm_worker import ArmWorker, ProfiledStep, decoded

CEILING_DTYPES = ("fp32", "bf16", "fp64")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEnd(ScriptExit):
    """How a script ended, and what it had done by then."""

    steps: int  # Optimizer steps that it made; 0 means that it can only be profiled as a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeScript:
    """A script that was profiled as one step, from its beginning to its end."""

    step: ProfiledStep  # The step; cut short where the script raised something
    end: ScriptEnd  # How it ended


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOp:
    """An op's call in the four lists of its event in a trace, one entry for each argument."""

    op: str  # `aten::convolution`
    dims: Sequence[Any]  # `Input Dims`
    types: Sequence[str]  # `Input type`
    strides: Sequence[Any] = ()
    """`Input Strides`; empty where the trace has none: then tensors are contiguous."""
    concrete: Sequence[str] = ()  # `Concrete Inputs`
    overload: str | None = None
    """Name of the overload; None where the trace does not tell, then the first that fits is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedOp:
    """An op's time alone."""

    call_s: float | None  # Median seconds of one call; None where it could not be replayed
    reason: Fact | None  # Why not
    overload: str | None = None  # The overload that was called
    batches: int = 0  # Timed batches of calls that the time is the median of
    assumed: tuple[str, ...] = ()  # What the trace does not tell and had to be guessed: `approximate='none'`


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What the worker's CPUs do at best with its torch and its threads."""

    gemms: tuple[GemmCeiling, ...]  # By dtype, sizes ascending; a size that would take too long is missing
    streams: tuple[StreamCeiling, ...]  # Copy and triad
    cache_bytes: int  # Last-level caches of the CPUs; 0 where they are unknown
    is_beyond_caches: bool
    """Whether the arrays are well beyond them; if not, memory was short and the bandwidth may be the caches'."""
    threads: int  # Threads that torch used


class ProfilingWorker(ArmWorker):
    """A worker process of one arm that never times a sample. Every method raises WorkerFailure where it fails."""

    def start_script(self, path: Path, arguments: Sequence[str], *, skip: int, timeout_s: float) -> ScriptEnd | None:
        """Run a script until its `skip`-th optimizer step has ended, the first at least.

        Args:
            path: The script, absolute.
            arguments: Its arguments.
            skip: Steps that it makes before it is held.
            timeout_s: How long that may take.

        Returns:
            None where it is now held at a step boundary, else how it ended before.

        Raises:
            CaseRefused: It cannot be held.
        """
        self._worker.send("script", path=str(path), arguments=list(arguments), skip=skip)
        reply = self._expect_any(("waiting", "ended"), timeout_s)
        return self._script_end(reply) if reply["reply"] == "ended" else None

    def script_step(
        self, kind: StepKind, *, timeout_s: float, trace: Path | None = None, log: Path | None = None
    ) -> ProfiledStep | ScriptEnd:
        """Let a held script make a step and hold it again; the first step with a profiler comes after two without.

        Raises:
            CaseRefused: A file cannot be written, or the script runs a profiler of its own; it has been ended.
        """
        self._worker.send("step", kind=kind.value, **_files(trace, log))
        reply = self._expect_any(("profiled", "ended"), timeout_s)
        if reply["reply"] == "ended":
            return self._script_end(reply)
        self._require_mask(reply)
        return decoded(reply, ProfiledStep)

    def stop_script(self, *, timeout_s: float) -> ScriptEnd:
        """End a held script where it is."""
        self._worker.send("stop")
        return self._script_end(self._expect("ended", timeout_s))

    def whole_script(
        self,
        path: Path,
        arguments: Sequence[str],
        kind: StepKind,
        *,
        timeout_s: float,
        trace: Path | None = None,
        log: Path | None = None,
    ) -> WholeScript:
        """Run a script that makes no optimizer step, as one step; only once in a process.

        Raises:
            CaseRefused: A file cannot be written, or the script runs a profiler of its own.
        """
        self._worker.send("whole", path=str(path), arguments=list(arguments), kind=kind.value, **_files(trace, log))
        step = decoded(self._expect("profiled", timeout_s), ProfiledStep)
        return WholeScript(step=step, end=self._script_end(self._expect("ended", timeout_s)))

    def replay(self, op: RecordedOp, *, budget_s: float = 0.1) -> ReplayedOp:
        """Time one op alone, with values that are made up, for about `budget_s` seconds."""
        self._worker.send("replay", op=asdict(op), budget_s=budget_s)
        reply = self._expect("replayed", self._settings.setup_timeout_s)
        self._require_mask(reply)
        refused = None if reply["reason"] is None else fact("replay.refused", error=reply["reason"])
        return replace(decoded({**reply, "reason": None}, ReplayedOp), reason=refused)

    def ceilings(self, dtypes: Sequence[str] = CEILING_DTYPES, *, cache_bytes: int | None = None) -> Ceilings:
        """Measure what the worker's CPUs can do at best; some seconds for each dtype.

        Args:
            dtypes: Some of `CEILING_DTYPES`.
            cache_bytes: Last-level caches of the CPUs; None lets the worker ask the kernel.
        """
        self._worker.send("ceilings", dtypes=list(dtypes), cache_bytes=cache_bytes)
        reply = self._expect("ceilings", self._settings.setup_timeout_s)
        self._require_mask(reply)
        return decoded(reply, Ceilings)

    def _script_end(self, reply: Message) -> ScriptEnd:
        self._require_mask(reply)
        return decoded(reply, ScriptEnd)


def _files(trace: Path | None, log: Path | None) -> dict[str, str | None]:
    return {"trace": None if trace is None else str(trace), "log": None if log is None else str(log)}
