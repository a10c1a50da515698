"""What a look through other tools' suites found, as the parent gets it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfguard.records.facts import Fact
from perfguard.records.spec import BenchmarkSpec, ParameterValue, Phase
from perfguard.worker.adopted.targets import AdoptedTarget

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
