"""CPU time on the measured CPUs that belongs to nobody's turn: what other programs used during a block, by name."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PARENT, _USER, _SYSTEM, _THREADS, _CPU = 1, 11, 12, 17, 36
"""Places in a line of `stat` behind the name. Source: proc_pid_stat(5), whose numbers are larger by three."""


class RunningProgram(NamedTuple):
    """A process at one moment."""

    name: str
    parent: int  # Process id
    cpu_s: float  # CPU seconds of an average thread since the process began
    cpu: int  # Where it ran last


class ForeignLoad(NamedTuple):
    """What other programs took of the measured CPUs in a block."""

    ratio: float  # CPU seconds over what the CPUs had to give, 0 to 1
    name: str | None  # Of the program that took most; None where none took any


def read_programs(root: Path = Path("/")) -> dict[int, RunningProgram]:
    """All processes that this one may see, by id; milliseconds for a hundred of them."""
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    found = {}
    for place in os.listdir(root / "proc"):  # noqa: PTH208 - of hundreds no paths are made
        if place.isdigit():
            with suppress(OSError, ValueError, IndexError):
                head, _, rest = (root / "proc" / place / "stat").read_text("utf-8", "replace").rpartition(")")
                words = rest.split()
                ticks = (int(words[_USER]) + int(words[_SYSTEM])) / max(1, int(words[_THREADS]))
                name = head.partition("(")[2]
                found[int(place)] = RunningProgram(name, int(words[_PARENT]), ticks * tick_s, int(words[_CPU]))
    return found


def foreign_load(
    before: Mapping[int, RunningProgram],
    after: Mapping[int, RunningProgram],
    *,
    own: int,
    cpus: Collection[int],
    elapsed_s: float,
) -> ForeignLoad | None:
    """What programs that are not of the process `own` took between two readings; None where nothing could be read.

    A process counts by its average thread, as it may have many on other CPUs, and where it ran last.
    """
    if own not in after or elapsed_s <= 0 or not cpus:
        return None
    used_s: defaultdict[str, float] = defaultdict(float)
    for process, now in after.items():
        then = before.get(process)
        if then is not None and now.cpu in cpus and now.cpu_s > then.cpu_s and not _is_of(own, process, after):
            used_s[now.name] += now.cpu_s - then.cpu_s
    if not used_s:
        return ForeignLoad(0.0, None)
    return ForeignLoad(
        min(1.0, sum(used_s.values()) / (elapsed_s * len(cpus))), max(used_s, key=lambda name: used_s[name])
    )


def _is_of(own: int, process: int, programs: Mapping[int, RunningProgram]) -> bool:
    """Whether a process is `own`, came from it, or started it."""
    return own in _line_of(process, programs) or process in _line_of(own, programs)


def _line_of(process: int, programs: Mapping[int, RunningProgram]) -> set[int]:
    """A process, its parent, that one's parent, and so on."""
    line: set[int] = set()
    while process in programs and process not in line:
        line.add(process)
        process = programs[process].parent
    return line
