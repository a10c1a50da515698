"""A counter of the kernel's performance events, for this process, its later threads and its children.

Only what was started after the counter was opened is counted with it, so it is opened before torch is imported and
starts its threads. Nothing but the standard library; what the machine lacks is a sentence, never an exception.
"""

from __future__ import annotations

import os
import platform
import struct
from dataclasses import dataclass
from pathlib import Path

HARDWARE, SOFTWARE = 0, 1
"""PERF_TYPE_HARDWARE and PERF_TYPE_SOFTWARE of linux/perf_event.h."""


@dataclass(frozen=True, slots=True)
class PerfEvent:
    """What to count, in the numbers of linux/perf_event.h."""

    kind: int
    """`HARDWARE` or `SOFTWARE`."""
    config: int
    """Number of the event within its kind."""


INSTRUCTIONS = PerfEvent(HARDWARE, 1)
"""Retired instructions."""
TASK_CLOCK = PerfEvent(SOFTWARE, 1)
"""Nanoseconds on a CPU; needs no hardware counter."""
PAGE_FAULTS = PerfEvent(SOFTWARE, 2)
"""Page faults; needs no hardware counter."""

_SYSCALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ATTRIBUTE_BYTES = 64
"""PERF_ATTR_SIZE_VER0, which every kernel takes."""
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_READ_TIMES = 1 | 2
"""PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING: they tell how much of the time the counter really counted."""
_CLOSE_ON_EXEC = 1 << 3
_READING = struct.Struct("=QQQ")
_PARANOID = Path("proc/sys/kernel/perf_event_paranoid")


@dataclass(frozen=True, slots=True)
class CounterReading:
    """The counter at one moment."""

    value: int
    """Events counted."""
    enabled_ns: int
    """Nanoseconds that counting was asked for, over all threads."""
    running_ns: int
    """Nanoseconds that a counter was really there; less where counters are shared."""


class PerfCounter:
    """An open counter in user space; a kernel that refuses leaves it closed, with `problem` set."""

    def __init__(self, event: PerfEvent, *, root: Path = Path("/")) -> None:
        self._fd = -1
        self.problem = self._open(event, root)
        """Why nothing is counted, one sentence; None where it is."""

    def read(self) -> CounterReading | None:
        """The count so far; None where nothing is counted."""
        if self._fd < 0:
            return None
        try:
            return CounterReading(*_READING.unpack(os.read(self._fd, _READING.size)))
        except (OSError, struct.error):  # a benchmark may close what it did not open
            return None

    def close(self) -> None:
        """Stop counting."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, event: PerfEvent, root: Path) -> str | None:
        number = _SYSCALLS.get(platform.machine())
        if number is None:
            return f"perfguard does not know how to open a counter on {platform.machine() or 'this machine'}"
        try:
            import ctypes
        except ImportError:
            return "this Python has no ctypes"
        attributes = ctypes.create_string_buffer(_attributes(event), _ATTRIBUTE_BYTES)
        this_process, any_cpu, no_group = 0, -1, -1
        call = ctypes.CDLL(None, use_errno=True).syscall
        call.restype = ctypes.c_long
        result = call(
            ctypes.c_long(number),
            attributes,
            ctypes.c_int(this_process),
            ctypes.c_int(any_cpu),
            ctypes.c_int(no_group),
            ctypes.c_ulong(_CLOSE_ON_EXEC),
        )
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


def _attributes(event: PerfEvent) -> bytes:
    """The first version of struct perf_event_attr."""
    flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    return struct.pack(
        "=IIQQQQQIIQ", event.kind, _ATTRIBUTE_BYTES, event.config, 0, 0, _READ_TIMES, flags, 0, 0, 0
    ).ljust(_ATTRIBUTE_BYTES, b"\0")


def _refusal(error: int, root: Path) -> str:
    import errno

    if error in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return "the kernel sees no hardware counter, as in a virtual machine without a PMU"
    if error in (errno.EACCES, errno.EPERM):
        return (
            f"the kernel lets this user count nothing (kernel.perf_event_paranoid is {_paranoid(root)}; 2 or less is "
            "needed, and in a container the perf_event_open call)"
        )
    return f"perf_event_open failed: {os.strerror(error)}"


def _paranoid(root: Path) -> str:
    try:
        return (root / _PARANOID).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return "unknown"
