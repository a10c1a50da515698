"""What following a piece of advice brought where it was measured: `gains.json`, which `make proof-recipes` writes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean

from msgspec import Struct

from perfguard.profile.advice.toggles import ANSWERS, Answer
from perfguard.profile.changes.counted import grouped
from perfguard.records.facts import Fact, fact
from perfguard.records.steps.findings import PREFIX


class Gain(Struct, frozen=True, kw_only=True):
    """One setting of one case, compared in paired blocks on one machine."""

    toggle: str  # `optimizer=fused`
    on_top_of: tuple[str, ...]  # Settings of both arms
    case_id: str  # The reference
    machine_id: str
    torch: str
    speedup: float  # Seconds before / seconds after
    lower: float
    upper: float  # 95 % interval

    @property
    def saved_ratio(self) -> float:
        """Part of the step that it saved; negative where it made the step slower."""
        return 1 - 1 / self.speedup


@cache
def known_gains() -> tuple[Gain, ...]:
    """All committed measurements."""
    rows = json.loads(Path(__file__).with_name("gains.json").read_text(encoding="utf-8"))
    return tuple(Gain(**{**row, "on_top_of": tuple(row["on_top_of"])}) for row in rows)


def measured_gains(code: str, machine_id: str | None, known: tuple[Gain, ...] | None = None) -> tuple[Fact, ...]:
    """What following a finding did to steps, by its most direct answer: one fact a machine, this machine first.

    Empty where nobody measured it.
    """
    answers = ANSWERS.get(PREFIX + code)
    if not answers:
        return ()
    setting = "=".join(answers[0])
    gains = [gain for gain in (known_gains() if known is None else known) if gain.toggle == setting]
    machines = grouped(gains, lambda gain: gain.machine_id)
    return tuple(
        fact(
            "gain.measured",
            setting=setting,
            best_log_ratio=min(there),
            worst_log_ratio=max(there) if len(there) > 1 else None,
            cases=len({gain.case_id for gain in machines[machine]}),
            machine=machine,
        )
        for machine in sorted(machines, key=lambda machine: (machine != machine_id, machine))
        for there in [[-math.log(gain.speedup) for gain in machines[machine]]]
    )


def expected_gains(benchmark: str, known: tuple[Gain, ...] | None = None) -> Mapping[Answer, float]:
    """Mean part of a step that each value of a toggle saved, of this benchmark where it was measured there."""
    gains = known_gains() if known is None else known
    own = {gain.toggle for gain in gains if _benchmark_of(gain) == benchmark}
    counted = (gain for gain in gains if gain.toggle not in own or _benchmark_of(gain) == benchmark)
    found: dict[Answer, float] = {}
    for toggle, there in grouped(counted, lambda gain: gain.toggle).items():
        name, _, value = toggle.partition("=")
        found[name, value] = fmean(gain.saved_ratio for gain in there)
    return found


def _benchmark_of(gain: Gain) -> str:
    return gain.case_id.partition("[")[0]
