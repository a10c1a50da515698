"""What this machine is doing now: clock, temperature, load. A few small files, read rarely.

Reading a CPU's frequency may interrupt that CPU on older kernels, so it is asked of few CPUs, seldom, and only between
samples; psutil would ask all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from perfguard.units import format_number

_ASKED_CPUS = 4
_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "x86_pkg_temp")
"""Drivers and zones that measure the temperature of a CPU."""
_HOTTEST_C = 150.0


def host_text(cpus: Sequence[int], root: Path = Path("/")) -> str:
    """`load 0.4  3.10 GHz  52 °C`: load of one minute, mean clock of the first few of `cpus`, hottest sensor of a CPU.

    Only what the machine's files report; never raises.
    """
    parts = []
    load = _number(root / "proc/loadavg")
    if load is not None:
        parts.append(f"load {format_number(load)}")
    base = root / "sys/devices/system/cpu"
    clocks = [_number(base / f"cpu{cpu}/cpufreq/scaling_cur_freq") for cpu in cpus[:_ASKED_CPUS]]
    running = [clock for clock in clocks if clock is not None and clock > 0]
    if running:
        parts.append(f"{fmean(running) / 1e6:.2f} GHz")
    temperature_c = _temperature(root / "sys/class")
    if temperature_c is not None:
        parts.append(f"{temperature_c:.0f} °C")
    return "  ".join(parts)


def _temperature(base: Path) -> float | None:
    values: list[float | None] = []
    for name, pattern in (("hwmon/*/name", "temp*_input"), ("thermal/*/type", "temp")):
        for file in base.glob(name):
            if _text(file) in _SENSORS:
                values += map(_number, file.parent.glob(pattern))
    return max((value / 1e3 for value in values if value is not None and 0 < value / 1e3 < _HOTTEST_C), default=None)


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
