"""Where the proof keeps things: sources beside this file, what is measured in `docs/measurements`, the rest aside."""

from __future__ import annotations

from pathlib import Path

from perfguard.host.probe import probe

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
TEMPLATE = HERE / "victim"
CONSTRAINTS = HERE / "constraints.txt"

MEASURED = REPOSITORY / "docs" / "measurements" / f"peers-{probe().machine_id}"
"""What was measured on this machine, row by row, and the report: committed, so that samples of many days add up."""
SPINS = MEASURED / "spins.json"
"""Seconds of an iteration of each case, measured once, alone."""
COSTS = MEASURED / "costs.json"
"""What a gate of each tool costs, measured once, so that all are given the same minutes."""
LIVE_JOURNAL = MEASURED / "live.jsonl"
FAULTS_JOURNAL = MEASURED / "faults.jsonl"
EFFECTS_JOURNAL = MEASURED / "effects.jsonl"
RECORDINGS = MEASURED / "recordings.jsonl"
REPLAY_JOURNAL = MEASURED / "replay.jsonl"

STATE = REPOSITORY / ".perfguard" / "peers"
"""Virtual environments, checkouts and recordings; not committed."""
SUITES_VENV = STATE / "suites"
"""torch, pyperf and pytest-benchmark: the interpreter that every tool measures, asv excepted."""
ASV_VENV = STATE / "asv"
"""asv itself; the environment it measures is made by asv."""
ASV_PLACE = STATE / "asv-project"
VICTIM_REPOSITORY = STATE / "victim"
"""A git repository: `base`, and a branch for every variant that differs in its sources."""
TREES = STATE / "trees"
"""Checkouts of them, for the tools that take directories; names are equally long, so that paths are, too."""
RUNS = STATE / "runs"
"""Output of the gates."""


def python_of(venv: Path) -> Path:
    """Interpreter of a virtual environment."""
    return venv / "bin" / "python"


def without_places(text: str) -> str:
    """The text without the paths of this machine, which error messages hold."""
    return text.replace(str(REPOSITORY), "…").replace(str(Path.home()), "~")
