"""Cases of other tools as the worker holds them: set up, called, and compared where their results can be."""

from __future__ import annotations

import contextlib
import math
import random
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple, Protocol

from perfguard.worker.adopted.found import ASV, PYTEST, AdoptedTarget
from perfguard.worker.cases import SEATING_CALLS, PreparedCase, move_memory
from perfguard.worker.results import TimedLook, UnsoundCaseError, checks_of, seed_everything


class Instance(NamedTuple):
    """One set-up of a case."""

    call: Callable[[], object]  # One call is one iteration
    close: Callable[[], object]  # The suite's own clearing up


class Source(Protocol):
    """Sets instances of one case up."""

    def set_up(self) -> Instance:
        """A further instance."""

    def surroundings(self) -> AbstractContextManager[None]:
        """What holds while an instance is set up, called and timed: a working directory, a number of threads."""


@dataclass(slots=True)
class AdoptedCase(PreparedCase):
    """A case of another tool; what it returns is checked where it can be, and never makes it fail."""

    surroundings: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext  # What holds while it is timed
    closers: list[Callable[[], object]] = field(default_factory=list)  # The instances' clearing up

    def hold(self, body: Callable[[PreparedCase], None]) -> None:
        """Run `body` in the surroundings that the case was set up in."""
        with self.surroundings():
            body(self)

    def check_last(self, result: object) -> None:
        """Nothing: these suites return what they like."""

    def look(self, look: TimedLook, result: object, *, seed: int) -> dict[str, float]:
        """What can be compared: a finite number or tensor, where two set-ups agreed on one."""
        with contextlib.suppress(UnsoundCaseError):
            return look.checks(result, seed=seed) if self.checks else {}
        return {}

    def close(self) -> None:
        """Clear up as the suite does; what fails there is printed, since nothing is measured any more."""
        while self.closers:
            with self.surroundings():
                try:
                    self.closers.pop()()
                except Exception:  # noqa: BLE001 - a suite's own code may fail in any way
                    traceback.print_exc()


def prepare_instances(case: dict[str, Any], source: Source, *, seed: int, check: bool, instances: int) -> AdoptedCase:
    """Set a case up under its seed and call it once; then its further instances.

    A number or tensor that two set-ups agree on is a check of the case, as for perfguard's own benchmarks. Nothing else
    is compared: suites return None, objects, or numbers that nobody seeded. `check` also times a second set-up; the
    other arguments are those of `prepare_case`.
    """

    def seeded() -> Instance:
        seed_everything(seed, case["id"])
        return source.set_up()

    draw = random.Random(f"{seed}:{case['id']}")  # noqa: S311 - a memory layout, not a secret
    with source.surroundings():
        first = seeded()
        prepared = AdoptedCase(case["id"], (first.call,), 0.0, surroundings=source.surroundings, closers=[first.close])
        result = first.call()
        for number in range(1, max(instances, 2)):
            is_kept = number < instances
            if not is_kept and not check and number_of(result) is None:
                break
            if is_kept:
                move_memory(draw)
            started = time.monotonic()
            further = seeded()
            again = further.call()
            if number == 1:
                prepared.instance_s = time.monotonic() - started if check else None
                note_result(prepared, case, result, again)
            if not is_kept:
                further.close()
                continue
            for _ in range(SEATING_CALLS - 1):  # the first is done
                further.call()
            prepared.calls += (further.call,)
            prepared.closers.append(further.close)
    return prepared


def note_result(prepared: PreparedCase, case: dict[str, Any], result: object, again: object) -> None:
    """Take the result of a first call as a check, where another set-up gave the same."""
    number = number_of(result)
    if number is not None and number == number_of(again):
        prepared.digest = number
        prepared.checks = checks_of(None, result, case)


def number_of(result: Any) -> float | None:
    """A result as one finite number, a tensor by its mean; None where it is nothing that can be compared."""
    try:
        if isinstance(result, Real):
            value = float(result)
        elif hasattr(result, "detach") and not result.is_complex():
            value = float(result.detach().double().mean())
        else:
            return None
    except Exception:  # noqa: BLE001 - whatever a strange result does, it is none that can be compared
        return None
    return value if math.isfinite(value) else None


def prepare_adopted(
    case: dict[str, Any], target: AdoptedTarget, *, seed: int, check: bool, instances: int
) -> PreparedCase:
    """As `perfguard.worker.cases.prepare_case`, for a case whose target names a tool."""
    seed_everything(seed, target.place)  # data that files make when they are imported is the same in both arms
    if target.tool == PYTEST:
        from perfguard.worker.adopted.pytest_cases import prepare_test

        return prepare_test(case, target, seed=seed, check=check, instances=instances)
    source: Source
    if target.tool == ASV:
        from perfguard.worker.adopted.asv import AsvSource, find_benchmark

        source = AsvSource(find_benchmark(target.place, target.name), case["parameters"])
    else:
        from perfguard.worker.adopted.timer import TimerSource

        source = TimerSource(target, case["parameters"])
    return prepare_instances(case, source, seed=seed, check=check, instances=instances)
