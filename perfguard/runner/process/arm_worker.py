"""One arm's worker, spoken to in whole steps: hello, prepare, open, sample, attest."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfguard.errors import MeasurementError
from perfguard.records.events import SampleTimed
from perfguard.records.facts import fact
from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.plan import MeasureSettings
from perfguard.records.protocol import PROTOCOL_VERSION, Message, StepKind
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.runner.process.worker_process import Worker, WorkerFailure

T = TypeVar("T")
_WHY_NOT_IN_FORM = "does code of the benchmark change perfguard's own?"


class CaseRefused(Exception):  # noqa: N818 - a reply of the worker, which lives on
    """The worker says that a case cannot be measured; other cases can."""

    def __init__(self, reason: str, detail: str, *, missing: bool, skipped: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.found = fact("case.skipped" if skipped else "case.missing" if missing else "case.raised", error=reason)
        self.detail = detail
        self.missing = missing
        self.skipped = skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A case as it was set up."""

    digest: float
    """Result of its first call, reduced to one number."""
    checks: dict[str, float] = field(default_factory=dict)
    """Named numbers of that call; equal seeds give equal numbers."""
    instance_s: float | None = None
    """Seconds of one further set-up; None where it was not checked."""
    compile_events: dict[str, int] = field(default_factory=dict)
    """What torch.compile did meanwhile, by name: `unique_graphs`, `frames`, `graph_break: REASON`, `recompile: REASON`.
    Graph breaks are counted when code is compiled, so those of a steady step are found here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledStep:
    """One step as the worker reports it, looked at in one of the ways of `StepKind`."""

    kind: StepKind
    """How it was looked at."""
    wall_s: float
    """Wall seconds of the step, with whatever the profiler costs."""
    thread_s: float
    """CPU seconds of the thread that called it."""
    process_s: float
    """CPU seconds of all threads of the process."""
    minor_faults: int
    """Minor page faults of the process."""
    event_s: float | None
    """What the profiler costs for the event of an op, seconds, measured on ops that do nothing; None for bare steps."""
    own_share: float | None
    """Part of that cost that lies inside the event, 0 to 1; the rest is its parent's; None for bare steps."""
    module_s: float | None
    """What it costs for the event of a module, hooks included; None for bare steps."""
    compile_events: dict[str, int]
    """What torch.compile did in the step, named as in `Prepared`; empty where it had nothing left to do."""
    logs: tuple[str, ...]
    """The libraries whose log was written: `onednn`, `mkl`."""


