"""Signals beside wall time, read just outside the timed region: a few small files, 0.3 ms for a sample.

Nothing but the standard library; what the machine lacks is a sentence, never an exception.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import struct
from pathlib import Path
from typing import NamedTuple

HARDWARE, SOFTWARE = 0, 1  # PERF_TYPE_HARDWARE and PERF_TYPE_SOFTWARE of linux/perf_event.h


class PerfEvent(NamedTuple):
    """What to count, in the numbers of linux/perf_event.h."""

    kind: int  # `HARDWARE` or `SOFTWARE`
    config: int  # Number of the event within its kind


INSTRUCTIONS = PerfEvent(HARDWARE, 1)  # Retired ones
TASK_CLOCK = PerfEvent(SOFTWARE, 1)  # Nanoseconds on a CPU; like page faults, it needs no hardware counter
PAGE_FAULTS = PerfEvent(SOFTWARE, 2)

_SYSCALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ATTRIBUTE_BYTES = 64  # PERF_ATTR_SIZE_VER0, which every kernel takes
_FLAGS = 1 << 1 | 1 << 5 | 1 << 6
"""Count in later threads and children; neither in the kernel nor in a hypervisor."""
_READ_TIMES = 1 | 2
"""PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING: they tell how much of the time the counter really counted."""
_CLOSE_ON_EXEC = 1 << 3
_READING = struct.Struct("=QQQ")
_PARANOID = Path("proc/sys/kernel/perf_event_paranoid")


class CounterReading(NamedTuple):
    """The counter at one moment."""

    value: int  # Events counted
    enabled_ns: int  # Nanoseconds that counting was asked for, over all threads
    running_ns: int  # Nanoseconds that a counter was really there; less where counters are shared


_CLEAR_REFS = Path("proc/self/clear_refs")
_STATUS = Path("proc/self/status")
_SCHEDSTAT = Path("proc/thread-self/schedstat")
_RESET_PEAK = "5"
"""Written to clear_refs, it sets the peak of resident memory back to what is resident now (proc(5))."""


class Reading(NamedTuple):
    """All meters at one moment."""

    usage: resource.struct_rusage  # CPU time, faults and switches of all threads
    counted: CounterReading | None  # Instructions
    energy_uj: tuple[int, ...] | None  # Energy of each package
    waited_ns: int | None  # How long this thread, which runs the steps, has been ready to run but had no CPU


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
            # Opened again each time: a benchmark may close descriptors, and what then has this number is not ours to
            # write to.
            with contextlib.suppress(OSError):
                (self._root / _CLEAR_REFS).write_text(_RESET_PEAK, encoding="ascii")
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


class _Package(NamedTuple):
    counter: Path
    range_uj: int  # The counter starts again from 0 beyond this


class EnergyMeter:
    """The packages' energy counters; they count everything that runs there, so only one arm may run at a time."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._packages: tuple[_Package, ...] = ()
        reason = None
        try:
            self._packages = _packages(root / _POWERCAP)
            if not (root / _POWERCAP).is_dir():
                reason = f"/{_POWERCAP} does not exist"
            elif not self._packages:
                reason = f"/{_POWERCAP} {'holds no CPU package' if any((root / _POWERCAP).iterdir()) else 'is empty'}"
        except PermissionError as error:
            reason = f"{error.filename} is for root only (chmod a+r lets others read)"
        except (OSError, ValueError) as error:
            reason = str(error)
        self.problem = reason and f"no RAPL counter can be read: {reason}"  # One sentence; None where it can

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
        return spent_uj * 1e-6


def _packages(place: Path) -> tuple[_Package, ...]:
    found = []
    # Parts of a package are intel-rapl:0:0 and so on; AMD's packages have the same names.
    for zone in sorted(place.glob("intel-rapl:*")):
        if zone.name.count(":") == 1 and (zone / "name").read_text(encoding="ascii").startswith("package"):
            _number(zone / "energy_uj")
            found.append(_Package(zone / "energy_uj", _number(zone / "max_energy_range_uj")))
    return tuple(found)


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


class PerfCounter:
    """A counter of the kernel's performance events in user space; a kernel that refuses leaves it closed.

    Only threads and children that start after the counter was opened are counted with this process.
    """

    def __init__(self, event: PerfEvent, *, root: Path = Path("/")) -> None:
        self._fd = -1
        self.problem = self._open(event, root)  # Why nothing is counted, one sentence; None where it is

    def read(self) -> CounterReading | None:
        """The count so far; None where nothing is counted."""
        if self._fd < 0:
            return None
        try:
            return CounterReading(*_READING.unpack(os.read(self._fd, _READING.size)))
        except (OSError, struct.error):  # a benchmark may close what it did not open
            return None

    def _open(self, event: PerfEvent, root: Path) -> str | None:
        number = _SYSCALLS.get(platform.machine())
        if number is None:
            return f"perfguard does not know how to open a counter on {platform.machine() or 'this machine'}"
        try:
            import ctypes
        except ImportError:
            return "this Python has no ctypes"
        # The first version of struct perf_event_attr
        layout = (event.kind, _ATTRIBUTE_BYTES, event.config, 0, 0, _READ_TIMES, _FLAGS, 0, 0, 0)
        attributes = ctypes.create_string_buffer(struct.pack("=IIQQQQQIIQ", *layout), _ATTRIBUTE_BYTES)
        this_process, any_cpu, no_group = 0, -1, -1
        call = ctypes.CDLL(None, use_errno=True).syscall
        call.restype = ctypes.c_long
        numbers = map(ctypes.c_int, (this_process, any_cpu, no_group))
        result = call(ctypes.c_long(number), attributes, *numbers, ctypes.c_ulong(_CLOSE_ON_EXEC))
        if result < 0:
            return _refusal(ctypes.get_errno(), root)
        self._fd = int(result)
        return None


def events_between(before: CounterReading | None, after: CounterReading | None) -> float | None:
    """Events between two readings, scaled up where the counter was shared; None where nothing was counted."""
    if before is None or after is None:
        return None
    running_ns = after.running_ns - before.running_ns
    if running_ns <= 0:
        return None
    return (after.value - before.value) * max(1.0, (after.enabled_ns - before.enabled_ns) / running_ns)


def _refusal(error: int, root: Path) -> str:
    import errno

    if error in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return "the kernel sees no hardware counter, as in a virtual machine without a PMU"
    if error in (errno.EACCES, errno.EPERM):
        paranoid = "unknown"
        with contextlib.suppress(OSError, ValueError):
            paranoid = (root / _PARANOID).read_text(encoding="ascii").strip()
        return (
            f"the kernel lets this user count nothing (kernel.perf_event_paranoid is {paranoid}; 2 or less is "
            "needed, and in a container the perf_event_open call)"
        )
    return f"perf_event_open failed: {os.strerror(error)}"
