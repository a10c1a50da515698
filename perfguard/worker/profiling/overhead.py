"""What the profiler costs for an event, and which part of it the event itself shows.

An event begins when the profiler has taken its first time stamp and ends when it takes the second; what the profiler
does before and after goes to the event around it. Measured on ops that do nothing: what they show is the part inside.
The events of modules are opened and closed by Python hooks, which cost several times as much.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from perfguard.worker.profiling.chrome_trace import export, profiler
from perfguard.worker.profiling.modules import ModuleHooks, annotation_type

UNKNOWN_SHARE = 0.2
"""Where the measurement gives nothing."""

_OUTER = "perfguard::outer"
_EMPTY_OP = "aten::resolve_conj"
"""Returns its argument: about 60 ns with the profiler, which shows the shapes of a tensor as it does for other ops."""
_GROUPS = 7
_EVENTS = 300
_MICRO = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCost:
    """The profiler's cost for one event, in a loop that does nothing else; in a step, caches are colder."""

    event_s: float
    """Seconds for an op's event, inside and outside together."""
    own_share: float
    """Part of it inside the event, 0 to 1."""
    module_s: float
    """Seconds for the event of a module, with its hooks."""


def measure_event_cost(hooks: ModuleHooks) -> EventCost:
    """Time ops and a module that do nothing, with and without the profiler.

    Args:
        hooks: Installed where the profiler runs; afterwards they are not.
    """
    import torch

    tensor, module = torch.zeros(1), torch.nn.Identity()
    groups: tuple[Callable[[], object], ...] = (lambda: torch.resolve_conj(tensor), lambda: module(tensor))
    hooks.remove()
    bare_op_s, bare_module_s = (_time_groups(call) for call in groups)
    hooks.install()
    with profiler() as running:
        module_s = _time_groups(groups[1])
    with profiler() as running:
        op_s = _time_groups(groups[0])
    hooks.remove()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.json"
        export(running, path)
        events = json.loads(path.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    event_s = max(0.0, op_s - bare_op_s)
    return EventCost(
        event_s=event_s, own_share=share_inside(events, event_s), module_s=max(0.0, module_s - bare_module_s)
    )


def share_inside(events: Sequence[Mapping[str, Any]], event_s: float) -> float:
    """Part of an event's cost that the event itself shows.

    Args:
        events: Trace events, durations in microseconds; others than the empty ops are passed over.
        event_s: All that an event costs.
    """
    shown_s = [float(event.get("dur", 0.0)) * _MICRO for event in events if event.get("name") == _EMPTY_OP]
    if not shown_s or event_s <= 0:
        return UNKNOWN_SHARE
    return min(1.0, median(shown_s) / event_s)


def _time_groups(call: Callable[[], object]) -> float:
    """Seconds of one call; the median of several groups of them."""
    return median(_time_group(call) for _ in range(_GROUPS)) / _EVENTS


def _time_group(call: Callable[[], object]) -> float:
    annotate = annotation_type()
    with annotate(_OUTER):
        started = time.perf_counter()
        for _ in range(_EVENTS):
            call()
        return time.perf_counter() - started
