"""What benchdnn prints of a problem: lines laid out by a template that it prints first.

Source: `tests/benchdnn/doc/knobs_perf_report.md` and `benchdnn_general_info.md` of oneDNN.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfguard.records.facts import Fact, fact

OUTPUT_TEMPLATE = "perf,%engine%,%impl%,%0time%"
"""What to ask for: the implementation, and the mean time in ms."""

_MS_PER_S = 1e3
_MEAN_TIME = "%0time%"
_WORDS = {_MEAN_TIME: r"(?P<mean_ms>\d+(?:\.\d+)?(?:e[+-]?\d+)?)", "%impl%": "(?P<impl>[^,]*)"}
_ANNOUNCEMENT = "Output template: "


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchdnnTime:
    """What benchdnn says of one problem."""

    call_s: float | None
    """Mean seconds of one execution; None where it was not run."""
    implementation: str
    """What oneDNN chose."""
    reason: Fact | None = None
    """Why it was not run."""


def parse_benchdnn(output: str) -> BenchdnnTime:
    """Read what benchdnn printed of one problem."""
    template: re.Pattern[str] | None = None
    for line in output.splitlines():
        if line.startswith(_ANNOUNCEMENT):
            template = _pattern(line.removeprefix(_ANNOUNCEMENT).strip())
        found = template.fullmatch(line.strip()) if template else None
        if found:
            fields = found.groupdict()
            return BenchdnnTime(call_s=float(fields["mean_ms"]) / _MS_PER_S, implementation=fields.get("impl") or "")
    return BenchdnnTime(call_s=None, implementation="", reason=_status(output))


def _pattern(template: str) -> re.Pattern[str] | None:
    """What a line of this template looks like; None where it does not tell the time."""
    parts = re.split(r"(%[^%]*%)", template)
    if _MEAN_TIME not in parts:
        return None
    looks = (_WORDS.get(part, ".*?") if part.startswith("%") else re.escape(part) for part in parts)
    return re.compile("".join(looks), re.ASCII)


def _status(output: str) -> Fact:
    found = re.search(r"^\d+:(?P<status>[A-Z_]+)(?: \((?P<why>[^)]*)\))?.*__REPRO", output, re.MULTILINE)
    if found is None:
        return fact("replay.no_time")
    return fact("replay.status", status=found["status"].lower().replace("_", " "), why=found["why"])
