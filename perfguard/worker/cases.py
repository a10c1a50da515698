"""Setting a case up in the child, and checking that what it computes is worth timing."""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from perfguard.worker.adopted.found import adopted_target
from perfguard.worker.checks import UnsoundCaseError, checks_of, digest_of

STATEFUL_PHASES = ("optimizer", "step")
"""Phases whose result moves on from call to call because weights change."""

_MAX_PADDING_BYTES = 1024 * 1024
SEATING_CALLS = 2
"""Calls that take a further instance's memory and fill the primitive cache before it is timed."""
_padding: list[bytearray] = []
"""Kept for the life of the process, so that what follows stays moved."""


class MissingTargetError(Exception):
    """The arm's tree has no such benchmark."""


class SkippedTargetError(MissingTargetError):
    """The arm's own suite skips this benchmark."""


@dataclass(slots=True)
class PreparedCase:
    """A case that is set up and has been called once."""

    id: str
    """Case id."""
    calls: tuple[Callable[[], object], ...]
    """The instances, each a set-up of its own under the same seed; one call is one iteration."""
    digest: float
    """The result of the first call, reduced to one number; equal seeds give equal digests."""
    checks: dict[str, float] = field(default_factory=dict)
    """Named numbers of the first call; both arms must agree on them."""
    instance_s: float | None = None
    """Seconds of one further set-up and call; None where none was timed."""

    def check_last(self, result: object) -> None:
        """Raise UnsoundCaseError where the last timed result is not finite."""
        digest_of(result, self.id)

    def hold(self, body: Callable[[PreparedCase], None]) -> None:
        """Run `body`, which times or profiles the calls of the case that it gets, while what they need is there."""
        body(self)

    def close(self) -> None:
        """Clear up; the case is not called any more."""


def prepare_case(case: dict[str, Any], *, seed: int, check: bool, instances: int = 1) -> PreparedCase:
    """Set a case up under its seed and call it once; then its further instances.

    Args:
        case: `id`, `target`, `parameters` (a mapping) and `phase`.
        seed: Of the block; mixed with the case id, so the order of the set-ups does not matter.
        check: Also require that a second set-up gives the same result, and for stateless phases a second call.
        instances: How many set-ups take turns in the samples. Each lies elsewhere in memory, behind a padding drawn
            from the seed, so that a block's value averages over layouts instead of hanging on one.

    Raises:
        MissingTargetError: The target does not exist in this arm.
        UnsoundCaseError: Nothing callable, no result, not finite, or not reproducible.
    """
    if adopted_target(case["target"]) is not None:
        from perfguard.worker.adopted.instances import prepare_adopted

        return prepare_adopted(case, seed=seed, check=check, instances=instances)
    factory = load_factory(case["target"])
    call = _set_up(factory, case, seed)
    result = call()
    digest = digest_of(result, case["id"])
    prepared = PreparedCase(case["id"], (call,), digest, checks_of(call, result, case))
    if check:
        started = time.monotonic()
        _require_reproducible(factory, case, seed=seed, call=call, digest=digest)
        prepared.instance_s = time.monotonic() - started
    draw = random.Random(f"{seed}:{case['id']}")  # noqa: S311 - a memory layout, not a secret
    for _ in range(instances - 1):
        move_memory(draw)
        further = _set_up(factory, case, seed)
        for _ in range(SEATING_CALLS):
            further()
        prepared.calls += (further,)
    return prepared


def _require_reproducible(
    factory: Callable[..., Any], case: dict[str, Any], *, seed: int, call: Callable[[], object], digest: float
) -> None:
    if case["phase"] not in STATEFUL_PHASES:
        again = digest_of(call(), case["id"])
        if again != digest:
            raise UnsoundCaseError(
                f"{case['id']} changes its result between calls ({digest:.9g}, then {again:.9g}); a {case['phase']} "
                "benchmark must compute the same thing each time: reset what it modifies, or declare phase='step'"
            )
    fresh = digest_of(_set_up(factory, case, seed)(), case["id"])
    if fresh != digest:
        raise UnsoundCaseError(
            f"{case['id']} changes its loss between set-ups with the same seed ({digest:.9g}, then {fresh:.9g}); draw "
            "all randomness from torch, numpy or random, which are seeded, and keep no state outside the factory"
        )


def _set_up(factory: Callable[..., Any], case: dict[str, Any], seed: int) -> Callable[[], object]:
    seed_everything(seed, case["id"])
    call = factory(**case["parameters"])
    if call is None:
        raise UnsoundCaseError(f"{case['target']} returns nothing; it must return the function to time")
    if not callable(call):
        raise UnsoundCaseError(f"{case['target']} returns {type(call).__name__}; it must return the function to time")
    return call


def move_memory(draw: random.Random) -> None:
    """Take a piece of memory for good, so that what is set up next lies elsewhere."""
    _padding.append(bytearray(draw.randrange(_MAX_PADDING_BYTES)))


def seed_everything(seed: int, case_id: str) -> None:
    """Seed Python, NumPy and torch, where they are imported, with a block's seed mixed with the case id."""
    seed = (seed ^ zlib.crc32(case_id.encode())) % 2**32
    random.seed(seed)
    for name, seeder in (("numpy", "random.seed"), ("torch", "manual_seed")):
        module = sys.modules.get(name)
        if module is not None:
            target: Any = module
            for part in seeder.split("."):
                target = getattr(target, part)
            target(seed)


def load_factory(target: str) -> Callable[..., Any]:
    """The factory behind `package.module:name` or `path/file.py:name`.

    Raises:
        MissingTargetError: The module, file or name does not exist.
    """
    location, _, name = target.rpartition(":")
    found: Any = load_module(location)
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise MissingTargetError(f"{location} has no {name!r} in this arm")
    return found


def load_module(location: str) -> ModuleType:
    """The module behind `package.module` or `path/file.py`, imported once.

    Raises:
        MissingTargetError: It does not exist.
    """
    return _load_file(location) if location.endswith(".py") else _load_named(location)


def _load_named(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise MissingTargetError(f"there is no module {name!r} in this arm") from None
        raise


def _module_name(path: Path) -> str:
    """Name of a file's module: its stem, or its place in the project where another module has that name.

    Both must stay among the modules, or the attestation would not see one of them.
    """
    holder = sys.modules.get(path.stem)
    if holder is None or getattr(holder, "__file__", None) == str(path.absolute()):
        return path.stem
    return ".".join(path.with_suffix("").parts)


def _load_file(location: str) -> ModuleType:
    path = Path(location)
    if not path.is_file():
        raise MissingTargetError(f"there is no file {location!r} in this arm")
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None:
        raise MissingTargetError(f"{location!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
