"""How well found change points fit the known ones."""

from __future__ import annotations

MARGIN = 5


def matched(known, found, margin=MARGIN):
    """Pairs of a known and a found place at most a margin apart, each used once, nearest pairs first."""
    pairs = sorted((abs(one - other), one, other) for one in known for other in found if abs(one - other) <= margin)
    used_known, used_found = set(), set()
    for _, one, other in pairs:
        if one not in used_known and other not in used_found:
            used_known.add(one)
            used_found.add(other)
    return used_known, used_found


def f1(hits, false, missed):
    """Harmonic mean of precision and recall; 1 where there was nothing to find and nothing was found."""
    return 2 * hits / (2 * hits + false + missed) if hits + false + missed else 1.0


def labelled_f1(annotations, found, margin=MARGIN):
    """F1 against several annotators; the first point counts as marked and found.

    Source: van den Burg and Williams (2020), arXiv 2003.06222, section 4.3.
    """
    found = {0, *found}
    marked = [{0, *places} for places in annotations]
    hits = matched(set().union(*marked), found, margin)[1]
    precision = len(hits) / len(found)
    recall = sum(len(matched(places, found, margin)[0]) / len(places) for places in marked) / len(marked)
    return 2 * precision * recall / (precision + recall)
