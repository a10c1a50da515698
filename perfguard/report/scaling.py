"""Tables of throughput over ranks and threads, as rows of texts for every output."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from msgspec import Struct

from perfguard.records.case_names import short_names
from perfguard.records.result import ScalingCell


class ScalingTable(Struct, frozen=True, kw_only=True):
    """One step's table."""

    title: str
    heads: tuple[str, ...]  # Threads, how the ranks work together, then each number of ranks
    rows: tuple[tuple[str, ...], ...]  # `-` where a cell was not measured


def scaling_tables(cells: Iterable[ScalingCell]) -> list[ScalingTable]:
    """A table for each step, in the order of the cells."""
    by_step = [(step, list(group)) for step, group in itertools.groupby(cells, key=lambda cell: cell.step)]
    names = short_names(step for step, _ in by_step)
    return [_table(names[step], group) for step, group in by_step]


def _table(name: str, cells: list[ScalingCell]) -> ScalingTable:
    counts = sorted({cell.ranks for cell in cells})
    ways = sorted({cell.parallel for cell in cells if cell.parallel}) or [""]
    found = {(cell.threads, cell.ranks, cell.parallel): cell for cell in cells}
    rows = tuple(
        (str(threads), way, *(_ratio(found.get((threads, ranks, way if ranks > 1 else None))) for ranks in counts))
        for threads in sorted({cell.threads for cell in cells})
        for way in ways
    )
    first = cells[0]
    pace = "-" if first.examples_per_s is None else f"{first.examples_per_s:.3g}"
    unit = f"{_count(first.ranks, 'rank')} of {_count(first.threads, 'thread')}: {pace} examples/s"
    heads = ("threads", "parallel", *(_count(ranks, "rank") for ranks in counts))
    return ScalingTable(title=f"throughput of {name}, 1.00 = {unit}", heads=heads, rows=rows)


def _ratio(cell: ScalingCell | None) -> str:
    return "-" if cell is None or cell.throughput_ratio is None else f"{cell.throughput_ratio:.2f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
