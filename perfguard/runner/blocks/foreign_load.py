"""CPU time on the measured CPUs that belongs to nobody's turn: what programs beside perfguard's used during a block."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

_PARENT, _OWN_TIMES, _CHILDREN_TIMES, _THREADS, _CPU = 1, slice(11, 13), slice(13, 15), 17, 36
"""Places in a line of `stat` behind the name. Source: proc_pid_stat(5), whose numbers are larger by three."""
_BUSY = (1, 2, 3, 6, 7)  # user, nice, system, irq, softirq. Source: proc_stat(5)


class RunningProgram(NamedTuple):
    """A process at one moment."""

    name: str
    parent: int  # Process id
    cpu_s: float  # CPU seconds since it began
    ended_s: float  # Those of its children that have ended, and theirs
    threads: int
    cpu: int  # Where it ran last


class ForeignLoad(NamedTuple):
    """What other programs took of the measured CPUs in a block."""

    ratio: float  # CPU seconds over what the CPUs had to give, 0 to 1
    name: str | None  # Of the program that took most of it, of those that live; None where none did


class LoadReading(Struct, frozen=True):
    """All processes and CPUs at one moment."""

    programs: Mapping[int, RunningProgram]  # By process id
    busy_s: Mapping[int, float]  # Seconds since boot in which a CPU was busy, by its number


def read_load(root: Path = Path("/")) -> LoadReading:
    """Everything that this process may see; milliseconds for a hundred processes."""
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    programs = {}
    for place in os.listdir(root / "proc"):  # noqa: PTH208 - of hundreds no paths are made
        if place.isdigit():
            with suppress(OSError, ValueError, IndexError):
                head, _, rest = (root / "proc" / place / "stat").read_text("utf-8", "replace").rpartition(")")
                words = rest.split()
                own, ended = (sum(map(int, words[times])) * tick_s for times in (_OWN_TIMES, _CHILDREN_TIMES))
                programs[int(place)] = RunningProgram(
                    head.partition("(")[2], int(words[_PARENT]), own, ended, int(words[_THREADS]), int(words[_CPU])
                )
    busy_s = {}
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc" / "stat").read_text("ascii", "replace").splitlines():
            if re.match(r"cpu\d", line):
                words = line.split()
                busy_s[int(words[0][3:])] = sum(int(words[place]) for place in _BUSY) * tick_s
    return LoadReading(programs, busy_s)


def foreign_load(
    before: LoadReading, after: LoadReading, *, own: int, cpus: Collection[int], elapsed_s: float
) -> ForeignLoad | None:
    """What programs that are not of the process `own` took between two readings; None where the kernel does not tell.

    That is what the CPUs were busy beyond what `own` and all that it started used, also what has ended by now.
    """
    known = before.busy_s.keys() & after.busy_s.keys()
    if own not in after.programs or elapsed_s <= 0 or not cpus or not known.issuperset(cpus):
        return None
    busy_s = sum(after.busy_s[cpu] - before.busy_s[cpu] for cpu in cpus)
    foreign_s = busy_s - (_used_s(own, after, cpus) - _used_s(own, before, cpus))
    return ForeignLoad(
        ratio=min(1.0, max(0.0, foreign_s / (elapsed_s * len(cpus)))), name=_largest(before, after, own, cpus)
    )


def _used_s(own: int, reading: LoadReading, cpus: Collection[int]) -> float:
    """CPU seconds of a process and all that it started; its own only where it runs on these CPUs itself."""
    programs = reading.programs
    family = [pid for pid in programs if own in _line_of(pid, programs)]
    own_s = sum(programs[pid].cpu_s for pid in family if pid != own or programs[pid].cpu in cpus)
    return own_s + sum(programs[pid].ended_s for pid in family)


def _largest(before: LoadReading, after: LoadReading, own: int, cpus: Collection[int]) -> str | None:
    """The name of the programs that used most CPU time on these CPUs, by their average thread, and are not `own`'s."""
    used_s: defaultdict[str, float] = defaultdict(float)
    ancestors = _line_of(own, after.programs)
    for pid, now in after.programs.items():
        then = before.programs.get(pid)
        since_s = now.cpu_s - (then.cpu_s if then is not None else 0.0)
        if since_s > 0 and now.cpu in cpus and pid not in ancestors and own not in _line_of(pid, after.programs):
            used_s[now.name] += since_s / max(1, now.threads)
    return max(used_s, key=lambda name: used_s[name], default=None)


def _line_of(process: int, programs: Mapping[int, RunningProgram]) -> set[int]:
    """A process, its parent, that one's parent, and so on."""
    line: set[int] = set()
    while process in programs and process not in line:
        line.add(process)
        process = programs[process].parent
    return line
