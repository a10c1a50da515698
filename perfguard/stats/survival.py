"""How long something lasts, where some of it was not watched to its end."""

from __future__ import annotations

from collections.abc import Sequence


def survival(lasted: Sequence[tuple[int, bool]]) -> tuple[float, ...]:
    """Chance of lasting at least n units, for n = 1, 2, …, one more than the longest that was seen.

    Args:
        lasted: How long each lasted, from 1, and whether it then ended; False where only watching did.

    Returns:
        The product-limit estimate, shape `(longest + 1,)`; empty without anything watched. After the longest that was
        seen it stays what it is, for nothing tells how it goes on.

    Source: Kaplan & Meier (1958), doi:10.1080/01621459.1958.10501452.
    Assumes: watching ends for other reasons than what is watched.
    """
    chance, chances = 1.0, []
    for length in range(1, max((length for length, _ in lasted), default=-1) + 1):
        chances.append(chance)
        watched = sum(found >= length for found, _ in lasted)
        ended = sum(found == length and has_ended for found, has_ended in lasted)
        chance *= 1 - ended / watched
    return (*chances, chance) if chances else ()
