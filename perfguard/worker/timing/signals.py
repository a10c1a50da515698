"""Signals beside wall time, read just outside the timed region: a few small files, 0.3 ms for a sample."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

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
    """Everything that is read around a sample. Open it before any thread starts: later threads are then counted too."""

    def __init__(self, *, root: Path = Path("/"), event: PerfEvent = INSTRUCTIONS) -> None:
        self._root = root
        self._energy = EnergyMeter(root)
        self._counter = PerfCounter(event, root=root)
        self._peak_problem = _peak_problem(root)

    @property
    def missing(self) -> dict[str, str]:
        """Signals that cannot be read here, each with the reason."""
        problems = {"memory": self._peak_problem, "energy": self._energy.problem, "instructions": self._counter.problem}
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
        """What a sample used, as fields of the reply; None for what cannot be read.

        Faults, switches, the wait for a CPU and the peak of memory are the sample's; CPU seconds, joules and
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
    return None if _peak_bytes(root) is not None else f"/{_STATUS} reports no peak of memory (VmHWM)"


def _reset_peak(root: Path) -> None:
    # Opened again each time: a benchmark may close descriptors, and what then has this number is not ours to write to.
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


_POWERCAP = Path("sys/class/powercap")
_JOULES = 1e-6


@dataclass(frozen=True, slots=True)
class _Package:
    counter: Path
    range_uj: int
    """The counter starts again from 0 beyond this."""


class EnergyMeter:
    """The packages' energy counters; they count everything that runs there, so only one arm may run at a time."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._packages: tuple[_Package, ...] = ()
        self.problem: str | None = None
        """Why nothing can be read, one sentence; None where it can."""
        try:
            self._packages = _packages(root / _POWERCAP)
        except PermissionError as error:
            self.problem = (
                f"no RAPL counter can be read: {error.filename} is for root only (chmod a+r lets others read)"
            )
            return
        except (OSError, ValueError) as error:
            self.problem = f"no RAPL counter can be read: {error}"
            return
        if not self._packages:
            self.problem = f"no RAPL counter can be read: /{_POWERCAP} {_emptiness(root / _POWERCAP)}"

    def read(self) -> tuple[int, ...] | None:
        """Microjoules of each package; None where they cannot be read."""
        if not self._packages:
            return None
        try:
            return tuple(_number(package.counter) for package in self._packages)
        except (OSError, ValueError):
            return None

    def joules_between(self, before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> float | None:
        """Joules of all packages together between two readings; None where one of them failed."""
        if before is None or after is None:
            return None
        spent_uj = 0
        for package, first, last in zip(self._packages, before, after, strict=True):
            spent_uj += last - first if last >= first else last - first + package.range_uj
        return spent_uj * _JOULES


def _packages(place: Path) -> tuple[_Package, ...]:
    found = []
    # Parts of a package are intel-rapl:0:0 and so on; AMD's packages have the same names.
    for zone in sorted(place.glob("intel-rapl:*")):
        if zone.name.count(":") == 1 and (zone / "name").read_text(encoding="ascii").startswith("package"):
            _number(zone / "energy_uj")
            found.append(_Package(zone / "energy_uj", _number(zone / "max_energy_range_uj")))
    return tuple(found)


def _emptiness(place: Path) -> str:
    if not place.is_dir():
        return "does not exist"
    return "holds no CPU package" if any(place.iterdir()) else "is empty"


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))
