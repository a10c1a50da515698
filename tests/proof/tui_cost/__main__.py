"""Measures what the TUI costs, against its budget: `python -m tests.proof.tui_cost [--seconds 30] [SCENARIO …]`.

Each scenario runs the application in a pseudo-terminal of 130x40 whose output is read and thrown away. Ends with 1
where a budget is exceeded. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
from fcntl import ioctl
from pathlib import Path
from typing import Any

from perfguard.units import format_bytes, format_ratio

REPOSITORY = Path(__file__).parents[3]
MEBI = 1024**2
BUDGETS = {
    "idle": {"cpu_ratio": 0.01},
    "cases": {"cpu_ratio": 0.02},
    "ops": {"cpu_ratio": 0.05},
    "hours": {"memory_bytes": 120 * MEBI},
}
TERMINAL = {
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "TEXTUAL_FPS": "10",
    "TEXTUAL_ANIMATIONS": "none",
    "TEXTUAL_SMOOTH_SCROLL": "0",
}
"""What `perfguard.tui.launch` sets, too."""
ROWS = {"idle": 500, "cases": 500, "ops": 5000, "hours": 400}
"""What must be on the screen (blocks, for the hours), so that the right thing was measured."""
WHAT = {
    "idle": "nothing new",
    "cases": "500 cases, 50 of them change each second",
    "ops": "5,000 op rows",
    "hours": "8 hours of events, 20 slices a second",
}


def main() -> int:
    """Run the scenarios and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", choices=[*BUDGETS, []], default=[])
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each measurement of CPU time")
    options = parser.parse_args()
    sys.stdout.write("| scenario | measured | budget | |\n|---|--:|--:|---|\n")
    is_kept = True
    for scenario in options.scenarios or BUDGETS:
        found = run(scenario, options.seconds)
        if found["rows"] < ROWS[scenario]:
            sys.exit(f"{scenario}: only {found['rows']} rows came up, so nothing was measured")
        for name, most in BUDGETS[scenario].items():
            show = format_bytes if name.endswith("_bytes") else format_ratio
            is_within = found[name] <= most
            is_kept &= is_within
            word = "kept" if is_within else "EXCEEDED"
            sys.stdout.write(f"| {WHAT[scenario]} | {show(found[name])} | {show(most)} | {word} |\n")
            sys.stdout.flush()
    return 0 if is_kept else 1


def run(scenario: str, seconds: float) -> dict[str, Any]:
    """What one scenario cost."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "cost.json"
        leader, follower = pty.openpty()
        ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 130, 0, 0))
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.tui_cost.child", scenario, str(seconds), str(out)],
            cwd=REPOSITORY,
            stdin=follower,
            stdout=follower,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **TERMINAL},
            start_new_session=True,
        )
        os.close(follower)
        discard(leader)
        child.wait()
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return found


def discard(leader: int) -> None:
    """Read what a terminal would draw, until its program has gone."""
    while True:
        try:
            if not os.read(leader, 65536):
                break
        except OSError:
            break
    os.close(leader)


if __name__ == "__main__":
    sys.exit(main())
