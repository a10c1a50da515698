"""What following a piece of advice brought where it was measured: `gains.json`, which `make proof-recipes` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfguard.profile.changes.counted import grouped
from perfguard.records.facts import Fact, fact

TOGGLES: Mapping[str, str] = {
    "bf16_untried": "dtype=bf16",
    "channels_last_untried": "memory_format=channels_last",
    "unfused_optimizer": "optimizer=fused",
    "frozen_batch_norm": "norm=folded",
}
"""By the code of a finding, the setting of a benchmark that follows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
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
    """What a finding's advice saved, one fact a machine, this machine first; empty where nobody measured it."""
    gains = [gain for gain in (known_gains() if known is None else known) if gain.toggle == TOGGLES.get(code)]
    machines = grouped(gains, lambda gain: gain.machine_id)
    return tuple(
        fact(
            "gain.measured",
            setting=TOGGLES[code],
            saved_ratios=tuple(sorted({min(there), max(there)})),
            cases=len({gain.case_id for gain in machines[machine]}),
            machine=machine,
        )
        for machine in sorted(machines, key=lambda machine: (machine != machine_id, machine))
        for there in [[gain.saved_ratio for gain in machines[machine]]]
    )
