"""An arm's ops in the formats of other tools: collapsed stacks for flame graphs, speedscope, CSV.

The stack of an op is its phase, the parts of its module's path, and itself.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from perfguard import __version__
from perfguard.records.steps.ops import OpKey, OpTotal, StepPhase
from perfguard.units import printable

COLUMNS = ("phase", "module", "op", "shapes", "dtypes", "layouts", "calls", "self_s", "source", "implementations")
"""Of the CSV."""

_SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"
_FORMULA = ("=", "+", "-", "@")
_US_PER_S = 1e6
_PHASE_ORDER = {phase: position for position, phase in enumerate(StepPhase)}


def to_collapsed(totals: Iterable[OpTotal]) -> str:
    """One line for each stack, `forward;ResNet;layer1;0;conv1;aten::conv2d 123`, in whole microseconds of a step.

    Source: https://github.com/brendangregg/FlameGraph, the input of flamegraph.pl.
    """
    times_s: dict[str, float] = defaultdict(float)
    for total in totals:
        stack = ";".join(printable(part).replace(";", ":").replace(" ", "_") for part in _stack(total.key))
        times_s[stack] += total.self_s
    lines = ((stack, round(seconds * _US_PER_S)) for stack, seconds in sorted(times_s.items()))
    return "".join(f"{stack} {microseconds}\n" for stack, microseconds in lines if microseconds > 0)


def to_speedscope(totals: Sequence[OpTotal], *, name: str) -> str:
    """A sampled profile of one step, one sample for each op, phases in their order; weights in microseconds.

    Args:
        totals: Ops.
        name: Of the profile, such as the case.

    Source: https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources
    """
    frames: dict[tuple[str, str | None], int] = {}
    samples, weights = [], []
    for total in sorted(totals, key=_order):
        *places, op = _stack(total.key)
        stack: list[tuple[str, str | None]] = [(place, None) for place in places]
        stack.append((_with_shapes(op, total.key), total.source))
        samples.append([frames.setdefault(frame, len(frames)) for frame in stack])
        weights.append(total.self_s * _US_PER_S)
    document = {
        "$schema": _SPEEDSCOPE,
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
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for total in totals:
        key = total.key
        texts = (key.phase.value, key.module, key.op, key.shapes, key.dtypes, key.layouts)
        found = (total.source or "", " ".join(total.implementations))
        writer.writerow([*map(_cell, texts), f"{total.calls:.10g}", f"{total.self_s:.9g}", *map(_cell, found)])
    return text.getvalue()


def _stack(key: OpKey) -> list[str]:
    return [key.phase.value, *(part for part in key.module.split(".") if part), key.op]


def _order(total: OpTotal) -> tuple[int, str, str]:
    return _PHASE_ORDER[total.key.phase], total.key.module, total.key.op


def _with_shapes(op: str, key: OpKey) -> str:
    return printable(f"{op} {key.shapes}".rstrip())


def _frame(name: str, source: str | None) -> dict[str, str | int]:
    frame: dict[str, str | int] = {"name": printable(name)}
    file, _, line = (source or "").rpartition(":")
    if file and line.isdecimal():
        frame["file"] = printable(file)
        frame["line"] = int(line)
    return frame


def _cell(text: str) -> str:
    """Text that a spreadsheet takes as text: names are the user's, and one may look like a formula."""
    text = printable(text)
    return f"'{text}" if text.startswith(_FORMULA) else text
