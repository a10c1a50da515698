"""What torch.compile did between two moments: graphs, graph breaks and recompilations, counted by their reason."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

_REASON_CHARACTERS = 200
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|\b\d{6,}\b")  # Addresses and ids, which differ from run to run


class CompileEvents:
    """Counts from its creation on. Nothing is counted, and nothing imported, where Dynamo was never loaded."""

    def __init__(self) -> None:
        self._counts = _counts()
        # Kept themselves: Dynamo holds the last few only, and ids of those that it dropped are used again.
        self._compilations = _compilations()

    def so_far(self) -> dict[str, int]:
        """Events by name, sorted: `graph_break: REASON`, `recompile: REASON`, `frames`, `unique_graphs`."""
        found = _counts() - self._counts
        for compilation in _compilations():
            reason = getattr(compilation, "recompile_reason", None)
            if reason and not any(compilation is known for known in self._compilations):
                found[f"recompile: {_plain(reason)}"] += 1
        return dict(sorted(found.items()))


def _counts() -> Counter[str]:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
    found = Counter(
        frames=counters.get("frames", {}).get("total", 0),
        unique_graphs=counters.get("stats", {}).get("unique_graphs", 0),
    )
    for reason, count in counters.get("graph_break", {}).items():
        found[f"graph_break: {_plain(reason)}"] += count
    return found


def _compilations() -> list[Any]:
    ask = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", None)
    return list(ask()) if ask else []


def _plain(reason: object) -> str:
    """The first line of a reason, without what changes from run to run."""
    lines = str(reason).strip().splitlines() or [""]
    return _CHANGING.sub("*", lines[0])[:_REASON_CHARACTERS]
