"""How many processes, rounds or seconds a peer may spend, so that every tool is given the same minutes.

Measured once by a pilot on identical arms: the seconds of a gate at two settings of the tool's own knob give a line.
"""

from __future__ import annotations

import json
import math

from tests.proof.gates_against_peers.places import COSTS


def units(tool: str, *, minutes: float, least: int) -> int:
    """The largest setting of the tool's knob that fits into the minutes; never less than `least`, as documented.

    Without a pilot it is `least`.
    """
    if not COSTS.is_file():
        return least
    line = json.loads(COSTS.read_text(encoding="utf-8")).get(tool)
    return least if line is None else fitting(line["fixed_s"], line["unit_s"], minutes=minutes, least=least)


def fitting(fixed_s: float, unit_s: float, *, minutes: float, least: int) -> int:
    """Units that fit: `fixed_s + units * unit_s <= 60 * minutes`."""
    return max(least, math.floor((60 * minutes - fixed_s) / unit_s))


def line_through(first: tuple[int, float], second: tuple[int, float]) -> dict[str, float]:
    """Fixed seconds and seconds for each unit, from two gates (units, seconds); neither is negative.

    Where more units took no longer, noise was larger than they are: a unit is then taken to be its part of the second
    gate's whole time, so that no gate becomes endless.
    """
    unit_s = (second[1] - first[1]) / (second[0] - first[0])
    if unit_s <= 0:
        unit_s = second[1] / second[0]
    return {"fixed_s": max(0.0, first[1] - first[0] * unit_s), "unit_s": unit_s}


def write(lines: dict[str, dict[str, float]]) -> None:
    """Keep what the pilot found."""
    COSTS.parent.mkdir(parents=True, exist_ok=True)
    COSTS.write_text(json.dumps(lines, indent=1), encoding="utf-8")
