"""asv's benchmark directories: which functions are benchmarks, how each is set up, and what of a suite is not timed.

perfguard reads suites itself instead of through asv_runner: that package is not in most environments under test, since
asv installs it into those that it makes.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import os
import pickle
import pkgutil
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from perfguard.records.facts import fact
from perfguard.records.spec import ParameterValue
from perfguard.worker.adopted.found import (
    ASV,
    AdoptedTarget,
    Combination,
    FoundBenchmarks,
    benchmark_name,
    first_line,
    labels_of,
    parameter_name,
    position_of,
)
from perfguard.worker.adopted.instances import Instance
from perfguard.worker.cases import MissingTargetError, SkippedTargetError
from perfguard.worker.timing.samples import Renewed

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

    location: str  # Dotted path below the benchmark directory: `suite.TimeSuite.time_keys`
    name: str  # asv's name for it: the location, or the function's `benchmark_name`
    owner: type | None  # Its class
    module: ModuleType
    function: Callable[..., object]  # The plain function

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

    names: tuple[str, ...]  # As they stand in case ids
    values: tuple[tuple[object, ...], ...]  # For each name; any objects
    labels: tuple[tuple[ParameterValue, ...], ...]  # For each name, what stands for its values in case ids
    skipped: tuple[tuple[object, ...], ...]  # Combinations that the suite leaves out

    def combinations(self) -> Iterator[Combination]:
        """Labels of each combination that is run."""
        for values, labels in zip(itertools.product(*self.values), itertools.product(*self.labels), strict=True):
            if values not in self.skipped:
                yield labels

    def chosen(self, parameters: dict[str, Any]) -> tuple[object, ...]:
        """The values behind the labels of a case.

        Raises MissingTargetError: this arm's suite has no such value; SkippedTargetError: it skips these.
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


def find_benchmark(directory: str, location: str) -> AsvBenchmark:
    """The benchmark at a location; only its own module is imported.

    Raises MissingTargetError: the directory, module or function does not exist in this arm.
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
    return AsvParameters(
        names=tuple(map(parameter_name, names)),
        values=values,
        labels=tuple(map(labels_of, values)),
        skipped=tuple(tuple(skip) for skip in first_attribute(sources, "skip_params", ())),
    )


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
            location = ".".join([*prefix, *([] if owner is None else [owner.__name__]), attribute])
            shown = location if name == attribute else name
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


_RENEWALS_S = 0.2  # About how long the set-ups in one sample may take
_MOST_RENEWALS = 64


class AsvSource:
    """Sets one benchmark up for one combination of parameters."""

    def __init__(self, benchmark: AsvBenchmark, parameters: dict[str, Any]) -> None:
        """Raises MissingTargetError where this arm's suite has no such parameters."""
        self._benchmark = benchmark
        _, sources = benchmark.instance()
        self._values = parameters_of(sources).chosen(parameters)
        self._cache = _cache_of(sources)

    def surroundings(self) -> AbstractContextManager[None]:
        """The directory of its setup_cache, where it has one: what that wrote there is read by relative paths."""
        return contextlib.nullcontext() if self._cache is None else self._cache.directory()

    def set_up(self) -> Instance:
        """A new object of the benchmark's class, set up.

        Raises SkippedTargetError: the suite skips these parameters, which it says by NotImplementedError.
        """
        call, sources = self._benchmark.instance()
        arguments = (*(() if self._cache is None else self._cache.arguments()), *self._values)
        setups = all_attributes(sources, "setup")[::-1]
        teardowns = all_attributes(sources, "teardown")

        def set_up() -> None:
            for function in setups:
                function(*arguments)

        def tear_down() -> None:
            for function in teardowns:
                function(*arguments)

        def renew() -> None:
            tear_down()
            set_up()

        try:
            set_up()
        except NotImplementedError as error:
            raise SkippedTargetError(f"its setup skips these parameters: NotImplementedError {error}".strip()) from None
        timed = (lambda: call(*arguments)) if arguments else call
        if setups and first_attribute(sources, "number", 0):
            timed = renewed(timed, renew)
        return Instance(timed, tear_down)


def renewed(call: Callable[[], object], renew: Callable[[], None]) -> Renewed:
    """A call with a fresh state before each; fewer in a sample where that takes long.

    The bound is a power of two, so that arms whose set-ups take about as long get the same one.
    """
    started = time.perf_counter()
    renew()
    spent_s = max(time.perf_counter() - started, 1e-9)
    most = 1
    while most * 2 <= min(_MOST_RENEWALS, _RENEWALS_S / spent_s):
        most *= 2
    return Renewed(call, renew, most=most)


