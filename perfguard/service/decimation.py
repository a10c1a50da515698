"""Fewer points of a long series, so that a chart of it looks the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence

MOST_POINTS = 2_000


def kept_places(values: Sequence[float], *, most: int = MOST_POINTS, always: Collection[int] = ()) -> list[int]:
    """Places of the points that stay, ascending: the smallest and the largest of each stretch, the ends, and `always`.

    A chart draws a stretch of points in one column of pixels as the range between its extremes, so a spike of a single
    run stays, however long the series is. At most `most` points stay, beside those of `always`.
    """
    count = len(values)
    if count <= most:
        return list(range(count))
    stretches = max(1, (most - 2) // 2)
    kept = {0, count - 1, *always}
    for stretch in range(stretches):
        places = range(stretch * count // stretches, (stretch + 1) * count // stretches)
        kept.add(min(places, key=values.__getitem__))
        kept.add(max(places, key=values.__getitem__))
    return sorted(kept)
