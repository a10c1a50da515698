"""Signals beside wall time, read just outside the timed region: a few small files, 0.3 ms for a slice."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from perfguard.worker.timing.energy import EnergyMeter
from perfguard.worker.timing.perf_counter import INSTRUCTIONS, CounterReading, PerfCounter, PerfEvent, events_between

_CLEAR_REFS = Path("proc/self/clear_refs")
_STATUS = Path("proc/self/status")
_SCHEDSTAT = Path("proc/thread-self/schedstat")
_RESET_PEAK = "5"
"""Written to clear_refs, it sets the peak of resident memory back to what is resident now (proc(5))."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All meters at one moment."""

    usage: resource.struct_rusage
    """CPU time, faults and switches of all threads."""
    counted: CounterReading | None
    """Instructions."""
    energy_uj: tuple[int, ...] | None
    """Energy of each package."""
    waited_ns: int | None
    """How long this thread, which runs the steps, has been ready to run but had no CPU."""


class Meters:
    """Everything that is read around a slice. Open it before any thread starts: later threads are then counted too."""

    def __init__(self, *, root: Path = Path("/"), event: PerfEvent = INSTRUCTIONS) -> None:
        self._root = root
        self._energy = EnergyMeter(root)
        self._counter = PerfCounter(event, root=root)
        self._peak_problem = _peak_problem(root)

    @property
    def missing(self) -> dict[str, str]:
        """Signals that cannot be read here, each with the reason."""
        problems = {
            "memory": self._peak_problem,
            "energy": self._energy.problem,
            "instructions": self._counter.problem,
        }
        return {signal: problem for signal, problem in problems.items() if problem is not None}

    def start(self) -> Reading:
        """Read before the timed region; the cheapest last, so that it sees the least of the others."""
        if self._peak_problem is None:
            _reset_peak(self._root)
        energy_uj = self._energy.read()
        waited_ns = _waited_ns(self._root)
        counted = self._counter.read()
        return Reading(resource.getrusage(resource.RUSAGE_SELF), counted, energy_uj, waited_ns)

    def stop(self) -> Reading:
        """Read after the timed region, in the opposite order."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        counted = self._counter.read()
        waited_ns = _waited_ns(self._root)
        return Reading(usage, counted, self._energy.read(), waited_ns)

    def between(self, before: Reading, after: Reading, *, iterations: int) -> dict[str, float | int | None]:
        """What a slice used, as fields of the reply; None for what cannot be read.

        Faults, switches, the wait for a CPU and the peak of memory are the slice's; CPU seconds, joules and
        instructions are for one iteration.
        """
        first, last = before.usage, after.usage
        return {
            "cpu_s": (last.ru_utime + last.ru_stime - first.ru_utime - first.ru_stime) / iterations,
            "minor_faults": last.ru_minflt - first.ru_minflt,
            "involuntary_switches": last.ru_nivcsw - first.ru_nivcsw,
            "voluntary_switches": last.ru_nvcsw - first.ru_nvcsw,
            "waited_s": _seconds_between(before.waited_ns, after.waited_ns),
            "peak_memory_bytes": None if self._peak_problem else _peak_bytes(self._root),
            "energy_j": _each(self._energy.joules_between(before.energy_uj, after.energy_uj), iterations),
            "instructions": _each(events_between(before.counted, after.counted), iterations),
        }


def _waited_ns(root: Path) -> int | None:
    """The second number of schedstat: nanoseconds on a run queue (Documentation/scheduler/sched-stats.rst)."""
    try:
        words = (root / _SCHEDSTAT).read_bytes().split()
    except OSError:
        return None
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None


def _seconds_between(before_ns: int | None, after_ns: int | None) -> float | None:
    return None if before_ns is None or after_ns is None else (after_ns - before_ns) / 1e9


def _each(total: float | None, iterations: int) -> float | None:
    return None if total is None else total / iterations


def _peak_problem(root: Path) -> str | None:
    try:
        (root / _CLEAR_REFS).write_text(_RESET_PEAK, encoding="ascii")
    except OSError as error:
        return f"the peak of memory cannot be reset: {error.strerror or error}"
    return None if _peak_bytes(root) is not None else f"/{_STATUS} tells no peak of memory (VmHWM)"


def _reset_peak(root: Path) -> None:
    # Opened anew each time: a benchmark may close descriptors, and what then has this number is not ours to write to.
    try:
        (root / _CLEAR_REFS).write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return


def _peak_bytes(root: Path) -> int | None:
    try:
        text = (root / _STATUS).read_bytes()
    except OSError:
        return None
    _, found, rest = text.partition(b"\nVmHWM:")
    words = rest.split(None, 2)
    if not found or len(words) < 2 or words[1] != b"kB" or not words[0].isdigit():
        return None
    return int(words[0]) * 1024
