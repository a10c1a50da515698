"""Processes pinned to the measured CPUs, in an environment that is the same for every tool."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfguard.records.plan import EnvProfile
from perfguard.runner.arms.environment import base_environment
from perfguard.runner.arms.resolve import glibc_version

_GRACE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A finished command."""

    code: int
    """Exit code; -9 where it was stopped for taking too long."""
    stdout: str
    """What it printed."""
    stderr: str
    """What it complained of."""
    seconds: float
    """Wall time."""


def measured_cpus(count: int) -> tuple[int, ...]:
    """The last `count` CPUs of this process's mask: the first one is left to the system where there are more."""
    return tuple(sorted(os.sched_getaffinity(0))[-count:])


def peer_environment(cpus: Sequence[int], *, allocator: str) -> dict[str, str]:
    """What the peers run in: as many threads as CPUs; the allocator as perfguard pins it, or glibc's default.

    The pinned allocator is a present to the peers: it takes away what was the largest noise on the machines at hand.
    """
    environment = base_environment(
        os.environ, profile=EnvProfile.STABLE, threads=len(cpus), glibc=glibc_version(), pass_through=()
    )
    if allocator == "default":
        for name in ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"):
            environment.pop(name, None)
    return environment


def arm_environment(cpus: Sequence[int], extra: Mapping[str, str]) -> dict[str, str]:
    """The pinned environment with an arm's own variables; an empty value unsets one."""
    merged = {**peer_environment(cpus, allocator="pinned"), **extra}
    return {key: value for key, value in merged.items() if value}


def run(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], cpus: Sequence[int], timeout_s: float
) -> Ran:
    """Run a command on the given CPUs; it and what it started are stopped after `timeout_s`."""
    started = time.monotonic()
    process = subprocess.Popen(
        list(command),
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, set(cpus)),
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        stdout, stderr = _stop(process)
        return Ran(code=-9, stdout=stdout, stderr=stderr, seconds=time.monotonic() - started)
    except BaseException:
        _stop(process)
        raise
    return Ran(code=process.returncode, stdout=stdout, stderr=stderr, seconds=time.monotonic() - started)


def _stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End the command's own session, politely first: perfguard writes down what it has."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            return process.communicate(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            break
    return process.communicate()
