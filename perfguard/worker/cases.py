"""Setting a case up in the child, and checking that what it computes is worth timing."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from perfguard.records.ranks import RANK_OPTIONS, ranks_of_case
from perfguard.records.spec import Phase
from perfguard.worker.adopted.found import adopted_target
from perfguard.worker.results import TimedLook, UnsoundCaseError, checks_of, digest_of, seed_everything

if TYPE_CHECKING:
    from perfguard.worker.ranks.group import RankGroup

_MAX_PADDING_BYTES = 1024 * 1024
PARAMETERS_VARIABLE = "PERFGUARD_SET"  # The parameters of an arm as it was typed, a JSON object of texts
_KINDS: Mapping[type, Callable[[str], object]] = {int: int, float: float}
SEATING_CALLS = 2  # Calls that take a further instance's memory and fill the primitive cache before it is timed
_padding: list[bytearray] = []  # Kept for the life of the process, so that what follows stays moved


class MissingTargetError(Exception):
    """The arm's tree has no such benchmark."""


class SkippedTargetError(MissingTargetError):
    """The arm's own suite skips this benchmark."""


@dataclass(slots=True)
class PreparedCase:
    """A case that is set up and has been called once."""

    id: str  # Case id
    calls: tuple[Callable[[], object], ...]  # One for each set-up under the same seed; one call is one iteration
    digest: float  # The result of the first call, reduced to one number; equal seeds give equal digests
    checks: dict[str, float] = field(default_factory=dict)  # Named numbers of the first call; both arms must agree
    instance_s: float | None = None  # Seconds of one further set-up and call; None where none was timed
    group: RankGroup | None = None  # The processes that the calls run in; None where they run in this one

    def check_last(self, result: object) -> None:
        """Raise UnsoundCaseError where the last timed result is not finite."""
        digest_of(result, self.id)

    def look(self, look: TimedLook, result: object, *, seed: int) -> dict[str, float]:
        """Named numbers of what a timed call returned; UnsoundCaseError where they are not finite."""
        return look.checks(result, seed=seed)

    def hold(self, body: Callable[[PreparedCase], None]) -> None:
        """Run `body`, which times or profiles the calls of the case that it gets, while what they need is there."""
        body(self)

    def close(self) -> None:
        """Clear up; the case is not called any more."""
        if self.group is not None:
            self.group.close()


def prepare_case(case: dict[str, Any], *, seed: int, check: bool, instances: int = 1) -> PreparedCase:
    """Set a case up under its seed and call it once; then its further instances.

    The case has `id`, `target`, `parameters` (a mapping) and `phase`. The block's seed is mixed with the case id, so
    the order of the set-ups does not matter. `check` also requires that a second set-up gives the same result, and for
    stateless phases a second call. The instances take turns in the samples. Each lies elsewhere in memory, behind a
    padding drawn from the seed, so that a block's value averages over layouts instead of hanging on one.

    Raises MissingTargetError: the target does not exist in this arm; UnsoundCaseError: nothing callable, no result, not
    finite, or not reproducible.
    """
    if (target := adopted_target(case["target"])) is not None:
        from perfguard.worker.adopted.instances import prepare_adopted

        return prepare_adopted(case, target, seed=seed, check=check, instances=instances)
    factory = load_factory(case["target"])
    if (ranks := ranks_of_case(case["target"], {**case["parameters"], **_parameters_of_arm()})) is None:
        return _prepared(case, functools.partial(set_up, factory, case), seed=seed, check=check, instances=instances)
    from perfguard.worker.ranks.group import RankGroup

    group = RankGroup(case, ranks)
    try:
        prepared = _prepared(case, group.set_up, seed=seed, check=check, instances=instances)
    except BaseException:
        group.close()
        raise
    prepared.group = group
    return prepared


def _prepared(
    case: dict[str, Any], set_up_under: Callable[[int], Callable[[], object]], *, seed: int, check: bool, instances: int
) -> PreparedCase:
    call = set_up_under(seed)
    result = call()
    digest = digest_of(result, case["id"])
    prepared = PreparedCase(case["id"], (call,), digest, checks_of(call, result, case))
    if check:
        started = time.monotonic()
        if not Phase(case["phase"]).is_stateful and (again := digest_of(call(), case["id"])) != digest:
            raise UnsoundCaseError(
                f"{case['id']} changes its result between calls ({digest:.9g}, then {again:.9g}); a {case['phase']} "
                "benchmark must compute the same thing each time: reset what it modifies, or declare phase='step'"
            )
        if (fresh := digest_of(set_up_under(seed)(), case["id"])) != digest:
            raise UnsoundCaseError(
                f"{case['id']} changes its loss between set-ups with the same seed ({digest:.9g}, then {fresh:.9g}); "
                "draw all randomness from torch, numpy or random, which are seeded, and keep no state outside the "
                "factory"
            )
        prepared.instance_s = time.monotonic() - started
    draw = random.Random(f"{seed}:{case['id']}")  # noqa: S311 - a memory layout, not a secret
    for _ in range(instances - 1):
        move_memory(draw)
        further = set_up_under(seed)
        for _ in range(SEATING_CALLS):
            further()
        prepared.calls += (further,)
    return prepared


def set_up(factory: Callable[..., Any], case: Mapping[str, Any], seed: int) -> Callable[[], object]:
    """What a factory returns under a seed. Raises UnsoundCaseError: it is nothing that can be called."""
    seed_everything(seed, case["id"])
    call = factory(**parameters_of(factory, case))
    if not callable(call):
        given = "nothing" if call is None else type(call).__name__
        raise UnsoundCaseError(f"{case['target']} returns {given}; it must return the function to time")
    return call


def parameters_of(factory: Callable[..., Any], case: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a factory: the case's parameters, and those of its arm (`PERFGUARD_SET`) that it has."""
    accepted = inspect.signature(factory).parameters
    found = {key: value for key, value in case["parameters"].items() if key in accepted or key not in RANK_OPTIONS}
    for name, text in _parameters_of_arm().items():
        if name in accepted:
            before = found.get(name, accepted[name].default)
            found[name] = text == "true" if isinstance(before, bool) else _KINDS.get(type(before), str)(text)
    return found


def _parameters_of_arm() -> dict[str, str]:
    return dict(json.loads(os.environ.get(PARAMETERS_VARIABLE) or "{}"))


def move_memory(draw: random.Random) -> None:
    """Take a piece of memory for good, so that what is set up next lies elsewhere."""
    _padding.append(bytearray(draw.randrange(_MAX_PADDING_BYTES)))


def load_factory(target: str) -> Callable[..., Any]:
    """The factory behind `package.module:name` or `path/file.py:name`.

    Raises MissingTargetError: the module, file or name does not exist.
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

    Raises MissingTargetError: it does not exist.
    """
    if location.endswith(".py"):
        return _load_file(location)
    try:
        return importlib.import_module(location)
    except ModuleNotFoundError as error:
        if error.name is not None and (location == error.name or location.startswith(error.name + ".")):
            raise MissingTargetError(f"there is no module {location!r} in this arm") from None
        raise


def _load_file(location: str) -> ModuleType:
    path = Path(location)
    if not path.is_file():
        raise MissingTargetError(f"there is no file {location!r} in this arm")
    # A file whose stem is another module's goes by its place in the project: both must stay among the modules, or the
    # attestation would not see one of them.
    holder = sys.modules.get(path.stem)
    is_free = holder is None or getattr(holder, "__file__", None) == str(path.absolute())
    name = path.stem if is_free else ".".join(path.with_suffix("").parts)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None:
        raise MissingTargetError(f"{location!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
