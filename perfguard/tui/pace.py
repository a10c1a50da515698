"""When to look and when to paint: once a second, between samples, and never faster than somebody asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct

INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0)  # What `+` and `-` choose from
RETRY_S = 0.1  # Between two tries to find the gap between samples, which is open for tens of milliseconds
PATIENCE_S = 3.0  # A picture that is older than this is painted even while a sample is timed
RESORT_S = 5.0  # Rows change places at most so often by themselves
_MEASURED_S = 5.0  # Length of the stretches that the reader's own cost is measured over
BUDGET_RATIO = 0.05  # Own CPU time over wall time from which on the reader warns


def neighbour(values: Sequence[float], current: float, step: int) -> float:
    """The value so many steps from the one nearest to `current`; the first or last one where that is outside."""
    nearest = min(range(len(values)), key=lambda index: abs(values[index] - current))
    return values[min(max(0, nearest + step), len(values) - 1)]


class Pace(Struct, kw_only=True):
    """Counts time for one application; both clocks can be replaced."""

    interval_s: float = 1.0  # Seconds between two paintings
    clock: Callable[[], float] = time.monotonic  # Monotonic seconds
    cpu_clock: Callable[[], float] = time.process_time  # CPU seconds of this process
    is_paused: bool = False  # Whether nothing is painted
    own_ratio: float | None = None
    """Own CPU time over wall time of the last stretch; None before the first one ended."""
    _painted_at: float = float("-inf")
    _sorted_at: float = float("-inf")
    _stretch: tuple[float, float] | None = None

    def may_paint(self, *, is_between_samples: bool) -> bool:
        """Whether new facts are painted now; where not, one tries again after `RETRY_S`."""
        return not self.is_paused and (is_between_samples or self.clock() - self._painted_at >= PATIENCE_S)

    @property
    def is_fresh(self) -> bool:
        """Whether the picture is younger than the interval: while a long recording is read in, it stays."""
        return self.clock() - self._painted_at < self.interval_s

    def painted(self) -> bool:
        """Note that it was painted; whether rows may change places this time."""
        self._painted_at = now = self.clock()
        is_due = now - self._sorted_at >= RESORT_S
        if is_due:
            self._sorted_at = now
        return is_due

    def change_interval(self, step: int) -> float:
        """Look more or less often; the new interval."""
        self.interval_s = neighbour(INTERVALS_S, self.interval_s, step)
        return self.interval_s

    def measure(self) -> None:
        """Find out what the reader costs; called at every look."""
        now, used = self.clock(), self.cpu_clock()
        since, used_before = self._stretch or (now, used)
        is_over = now - since >= _MEASURED_S
        if is_over:
            self.own_ratio = (used - used_before) / (now - since)
        if is_over or self._stretch is None:
            self._stretch = (now, used)
