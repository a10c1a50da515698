"""Where the proof keeps things: sources beside this file, everything made below `.perfguard/peers`."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
TEMPLATE = HERE / "victim"
CONSTRAINTS = HERE / "constraints.txt"
MEASUREMENTS = REPOSITORY / "docs" / "measurements"

STATE = REPOSITORY / ".perfguard" / "peers"
"""Virtual environments, checkouts and journals; not committed."""
SUITES_VENV = STATE / "suites"
"""torch, pyperf and pytest-benchmark: the interpreter that every tool measures, asv excepted."""
ASV_VENV = STATE / "asv"
"""asv itself; the environment it measures is made by asv."""
ASV_PLACE = STATE / "asv-project"
VICTIM_REPOSITORY = STATE / "victim"
"""A git repository: `base`, and a branch for every variant that differs in its sources."""
TREES = STATE / "trees"
"""Checkouts of them, for the tools that take directories; names are equally long, so that paths are, too."""
SPINS = STATE / "spins.json"
"""Seconds of an iteration of each case, measured once, alone."""
COSTS = STATE / "costs.json"
"""What a gate of each tool costs, measured once, so that all are given the same minutes."""
RUNS = STATE / "runs"
"""Output of the gates."""

LIVE_JOURNAL = STATE / "live.jsonl"
FAULTS_JOURNAL = STATE / "faults.jsonl"
EFFECTS_JOURNAL = STATE / "effects.jsonl"
RECORDINGS = STATE / "recordings.jsonl"
REPLAY_JOURNAL = STATE / "replay.jsonl"


def python_of(venv: Path) -> Path:
    """Interpreter of a virtual environment."""
    return venv / "bin" / "python"
