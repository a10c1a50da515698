"""Moments as other tools write them."""

from __future__ import annotations

from datetime import datetime, timezone

_LAST = 253_402_300_800
"""Python's dates end with the year 9999."""


def utc_text(moment: float | None, *, separator: str = "T") -> str | None:
    """`2026-09-21T14:26:40`, in UTC, without a zone, as these formats want it; None for what is no moment.

    Args:
        moment: Seconds since the epoch.
        separator: Between date and time.
    """
    if moment is None or not 0 <= moment < _LAST:
        return None
    text = datetime.fromtimestamp(int(moment), tz=timezone.utc).isoformat(sep=separator)
    return text.removesuffix("+00:00")
