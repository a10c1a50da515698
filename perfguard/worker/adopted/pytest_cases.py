"""Tests with a `benchmark` fixture as cases.

A test is run from its beginning to its end each time it is needed, on the worker's main thread: once to set the case
up, once to time it. Inside, where the test calls its fixture, the samples are timed, with all other fixtures alive;
then the test goes on, and what it asserts decides whether the case failed. Two tests are never held at once, and no
thread could disturb what is timed. Instances of one test are runs of it inside each other: pytest is called again where
the fixture waits.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfguard.records.facts import fact
from perfguard.records.spec import ParameterValue
from perfguard.worker.adopted.found import (
    PYTEST,
    AdoptedTarget,
    FoundBenchmarks,
    benchmark_name,
    dotted,
    first_line,
    labels_of,
)
from perfguard.worker.adopted.instances import AdoptedCase, note_result, number_of
from perfguard.worker.cases import SEATING_CALLS, MissingTargetError, PreparedCase, SkippedTargetError, move_memory
from perfguard.worker.results import UnsoundCaseError, seed_everything

if TYPE_CHECKING:
    import pytest

    from perfguard.worker.adopted.pytest_plugin import Body


ID_PARAMETER = "id"  # The parameter of a case that holds pytest's id of a parametrized test


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedTest:
    """A test that is a case."""

    target: AdoptedTarget  # Its file, and its name with dots between class and function
    label: str | None  # What stands for its parameters in the case id
    seed: Callable[[], None]  # Called before its fixtures are made

    def run(self, body: Body) -> None:
        """Run it once, with `body` where it calls its fixture.

        Raises MissingTargetError: this arm has no such test; SkippedTargetError: it skips it; UnsoundCaseError: it
        fails, or never calls the fixture; Exception: whatever `body` raised.
        """
        from perfguard.worker.adopted.pytest_plugin import BenchmarkPlugin, run_pytest

        errors: list[BaseException] = []
        is_chosen = is_done = False

        def remembered(call: Callable[[], object]) -> object:
            nonlocal is_done
            try:
                result = body(call)
            except BaseException as error:
                errors.append(error)  # the test may swallow it
                raise
            is_done = True
            return result

        def choose(items: list[pytest.Item]) -> list[pytest.Item]:
            nonlocal is_chosen
            chosen = [item for item, label in _labelled(items) if self.label in (None, label)]
            is_chosen = bool(chosen)
            return chosen

        plugin = BenchmarkPlugin(remembered, choose=choose, seed=self.seed)
        code = run_pytest("::".join((self.target.place, *self.target.name.split("."))), plugin)
        if errors:
            raise errors[-1]
        if plugin.skipped is not None:
            raise SkippedTargetError(f"the test is skipped: {plugin.skipped}")
        if plugin.problems:
            raise UnsoundCaseError(f"the test fails: {plugin.problems[0]}")
        if not is_chosen:
            raise MissingTargetError(f"there is no such test in {self.target.place} in this arm")
        if not is_done:
            raise UnsoundCaseError("the test never calls its benchmark fixture, so there is nothing to time")
        if code:
            raise UnsoundCaseError(f"pytest ends with exit code {code}; run the test alone to see why")


@dataclass(slots=True, kw_only=True)
class PytestCase(AdoptedCase):
    """A case that is set up again whenever it is held."""

    test: TimedTest
    instances: int  # How many runs of it take turns in the samples, one inside the other
    draw: random.Random  # Where each lies in memory

    def hold(self, body: Callable[[PreparedCase], None]) -> None:
        """Run the test, and `body` where it calls its fixture; between them, the test's further instances."""
        self._nest(body, ())

    def _nest(self, body: Callable[[PreparedCase], None], outer: tuple[Callable[[], object], ...]) -> None:
        def inside(call: Callable[[], object]) -> object:
            calls = (*outer, call)
            if len(calls) < self.instances:
                for _ in range(SEATING_CALLS):
                    call()
                move_memory(self.draw)
                self._nest(body, calls)
            else:
                body(AdoptedCase(self.id, calls, self.digest, self.checks))
            return call()

        self.test.run(inside)


