"""How fast a step could be: what it loses against its ops alone, and these against the CPUs, for a terminal."""

from __future__ import annotations

import math
import string
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from perfguard.records.steps.projection import (
    CaseProjection,
    Projected,
    Projection,
    Roof,
    RooflineCeilings,
    RooflinePoint,
)
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.tables import plain_table, texts
from perfguard.units import (
    format_bandwidth,
    format_count,
    format_flops,
    format_number,
    format_seconds,
    format_share,
    format_signed_seconds,
    shorten,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

MARKS = string.ascii_uppercase  # A letter for each problem, in the order given; so many can be shown
_CHART_WIDTH, _CHART_HEIGHT = 60, 12
_SLOPE, _FLAT, _RIDGE = "/", "-", "+"
_DECADES_BELOW = 3.0  # Lower end of the chart below the peak, unless a problem is lower
_NAME_CHARACTERS = 40
SHOWN_PROBLEMS = 15  # Rows of a table of problems; a roofline has a letter for each
_SHOWN_REASONS = 5
_BEYOND = {
    Roof.MEMORY: "more than 100 % of the memory roof: the data came out of caches",
    Roof.COMPUTE: "more than 100 % of the compute roof: the matrix product that sets it was held up, as by a "
    "neighbour; measure again where the CPUs are quiet",
}
"""What it means that an op is faster than a ceiling."""


def render_projection(projection: CaseProjection, *, name: str, rows: int = SHOWN_PROBLEMS) -> list[RenderableType]:
    """A step against its ops alone, against oneDNN's primitives alone, and against the CPUs' ceilings."""
    parts = texts(f"projection of {name}", style="bold")
    parts += _against(projection.ops, "op", rows)
    if projection.primitives is not None:
        parts += _against(projection.primitives, "primitive", rows)
    if projection.ceilings is not None:
        parts += _roofline(projection.roofline[:rows], projection.ceilings)
    return [*parts, *texts(*map(describe, projection.notes), style="dim")]


def efficiency_line(projection: Projection, noun: str) -> str:
    """`kernel efficiency 91 %, framework efficiency 74 %; 97 % of the time in ops was replayed`."""
    return (
        f"kernel efficiency {format_share(projection.kernel_ratio)}, "
        f"framework efficiency {format_share(projection.framework_ratio)}; "
        f"{format_share(projection.coverage_ratio)} of the time in {noun}s was replayed, "
        f"{format_share(projection.step_coverage_ratio)} of the step"
    )


def identity_line(projection: Projection, noun: str) -> str:
    """`step 30.0 ms = alone 20.0 ms + lost in ops 2.0 ms + not replayed 1.0 ms + in no op 7.0 ms`."""
    terms = (
        (f"lost in {noun}s", projection.lost_s),
        ("not replayed", projection.unreplayed_s),
        (f"in no {noun}", projection.outside_s),
    )
    signed = " ".join(f"{'-' if value < 0 else '+'} {name} {format_seconds(abs(value))}" for name, value in terms)
    return f"step {format_seconds(projection.step_s)} = alone {format_seconds(projection.projected_s)} {signed}"


def _against(projection: Projection, noun: str, rows: int) -> list[RenderableType]:
    parts = [*texts(efficiency_line(projection, noun)), *texts(identity_line(projection, noun), style="dim")]
    replayed = [problem for problem in projection.problems if problem.projected_s is not None]
    if replayed:
        cells = (
            (
                problem.name,
                shorten(problem.detail, _NAME_CHARACTERS),
                "/".join(phase.value for phase in problem.phases) or "-",
                format_number(problem.calls),
                format_seconds(problem.observed_s),
                format_seconds(problem.projected_s),
                format_signed_seconds(problem.gap_s),
                format_share(problem.efficiency_ratio),
            )
            for problem in replayed[:rows]
        )
        heads = (f"~~{noun}", "~problem/3", "phase/4", ">calls/2", ">in the step", ">alone/1", ">lost", ">efficiency")
        parts.append(plain_table(*heads, rows=cells))
        parts += texts(*_assumptions(replayed[:rows]), style="dim")
    return [*parts, *texts(*_missing(p for p in projection.problems if p.projected_s is None))]


def _missing(problems: Iterable[Projected]) -> Iterator[str]:
    """What was not replayed, by reason: the longest of each and how many more there are."""
    alike: dict[Hashable, list[Projected]] = {}
    for problem in problems:
        reason = problem.reason
        alike.setdefault(reason and (reason.code, tuple(reason.values.items())), []).append(problem)
    for group in sorted(alike.values(), key=_observed_s, reverse=True)[:_SHOWN_REASONS]:
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        why = describe(group[0].reason) if group[0].reason else "-"
        yield f"not replayed: {format_seconds(_observed_s(group))} in {group[0].name}{more}: {why}"


def _assumptions(rows: Sequence[Projected] | Sequence[RooflinePoint]) -> list[str]:
    """`assumed of aten::gelu: approximate='none'`, once for each op."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(row.name, {}).update(dict.fromkeys(row.assumed))
    return [f"assumed of {name}: {'; '.join(assumed)}" for name, assumed in found.items() if assumed]


def _observed_s(problems: Sequence[Projected]) -> float:
    return sum(problem.observed_s for problem in problems)


def _roofline(points: Sequence[RooflinePoint], ceilings: RooflineCeilings) -> list[RenderableType]:
    from rich.text import Text

    peaks = ", ".join(f"{dtype} {format_flops(peak)}" for dtype, peak in sorted(ceilings.flops_per_s.items()))
    bandwidth = format_bandwidth(ceilings.bytes_per_s)
    threads = format_count(ceilings.threads, "thread")
    parts = texts(f"ceilings with {threads}: {peaks or 'no peak'}; memory {bandwidth}")
    if not points:
        return parts
    cells = (
        (
            mark,
            point.name,
            shorten(point.detail, _NAME_CHARACTERS),
            "-" if point.intensity is None else f"{point.intensity:.3g}",
            format_flops(point.achieved_flops_per_s),
            format_bandwidth(point.achieved_bytes_per_s),
            point.roof.value,
            format_share(point.share_ratio),
            format_share(point.alone_share_ratio),
        )
        for mark, point in zip(MARKS, points, strict=False)
    )
    heads = ("#", "~~op", "~problem/5", ">FLOP/byte/3", ">achieved/2", ">memory/4", "roof", ">of the roof", ">alone/1")
    parts.append(plain_table(*heads, rows=cells))
    parts += texts(*_assumptions(points), style="dim")
    for dtype in dict.fromkeys(point.dtype for point in points):
        lines = roofline_chart(points, ceilings, dtype)
        if lines:
            parts.append(Text("\n".join(lines), no_wrap=True, overflow="crop"))
    beyond = {point.roof for point in points if max(point.share_ratio, point.alone_share_ratio or 0.0) > 1}
    return [*parts, *texts(*(_BEYOND[roof] for roof in Roof if roof in beyond), style="dim")]


def roofline_chart(points: Sequence[RooflinePoint], ceilings: RooflineCeilings, dtype: str) -> list[str]:
    """The problems of one dtype under its roof, a line of text each; nothing without problems or a peak.

    Problems whose operations are not counted are left out. Where several meet at one place, the first is shown.
    """
    peak = ceilings.flops_per_s.get(dtype)
    shown = [
        (mark, math.log10(point.intensity), math.log10(point.achieved_flops_per_s))
        for mark, point in zip(MARKS, points, strict=False)
        if point.dtype == dtype and point.intensity and point.achieved_flops_per_s
    ]
    if not shown or not peak:
        return []
    ridge = math.log10(peak / ceilings.bytes_per_s)
    left = math.floor(min(ridge - 1, *(x for _, x, _ in shown)))
    right = math.ceil(max(ridge + 1, *(x for _, x, _ in shown)))
    top = max(math.log10(peak), *(y for _, _, y in shown))
    bottom = min(math.log10(peak) - _DECADES_BELOW, *(y for _, _, y in shown))
    scale = (_CHART_WIDTH - 1) / (right - left)
    rows = [[" "] * _CHART_WIDTH for _ in range(_CHART_HEIGHT)]

    def put(column: int, y: float, character: str) -> None:
        row = round((top - y) / (top - bottom) * (_CHART_HEIGHT - 1))
        if 0 <= row < _CHART_HEIGHT:
            rows[row][column] = character

    for column in range(_CHART_WIDTH):
        x = left + column / scale
        put(column, min(math.log10(peak), x + math.log10(ceilings.bytes_per_s)), _FLAT if x >= ridge else _SLOPE)
    put(round((ridge - left) * scale), math.log10(peak), _RIDGE)
    for mark, x, y in reversed(shown):
        put(round((x - left) * scale), y, mark)
    labels = [format_flops(10**top), *[""] * (_CHART_HEIGHT - 2), format_flops(10**bottom)]
    width = max(map(len, labels))
    ends = (f"{10.0**left:g}", f"{10.0**right:g} FLOP a byte")
    return [
        f"{dtype}: peak {format_flops(peak)}, ridge at {10**ridge:.1f} FLOP a byte",
        *(f"{label:>{width}} |{''.join(row).rstrip()}" for label, row in zip(labels, rows, strict=True)),
        f"{'':>14} {ends[0]}{ends[1]:>{_CHART_WIDTH - len(ends[0])}}",
    ]
