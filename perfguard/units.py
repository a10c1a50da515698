"""The only formatter of numbers for people, and what makes foreign text safe to show."""

from __future__ import annotations

import math
import os
import time

_ROUNDS_UP = 0.99995  # From here on four significant digits show the next unit: `1.000 µs`, not `1000 ns`

_RESIDUE_S = 1e-12  # Below any clock's resolution: what a sum of seconds leaves that should be 0


def format_seconds(value_s: float | None) -> str:
    """`1.234 ms` with four significant digits; `-` for None or nan."""
    if value_s is None or not math.isfinite(value_s):
        return _not_finite(value_s)
    if abs(value_s) < _RESIDUE_S:
        return "0 s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if abs(value_s) >= scale * _ROUNDS_UP:
            value = math.copysign(max(1.0, abs(value_s) / scale), value_s)
            return f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f} {unit}"
    return f"{value_s:.3g} s"


def format_signed_seconds(value_s: float | None) -> str:
    """`+1.234 ms`, a difference of times; `-` for None."""
    return "-" if value_s is None else f"{'+' if value_s >= 0 else '-'}{format_seconds(abs(value_s))}"


def format_seconds_interval(lower_s: float, upper_s: float) -> str | None:
    """`[+1.00 ms, +1.40 ms]`; None where it is unknown."""
    if not (math.isfinite(lower_s) and math.isfinite(upper_s)):
        return None
    return f"[{format_signed_seconds(lower_s)}, {format_signed_seconds(upper_s)}]"


def format_effect(log_ratio: float | None) -> str:
    """A log-ratio as a signed percentage, `+2.41 %`; `-` for None or nan."""
    if log_ratio is None or not math.isfinite(log_ratio):
        return _not_finite(log_ratio, plus="+")
    return _percent(math.expm1(log_ratio) if log_ratio < 50 else math.inf, "+")


def format_ratio(ratio: float | None) -> str:
    """An unsigned ratio as a percentage, `0.84 %`; `-` for None or nan."""
    if ratio is None or not math.isfinite(ratio):
        return _not_finite(ratio)
    return _percent(ratio)


def format_change(ratio: float, lower: float = -math.inf, upper: float = math.inf) -> str:
    """A difference as a part of a whole, 0.062, with its interval: `+6.20 % [5.11, 7.40]`, if its ends are known."""
    if not math.isfinite(ratio):
        return _not_finite(ratio, plus="+")
    text, digits = _percent(ratio, "+"), _digits_of_percent(ratio)
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return text
    return f"{text} [{lower * 100:.{digits}f}, {upper * 100:.{digits}f}]"


def format_factor(factor: float | None) -> str:
    """How many times as much, `1.98×`; `-` for None or nan."""
    return _not_finite(factor) if factor is None or not math.isfinite(factor) else f"{factor:.2f}×"


def format_share(ratio: float | None) -> str:
    """A part of a whole in full percent, `94 %`; `<1 %` for what is less but not nothing; `-` for None or nan."""
    if ratio is None or not math.isfinite(ratio):
        return _not_finite(ratio)
    return "<1 %" if 0 < ratio < 0.005 else f"{ratio * 100:.0f} %"


def format_number(value: float) -> str:
    """`1,240`; one digit of a fraction, `0.5`, where there is one."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value - round(value)) < 0.05 else f"{value:,.1f}"


def format_calls(number: float) -> str:
    """`1 call`, `1,240 calls`, `0.5 calls`."""
    text = format_number(number)
    return f"{text} call{'' if text == '1' else 's'}"


def format_bytes(value_bytes: float | None) -> str:
    """`1.5 GiB`; `-` for None."""
    if value_bytes is None:
        return "-"
    size = float(value_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_duration(value_s: float) -> str:
    """A span for progress lines: `45 s`, `2 min 05 s`, `1 h 03 min`."""
    if not math.isfinite(value_s):
        return "-"
    seconds = max(0, round(value_s))
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_ago(moment_s: float) -> str:
    """How long ago a moment was, seconds since the epoch; one that is to come is `0 s ago`."""
    return f"{format_duration(max(0.0, time.time() - moment_s))} ago"


def format_day(moment_s: float) -> str:
    """`2026-09-21` in UTC, seconds since the epoch; `-` where no calendar has such a day."""
    try:
        return time.strftime("%Y-%m-%d", time.gmtime(moment_s))
    except (OverflowError, OSError, ValueError):
        return "-"


def format_count(number: int, noun: str) -> str:
    """`1 case`, `2 cases`."""
    if number == 1:
        return f"{number} {noun}"
    if noun.endswith(("s", "x", "ch", "sh")) and noun != "epoch":  # whose `ch` is a k
        return f"{number} {noun}es"
    is_regular = not noun.endswith("y") or noun[-2:-1] in "aeiou"
    return f"{number} {noun}s" if is_regular else f"{number} {noun[:-1]}ies"


def shorten(text: str, most: int) -> str:
    """The beginning of a text, at most so many characters, with an ellipsis where some is missing."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def cut_middle(text: str, most: int) -> str:
    """A name at most so long: the middle is left out, since its beginning and its end tell it apart."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[head + 1 - most :]}" if most > 1 else "…"


def as_text(argument: str) -> str:
    """An argument or a path as text that every encoding takes: bytes that are no text are escaped."""
    return os.fsencode(argument).decode("utf-8", "backslashreplace")


def printable(text: str, *, keep: str = "") -> str:
    """Text without control characters, which could move a terminal or begin a line; those not to keep become spaces."""
    return "".join(character if character.isprintable() or character in keep else " " for character in text)


def _percent(ratio: float, sign: str = "") -> str:
    return f"{ratio * 100:{sign}.{_digits_of_percent(ratio)}f} %"


def _digits_of_percent(ratio: float) -> int:
    return 1 if abs(ratio) >= 0.1 else 2


def _not_finite(value: float | None, *, plus: str = "") -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{plus}∞" if value > 0 else "-∞"


_RATE_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def format_flops(flops_per_s: float | None) -> str:
    """`23.4 GFLOP/s`; `-` for None."""
    return _rate(flops_per_s, "FLOP/s")


def format_bandwidth(bytes_per_s: float | None) -> str:
    """`11.2 GB/s`, decimal as bandwidths are; `-` for None."""
    return _rate(bytes_per_s, "B/s")


def _rate(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    for size, prefix in _RATE_STEPS:
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