def prepare_test(case: dict[str, Any], target: AdoptedTarget, *, seed: int, check: bool, instances: int) -> PytestCase:
    """Run a test once with a single call; a second time where its result is a number that another run may confirm.

    `check` also tries whether the test can be run inside itself, and times that; the other arguments are those of
    `prepare_case`.
    """
    seeder = functools.partial(seed_everything, seed, case["id"])
    test = TimedTest(target=target, label=case["parameters"].get(ID_PARAMETER), seed=seeder)
    draw = random.Random(f"{seed}:{case['id']}")  # noqa: S311 - a memory layout, not a secret
    prepared = PytestCase(case["id"], (), 0.0, test=test, instances=instances, draw=draw)
    result = _run_once(test)
    if number_of(result) is not None:
        note_result(prepared, case, result, _run_once(test))
    prepared.instance_s = _nested_s(test) if check else None
    return prepared


def _run_once(test: TimedTest) -> object:
    """The result of the only call in a run."""
    results: list[object] = []

    def call_once(call: Callable[[], object]) -> object:
        results.append(call())
        return results[-1]

    test.run(call_once)
    return results[-1]


def _nested_s(test: TimedTest) -> float | None:
    """Seconds of a run inside another; None where the test cannot be inside itself, since both want the same thing."""
    spent_s: list[float] = []

    def outside(call: Callable[[], object]) -> object:
        started = time.monotonic()
        _run_once(test)
        spent_s.append(time.monotonic() - started)
        return call()

    try:
        test.run(outside)
    except Exception:  # noqa: BLE001 - alone it passed; then there is one instance
        return None
    return spent_s[-1]


def _labelled(items: list[pytest.Item]) -> list[tuple[pytest.Item, ParameterValue]]:
    """Tests with what stands for their parameters: what pytest puts into brackets behind the name."""
    ids = (str(item.callspec.id) if hasattr(item, "callspec") else "" for item in items)
    return list(zip(items, labels_of(ids), strict=True))


_FIXTURE = "benchmark"
_WEAVING = "benchmark_weave"


def find_tests(path: str, found: FoundBenchmarks) -> None:
    """Add the tests of a file.

    Raises RuntimeError: pytest is not installed beside the suite, or cannot collect the file.
    """
    try:
        from perfguard.worker.adopted.pytest_plugin import BenchmarkPlugin, run_pytest
    except ImportError as error:
        raise RuntimeError(f"pytest cannot be imported in the environment under test: {error}") from error
    collected: list[pytest.Item] = []

    def keep(items: list[pytest.Item]) -> list[pytest.Item]:
        collected.extend(items)
        return []

    plugin = BenchmarkPlugin(lambda _: None, choose=keep)
    run_pytest(path, plugin, "--collect-only")
    if plugin.problems:
        raise RuntimeError(f"pytest cannot collect the file: {plugin.problems[0]}")
    by_function: dict[str, list[pytest.Item]] = {}
    for item in collected:
        if _FIXTURE in getattr(item, "fixturenames", ()):
            parts = item.nodeid.partition("[")[0].split("::")[1:]
            by_function.setdefault(".".join(parts), []).append(item)
    skipped = sum(_add(path, name, items, found) for name, items in by_function.items())
    if not by_function:
        found.notes.append(fact("adopted.no_test", place=path, tool=PYTEST, fixture=_FIXTURE))
    found.count(fact("adopted.skipped_by_marks", tool=PYTEST, number=skipped))
    woven = sum(_WEAVING in getattr(item, "fixturenames", ()) for item in collected)
    found.count(fact("adopted.weaving_unsupported", tool=PYTEST, number=woven))


def _add(path: str, name: str, items: list[pytest.Item], found: FoundBenchmarks) -> int:
    """Add one function; gives how many of its tests are skipped."""
    is_parametrized = hasattr(items[0], "callspec")
    kept = [label for item, label in _labelled(items) if not _is_skipped(item)]
    if kept:
        found.add(
            AdoptedTarget(tool=PYTEST, place=path, name=name),
            benchmark_name((PYTEST, *dotted(path).split("."), *name.split("."))),
            (ID_PARAMETER,) if is_parametrized else (),
            [(label,) if is_parametrized else () for label in kept],
            doc=first_line(getattr(getattr(items[0], "function", None), "__doc__", None)),
        )
    return len(items) - len(kept)


def _is_skipped(item: pytest.Item) -> bool:
    """Whether marks skip a test; where pytest does not say so, the test itself does when it is measured."""
    try:
        from _pytest.skipping import evaluate_skip_marks
    except ImportError:
        return False
    return evaluate_skip_marks(item) is not None
