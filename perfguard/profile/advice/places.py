"""Names and places in the few words that findings have for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfguard.profile.changes.counted import common_module, phases_of
from perfguard.profile.changes.op_names import short
from perfguard.profile.changes.residue import Place
from perfguard.records.steps.ops import StepPhase
from perfguard.units import format_count


def where(places: Iterable[Place]) -> str:
    """`in forward and backward of ResNet.layer3, at 4 places`; `in Adam` for an optimizer."""
    found = frozenset(places)
    phases = phases_of(found)
    modules = {place.module for place in found}
    path = common_module(modules)
    if phases == (StepPhase.OPTIMIZER,) and path:
        text = f"in {path}"
    else:
        text = f"in {listed([phase.value for phase in phases], limit=len(phases))}" + (f" of {path}" if path else "")
    return f"{text}, at {format_count(len(modules), 'place')}" if len(modules) > 1 else text


def listed(names: Iterable[str], *, limit: int = 3) -> str:
    """`conv2d, linear, relu and 4 more`; `forward and backward`."""
    words = list(names)
    shown, more = words[:limit], len(words) - limit
    if more > 0:
        return f"{', '.join(shown)} and {more:,} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def named(ops: Sequence[str]) -> str:
    """`mul_/addcdiv_/lerp_/…`: three of the ops, as they come."""
    return "/".join([*map(short, ops[:3]), *("…" for _ in ops[3:4])])
