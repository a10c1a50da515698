"""Pauses between measurements, until the CPU is as cool or as fast as it was at the start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil
from msgspec import Struct

_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_NEAR_CELSIUS = 2.0
_NEAR_RATIO = 0.98
_POLL_S = 0.5


class Heat(Struct, frozen=True, kw_only=True):
    """How warm the CPU is, or how fast, where that is all that can be read."""

    celsius: float | None = None
    hertz: float | None = None

    @property
    def by(self) -> str:
        """What a pause goes by: `temperature`, `frequency`, or `time` where neither can be read."""
        return "temperature" if self.celsius is not None else "frequency" if self.hertz is not None else "time"

    def is_back_at(self, start: Heat) -> bool:
        """Whether it is nearly what it was; never where neither can be read."""
        if self.celsius is not None and start.celsius is not None:
            return self.celsius <= start.celsius + _NEAR_CELSIUS
        if self.hertz is not None and start.hertz is not None:
            return self.hertz >= start.hertz * _NEAR_RATIO
        return False


def heat_now() -> Heat:
    """The warmest core's temperature, else the mean frequency of the cores where the kernel scales it."""
    sensors: dict[str, list[Any]] = getattr(psutil, "sensors_temperatures", dict)()
    readings = [each.current for name in _SENSORS for each in sensors.get(name, ()) if each.current]
    if readings:
        return Heat(celsius=max(readings))
    frequency = psutil.cpu_freq()
    if frequency is not None and frequency.max > frequency.min > 0:
        return Heat(hertz=frequency.current * 1e6)
    return Heat()


def cool_down(
    start: Heat,
    *,
    most_s: float,
    wants_stop: Callable[[], bool],
    now: Callable[[], Heat] = heat_now,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Wait until the CPU is back at its start, at most so many seconds; gives how long it was.

    Where neither temperature nor frequency can be read, the whole time is waited.
    """
    waited_s = 0.0
    while waited_s < most_s and not wants_stop() and not now().is_back_at(start):
        sleep(min(_POLL_S, most_s - waited_s))
        waited_s += _POLL_S
    return min(waited_s, most_s)
