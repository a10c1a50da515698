"""A Slurm cluster of a test's own: munge, a controller and nodes that are all this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
_LIMIT_S = 60.0
_REQUEUE_S = 15
"""How long Slurm holds a job that it starts again after a node's death: as long as a credential is valid."""
FEATURE = "xeon"
_REFUSING = "refuse-next-launch"
NODES = ("node-1", "node-2", "node-3")


def missing() -> list[str]:
    """Programs that are not installed."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    return [name for name in _PROGRAMS if shutil.which(name, path=path) is None]


@dataclass
class Cluster:
    """Processes and files of a cluster; `environment` makes Slurm's commands talk to it."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        path = f"{os.environ['PATH']}:/usr/sbin"
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": path}

    def run(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stderr}")
        return done.stdout

    def start(self) -> None:
        """Start all, and wait until the nodes are idle."""
        self._configure()
        socket_path = self.folder / "munge.socket"
        self._start("munged", "--foreground", f"--socket={socket_path}", f"--key-file={self.folder / 'munge.key'}",
                    f"--pid-file={self.folder / 'munge.pid'}", f"--log-file={self.folder / 'munge.log'}",
                    f"--seed-file={self.folder / 'munge.seed'}", "--force")  # fmt: skip
        self._wait(socket_path.exists)
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self._wait(lambda: self.states() == ["idle"] * len(NODES))

    def start_controller(self) -> None:
        self._start("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        self._wait(self._answers)

    def refuse_next_launch(self) -> None:
        """Make the next job's start fail on its node, which Slurm then drains."""
        (self.folder / _REFUSING).touch()

    def start_node(self, node: str) -> None:
        self._start("slurmd", "-D", "-N", node, "-f", str(self.folder / "slurm.conf"), name=node)

    def states(self) -> list[str]:
        with contextlib.suppress(RuntimeError):
            return [line.split()[1] for line in self.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines()]
        return []

    def drained(self) -> dict[str, str]:
        """Nodes that get no jobs, and why."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N|%T|%E").splitlines()
        found = (line.strip().split("|", maxsplit=2) for line in lines)
        return {name: reason for name, state, reason in found if state.startswith("drain")}

    def resume_drained(self) -> None:
        """Give jobs to all nodes again."""
        for node in self.drained():
            self.run("scontrol", "update", f"nodename={node}", "state=resume")

    def kill(self, name: str) -> None:
        """End a daemon as a power cut would."""
        self.processes[name].kill()
        self.processes[name].wait()

    def kill_jobs_of(self, node: str) -> None:
        """End what runs on a node, as its power cut would."""
        for pid in self.pids_on(node):
            _kill(pid)

    def kill_batch_shell_on(self, node: str) -> None:
        """End the first process of the job on a node; Slurm's own, which looks after it, stays."""
        found = [pid for pid in self.pids_on(node) if _parent_name(pid) == "slurmstepd"]
        assert found
        for pid in found:
            _kill(pid)

    def pids_on(self, node: str) -> list[int]:
        """Processes of batch jobs on a node."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                content = path.read_bytes().split(b"\0")
                if (
                    f"SLURMD_NODENAME={node}".encode() in content
                    and f"SLURM_CONF={self.folder}/slurm.conf".encode() in content
                ):
                    found.append(int(path.parent.name))
        return found

    def stop(self) -> None:
        for node in NODES:
            self.kill_jobs_of(node)
        for process in self.processes.values():
            process.kill()
            process.wait()

    def _start(self, program: str, *arguments: str, name: str | None = None) -> None:
        found = shutil.which(program, path=self.environment["PATH"])
        assert found is not None
        with (self.folder / f"{name or program}.out").open("ab") as out:
            self.processes[name or program] = subprocess.Popen(
                [found, *arguments], env=self.environment, stdout=out, stderr=out, start_new_session=True
            )

    def _answers(self) -> bool:
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            return "UP" in self.run("scontrol", "ping")
        return False

    def _wait(self, condition) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                said = "\n".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.out"))
                raise RuntimeError(said)
            time.sleep(0.2)

    def _configure(self) -> None:
        (self.folder / "munge.key").write_bytes(os.urandom(1024))
        (self.folder / "munge.key").chmod(0o600)
        for name in ("state", *NODES):
            (self.folder / name).mkdir()
        controller, *ports = _free_ports(1 + len(NODES))
        host = socket.gethostname()
        prolog = self.folder / "prolog"
        prolog.write_text(f"#!/bin/sh\necho export TMPDIR={self.folder}/$SLURMD_NODENAME\n")
        prolog.chmod(0o755)
        refusal = self.folder / "refusal"
        refusal.write_text(f"#!/bin/sh\n! rm {self.folder / _REFUSING} 2>/dev/null\n")
        refusal.chmod(0o755)
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 Features={FEATURE}"
            for node, port in zip(NODES, ports, strict=True)
        )
        (self.folder / "slurm.conf").write_text(f"""\
ClusterName=perfguard
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.socket,cred_expire={_REQUEUE_S}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
Prolog={refusal}
TaskProlog={prolog}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/%n/spool
SlurmdPidFile={self.folder}/%n/pid
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmctldTimeout=10
SlurmdTimeout=15
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _parent_name(pid: int) -> str:
    with contextlib.suppress(OSError):
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        return Path(f"/proc/{parent}/comm").read_text().strip()
    return ""


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
