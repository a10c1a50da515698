"""The worker's command loop: one command, one answer, nothing of its own accord."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfguard.errors import BelowTargetError
from perfguard.records.protocol import PROTOCOL_VERSION, Message, StepKind
from perfguard.records.ranks import runs_apart
from perfguard.worker.attest import attest, interpreter_facts
from perfguard.worker.cases import MissingTargetError, PreparedCase, SkippedTargetError, prepare_case
from perfguard.worker.pipes import Control
from perfguard.worker.profiling.compile_events import CompileEvents
from perfguard.worker.results import UnsoundCaseError
from perfguard.worker.timing.samples import SampleTimer, settle
from perfguard.worker.timing.signals import Meters

if TYPE_CHECKING:
    from perfguard.worker.profiling.profiler import CaseProfiler

_DETAIL_CHARACTERS = 4000


class WorkerState:
    """State of one worker process: the job, the prepared cases, pyperf's runner."""

    def __init__(
        self, control: Control, meters: Meters, *, import_s: float = 0.0, import_problem: Exception | None = None
    ) -> None:
        """`meters` were opened before anything could start a thread.

        Imports before the fork took `import_s` seconds, and ended with `import_problem` where they failed.
        """
        self._control = control
        self._meters = meters
        self._import_s = import_s
        self._import_problem = import_problem
        self._job: Message = {}
        self._cases: dict[str, PreparedCase] = {}

    def serve(self) -> None:
        """Answer commands until `exit` or the end of the stream."""
        handlers: dict[str, Callable[[Message], None]] = {
            "hello": self._hello,
            "prepare": self._prepare,
            "bench": self._bench,
            "attest": self._attest,
            "prove": self._prove,
            "profile": self._profile,
            "script": self._script,
            "whole": self._script,
            "program": self._program,
            "replay": self._replay,
            "ceilings": self._ceilings,
        }
        while (command := self._control.receive()) is not None and command["do"] != "exit":
            try:
                handlers[command["do"]](command)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the child's boundary: every failure is a reply
                case_id, detail = command.get("case", {}).get("id"), traceback.format_exc()[-_DETAIL_CHARACTERS:]
                self._control.send("failed", case=case_id, **kind_and_reason(error), detail=detail)
        for case in self._cases.values():
            case.close()

    def _hello(self, command: Message) -> None:
        if command["protocol"] != PROTOCOL_VERSION:
            raise RuntimeError(f"the worker speaks protocol {PROTOCOL_VERSION}, not {command['protocol']}")
        self._job = command["job"]
        if self._import_problem is not None and self._job.get("import_torch", True):
            raise self._import_problem  # a second attempt often fails differently
        before = sorted(os.sched_getaffinity(0))
        started = time.monotonic()
        stack_facts = import_stack(self._job)
        self._control.send(
            "ready",
            pid=os.getpid(),
            affinity_before=before,
            affinity_after=sorted(os.sched_getaffinity(0)),
            import_s=self._import_s + time.monotonic() - started,
            missing_signals=self._meters.missing,
            **stack_facts,
        )

    def _prepare(self, command: Message) -> None:
        started = time.monotonic()
        compiled = CompileEvents()
        check, instances = command.get("check", False), command.get("instances", 1)
        case = prepare_case(command["case"], seed=command["seed"], check=check, instances=instances)
        self._cases[case.id] = case
        self._control.send(
            "prepared",
            case=case.id,
            digest=case.digest,
            checks=case.checks,
            instance_s=case.instance_s,
            compile_events=compiled.so_far(),
            affinity=sorted(os.sched_getaffinity(0)),
            setup_s=time.monotonic() - started,
        )

    def _bench(self, command: Message) -> None:
        case = self._cases[command["case"]["id"]]
        inner_loops, spin_s = int(command["inner_loops"]), command.get("spin_s", 0.0)
        self._runner.args.values = command.get("samples", self._runner.args.values)
        metadata = self._job.get("metadata", {})

        def time_samples(held: PreparedCase) -> None:
            timer = SampleTimer(self._control, held, self._meters, inner_loops=inner_loops, spin_s=spin_s)
            self._runner.bench_time_func(case.id, timer, inner_loops=inner_loops, metadata=metadata)
            held.check_last(timer.last_result)

        case.hold(time_samples)
        self._control.send("benched", case=case.id, digest=case.digest)

    def _attest(self, command: Message) -> None:
        further: dict[str, str] = {}
        for case in self._cases.values():
            further |= {} if case.group is None else case.group.imported_files()
        self._control.send("attested", **attest(command["roots"], command["foreign_roots"], further))

    def _prove(self, command: Message) -> None:
        from perfguard.worker.proof import prove

        found = prove(command["case"], seed=command["seed"], roots=command["roots"])
        self._control.send("proved", case=command["case"]["id"], **found)

    def _profile(self, command: Message) -> None:
        described = command["case"]
        case = self._cases[described["id"]]
        if runs_apart(described["target"], described["parameters"]):
            hint = "; use ranks=1" if case.group is not None else ""
            raise UnsoundCaseError(f"{case.id} runs in processes of its own, which no profiler sees{hint}")
        trace, log = (None if command.get(name) is None else Path(command[name]) for name in ("trace", "log"))
        measured: Message = {}

        def look(held: PreparedCase) -> None:
            measured.update(self._profiler.profile(held, StepKind(command["kind"]), trace=trace, log=log))

        case.hold(look)
        settle()
        self._control.send("profiled", case=case.id, **measured)

    def _script(self, command: Message) -> None:
        from perfguard.worker.profiling.scripts import profile_script, profile_whole_script

        profile = profile_script if command["do"] == "script" else profile_whole_script
        profile(command, self._control, self._profiler.steps)

    def _program(self, command: Message) -> None:
        from perfguard.worker.program import answer

        case_id = command.get("case", {}).get("id")
        calls = self._cases[case_id].calls if case_id is not None else None
        self._control.send("program", program=answer(calls), affinity=sorted(os.sched_getaffinity(0)))

    def _replay(self, command: Message) -> None:
        from perfguard.worker.profiling.replay import answer

        self._control.send("replayed", **answer(command))

    def _ceilings(self, command: Message) -> None:
        from perfguard.worker.profiling.ceilings import answer

        self._control.send("ceilings", **answer(command))

    @cached_property
    def _profiler(self) -> CaseProfiler:
        from perfguard.worker.profiling.profiler import CaseProfiler, StepProfiler

        return CaseProfiler(StepProfiler(self._job.get("changed")))

    @cached_property
    def _runner(self) -> Any:
        import pyperf

        runner = pyperf.Runner()
        runner.parse_args()
        return runner