class ArmWorker:
    """A worker process of one arm. Every method raises WorkerFailure where the process fails."""

    def __init__(self, arm: Arm, worker: Worker, settings: MeasureSettings) -> None:
        self.arm = arm
        self._worker = worker
        self._settings = settings
        self._cpus: tuple[int, ...] = ()
        self.is_waiting = False

    def hello(self, job: Message, *, cpus: tuple[int, ...]) -> Message:
        """Have the worker import its stack, and check that the affinity mask survived."""
        self._worker.send("hello", protocol=PROTOCOL_VERSION, job=job)
        ready = self._expect("ready", self._settings.setup_timeout_s)
        self._cpus = tuple(sorted(cpus))
        for moment in ("affinity_before", "affinity_after"):
            if tuple(ready[moment]) != self._cpus:
                when = "before" if moment == "affinity_before" else "after"
                raise WorkerFailure(
                    f"the worker may run on CPUs {ready[moment]} instead of {sorted(cpus)} {when} importing torch; an "
                    "OMP_PROC_BIND, GOMP_CPU_AFFINITY or KMP_AFFINITY of this arm moves the mask"
                )
        return ready

    def hello_profiler(self, name: str, *, cpus: tuple[int, ...], collect_software: bool = False) -> Message:
        """`hello` for a worker that profiles and never times a sample.

        Args:
            name: What the worker is called where it fails: `the worker`.
            cpus: Affinity mask that it was started with.
            collect_software: Whether it is to say what it runs on.

        Raises:
            MeasurementError: It cannot do that; it is left to be closed.
        """
        job = {"import_torch": True, "profile": True, "collect_software": collect_software, "metadata": {}}
        try:
            return self.hello(job, cpus=cpus)
        except (WorkerFailure, CaseRefused) as failure:
            raise MeasurementError(f"{name} cannot be started: {failure.reason}") from failure

    def prepare(self, case: Case, *, seed: int, check: bool, instances: int = 1) -> Prepared:
        """Set a case up, with as many instances as are to take turns, and call it.

        Raises:
            CaseRefused: The benchmark raises, is missing, or is not worth timing.
        """
        self._worker.send("prepare", case=_described(case), seed=seed, check=check, instances=instances)
        prepared = self._expect("prepared", self._settings.setup_timeout_s)
        self._require_mask(prepared)
        return decoded(prepared, Prepared)

    def open(self, case: Case, *, inner_loops: int, spin_s: float) -> None:
        """Start a pyperf benchmark of a prepared case; its first sample then waits."""
        self._worker.send("bench", case=_described(case), inner_loops=inner_loops, spin_s=spin_s)
        self._expect("waiting", self._settings.sample_timeout_s)
        self.is_waiting = True

    def sample(self, *, block: int, case_id: str, position: int = 0) -> SampleTimed:
        """Hand the baton over for one sample, and take it back when the worker waits again or has all its values.

        Args:
            block: Number of the block.
            case_id: The case.
            position: Among the block's samples of this case and arm, warm-ups first.
        """
        self._worker.send("go")
        reply = self._expect("sample", self._settings.sample_timeout_s)
        self._require_mask(reply)
        warmups = self._settings.warmups
        place = {"block": block, "case_id": case_id, "arm": self.arm, "warmup": position < warmups}
        index = position if position < warmups else position - warmups
        timed = decoded({**reply, **place, "index": index}, SampleTimed)
        if not (math.isfinite(timed.value_s) and timed.value_s > 0):
            raise WorkerFailure(f"the worker timed {timed.value_s} s, which is no time; {_WHY_NOT_IN_FORM}")
        self.is_waiting = self._expect_any(("waiting", "benched"))["reply"] == "waiting"
        return timed

    def skip(self) -> None:
        """Take an opened benchmark back."""
        self._worker.send("skip")
        try:
            self._expect("benched", self._settings.sample_timeout_s)
        except CaseRefused:
            return

    def profile(
        self, case: Case, kind: StepKind, *, trace: Path | None = None, log: Path | None = None
    ) -> ProfiledStep:
        """Call a prepared case once and look at it; where it is new in this way, it is called untimed before.

        Args:
            case: Prepared by this worker, which was told `profile` in its job.
            kind: How to look at it.
            trace: Takes the Chrome trace, absolute; compressed where its name ends in `.gz`.
            log: Takes what the libraries and the program print, absolute; for `joined` steps.

        Raises:
            CaseRefused: The case raises, or a file cannot be written.
        """
        self._worker.send(
            "profile",
            case=_described(case),
            kind=kind.value,
            trace=None if trace is None else str(trace),
            log=None if log is None else str(log),
        )
        # Exporting a trace takes longer than the step itself.
        profiled = self._expect("profiled", self._settings.setup_timeout_s)
        self._require_mask(profiled)
        return decoded(profiled, ProfiledStep)

    def program(self, case: Case) -> Message:
        """What the process knows of the program behind a prepared case, as `ProgramFacts` has it.

        Raises:
            CaseRefused: It cannot be told.
        """
        self._worker.send("program", case=_described(case))
        found: Message = self._expect("program", self._settings.setup_timeout_s)["program"]
        return found

    def attest(self, roots: tuple[str, ...], foreign_roots: tuple[str, ...]) -> Message:
        """Ask which files of the trees were imported."""
        self._worker.send("attest", roots=roots, foreign_roots=foreign_roots)
        return self._expect("attested", self._settings.setup_timeout_s)

    def processes(self) -> tuple[int, ...]:
        """Process ids of the worker and of everything it has started."""
        return self._worker.processes()

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _require_mask(self, reply: Message) -> None:
        """Fail the worker where a benchmark has moved it: nothing that it times from now on can be compared."""
        if tuple(reply["affinity"]) != self._cpus:
            raise WorkerFailure(
                f"the benchmark moved its process to CPUs {reply['affinity']} instead of {list(self._cpus)}; it must "
                "leave the affinity alone",
                found=fact(
                    "case.moved_cpus",
                    cpus=format_cpu_list(reply["affinity"]),
                    expected_cpus=format_cpu_list(self._cpus),
                ),
            )

    def _expect(self, reply: str, timeout_s: float) -> Message:
        return self._expect_any((reply,), timeout_s)

    def _expect_any(self, replies: tuple[str, ...], timeout_s: float | None = None) -> Message:
        message = self._worker.receive(timeout_s or self._settings.sample_timeout_s)
        if message.get("reply") == "failed":
            raise CaseRefused(
                str(message.get("reason")),
                str(message.get("detail")),
                missing=message.get("kind") in ("missing", "skipped"),
                skipped=message.get("kind") == "skipped",
            )
        if message.get("reply") not in replies:
            raise WorkerFailure(f"the worker answered {message.get('reply')!r} where {replies[0]!r} was due")
        return message


def decoded(reply: Message, kind: type[T]) -> T:
    """A worker's reply as a value.

    Raises:
        WorkerFailure: It is not of that form: the code that is measured runs in the worker's process.
    """
    try:
        return msgspec.convert(reply, kind)
    except msgspec.ValidationError as error:
        raise WorkerFailure(
            f"the worker's answer {reply.get('reply')!r} is not of the form that it has ({error}); {_WHY_NOT_IN_FORM}"
        ) from error


def _described(case: Case) -> dict[str, Any]:
    return {"id": case.id, "target": case.target, "parameters": dict(case.parameters), "phase": case.phase.value}
