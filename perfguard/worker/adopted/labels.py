"""How parameter values of other tools are written in case ids: readable, stable, and told apart."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import cast

from perfguard.records.spec import ParameterValue, format_parameter

_LONGEST = 60
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_REPLACED = str.maketrans({",": ";", "[": "(", "]": ")", "=": ":", "*": "x", "?": "_"})
"""What delimits parameters in an id, or stands for something in a pattern."""
_OUTSIDE_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_RESERVED = "phase"
"""A parameter of this name would set the phase of a case."""


def labels_of(values: Iterable[object]) -> tuple[ParameterValue, ...]:
    """One label for each value of a parameter; values that read alike are numbered in their order."""
    labels: dict[str, ParameterValue] = {}
    for value in values:
        label, number = label_of(value), 1
        while (text := format_parameter(label)) in labels:
            number += 1
            label = f"{label_of(value)}#{number}"
        labels[text] = label
    return tuple(labels.values())


def label_of(value: object) -> ParameterValue:
    """A value as it stands in an id: numbers as they are, functions and classes by name, the rest by their text."""
    if type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
        return cast("bool | int | float", value)
    if isinstance(value, str):
        return clean(value)
    if callable(value) and isinstance(name := getattr(value, "__name__", None), str):
        return clean(name)
    return clean(_ADDRESS.sub("", repr(value)))


def clean(text: str) -> str:
    """A text on one line, no longer than is pleasant, without what delimits parameters in an id."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.translate(_REPLACED).split())[:_LONGEST].strip() or "empty"


def parameter_name(name: str) -> str:
    """A parameter's name as it stands in an id."""
    cleaned = _OUTSIDE_NAMES.sub("_", name).strip("_.") or "param"
    return f"{cleaned}_" if cleaned == _RESERVED else cleaned


def position_of(label: ParameterValue, labels: Sequence[ParameterValue]) -> int | None:
    """Where a label stands among those of a parameter, by how it reads: 1, 1.0 and True are three labels."""
    texts = [format_parameter(known) for known in labels]
    return texts.index(format_parameter(label)) if format_parameter(label) in texts else None


def benchmark_name(parts: Sequence[str]) -> str:
    """A benchmark's dotted name from what it consists of: `timer`, `bench.softmax`, `softmax of rows`."""
    return ".".join(_OUTSIDE_NAMES.sub("_", part).strip("_.")[:_LONGEST] or "unnamed" for part in parts)


def dotted(path: str) -> str:
    """A file's path as it stands in a benchmark's name: `tests.test_speed` for `tests/test_speed.py`."""
    return path.removesuffix(".py").replace("/", ".").strip(".")
