"""What this machine is doing now: clock, temperature, load. A few small files, read rarely.

Reading a CPU's frequency may interrupt that CPU on older kernels, so it is asked of few CPUs, seldom, and only between
samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfguard.units import format_number

_ASKED_CPUS = 4
_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "x86_pkg_temp")
"""Drivers and zones that tell the temperature of a CPU."""
_HOTTEST_C = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNow:
    """One look at the machine; None for what it does not tell."""

    frequency_hz: float | None = None
    """Mean clock of the CPUs that were asked."""
    temperature_c: float | None = None
    """Hottest CPU sensor."""
    load_1min: float | None = None
    """Load average over one minute."""

    @property
    def text(self) -> str:
        """`load 0.4  3.10 GHz  52 °C`; only what is known."""
        parts = []
        if self.load_1min is not None:
            parts.append(f"load {format_number(self.load_1min)}")
        if self.frequency_hz is not None:
            parts.append(f"{self.frequency_hz / 1e9:.2f} GHz")
        if self.temperature_c is not None:
            parts.append(f"{self.temperature_c:.0f} °C")
        return "  ".join(parts)


def look(cpus: Sequence[int], root: Path = Path("/")) -> HostNow:
    """Read the machine's files; never raises.

    Args:
        cpus: CPUs that are measured on; the first few are asked for their clock.
        root: Where `proc` and `sys` are.
    """
    load = _number(root / "proc/loadavg")
    return HostNow(frequency_hz=_frequency(cpus, root), temperature_c=_temperature(root / "sys/class"), load_1min=load)


def _frequency(cpus: Sequence[int], root: Path) -> float | None:
    base = root / "sys/devices/system/cpu"
    found = [_number(base / f"cpu{cpu}/cpufreq/scaling_cur_freq") for cpu in cpus[:_ASKED_CPUS]]
    known = [value for value in found if value is not None and value > 0]
    return sum(known) / len(known) * 1e3 if known else None


def _temperature(base: Path) -> float | None:
    values = []
    for folder, name_file, pattern in (("hwmon", "name", "temp*_input"), ("thermal", "type", "temp")):
        for sensor in _children(base / folder):
            if _text(sensor / name_file) in _SENSORS:
                values += [_number(path) for path in sorted(sensor.glob(pattern))]
    known = [value / 1e3 for value in values if value is not None and 0 < value / 1e3 < _HOTTEST_C]
    return max(known, default=None)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    try:
        return float(_text(path).split(" ")[0])
    except ValueError:
        return None