def import_stack(job: Message) -> Message:
    """Import what the arm measures with; importing torch may move the affinity mask, so the caller looks twice."""
    if job.get("profile", False):
        from perfguard.worker.profiling.library_logs import TIMESTAMP_VARIABLE

        os.environ[TIMESTAMP_VARIABLE] = "1"
    facts: Message = {"interpreter": interpreter_facts()}
    if job.get("import_torch", True):
        import torch

        facts["torch_threads"] = torch.get_num_threads()
        if os.environ.get("PERFGUARD_STACK") == "ipex":
            # Importing it replaces kernels, so every case of this arm must see it, not only those that call optimize.
            from perfguard.benchmarks.stack import import_ipex

            import_ipex()
        if job.get("collect_software", False):
            from perfguard.worker.torch_env import collect

            facts["software"] = collect()
    return facts


def kind_and_reason(error: Exception | SystemExit) -> Message:
    """What a failure is called in a reply: `kind` is `missing`, `skipped`, `below_target` or `error`."""
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, MissingTargetError):
        return {"kind": "skipped" if isinstance(error, SkippedTargetError) else "missing", "reason": text[:300]}
    if isinstance(error, BelowTargetError):
        return {"kind": "below_target", "reason": text[:300]}
    if not getattr(error, "is_plain", False):
        text, place = f"{type(error).__name__}: {text}"[:250], _place_of(error)
        text += f" ({place})" if place else ""
    return {"kind": "error", "reason": text[:300]}


def _place_of(error: BaseException) -> str | None:
    """The innermost line of the code under test that raised it, as `net/train.py:19` from where it is imported."""
    roots = sorted((f"{root}/" for root in (*sys.path, Path.cwd()) if root), key=len, reverse=True)
    own = (sys.base_prefix, str(Path(__file__).parents[2]))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        root = next((root for root in roots if frame.filename.startswith(root)), None)
        if root is not None and not frame.filename.startswith(own) and "site-packages" not in frame.filename:
            place = f"{frame.filename[len(root) :]}:{frame.lineno}"
            return place if len(place) < 48 else None
    return None