class _Cache:
    """What a setup_cache left: the pickled object that it returned, and the directory that it ran in."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="perfguard-asv-")
        with self.directory():
            self._pickled = pickle.dumps(function())

    def arguments(self) -> tuple[object, ...]:
        """What the other functions get first: a fresh copy; nothing where setup_cache returned None."""
        value = pickle.loads(self._pickled)  # noqa: S301 - this process has just written it
        return () if value is None else (value,)

    @contextlib.contextmanager
    def directory(self) -> Iterator[None]:
        """Work in its directory."""
        before = os.getcwd()  # noqa: PTH109
        os.chdir(self._place.name)
        try:
            yield
        finally:
            os.chdir(before)


_caches: dict[object, _Cache] = {}
"""By the code of the setup_cache, which runs once in a process for all benchmarks that share it."""


def _cache_of(sources: tuple[object, ...]) -> _Cache | None:
    function = first_attribute(sources, "setup_cache", None)
    if function is None:
        return None
    key = getattr(function, "__code__", function)
    if key not in _caches:
        for module_setup in filter(_needs_nothing, all_attributes(sources[-1:], "setup")):
            module_setup()  # as asv does: it often seeds
        _caches[key] = _Cache(function)
    return _caches[key]


def _needs_nothing(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


_MEASURING = ("repeat", "rounds", "processes", "sample_time", "warmup_time", "min_run_count", "timeout", "timer")
"""asv's own settings of how to measure; `number` is heeded."""
_SKIPS = frozenset(("NotImplementedError", "SkipNotImplemented"))


def find_asv(directory: str, found: FoundBenchmarks) -> None:
    """Add the benchmarks of a directory, in the order of its modules."""
    ignored: set[str] = set()
    skipped = 0
    kinds: Counter[str] = Counter()
    for benchmark in _counted_benchmarks(directory, kinds):
        _, sources = benchmark.instance()
        ignored.update(name for name in _MEASURING if first_attribute(sources[:-1], name, None) is not None)
        parameters = parameters_of(sources)
        combinations = list(parameters.combinations())
        kept = combinations
        # Only a set-up that mentions NotImplementedError is tried; all others would cost what a run's set-ups cost.
        if any(map(_mentions_skips, all_attributes(sources, "setup"))):
            kept = [labels for labels in combinations if not _is_skipped(benchmark, parameters.names, labels)]
        skipped += len(combinations) - len(kept)
        found.add(
            AdoptedTarget(tool=ASV, place=directory, name=benchmark.location),
            benchmark_name((ASV, *benchmark.name.split("."))),
            parameters.names,
            kept,
            doc=first_line(benchmark.function.__doc__) or first_line(getattr(benchmark.owner, "__doc__", None)),
        )
    others = tuple(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    if others:
        found.notes.append(fact("adopted.other_kinds", place=directory, tool=ASV, kinds=others))
    if ignored:
        found.notes.append(fact("adopted.ignored_settings", place=directory, tool=ASV, names=tuple(sorted(ignored))))
    if skipped:
        found.notes.append(fact("adopted.skipped_by_setup", place=directory, tool=ASV, number=skipped))


def _counted_benchmarks(directory: str, kinds: Counter[str]) -> Iterator[AsvBenchmark]:
    """The timed benchmarks of a directory; the others are counted by their kind."""
    for module in _modules(_root_package(directory)):
        names = [name for _, _, name, _ in _functions_of(module) if not _TIMED.match(name)]
        kinds.update(kind for kind, pattern in _OTHERS.items() for name in names if pattern.match(name))
        yield from _benchmarks_of(module)


def _mentions_skips(function: Any) -> bool:
    return not _SKIPS.isdisjoint(getattr(getattr(function, "__code__", None), "co_names", ()))


def _is_skipped(benchmark: AsvBenchmark, names: tuple[str, ...], labels: Combination) -> bool:
    try:
        source = AsvSource(benchmark, dict(zip(names, labels, strict=True)))
        with source.surroundings():
            source.set_up().close()
    except MissingTargetError:
        return True
    except Exception:  # noqa: BLE001 - a broken set-up is reported when the case is measured
        return False
    return False
