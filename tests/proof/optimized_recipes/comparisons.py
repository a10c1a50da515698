"""Paired comparisons of two settings of one case, by `perfguard compare`, kept in a journal."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfguard.profile.advice.toggles import Answer

REPOSITORY = Path(__file__).parents[3]
BLOCKS, SAMPLES = 8, 4  # Pairs of fresh processes, and samples of each arm in one


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How much faster a case is after toggles than before."""

    case_id: str
    before: tuple[Answer, ...]
    after: tuple[Answer, ...]
    cap: str  # ONEDNN_MAX_CPU_ISA in both arms; empty without
    speedup: float  # Seconds before / seconds after, from the mean of the blocks' log ratios
    lower: float
    upper: float  # 95 % interval over blocks
    before_s: float
    after_s: float  # Median seconds of a step
    blocks: int
    outcome: str  # Verdict of the gate: `different` where the numerics guard refused
    torch: str


class Journal:
    """Comparisons of one machine and version of torch, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines]
        for row in rows:
            row["before"], row["after"] = (tuple(map(tuple, row[side])) for side in ("before", "after"))
        self.known = [Compared(**row) for row in rows]

    def compare(
        self, case_id: str, before: Sequence[Answer], after: Sequence[Answer], *, cap: str, budget_s: float
    ) -> Compared:
        """What is known, else what is measured now."""
        key = (case_id, tuple(before), tuple(after), cap)
        for row in self.known:
            if (row.case_id, row.before, row.after, row.cap) == key:
                return row
        row = _measured(*key, budget_s)
        self.known.append(row)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        return row


def perfguard(*arguments: str) -> dict[str, Any]:
    """The JSON result of a command of perfguard.

    Raises:
        CalledProcessError: It ended with an error, not with a verdict.
    """
    command = [sys.executable, "-m", "perfguard", *arguments, "--format", "json"]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.startswith("{"):
        raise subprocess.CalledProcessError(done.returncode, command)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def arm(toggles: Sequence[Answer], cap: str) -> str:
    """An arm as it is typed."""
    variables = f"+env:ONEDNN_MAX_CPU_ISA={cap}" if cap else ""
    values = ",".join(f"{name}={value}" for name, value in toggles)
    return f"dir:.{variables}{f'+set:{values}' if values else ''}"


def _measured(case_id: str, before: Sequence[Answer], after: Sequence[Answer], cap: str, budget_s: float) -> Compared:
    result = perfguard(
        "compare", "--baseline", arm(before, cap), "--candidate", arm(after, cap), "--case", case_id, "--no-ops",
        "--threads", "1", "--max-blocks", str(BLOCKS), "--samples", str(SAMPLES), "--budget", str(budget_s),
        "--exit-zero",
    )  # fmt: skip
    verdict = result["gate"]["verdicts"][0]
    compared = verdict["comparison"]
    estimate = compared["estimate"] or {}
    ratio = estimate.get("log_ratio", math.nan)
    interval = estimate.get("interval", {})
    return Compared(
        case_id=case_id,
        before=tuple(before),
        after=tuple(after),
        cap=cap,
        speedup=math.exp(-ratio),
        lower=math.exp(-interval.get("upper", math.nan)),
        upper=math.exp(-interval.get("lower", math.nan)),
        before_s=compared["baseline_median_s"] or math.nan,
        after_s=compared["candidate_median_s"] or math.nan,
        blocks=estimate.get("blocks", 0),
        outcome=verdict["outcome"],
        torch=result["arms"]["candidate"]["torch"],
    )
