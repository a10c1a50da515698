"""When to look and when to paint: once a second, between samples, and never faster than somebody asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""What `+` and `-` choose from."""
RETRY_S = 0.1
"""Between two tries to find the gap between samples, which is open for tens of milliseconds."""
PATIENCE_S = 3.0
"""A picture that is older than this is painted even while a sample is timed."""
RESORT_S = 5.0
"""Rows change places at most so often by themselves."""
_MEASURED_S = 5.0
"""Length of the stretches that the reader's own cost is measured over."""
BUDGET_RATIO = 0.05
"""Own CPU time over wall time from which on the reader warns."""


@dataclass(slots=True, kw_only=True)
class Pace:
    """Counts time for one application; both clocks can be replaced."""

    interval_s: float = 1.0
    """Seconds between two paintings."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    cpu_clock: Callable[[], float] = time.process_time
    """CPU seconds of this process."""
    is_paused: bool = False
    """Whether nothing is painted."""
    own_ratio: float | None = None
    """Own CPU time over wall time of the last stretch; None before the first one ended."""
    _painted_at: float = field(default=float("-inf"))
    _sorted_at: float = field(default=float("-inf"))
    _stretch: tuple[float, float] | None = field(default=None)

    def may_paint(self, *, is_between_samples: bool) -> bool:
        """Whether new facts are painted now; where not, one tries again after `RETRY_S`."""
        return not self.is_paused and (is_between_samples or self.clock() - self._painted_at >= PATIENCE_S)

    @property
    def is_fresh(self) -> bool:
        """Whether the picture is younger than the interval: while a long recording is read in, it stays."""
        return self.clock() - self._painted_at < self.interval_s

    def painted(self) -> bool:
        """Say that it was painted; whether rows may change places this time."""
        now = self.clock()
        self._painted_at = now
        is_due = now - self._sorted_at >= RESORT_S
        if is_due:
            self._sorted_at = now
        return is_due

    def change_interval(self, step: int) -> float:
        """Look more or less often; the new interval."""
        nearest = min(range(len(INTERVALS_S)), key=lambda index: abs(INTERVALS_S[index] - self.interval_s))
        self.interval_s = INTERVALS_S[min(max(0, nearest + step), len(INTERVALS_S) - 1)]
        return self.interval_s

    def measure(self) -> None:
        """Find out what the reader costs; called at every look."""
        now, used = self.clock(), self.cpu_clock()
        if self._stretch is None:
            self._stretch = (now, used)
            return
        passed_s = now - self._stretch[0]
        if passed_s >= _MEASURED_S:
            self.own_ratio = (used - self._stretch[1]) / passed_s
            self._stretch = (now, used)
