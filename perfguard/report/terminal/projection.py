"""How fast a step could be: what it loses against its ops alone, and these against the CPUs, for a terminal."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from perfguard.records.facts import Fact
from perfguard.records.steps.projection import (
    CaseProjection,
    Projected,
    Projection,
    Roof,
    RooflineCeilings,
    RooflinePoint,
)
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.roofline_chart import MARKS, roofline_chart
from perfguard.report.terminal.tables import FittedTable, plain_table
from perfguard.units import (
    format_bandwidth,
    format_count,
    format_flops,
    format_number,
    format_seconds,
    format_share,
    format_signed_seconds,
    printable,
    shorten,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

_NAME_CHARACTERS = 40
SHOWN_PROBLEMS = 15
"""Rows of a table of problems; a roofline has a letter for each."""
_SHOWN_REASONS = 5
_BEYOND = {
    Roof.MEMORY: "more than 100 % of the memory roof: the data came out of caches",
    Roof.COMPUTE: "more than 100 % of the compute roof: the matrix product that sets it was held up, as by a "
    "neighbour; measure again where the CPUs are quiet",
}
"""What it means that an op is faster than a ceiling."""


def render_projection(projection: CaseProjection, *, rows: int = SHOWN_PROBLEMS) -> list[RenderableType]:
    """A step against its ops alone, against oneDNN's primitives alone, and against the CPUs' ceilings."""
    from rich.text import Text

    parts: list[RenderableType] = [Text(printable(f"projection of {projection.case_id}"), style="bold")]
    parts += _against(projection.ops, "op", rows)
    if projection.primitives is not None:
        parts += _against(projection.primitives, "primitive", rows)
    if projection.ceilings is not None:
        parts += _roofline(projection.roofline[:rows], projection.ceilings)
    parts += [Text(describe(note), style="dim") for note in projection.notes]
    return parts


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
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(efficiency_line(projection, noun)),
        Text(identity_line(projection, noun), style="dim"),
    ]
    replayed = [problem for problem in projection.problems if problem.projected_s is not None]
    if replayed:
        parts.append(_projected_table(replayed[:rows], noun))
        parts += [Text(printable(line), style="dim") for line in _assumptions(replayed[:rows])]
    missing = [problem for problem in projection.problems if problem.projected_s is None]
    if missing:
        parts += _missing_lines(missing)
    return parts


def _projected_table(problems: Sequence[Projected], noun: str) -> FittedTable:
    table = plain_table(
        f"~~{noun}", "~problem/3", "phase/4", ">calls/2", ">in the step", ">alone/1", ">lost", ">efficiency"
    )
    for problem in problems:
        table.add_row(
            problem.name,
            shorten(problem.detail, _NAME_CHARACTERS),
            "/".join(phase.value for phase in problem.phases) or "-",
            format_number(problem.calls),
            format_seconds(problem.observed_s),
            format_seconds(problem.projected_s),
            format_signed_seconds(problem.gap_s),
            format_share(problem.efficiency_ratio),
        )
    return table


def _missing_lines(problems: Sequence[Projected]) -> list[RenderableType]:
    """What was not replayed, by reason: the longest of each and how many more there are."""
    from rich.text import Text

    alike: dict[Hashable, list[Projected]] = {}
    for problem in problems:
        alike.setdefault(_identity(problem.reason), []).append(problem)
    longest_first = sorted(alike.values(), key=_observed_s, reverse=True)
    lines = []
    for first, *others in longest_first[:_SHOWN_REASONS]:
        more = f" and {len(others)} more" if others else ""
        observed = format_seconds(_observed_s([first, *others]))
        reason = describe(first.reason) if first.reason else "-"
        lines.append(Text(printable(f"not replayed: {observed} in {first.name}{more}: {reason}")))
    return [*lines]


def _identity(reason: Fact | None) -> Hashable:
    return reason and (reason.code, tuple(reason.values.items()))


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
    parts: list[RenderableType] = [Text(f"ceilings with {threads}: {peaks or 'no peak'}; memory {bandwidth}")]
    if not points:
        return parts
    parts.append(_roofline_table(points))
    parts += [Text(printable(line), style="dim") for line in _assumptions(points)]
    for dtype in dict.fromkeys(point.dtype for point in points):
        lines = roofline_chart(points, ceilings, dtype)
        if lines:
            parts.append(Text("\n".join(lines), no_wrap=True, overflow="crop"))
    beyond = {point.roof for point in points if max(point.share_ratio, point.alone_share_ratio or 0.0) > 1}
    parts += [Text(_BEYOND[roof], style="dim") for roof in Roof if roof in beyond]
    return parts


def _roofline_table(points: Sequence[RooflinePoint]) -> FittedTable:
    table = plain_table(
        "#", "~~op", "~problem/5", ">FLOP/byte/3", ">achieved/2", ">memory/4", "roof", ">of the roof", ">alone/1"
    )
    for mark, point in zip(MARKS, points, strict=False):
        table.add_row(
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
    return table
