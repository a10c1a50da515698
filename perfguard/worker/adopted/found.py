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

    tool: str  # One of `TOOLS`
    place: str  # File, or asv's benchmark directory, relative to the arm's tree
    name: str  # The tool's name for it inside that place

    def __str__(self) -> str:
        return f"{self.tool}:{self.place}:{self.name}"


def adopted_target(target: str) -> AdoptedTarget | None:
    """The target that an import string names; None where it is one of perfguard's own."""
    tool, _, rest = target.partition(":")
    place, colon, name = rest.rpartition(":")
    return AdoptedTarget(tool=tool, place=place, name=name) if tool in TOOLS and colon else None


Combination = tuple[ParameterValue, ...]


@dataclass(slots=True)
class FoundBenchmarks:
    """Benchmarks, what is left out of them, and what cannot be imported."""

    benchmarks: list[BenchmarkSpec] = field(default_factory=list)  # In the order of their files
    notes: list[Fact] = field(default_factory=list)  # What is not timed as the tool would; each names its `tool`
    errors: list[dict[str, Any]] = field(default_factory=list)  # `path` and `detail` of what cannot be imported
    counted: list[Fact] = field(default_factory=list)  # What is left out, and the `number` of it in all files

    def count(self, what: Fact) -> None:
        """Remember what is left out; all files together make one note."""
        number = cast("int", what.values["number"])
        if not number:
            return
        for other in self.counted:
            if replace(other, values={**other.values, "number": number}) == what:
                self.counted.remove(other)
                number += cast("int", other.values["number"])
                break
        self.counted.append(replace(what, values={**what.values, "number": number}))

    def add(
        self, target: AdoptedTarget, name: str, names: Sequence[str], combinations: Sequence[Combination], *, doc: str
    ) -> None:
        """Take a benchmark with the combinations of parameters that it is run over.

        Combinations that are all there are make one benchmark; others one each, since a benchmark always stands for all
        combinations of its values.
        """
        axes = [tuple(dict.fromkeys(values)) for values in zip(*combinations, strict=True)]
        is_whole = math.prod(map(len, axes)) == len(combinations)
        for group in [axes] if is_whole else [[(value,) for value in values] for values in combinations]:
            parameters = tuple(zip(names, group, strict=True))
            self.benchmarks.append(
                BenchmarkSpec(
                    name=name,
                    target=str(target),
                    parameters=parameters,
                    phase=Phase.FORWARD,
                    tags=(target.tool,),
                    doc=doc,
                )
            )


def first_line(doc: str | None) -> str:
    """The first line of a docstring."""
    return (doc or "").strip().partition("\n")[0].strip()


_LONGEST = 60
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_REPLACED = str.maketrans({",": ";", "[": "(", "]": ")", "=": ":", "*": "x", "?": "_"})
"""What delimits parameters in an id, or stands for something in a pattern."""
_OUTSIDE_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


def labels_of(values: Iterable[object]) -> tuple[ParameterValue, ...]:
    """One label for each value of a parameter; values that read alike are numbered in their order."""
    labels: dict[str, ParameterValue] = {}
    for value in values:
        label = plain = _label(value)
        number = 1
        while (text := format_parameter(label)) in labels:
            number += 1
            label = f"{plain}#{number}"
        labels[text] = label
    return tuple(labels.values())


def _label(value: object) -> ParameterValue:
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
    return "phase_" if cleaned == "phase" else cleaned  # it would set the phase of a case


def position_of(label: ParameterValue, labels: Sequence[ParameterValue]) -> int | None:
    """Where a label stands among those of a parameter, by how it reads: 1, 1.0 and True are three labels."""
    text = format_parameter(label)
    return next((at for at, known in enumerate(labels) if format_parameter(known) == text), None)


def benchmark_name(parts: Sequence[str]) -> str:
    """A benchmark's dotted name from what it consists of: `timer`, `bench.softmax`, `softmax of rows`."""
    return ".".join(_OUTSIDE_NAMES.sub("_", part).strip("_.")[:_LONGEST] or "unnamed" for part in parts)


def dotted(path: str) -> str:
    """A file's path as it stands in a benchmark's name: `tests.test_speed` for `tests/test_speed.py`."""
    return path.removesuffix(".py").replace("/", ".").strip(".")
