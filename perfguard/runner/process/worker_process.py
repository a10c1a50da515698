"""One worker process and its pipes; the measuring seam. Tests put a scripted fake in its place."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from perfguard.errors import MeasurementError
from perfguard.records.facts import Fact, fact
from perfguard.records.plan import BlockPlan, MeasureSettings, ResolvedArm
from perfguard.records.protocol import CONTROL_VARIABLE, MAX_LINE_BYTES, Message, decode, encode
from perfguard.records.ranks import SOCKETS_VARIABLE, Sockets
from perfguard.records.run import Arm
from perfguard.runner.process.launching import START_SCRIPT, launched

_STDERR_TAIL_BYTES = 4000
_EXIT_GRACE_S = 5.0
CALIBRATION_MIN_TIME_S = 0.02  # pyperf doubles its loops until one value takes this long
_OUTPUT = ("raw", "profiles")  # Folders of a run that workers write to


class WorkerFailure(Exception):  # noqa: N818 - it is the worker's failure, turned into a verdict, not an error of ours
    """A worker failed: `reason` for messages of errors, the same as data in `found`, and its last words in `detail`."""

    def __init__(self, reason: str, detail: str = "", *, found: Fact | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
        self.found = found or fact("case.worker_failed", error=reason)


class Worker(Protocol):
    """A started worker."""

    def send(self, do: str, **fields: object) -> None:
        """Give one command."""

    def receive(self, timeout_s: float) -> Message:
        """Wait for one reply.

        Raises:
            WorkerFailure: The worker died, hung or wrote rubbish.
        """

    def processes(self) -> tuple[int, ...]:
        """Process ids of the worker and of everything it has started; empty where it has none."""

    def close(self) -> None:
        """End the worker, whatever state it is in."""


class WorkerProcess:
    """A real worker: launcher, interpreter, two pipes, and a log file that takes its stdout and stderr.

    `memory_node` None leaves the memory policy alone, `writable` None leaves it every right that perfguard has.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: str,
        cpus: tuple[int, ...],
        memory_node: int | None,
        log: Path,
        writable: tuple[str, ...] | None = None,
    ) -> None:
        self._log_path = log
        self._buffer = b""
        self._owes_answer = False
        command_read, self._command_write = os.pipe()
        self._reply_read, reply_write = os.pipe()
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    launched(arguments, cpus=cpus, memory_node=memory_node, writable=writable),
                    env={**environment, CONTROL_VARIABLE: f"{command_read},{reply_write}"},
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(command_read, reply_write),
                    start_new_session=True,  # a Ctrl-C at the terminal is the parent's to handle
                )
        except OSError as error:
            os.close(self._command_write)
            os.close(self._reply_read)
            raise MeasurementError(f"{arguments[0]} cannot be started: {error}") from error
        finally:
            os.close(command_read)
            os.close(reply_write)
        self._died: tuple[int, ...] = ()  # A descriptor that becomes readable when the process ends, if there is one
        with contextlib.suppress(AttributeError, OSError):
            self._died = (os.pidfd_open(self._process.pid),)

    @property
    def pid(self) -> int:
        """Process id, the same before and after exec."""
        return self._process.pid

    def processes(self) -> tuple[int, ...]:
        """Process ids of the worker and of everything it has started."""
        return (self.pid, *(process.pid for process in _descendants(self.pid)))

    def send(self, do: str, **fields: object) -> None:
        """Give one command; a worker that is gone shows at the next receive."""
        self._owes_answer = True
        self._write({"do": do, **fields})

    def receive(self, timeout_s: float) -> Message:
        """Wait for one reply."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready = select.select([self._reply_read, *self._died], [], [], left)[0] if left > 0 else []
            if not ready:
                self._kill()
                raise WorkerFailure(
                    f"the worker gave no answer in {timeout_s:.0f} s and was killed",
                    self._tail(),
                    found=fact("case.timed_out", timeout_s=timeout_s),
                )
            # A worker that died may have left children that hold the pipe open, so its end alone says too little.
            chunk = os.read(self._reply_read, 65536) if self._reply_read in ready else b""
            if not chunk:
                raise self._ended()
            self._buffer += chunk
            if len(self._buffer) > MAX_LINE_BYTES:
                self._kill()
                raise WorkerFailure("the worker wrote rubbish into its control pipe and was killed", self._tail())
        self._owes_answer = False
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return decode(line)
        except ValueError as error:
            self._kill()
            raise WorkerFailure(f"the worker wrote rubbish into its control pipe ({error})", self._tail()) from None

    def close(self) -> None:
        """Ask the worker to end, and kill it and everything it started where it does not; at once where it is busy."""
        started = _descendants(self._process.pid)
        self._write({"do": "exit"})
        with contextlib.suppress(OSError):
            os.close(self._command_write)  # a worker whose sample still waits takes the first message as its end
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0 if self._owes_answer else _EXIT_GRACE_S)
        finally:
            self._kill(started)
            for descriptor in (self._reply_read, *self._died):
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def _write(self, message: Message) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._command_write, encode(message))

    def _kill(self, started: Sequence[psutil.Process] = ()) -> None:
        # Those that took a session of their own are in no group of the worker's any more.
        left = (*started, *_descendants(self._process.pid))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _ended(self) -> WorkerFailure:
        try:
            code = self._process.wait(_EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            self._kill()
            return WorkerFailure("the worker closed its control pipe and was killed", self._tail())
        if code == -signal.SIGKILL:
            said = "the worker was killed (signal 9); out of memory is the usual reason, see `dmesg`"
            return WorkerFailure(said, self._tail(), found=fact("case.killed"))
        if code < 0:
            name = signal.Signals(-code).name
            return WorkerFailure(
                f"the worker crashed with {name}", self._tail(), found=fact("case.crashed", signal=name)
            )
        said = f"the worker ended by itself with exit code {code}"
        return WorkerFailure(said, self._tail(), found=fact("case.exited", exit_code=code))

    def _tail(self) -> str:
        with contextlib.suppress(OSError), self._log_path.open("rb") as log:
            log.seek(max(0, self._log_path.stat().st_size - _STDERR_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
        return ""


def _descendants(pid: int) -> list[psutil.Process]:
    """What a process and its children have started and not yet orphaned; nothing where it is gone."""
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


class Starter(Protocol):
    """Starts workers; the seam between measuring and processes."""

    def start(self, arm: Arm, block: BlockPlan, settings: MeasureSettings | None) -> Worker:
        """A fresh worker of an arm that measures by the settings; with None it calibrates."""

    def start_control(self) -> Worker:
        """The control workload, which lives as long as the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What everything that works with workers gets from outside."""

    starter: Starter
    settings: MeasureSettings  # Samples, budget, timeouts, seed
    cpus: tuple[int, ...]  # Affinity mask of the workers
    should_stop: Callable[[], bool] = lambda: False  # True once the user wants the run to end


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarter:
    """Starts real, pinned processes."""

    arms: dict[Arm, ResolvedArm]  # The arms that can be started
    environments: dict[Arm, dict[str, str]]  # Their padded environments
    cpus: tuple[int, ...]  # Affinity mask
    memory_node: int | None  # NUMA node that memory is bound to
    folder: Path  # The run's folder, absolute
    control_bundle: str  # Bundle that the control workload is started from
    sockets: Sockets  # The cores of the mask, which the ranks of a case share out among them

    def start(self, arm: Arm, block: BlockPlan, settings: MeasureSettings | None) -> Worker:
        """A fresh process of an arm with the block's hash seed."""
        resolved = self.arms[arm]
        code = "a" if arm is Arm.BASELINE else "b"  # equally long: the command line shifts the stack too
        label = self._calibration_label(code) if settings is None else f"{block.index:04d}"
        loops: tuple[str, ...] = ("--calibrate-loops", "--min-time", str(CALIBRATION_MIN_TIME_S), "-w", "1", "-n", "1")
        if settings is not None:
            loops = ("-l", "1", "-w", str(settings.warmups), "-n", str(settings.samples))
        raw, mask = self.folder / "raw" / f"{label}-{code}.json", ",".join(map(str, self.cpus))
        program = (resolved.interpreter, str(Path(resolved.bundle) / START_SCRIPT), "perfguard.worker")
        return WorkerProcess(
            (*program, "--worker", "-q", *loops, "--affinity", mask, "-o", str(raw)),
            environment={**self.environments[arm], **self._variables(block)},
            directory=resolved.tree or str(self.folder),
            cpus=self.cpus,
            memory_node=self.memory_node,
            log=self.folder / "logs" / f"{label}-{code}.log",
            writable=self._writable(resolved),
        )

    def _variables(self, block: BlockPlan) -> dict[str, str]:
        return {"PYTHONHASHSEED": str(block.hash_seed), SOCKETS_VARIABLE: json.dumps(self.sockets)}

    def _writable(self, arm: ResolvedArm) -> tuple[str, ...] | None:
        """The arm's own folders, and those that pyperf and the profiler write to; the verdict is in neither."""
        if arm.writable is None:
            return None
        folders = [self.folder / name for name in _OUTPUT]
        for folder in folders:
            folder.mkdir(exist_ok=True)  # rights are given to folders that exist
        return (*arm.writable, *map(str, folders))

    def _calibration_label(self, code: str) -> str:
        """A name that no worker of this run has taken: a run may calibrate twice, and a worker may have crashed."""
        labels = (f"calibrate{number}" for number in itertools.count(1))
        return next(label for label in labels if not (self.folder / "logs" / f"{label}-{code}.log").exists())

    def start_control(self) -> Worker:
        """The control workload in perfguard's own interpreter, on the same CPUs."""
        return WorkerProcess(
            (sys.executable, str(Path(self.control_bundle) / START_SCRIPT), "perfguard.worker.control"),
            environment={"PYTHONPATH": self.control_bundle, "PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"},
            directory=str(self.folder),
            cpus=self.cpus[:1],
            memory_node=self.memory_node,
            log=self.folder / "logs" / "control.log",
        )
