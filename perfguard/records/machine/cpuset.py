"""CPU lists as Linux writes them: `0-3,8`. Parsing is strict and bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_CPUS = 1 << 13  # No CPU or node id at or above this is believed: it is the most that Linux can be built for


def parse_cpu_list(text: str) -> frozenset[int] | None:
    """Ids of a list such as `0-3,8` or `0-30:2/8`; no text is the empty set, nonsense or huge ids None."""
    body = text.strip()
    if body in {"", "(null)"}:
        return frozenset()
    ids: set[int] = set()
    pieces = body.split(",")
    if len(pieces) > MAX_CPUS:
        return None
    for piece in pieces:
        span = _parse_piece(piece.strip())
        if span is None:
            return None
        ids.update(span)
    return frozenset(ids)


def parse_cpu_mask(text: str) -> frozenset[int] | None:
    """Ids of a hexadecimal mask such as `00000000,0000ffff`; nonsense is None."""
    digits = text.strip().replace(",", "")
    if not digits or len(digits) > MAX_CPUS // 4 or not digits.isascii():
        return None
    try:
        mask = int(digits, 16)
    except ValueError:
        return None
    if mask < 0:
        return None
    return frozenset(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def format_cpu_list(ids: Iterable[int]) -> str:
    """The shortest list of ranges, ascending: `0-3,8`; empty for no ids."""
    spans: list[tuple[int, int]] = []
    for cpu in sorted(set(ids)):
        if spans and spans[-1][1] + 1 == cpu:
            spans[-1] = (spans[-1][0], cpu)
        else:
            spans.append((cpu, cpu))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def _parse_piece(piece: str) -> Iterable[int] | None:
    span, _, stride = piece.partition(":")
    low_text, dash, high_text = span.partition("-")
    low = _parse_id(low_text)
    high = _parse_id(high_text) if dash else low
    if low is None or high is None or high < low:
        return None
    if not stride:
        return range(low, high + 1)
    used_text, _, group_text = stride.partition("/")
    used, group = _parse_id(used_text), _parse_id(group_text)
    if used is None or group is None or not 0 < used <= group:
        return None
    return [cpu for cpu in range(low, high + 1) if (cpu - low) % group < used]


def _parse_id(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        return None
    value = int(text)
    return value if value < MAX_CPUS else None
