"""What a look through other tools' suites found, as the parent gets it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from perfguard.records.facts import Fact
from perfguard.records.spec import BenchmarkSpec, ParameterValue, Phase, format_parameter

ASV = "asv"
PYTEST = "pytest"
TIMER = "timer"
TOOLS = (ASV, PYTEST, TIMER)
"""The tools whose suites are adopted; also the first word of the ids of their cases, and their tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedTarget:
    """Where an adopted case comes from."""

    tool: str
    """One of `TOOLS`."""
    place: str
    """File, or asv's benchmark directory, relative to the arm's tree."""
    name: str
    """What the tool knows it by, inside that place."""

    def __str__(self) -> str:
        return f"{self.tool}:{self.place}:{self.name}"


def adopted_target(target: str) -> AdoptedTarget | None:
    """What an import string says; None where it is one of perfguard's own."""
    tool, _, rest = target.partition(":")
    place, colon, name = rest.rpartition(":")
    if tool not in TOOLS or not colon:
        return None
    return AdoptedTarget(tool=tool, place=place, name=name)


Combination = tuple[ParameterValue, ...]


@dataclass(slots=True)
class Found:
    """Benchmarks, and what is to be said of them."""

    benchmarks: list[BenchmarkSpec] = field(default_factory=list)
    """In the order of their files."""
    notes: list[Fact] = field(default_factory=list)
    """What is not timed, or otherwise than the tool would; each names its `tool`."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    """`path` and `detail` of what cannot be imported."""
    counted: list[Fact] = field(default_factory=list)
    """What of a tool's suites is left out, and the `number` of it in all files."""

    def count(self, what: Fact) -> None:
        """Remember what is left out; all files together make one note."""
        if not what.values["number"]:
            return
        same = [other for other in self.counted if _without_number(other) == _without_number(what)]
        number = sum(found for each in (*same, what) if isinstance(found := each.values["number"], int))
        others = [other for other in self.counted if other not in same]
        self.counted = [*others, replace(what, values={**what.values, "number": number})]

    def all_notes(self) -> list[Fact]:
        """The notes, those on counts last."""
        return [*self.notes, *self.counted]

    def add(
        self, target: AdoptedTarget, name: str, names: Sequence[str], combinations: Iterable[Combination], *, doc: str
    ) -> None:
        """Take a benchmark with the combinations of parameters that it is run over.

        Combinations that are all there are make one benchmark; others one each, since a benchmark always stands for all
        combinations of its values.
        """
        chosen = list(combinations)
        axes = [tuple(dict.fromkeys(values)) for values in zip(*chosen, strict=True)] if chosen else []
        whole = 1
        for axis in axes:
            whole *= len(axis)
        groups = [axes] if whole == len(chosen) else [[(value,) for value in values] for values in chosen]
        for group in groups if chosen else ():
            self.benchmarks.append(
                BenchmarkSpec(
                    name=name,
                    target=str(target),
                    parameters=tuple(zip(names, group, strict=True)),
                    phase=Phase.FORWARD,
                    tags=(target.tool,),
                    doc=doc,
                )
            )


def _without_number(what: Fact) -> Fact:
    return replace(what, values={**what.values, "number": None})


def first_line(doc: str | None) -> str:
    """The first line of a docstring."""
    return (doc or "").strip().partition("\n")[0].strip()


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
