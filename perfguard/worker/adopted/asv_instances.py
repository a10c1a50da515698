"""Setting asv benchmarks up: setup_cache, setup and teardown, as asv calls them."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from perfguard.worker.adopted.asv_suites import (
    AsvBenchmark,
    all_attributes,
    find_benchmark,
    first_attribute,
    parameters_of,
)
from perfguard.worker.adopted.instances import Instance
from perfguard.worker.adopted.targets import AdoptedTarget
from perfguard.worker.cases import SkippedTargetError
from perfguard.worker.timing.samples import Renewed

_RENEWALS_S = 0.2
"""About how long the set-ups in one sample may take."""
_MOST_RENEWALS = 64


class AsvSource:
    """Sets one benchmark up for one combination of parameters."""

    def __init__(self, benchmark: AsvBenchmark, parameters: dict[str, Any]) -> None:
        """Raises MissingTargetError where this arm's suite has no such parameters."""
        self._benchmark = benchmark
        _, sources = benchmark.instance()
        self._values = parameters_of(sources).chosen(parameters)
        self._cache = _cache_of(sources)

    @classmethod
    def of(cls, target: AdoptedTarget, parameters: dict[str, Any]) -> AsvSource:
        """The source of a case."""
        return cls(find_benchmark(target.place, target.name), parameters)

    def surroundings(self) -> AbstractContextManager[None]:
        """The directory of its setup_cache, where it has one: what that wrote there is read by relative paths."""
        return contextlib.nullcontext() if self._cache is None else self._cache.directory()

    def set_up(self) -> Instance:
        """A new object of the benchmark's class, set up.

        Raises:
            SkippedTargetError: The suite skips these parameters, which it says by NotImplementedError.
        """
        call, sources = self._benchmark.instance()
        cached = () if self._cache is None else self._cache.arguments()
        arguments = (*cached, *self._values)
        setups = list(reversed(all_attributes(sources, "setup")))
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
        module_setup = getattr(sources[-1], "setup", None)
        if callable(module_setup) and _needs_nothing(module_setup):
            module_setup()  # as asv does: it often seeds
        _caches[key] = _Cache(function)
    return _caches[key]


def _needs_nothing(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True
