"""Templates of messages: `{value}`, formatted by the unit in its name, and `[[parts]]` that need their values.

- `{waited_share}` formats by suffix: `_log_ratio`, `_ratio`, `_share`, `_s`, `_bytes`; lists are joined by commas.
- `{blocks:block}` counts: `1 block`, `7 blocks`. Other specs are in `_SPECS`.
- `{is_slower?slower|faster}` chooses by a flag.
- `[[, {more_s:duration} more]]` is left out where one of its values is missing, None, False or empty. Parts nest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from perfguard.records.facts import Fact, Value
from perfguard.units import (
    format_bytes,
    format_calls,
    format_count,
    format_duration,
    format_effect,
    format_factor,
    format_number,
    format_ratio,
    format_seconds,
    format_share,
    format_signed_seconds,
)

_PART = re.compile(r"\[\[((?:(?!\[\[|\]\]).)*)\]\]", re.DOTALL)  # An optional part without another one inside
_PLACEHOLDER = re.compile(r"\{(\w+)(?::([\w /]+)|\?([^|}]*)\|([^}]*))?\}")
_MOST_NAMED = 3
_KNOWN_AS = {"_scaled_dot_product_flash_attention_for_cpu": "flash_attention"}
_LARGE = 1.0  # Slowdowns from 100 % on are shown as a factor


class _MissingError(Exception):
    """A value of an optional part is not there."""


def fill(template: str, fact: Fact) -> str:
    """The text of a fact.

    Raises:
        KeyError: A value outside all optional parts is missing.
    """
    values = {**_subject(fact), **fact.values}
    while (part := _PART.search(template)) is not None:
        try:
            text = _replaced(part.group(1), values, optional=True)
        except _MissingError:
            text = ""
        # What is filled in already must not be read as a template again.
        template = template[: part.start()] + text.replace("{", "\x00").replace("[[", "\x01") + template[part.end() :]
    return _replaced(template, values, optional=False).replace("\x00", "{").replace("\x01", "[[")


def outline(template: str) -> str:
    """A template for people: `OP is SLOWER / FASTER` for `{op} is {is_slower?slower|faster}`, all parts shown."""

    def one(match: re.Match[str]) -> str:
        name, _, if_true, if_false = match.groups()
        return name.upper() if if_true is None else " / ".join(filter(None, (if_true, if_false)))

    return _PLACEHOLDER.sub(one, template).replace("[[", "").replace("]]", "")


def placeholders(template: str) -> dict[str, bool]:
    """Names in a template, and whether they stand outside all optional parts."""
    required = template
    while (part := _PART.search(required)) is not None:
        required = required[: part.start()] + required[part.end() :]
    needed = {match.group(1) for match in _PLACEHOLDER.finditer(required)}
    return {match.group(1): match.group(1) in needed for match in _PLACEHOLDER.finditer(template)}


def _subject(fact: Fact) -> dict[str, Value]:
    subject = fact.subject
    return {"case_id": subject.case_id, "arm": subject.arm, "op": subject.op, "place": subject.place}


def _replaced(text: str, values: Mapping[str, Value], *, optional: bool) -> str:
    def one(match: re.Match[str]) -> str:
        name, spec, if_true, if_false = match.groups()
        if if_true is not None:
            return if_true if values.get(name) else if_false
        value = values.get(name)
        if optional and (value is None or value is False or value in ((), "")):
            raise _MissingError
        if name not in values:
            raise KeyError(name)
        return _formatted(name, value, spec, values)

    return _PLACEHOLDER.sub(one, text)


def _formatted(name: str, value: Value, spec: str | None, values: Mapping[str, Value]) -> str:
    if spec == "interval":
        return _interval(values.get(f"{name}_lower"), values.get(f"{name}_upper"), name)
    if spec is not None and spec in _SPECS:
        return _SPECS[spec](value)
    if spec is not None:
        return format_count(int(value), spec) if isinstance(value, (int, float)) else "-"
    return _by_unit(name, value)


def _by_unit(name: str, value: Value) -> str:
    if isinstance(value, tuple):
        return ", ".join(_by_unit(name, item) for item in value)
    if isinstance(value, (bool, str)):
        return str(value)
    for suffix, formatter in _UNITS.items():
        if name.endswith(suffix):
            return formatter(value)
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _interval(lower: Value, upper: Value, name: str) -> str:
    if not isinstance(lower, (int, float)) or not isinstance(upper, (int, float)):
        return ""
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return ""
    formatter = format_signed_seconds if name.endswith("_s") else format_effect
    return f"[{formatter(lower)}, {formatter(upper)}]"


def format_slowdown(log_ratio: Value) -> str:
    """`12.3 % slower`, `3.1 % faster`, `8.7× slower`."""
    if not isinstance(log_ratio, (int, float)) or math.isnan(log_ratio):
        return "-"
    direction = "slower" if log_ratio > 0 else "faster"
    ratio = math.exp(min(abs(log_ratio), 50.0))
    if ratio - 1 >= _LARGE:
        return f"{ratio:.1f}× {direction}"
    return f"{format_ratio(abs(math.expm1(log_ratio)))} {direction}"


def _named(value: Value) -> str:
    """`a, b, c and 4 more`."""
    names = [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _ops(value: Value) -> str:
    """`bmm + masked_fill_ + …`: names of ops as people know them."""
    names = [_KNOWN_AS.get(str(item), str(item)) for item in (value if isinstance(value, tuple) else (value,))]
    return " + ".join([*names[:_MOST_NAMED], *("…" for _ in names[_MOST_NAMED : _MOST_NAMED + 1])])


def number(value: Value) -> float:
    """A value as a number; nan where it is none."""
    return float(value) if isinstance(value, (int, float)) else math.nan


_UNITS: Mapping[str, Callable[[Value], str]] = {
    "log_ratio": lambda value: format_effect(number(value)),
    "_ratio": lambda value: format_ratio(number(value)),
    "_share": lambda value: format_share(number(value)),
    "_s": lambda value: format_seconds(number(value)),
    "_bytes": lambda value: format_bytes(number(value)),
}
_SPECS: Mapping[str, Callable[[Value], str]] = {
    "slowdown": format_slowdown,
    "duration": lambda value: format_duration(number(value)),
    "signed": lambda value: format_signed_seconds(number(value)),
    "number": lambda value: format_number(number(value)),
    "id": str,
    "calls": lambda value: format_calls(number(value)),
    "p": lambda value: f"{number(value):.2g}",
    "factor": lambda value: format_factor(number(value)),
    "names": _named,
    "ops": _ops,
    "first": lambda value: str(value)[:1].upper() + str(value)[1:],
}
