"""Findings: advice from a profile. A finding is a fact; its title, gain and what to try are in the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfguard.records.facts import Fact
from perfguard.records.steps.ops import OpKey, StepPhase

PREFIX = "advice."  # What the codes of all findings begin with


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Fact):
    """One thing that a step does and probably need not.

    Its code names the rule, `advice.unfused_optimizer`. Its values name what it is about and hold no measurement, so
    the same finding in two arms has equal values. Its subject's `op` is the module, or what all its modules share.
    """

    seen: tuple[Fact, ...]  # The evidence, with its numbers
    phases: tuple[StepPhase, ...] = ()  # Where in the step; empty where it concerns the whole process
    places: int = 0  # Modules that it concerns
    ops: tuple[OpKey, ...] = ()  # The ops that it concerns, longest first, the longest few of them
    share: float | None = None  # Part of the step that all these ops take, not what can be saved; None where unknown
    measured: tuple[Fact, ...] = ()  # What following it saved where it was measured, one fact a machine
    command: str = ""  # Measures what following it brings; empty where only a trace is known
    since_baseline: tuple[Fact, ...] = ()  # What of it is new since the baseline, where two arms were compared

    @property
    def id(self) -> str:
        """The code as people read it: `unfused-optimizer`."""
        return self.code.removeprefix(PREFIX).replace("_", "-")


def finding_of_schema_1(data: dict[str, Any]) -> dict[str, Any]:
    """Plain data of a finding as schema 1 wrote it, in today's shape; what is not of schema 1 stays as it is.

    Its texts stay, as the values `title`, `where`, `gain` and `change`: the numbers in them are nowhere else.
    """
    if "title" not in data:
        return data
    gain, trial = data["gain"], data["trial"]
    gain_text = f"{gain['text']} ({gain['source']})" if gain["source"] else gain["text"]
    return {
        "code": PREFIX + data["id"].replace("-", "_"),
        "severity": "info" if data["severity"] == "hint" else data["severity"],
        "values": {"title": data["title"], "where": data["where"], "gain": gain_text, "change": trial["change"]},
        "seen": data["seen"],
        "ops": data["ops"],
        "share": data["share"],
        "command": trial["command"],
        "since_baseline": data.get("since_baseline", ""),
    }
