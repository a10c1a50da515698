"""Runs the application in the terminal that it is started in, then writes what it cost as JSON."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

from perfguard.tui.app import PerfguardApp
from perfguard.tui.launch import TuiOptions
from tests.proof.tui_cost.scenarios import HOURS, HoursOfEvents, ManyCases, many_ops

WARM_S = 5.0


class Measured(PerfguardApp):
    """Measures itself for some seconds, then quits."""

    def __init__(self, watch, seconds: float, out: Path, keys: str) -> None:
        super().__init__(watch, TuiOptions())
        self._seconds, self._out, self._keys = seconds, out, keys

    def on_mount(self) -> None:
        """Let everything come up first; textual calls what this overrides by itself."""
        self.set_timer(WARM_S / 2, self._press)
        self.set_timer(WARM_S, self._begin)

    def _press(self) -> None:
        for key in self._keys.split():
            self.simulate_key(key)

    def _begin(self) -> None:
        self._from = (time.monotonic(), time.process_time())
        self.set_timer(self._seconds, self._end)

    def _end(self) -> None:
        wall_s, cpu_s = time.monotonic() - self._from[0], time.process_time() - self._from[1]
        rows = len(self.view_screen.table.rows)
        found = {"cpu_ratio": cpu_s / wall_s, "memory_bytes": memory_bytes(), "rows": rows}
        self._out.write_text(json.dumps(found))
        self.exit(0)


class Hurried(PerfguardApp):
    """Sees hours of events as fast as it can, painting all the while."""

    def __init__(self, watch, out: Path) -> None:
        super().__init__(watch, TuiOptions(interval_s=3600.0))
        self._out = out
        self._left = HOURS * 3600

    def on_mount(self) -> None:
        """Begin; textual calls what this overrides by itself."""
        self.call_later(self._go)

    def _go(self) -> None:
        for _ in range(min(20, self._left)):
            self.tick()
            self._left -= 1
        if self._left:
            self.call_later(self._go)
            return
        blocks = self.session.view.progress.blocks_finished if self.session.view.progress else 0
        found = {"memory_bytes": memory_bytes(), "peak_bytes": peak_bytes(), "rows": blocks}
        self._out.write_text(json.dumps(found))
        self.exit(0)


def memory_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most that it ever was."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """`child.py SCENARIO SECONDS FILE`."""
    scenario, seconds, out = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
    if scenario == "hours":
        from perfguard.watch.view.watching import RunWatch

        Hurried(RunWatch(HoursOfEvents()), out).run()
    elif scenario == "cases":
        Measured(ManyCases(), seconds, out, "").run()
    elif scenario == "ops":
        Measured(many_ops(), seconds, out, "3 w A").run()
    else:
        watch = ManyCases()
        first = iter([watch.poll()])
        watch.poll = lambda: next(first, None)
        Measured(watch, seconds, out, "").run()


if __name__ == "__main__":
    main()
