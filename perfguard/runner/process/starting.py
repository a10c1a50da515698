"""Starts the workers of arms: real, pinned processes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.records.plan import BlockPlan, MeasureSettings, ResolvedArm, Sandbox
from perfguard.records.protocol import CONTROL_VARIABLE, PATH_VARIABLE
from perfguard.records.ranks import SOCKETS_VARIABLE, Sockets
from perfguard.records.run import Arm
from perfguard.runner.process.forking import ForkServer
from perfguard.runner.process.launching import START_SCRIPT, launched
from perfguard.runner.process.sandboxing import Holder, holder
from perfguard.runner.process.worker_process import Channels, ChildProcess, Process, Worker, WorkerProcess

CALIBRATION_MIN_TIME_S = 0.02  # pyperf doubles its loops until one value takes this long
_OUTBOX = "out"  # Folder beside an arm's bundle, which its workers write to and no others
_RAW = "raw"


class ProcessStarter(Struct, frozen=True, kw_only=True):
    """Starts real, pinned processes."""

    arms: dict[Arm, ResolvedArm]  # The arms that can be started
    environments: dict[Arm, dict[str, str]]  # Their padded environments
    cpus: tuple[int, ...]  # Affinity mask
    memory_node: int | None  # NUMA node that memory is bound to
    folder: Path  # The run's folder, absolute
    control_bundle: str  # Bundle that the control workload is started from
    sockets: Sockets  # The cores of the mask, which the ranks of a case share out among them
    preloads: tuple[str, ...] = ()  # Modules that are imported once for many workers
    servers: dict[tuple[Arm, int], ForkServer] = field(default_factory=dict)
    """By arm and hash seed."""

    def start(self, arm: Arm, block: BlockPlan, settings: MeasureSettings | None) -> Worker:
        """A worker of an arm, forked from a process with the block's hash seed.

        Without settings, nothing is timed for a verdict, so any such process will do that is already there.
        """
        code = _code(arm)
        label = self._unused("calibrate", code) if settings is None else f"{block.index:04d}"
        loops: tuple[str, ...] = ("--calibrate-loops", "--min-time", str(CALIBRATION_MIN_TIME_S), "-w", "1", "-n", "1")
        if settings is not None:
            loops = ("-l", "1", "-w", str(settings.warmups), "-n", str(settings.samples))
        raw, outbox, mask = self._raw() / f"{label}-{code}.json", self._outbox(arm), ",".join(map(str, self.cpus))
        hash_seed = block.hash_seed if settings is not None else self._living_hash_seed(arm, block.hash_seed)
        arguments = ("--worker", "-q", *loops, "--affinity", mask, "-o", str(outbox / raw.name))

        def begin(channels: Channels, timeout_s: float) -> Process:
            return self._server(arm, hash_seed).fork(arguments, channels, timeout_s=timeout_s)

        return WorkerProcess(begin, log=self.folder / "logs" / f"{label}-{code}.log", outbox=outbox, kept=raw)

    def close(self) -> None:
        """End all servers; the next worker needs new ones."""
        while self.servers:
            self.servers.popitem()[1].close()

    def _living_hash_seed(self, arm: Arm, otherwise: int) -> int:
        living = (seed for (role, seed), server in self.servers.items() if role is arm and server.is_alive())
        return next(living, otherwise)

    def _server(self, arm: Arm, hash_seed: int) -> ForkServer:
        """The arm's server with a hash seed. A new one starts together with those of the other arms."""
        wanted = {(role, hash_seed): role for role in self.arms}
        for key in [key for key, server in self.servers.items() if key not in wanted or not server.is_alive()]:
            self.servers.pop(key).close()
        if (arm, hash_seed) not in self.servers:
            self.servers.update(
                {key: self._started(role, hash_seed) for key, role in wanted.items() if key not in self.servers}
            )
        return self.servers[arm, hash_seed]

    def _started(self, arm: Arm, hash_seed: int) -> ForkServer:
        resolved, code = self.arms[arm], _code(arm)
        # Without `site`, and without the arm's path: see `worker.arm_path`.
        program = (resolved.interpreter, "-S", str(Path(resolved.bundle) / START_SCRIPT), "perfguard.worker")
        environment = dict(self.environments[arm])
        environment[PATH_VARIABLE] = environment.pop("PYTHONPATH")
        variables = {"PYTHONHASHSEED": str(hash_seed), SOCKETS_VARIABLE: json.dumps(self.sockets)}
        return ForkServer(
            launched(program, cpus=self.cpus, memory_node=self.memory_node, sandbox=self._sandbox(resolved)),
            environment={**environment, **variables},
            directory=resolved.tree or str(self.folder),
            preloads=self.preloads,
            is_sandboxed=resolved.sandbox is not None and holder() is Holder.BUBBLEWRAP,
            log=self.folder / "logs" / f"{self._unused('server', code)}-{code}.log",
        )

    def _sandbox(self, arm: ResolvedArm) -> Sandbox | None:
        """The arm's own, with the folder that pyperf and the profiler write to; the verdict is in none of them."""
        if arm.sandbox is None:
            return None
        return replace(arm.sandbox, writable=(*arm.sandbox.writable, str(self._outbox(arm.role))))

    def _outbox(self, arm: Arm) -> Path:
        folder = Path(self.arms[arm].bundle).with_name(_OUTBOX)
        folder.mkdir(exist_ok=True)
        return folder

    def _raw(self) -> Path:
        folder = self.folder / _RAW
        folder.mkdir(exist_ok=True)
        return folder

    def _unused(self, name: str, code: str) -> str:
        """A name with a number that no log of this run has: a run may calibrate twice, and workers may crash."""
        labels = (f"{name}{number}" for number in itertools.count(1))
        return next(label for label in labels if not (self.folder / "logs" / f"{label}-{code}.log").exists())

    def start_control(self) -> Worker:
        """The control workload in perfguard's own interpreter, on the same CPUs."""
        program = (sys.executable, str(Path(self.control_bundle) / START_SCRIPT), "perfguard.worker.control")
        variables = {"PYTHONPATH": self.control_bundle, "PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"}

        def begin(channels: Channels, _: float) -> Process:
            child = subprocess.Popen(
                launched(program, cpus=self.cpus[:1], memory_node=self.memory_node),
                env={**variables, CONTROL_VARIABLE: f"{channels.commands},{channels.replies}"},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=channels.log,
                stderr=channels.log,
                pass_fds=(channels.commands, channels.replies),
                start_new_session=True,  # a Ctrl-C at the terminal is the parent's to handle
            )
            return ChildProcess(child)

        return WorkerProcess(begin, log=self.folder / "logs" / "control.log", outbox=self.folder / _RAW)


def _code(arm: Arm) -> str:
    """An arm's name in those of files: equally long, since the command line shifts the stack too."""
    return "a" if arm is Arm.BASELINE else "b"
