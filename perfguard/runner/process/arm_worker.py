"""One arm's worker, spoken to in whole steps: hello, prepare, open, sample, attest; and one that profiles."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from perfguard.codec import to_builtins
from perfguard.errors import MeasurementError
from perfguard.records.changed_lines import ChangedLines
from perfguard.records.events import SampleTimed
from perfguard.records.facts import fact
from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.plan import MeasureSettings
from perfguard.records.protocol import PROTOCOL_VERSION, Message, StepKind
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.runner.process.answers import (
    WHY_NOT_IN_FORM,
    Ceilings,
    CodeProof,
    HeldScript,
    Looked,
    Placed,
    Prepared,
    ProfiledStep,
    ProgramAnswer,
    Ready,
    RecordedOp,
    ReplayedOp,
    ScriptEnd,
    Varied,
    WholeScript,
    decoded,
)
from perfguard.runner.process.cpu_clocks import read_cpu_clocks, read_waits, used_s
from perfguard.runner.process.worker_process import LONGEST_REASON, Worker, WorkerFailure

T = TypeVar("T")
CEILING_DTYPES = ("fp32", "bf16", "fp64")
_COUNTED = ("cpu_s", "minor_faults", "involuntary_switches", "voluntary_switches", "peak_memory_bytes", "energy_j",
            "instructions", "waited_s")  # fmt: skip
_MOST = 2.0**53  # Bytes, events, seconds: what a double counts exactly, and more than any sample has
_LONGEST_DETAIL = 20_000  # Characters


class CaseRefused(Exception):  # noqa: N818 - a reply of the worker, which lives on
    """The worker says that a case cannot be measured; other cases can."""

    def __init__(self, reason: str, detail: str, kind: str) -> None:
        """Say why; the kind is `missing`, `skipped`, `below_target` or anything else, an error."""
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
        self.skipped = kind == "skipped"
        self.missing = self.skipped or kind == "missing"
        if kind == "below_target":
            self.found = fact("case.below_target", error=reason)
        else:
            self.found = fact(
                "case.skipped" if self.skipped else "case.missing" if self.missing else "case.raised", error=reason
            )


class CheckedSample(NamedTuple):
    """A sample whose result was looked at."""

    timed: SampleTimed
    is_varied: bool  # Whether its inputs differed from those of set-up
    checks: dict[str, float]  # Named numbers of its last call's result; empty where it has none


class ArmWorker:
    """A worker process of one arm. Every method raises WorkerFailure where the process fails."""

    def __init__(self, arm: Arm, worker: Worker, settings: MeasureSettings) -> None:
        self.arm = arm
        self._worker = worker
        self._settings = settings
        self._cpus: tuple[int, ...] = ()
        self._process: tuple[int, ...] = ()  # The worker's, once a case is open
        self._inner_loops: int | None = None  # Iterations of a sample; None where the worker looks for their number
        self.is_waiting = False

    def hello(self, job: Message, *, cpus: tuple[int, ...]) -> Message:
        """Have the worker import its stack, and check that the affinity mask survived."""
        self._worker.send("hello", protocol=PROTOCOL_VERSION, job=job)
        ready = self._expect("ready", self._settings.setup_timeout_s)
        self._cpus = tuple(sorted(cpus))
        said = decoded(ready, Ready)
        for when, mask in (("before", said.affinity_before), ("after", said.affinity_after)):
            if mask != self._cpus:
                raise WorkerFailure(
                    f"the worker may run on CPUs {list(mask)} instead of {sorted(cpus)} {when} its imports; an "
                    "OMP_PROC_BIND, GOMP_CPU_AFFINITY or KMP_AFFINITY of this arm moves the mask"
                )
        return ready

    def hello_profiler(
        self, name: str, *, cpus: tuple[int, ...], collect_software: bool = False, changed: ChangedLines | None = None
    ) -> Message:
        """`hello` for a worker that profiles and never times a sample; `name` is what it is called where it fails.

        Of the lines that led to an op, one of the `changed` ones comes first.

        Raises:
            MeasurementError: It cannot be started; it is left to be closed.
        """
        job: Message = {"import_torch": True, "profile": True, "collect_software": collect_software, "metadata": {}}
        if changed is not None:
            job["changed"] = changed.by_path()
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
        return self._outcome("prepared", Prepared)

    def open(
        self, case: Case, *, inner_loops: int, spin_s: float, samples: int | None = None, calibrates: bool = False
    ) -> None:
        """Start a pyperf benchmark of a prepared case; its first sample then waits.

        It takes the samples that the worker was started with, unless others are given. With `calibrates` pyperf looks
        for the number of iterations, beginning with `inner_loops`.
        """
        more = {} if samples is None else {"samples": samples}
        self._worker.send("bench", case=_described(case), inner_loops=inner_loops, spin_s=spin_s, **more)
        self._expect("waiting", self._settings.sample_timeout_s)
        self._process = tuple(filter(None, [self._worker.pid]))
        self._inner_loops = None if calibrates else inner_loops
        self.is_waiting = True

    def sample(self, *, block: int, case_id: str, position: int = 0) -> SampleTimed:
        """Hand the baton over for one sample, and take it back when the worker waits again or has all its values.

        `position` is among the block's samples of this case and arm, warm-ups first.
        """
        timed = self._timed(block=block, case_id=case_id, position=position)
        self._await_turn()
        return timed

    def checked_sample(self, *, block: int, case_id: str, position: int, seeds: tuple[int, int]) -> CheckedSample:
        """A `sample` whose inputs the first seed draws anew, and whose result is looked at where the second one says.

        The worker gets the first seed just before its turn and the second one after it.
        """
        timeout_s = self._settings.sample_timeout_s
        self._worker.send("vary", seed=seeds[0])
        is_varied = decoded(self._expect("varied", timeout_s), Varied).is_varied
        timed = self._timed(block=block, case_id=case_id, position=position)
        self._worker.send("look", seed=seeds[1])
        checks = decoded(self._expect("looked", timeout_s), Looked).checks
        self._await_turn()
        return CheckedSample(timed=timed, is_varied=is_varied, checks=checks)

    def _await_turn(self) -> None:
        reply = self._expect(("waiting", "benched"), self._settings.sample_timeout_s)["reply"]
        self.is_waiting = reply == "waiting"

    def _timed(self, *, block: int, case_id: str, position: int) -> SampleTimed:
        waits_before, cpu_before = read_waits(self._process), read_cpu_clocks(self._process)
        began_s = self._worker.now_s()
        self._worker.send("go")
        reply = self._expect("sample", self._settings.sample_timeout_s)
        elapsed_s, cpu_after = self._worker.now_s() - began_s, read_cpu_clocks(self._process)
        waits_after = read_waits(self._process)
        self._require_mask(reply)
        warmups = self._settings.warmups
        place = {"block": block, "case_id": case_id, "arm": self.arm, "warmup": position < warmups}
        index = position if position < warmups else position - warmups
        # What is made again before each call takes time that no sample claims; the candidate's word does not count.
        is_whole = not (self.arm is Arm.BASELINE and reply.get("is_renewed"))
        known = {
            **place,
            "index": index,
            "elapsed_s": elapsed_s if is_whole else None,
            "parent_cpu_s": used_s(cpu_before, cpu_after) if cpu_after else None,
            "parent_waited_s": used_s(waits_before, waits_after) if len(waits_after) > 1 else None,
        }
        timed = decoded({**reply, **known}, SampleTimed)
        if timed.value_s * timed.iterations > elapsed_s:
            claimed_s = timed.value_s * timed.iterations
            raise WorkerFailure(
                f"the worker says that it took {claimed_s} s, and answered after {elapsed_s} s; {WHY_NOT_IN_FORM}",
                found=fact("case.clock", claimed_s=claimed_s, elapsed_s=elapsed_s),
            )
        if timed.value_s <= 0:
            raise WorkerFailure(f"the worker timed {timed.value_s} s, which is no time; {WHY_NOT_IN_FORM}")
        most = self._inner_loops
        if most is not None and not (1 if reply.get("is_renewed") else most) <= timed.iterations <= most:
            raise WorkerFailure(f"the worker made {timed.iterations} iterations instead of {most}; {WHY_NOT_IN_FORM}")
        if odd := next((name for name in _COUNTED if not 0 <= (getattr(timed, name) or 0) <= _MOST), None):
            raise WorkerFailure(f"the worker counted {getattr(timed, odd)} as {odd}; {WHY_NOT_IN_FORM}")
        return timed

    def skip(self) -> None:
        """Take an opened benchmark back."""
        self._worker.send("skip")
        with contextlib.suppress(CaseRefused):
            self._expect("benched", self._settings.sample_timeout_s)

    def profile(
        self, case: Case, kind: StepKind, *, trace: Path | None = None, log: Path | None = None
    ) -> ProfiledStep:
        """Call a case that was prepared once and look at it; where it is new in this way, it is called untimed before.

        The worker's job must have `profile`. `trace` takes the Chrome trace, compressed where its name ends in `.gz`;
        `log` takes what the libraries and the program print in `joined` steps. Both are absolute.

        Raises:
            CaseRefused: The case raises, or a file cannot be written.
        """
        self._worker.send("profile", case=_described(case), kind=kind.value, **self._files(trace, log))
        step = self._outcome("profiled", ProfiledStep)  # exporting a trace takes longer than the step itself
        self._take_files(trace, log)
        return step

    def program(self, case: Case) -> Message:
        """What the process knows of the program behind a prepared case, as `ProgramFacts` has it.

        Raises:
            CaseRefused: The worker cannot read it.
        """
        self._worker.send("program", case=_described(case))
        return decoded(self._expect("program", self._settings.setup_timeout_s), ProgramAnswer).program

    def attest(self, roots: tuple[str, ...], foreign_roots: tuple[str, ...]) -> Message:
        """Ask which files of the trees were imported."""
        self._worker.send("attest", roots=roots, foreign_roots=foreign_roots)
        return self._expect("attested", self._settings.setup_timeout_s)

    def prove(self, case: Case, *, seed: int, roots: tuple[str, ...]) -> CodeProof:
        """What a case executes and reads of the trees; the worker must have imported nothing of them."""
        self._worker.send("prove", case=_described(case), seed=seed, roots=roots)
        message = self._expect("proved", self._settings.setup_timeout_s)
        return decoded({name: message.get(name) for name in ("executed", "read", "problem")}, CodeProof)

    def processes(self) -> tuple[int, ...]:
        """Process ids of the worker and of everything it has started."""
        return self._worker.processes()

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _files(self, trace: Path | None, log: Path | None) -> dict[str, str | None]:
        """Where the worker writes what goes to `trace` and `log`: to the folder that its arm alone may change."""
        named = {"trace": trace, "log": log}
        return {name: None if path is None else str(self._worker.place_of(path)) for name, path in named.items()}

    def _take_files(self, *wanted: Path | None) -> None:
        for path in wanted:
            if path is not None:
                self._worker.take(path)

    def _outcome(self, reply: str, kind: type[T]) -> T:
        message = self._expect(reply, self._settings.setup_timeout_s)
        self._require_mask(message)
        return decoded(message, kind)

    def _require_mask(self, reply: Message) -> None:
        """Fail the worker where a benchmark has moved it: nothing that it times from now on can be compared."""
        mask = decoded(reply, Placed).affinity
        if mask != self._cpus:
            moved_to = format_cpu_list(mask)
            raise WorkerFailure(
                f"the benchmark moved its process to CPUs {list(mask)} instead of {list(self._cpus)}; it must "
                "leave the affinity alone",
                found=fact("case.moved_cpus", cpus=moved_to, expected_cpus=format_cpu_list(self._cpus)),
            )

    def _expect(self, replies: str | tuple[str, ...], timeout_s: float) -> Message:
        due = (replies,) if isinstance(replies, str) else replies
        message = self._worker.receive(timeout_s)
        if message.get("reply") == "failed":
            reason, detail, kind = (str(message.get(name)) for name in ("reason", "detail", "kind"))
            raise CaseRefused(reason[:LONGEST_REASON], detail[:_LONGEST_DETAIL], kind)
        if message.get("reply") not in due:
            raise WorkerFailure(f"the worker answered {message.get('reply')!r} where {due[0]!r} was due")
        return message


def _described(case: Case) -> dict[str, Any]:
    return {"id": case.id, "target": case.target, "parameters": dict(case.parameters), "phase": case.phase.value}


class ProfilingWorker(ArmWorker):
    """A worker process of one arm that never times a sample. Every method raises WorkerFailure where it fails."""

    def start_script(
        self, path: Path, arguments: Sequence[str], *, skip: int, timeout_s: float, seed: int | None = None
    ) -> HeldScript | ScriptEnd:
        """Run a script (absolute) until its `skip`-th optimizer step has ended, the first at least; or how it ended.

        With a `seed`, random numbers are seeded before it runs.

        Raises:
            CaseRefused: It cannot be held.
        """
        self._worker.send("script", path=str(path), arguments=list(arguments), skip=skip, seed=seed)
        reply = self._expect(("waiting", "ended"), timeout_s)
        return self._script_end(reply) if reply["reply"] == "ended" else decoded(reply, HeldScript)

    def script_step(
        self, kind: StepKind, *, timeout_s: float, trace: Path | None = None, log: Path | None = None
    ) -> ProfiledStep | ScriptEnd:
        """Let a held script make a step and hold it again; the first step with a profiler comes after two without.

        Raises:
            CaseRefused: A file cannot be written, or the script runs a profiler of its own; it has been ended.
        """
        self._worker.send("step", kind=kind.value, **self._files(trace, log))
        reply = self._expect(("profiled", "ended"), timeout_s)
        if reply["reply"] == "ended":
            return self._script_end(reply)
        self._require_mask(reply)
        self._take_files(trace, log)
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
        self._worker.send(
            "whole", path=str(path), arguments=list(arguments), kind=kind.value, **self._files(trace, log)
        )
        step = decoded(self._expect("profiled", timeout_s), ProfiledStep)
        self._take_files(trace, log)
        return WholeScript(step=step, end=self._script_end(self._expect("ended", timeout_s)))

    def replay(self, op: RecordedOp, *, budget_s: float = 0.1) -> ReplayedOp:
        """Time one op alone, with values that are made up, for about `budget_s` seconds."""
        self._worker.send("replay", op=to_builtins(op), budget_s=budget_s)
        reply = self._expect("replayed", self._settings.setup_timeout_s)
        self._require_mask(reply)
        refused = None if reply["reason"] is None else fact("replay.refused", error=reply["reason"])
        return replace(decoded({**reply, "reason": None}, ReplayedOp), reason=refused)

    def ceilings(self, dtypes: Sequence[str] = CEILING_DTYPES, *, cache_bytes: int | None = None) -> Ceilings:
        """Measure what the worker's CPUs can do at best; some seconds for each dtype, some of `CEILING_DTYPES`.

        `cache_bytes` are last-level caches of the CPUs; None lets the worker ask the kernel.
        """
        self._worker.send("ceilings", dtypes=list(dtypes), cache_bytes=cache_bytes)
        return self._outcome("ceilings", Ceilings)

    def _script_end(self, reply: Message) -> ScriptEnd:
        self._require_mask(reply)
        return decoded(reply, ScriptEnd)
