"""asv's benchmark directories: which functions are benchmarks, with which attributes and parameters.

perfguard reads suites itself instead of through asv_runner: that package is not in most environments under test, since
asv installs it into those that it makes.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from perfguard.worker.adopted.labels import labels_of, parameter_name, position_of
from perfguard.worker.cases import MissingTargetError, SkippedTargetError

_TIMED = re.compile(r"Time[A-Z_].+|time_.+")
_OTHERS = {
    "timeraw_*": re.compile(r"Timeraw[A-Z_].+|timeraw_.+"),
    "peakmem_*": re.compile(r"PeakMem[A-Z_].+|peakmem_.+"),
    "mem_*": re.compile(r"Mem[A-Z_].+|mem_.+"),
    "track_*": re.compile(r"Track[A-Z_].+|track_.+"),
}
"""Kinds that asv knows and perfguard does not time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsvBenchmark:
    """A function that asv times."""

    location: str
    """Dotted path below the benchmark directory: `suite.TimeSuite.time_keys`."""
    name: str
    """As asv calls it: the location, or the function's `benchmark_name`."""
    owner: type | None
    """Its class."""
    module: ModuleType
    """Where it is."""
    function: Callable[..., object]
    """The plain function."""

    def instance(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """The function to call, and where its attributes are looked for, the nearest first."""
        if self.owner is None:
            return self.function, (self.function, self.module)
        made = self.owner()
        bound = getattr(made, self.location.rpartition(".")[2])
        return bound, (bound, made, self.module)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsvParameters:
    """What a benchmark is run over."""

    names: tuple[str, ...]
    """As they stand in case ids."""
    values: tuple[tuple[object, ...], ...]
    """For each name; any objects."""
    skipped: tuple[tuple[object, ...], ...] = ()
    """Combinations that the suite leaves out."""

    @property
    def labels(self) -> tuple[tuple[Any, ...], ...]:
        """For each name, what stands for its values in case ids."""
        return tuple(labels_of(values) for values in self.values)

    def combinations(self) -> Iterator[tuple[tuple[object, ...], tuple[Any, ...]]]:
        """Values and labels of each combination that is run."""
        for values, labels in zip(product(*self.values), product(*self.labels), strict=True):
            if values not in self.skipped:
                yield values, labels

    def chosen(self, parameters: dict[str, Any]) -> tuple[object, ...]:
        """The values behind the labels of a case.

        Raises:
            MissingTargetError: This arm's suite has no such value.
            SkippedTargetError: It skips these.
        """
        if tuple(parameters) != self.names:
            raise MissingTargetError(f"its parameters are {', '.join(self.names) or 'none'} in this arm")
        found = []
        for name, values, labels in zip(self.names, self.values, self.labels, strict=True):
            position = position_of(parameters[name], labels)
            if position is None:
                raise MissingTargetError(f"its parameter {name} has no value {parameters[name]!r} in this arm")
            found.append(values[position])
        if tuple(found) in self.skipped:
            raise SkippedTargetError("the suite skips these parameters")
        return tuple(found)


def benchmarks_in(directory: str) -> Iterator[AsvBenchmark]:
    """All timed benchmarks of a directory, in the order of its modules."""
    for module in _modules(_root_package(directory)):
        yield from _benchmarks_of(module)


def other_kinds(directory: str) -> dict[str, int]:
    """How many benchmarks there are of each kind that is not timed here."""
    counts: dict[str, int] = {}
    for module in _modules(_root_package(directory)):
        for _, _, name, _ in _functions_of(module):
            kind = next((kind for kind, pattern in _OTHERS.items() if pattern.match(name)), None)
            if kind is not None and not _TIMED.match(name):
                counts[kind] = counts.get(kind, 0) + 1
    return counts


def find_benchmark(directory: str, location: str) -> AsvBenchmark:
    """The benchmark at a location; only its own module is imported.

    Raises:
        MissingTargetError: The directory, module or function does not exist in this arm.
    """
    package = _root_package(directory)
    parts = location.split(".")
    for count in (len(parts) - 1, len(parts) - 2):
        module_parts = parts[:count]
        place = Path(directory, *module_parts)
        if count >= 0 and (place.with_suffix(".py").is_file() or (place.is_dir() and parts[count:])):
            module = importlib.import_module(".".join((package, *module_parts)))
            for found in _benchmarks_of(module):
                if found.location == location:
                    return found
    raise MissingTargetError(f"there is no benchmark {location!r} in {directory} in this arm")


def parameters_of(sources: tuple[object, ...]) -> AsvParameters:
    """The `params`, `param_names` and `skip_params` that a benchmark's sources give."""
    params = list(first_attribute(sources, "params", ()))
    if params and not isinstance(params[0], (tuple, list)):
        params = [params]
    values = tuple(tuple(axis) for axis in params)
    given = [str(name) for name in first_attribute(sources, "param_names", ())][: len(values)]
    names = given + [f"param{number + 1}" for number in range(len(given), len(values))]
    skipped = tuple(tuple(skip) for skip in first_attribute(sources, "skip_params", ()))
    return AsvParameters(names=tuple(map(parameter_name, names)), values=values, skipped=skipped)


def first_attribute(sources: tuple[object, ...], name: str, default: Any) -> Any:
    """The attribute of the nearest source that has it."""
    return next((getattr(source, name) for source in sources if hasattr(source, name)), default)


def all_attributes(sources: tuple[object, ...], name: str) -> list[Callable[..., object]]:
    """The functions of this name of all sources, the nearest first."""
    found = (getattr(source, name, None) for source in sources)
    return [function for function in found if callable(function)]


def _root_package(directory: str) -> str:
    """The package that a benchmark directory is; its parent is put behind the worker's own files on the path."""
    place = Path(directory)
    if not place.is_dir():
        raise MissingTargetError(f"there is no directory {directory!r} in this arm")
    parent = str(place.parent.absolute())
    if parent not in sys.path:
        own = str(Path(__file__).parents[3])
        sys.path.insert(sys.path.index(own) + 1 if own in sys.path else len(sys.path), parent)
    return place.name


def _modules(package: str) -> Iterator[ModuleType]:
    module = importlib.import_module(package)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{package}."):
        yield from _modules(found.name)


def _benchmarks_of(module: ModuleType) -> Iterator[AsvBenchmark]:
    prefix = module.__name__.split(".")[1:]
    for owner, attribute, name, function in _functions_of(module):
        if _TIMED.match(name.rpartition(".")[2]) and not getattr(function, "skip_benchmark", False):
            parts = [*prefix, owner.__name__, attribute] if owner is not None else [*prefix, attribute]
            location = ".".join(parts)
            shown = name if name != attribute else location
            yield AsvBenchmark(location=location, name=shown, owner=owner, module=module, function=function)


def _functions_of(module: ModuleType) -> Iterator[tuple[type | None, str, str, Callable[..., object]]]:
    """Class, attribute, name and function of everything in a module that may be a benchmark."""
    for attribute, value in list(vars(module).items()):
        if attribute.startswith("_"):
            continue
        if inspect.isclass(value) and not inspect.isabstract(value):
            for name, function in inspect.getmembers(value, lambda f: inspect.isfunction(f) or inspect.ismethod(f)):
                yield value, name, getattr(function, "benchmark_name", name), function
        elif inspect.isfunction(value):
            yield None, attribute, getattr(value, "benchmark_name", attribute), value
