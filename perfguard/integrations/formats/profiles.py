"""An arm's ops in the formats of other tools: collapsed stacks for flame graphs, speedscope, CSV.

The stack of an op is its phase, the parts of its module's path, and itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from perfguard import __version__
from perfguard.integrations.formats.tables import csv_text, text_cell
from perfguard.records.steps.ops import OpKey, OpTotal, StepPhase
from perfguard.units import printable

COLUMNS = ("phase", "module", "op", "shapes", "dtypes", "layouts", "calls", "self_s", "source", "implementations")
"""Of the CSV."""
_PHASES = list(StepPhase)


def to_collapsed(totals: Iterable[OpTotal]) -> str:
    """One line for each stack, `forward;ResNet;layer1;0;conv1;aten::conv2d 123`, in whole microseconds of a step.

    Source: https://github.com/brendangregg/FlameGraph, the input of flamegraph.pl.
    """
    times_s: dict[str, float] = defaultdict(float)
    for total in totals:
        stack = ";".join(printable(part).replace(";", ":").replace(" ", "_") for part in _stack(total.key))
        times_s[stack] += total.self_s
    return "".join(f"{stack} {us}\n" for stack, time_s in sorted(times_s.items()) if (us := round(time_s * 1e6)) > 0)


def to_speedscope(totals: Sequence[OpTotal], *, name: str) -> str:
    """A sampled profile of one step, one sample for each op, phases in their order; weights in microseconds.

    Args:
        totals: Ops.
        name: Of the profile, such as the case.

    Source: https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources
    """
    frames: dict[tuple[str, str | None], int] = {}
    samples, weights = [], []
    for total in sorted(totals, key=lambda one: (_PHASES.index(one.key.phase), one.key.module, one.key.op)):
        *places, op = _stack(total.key)
        shown = printable(f"{op} {total.key.shapes}".rstrip())
        stack: list[tuple[str, str | None]] = [*((place, None) for place in places), (shown, total.source)]
        samples.append([frames.setdefault(frame, len(frames)) for frame in stack])
        weights.append(total.self_s * 1e6)
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"perfguard {__version__}",
        "name": printable(name),
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(text, source) for text, source in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": printable(name),
                "unit": "microseconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        ],
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def to_csv(totals: Iterable[OpTotal]) -> str:
    """One row for each op, in the order given, with a header; several implementations are separated by a space."""
    rows: list[Iterable[str]] = [COLUMNS]
    for total in totals:
        key = total.key
        texts = (key.phase.value, key.module, key.op, key.shapes, key.dtypes, key.layouts)
        found = (total.source or "", " ".join(total.implementations))
        numbers = (f"{total.calls:.10g}", f"{total.self_s:.9g}")
        rows.append([*map(text_cell, texts), *numbers, *map(text_cell, found)])
    return csv_text(rows)


def _stack(key: OpKey) -> list[str]:
    return [key.phase.value, *(part for part in key.module.split(".") if part), key.op]


def _frame(name: str, source: str | None) -> dict[str, str | int]:
    file, _, line = (source or "").rpartition(":")
    if not (file and line.isdecimal()):
        return {"name": printable(name)}
    return {"name": printable(name), "file": printable(file), "line": int(line)}
