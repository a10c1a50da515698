"""What a case's calls return, as numbers that both arms must agree on: at set-up, and while it is timed."""

from __future__ import annotations

import math
import random
import sys
import zlib
from collections.abc import Mapping
from typing import Any

_PROBED_ELEMENTS = 16  # Of a tensor that a timed call returned


class UnsoundCaseError(Exception):
    """The benchmark computes nothing that can be checked, or not the same thing each time."""

    is_plain = True


def digest_of(result: object, case_id: str) -> float:
    """One finite number for what a call returned: a float as it is, a tensor by its mean in float64.

    Raises UnsoundCaseError: None, another type, or not finite.
    """
    if result is None:
        raise UnsoundCaseError(
            f"the function that {case_id} times returns nothing, so its result cannot be checked; return the loss"
        )
    if not isinstance(result, (int, float)) and not hasattr(result, "detach"):
        raise UnsoundCaseError(f"{case_id} returns {type(result).__name__}; return the loss as a tensor or a float")
    value = _mean(result)
    if not math.isfinite(value):
        raise UnsoundCaseError(f"{case_id} computes {value}; a diverged benchmark times something else")
    return value


def _mean(result: Any) -> float:
    return float(result.detach().double().mean() if hasattr(result, "detach") else result)


def checks_of(call: object, result: Any, case: Mapping[str, Any]) -> dict[str, float]:
    """Named numbers by which both arms show that they compute the same thing: the result and the benchmark's own.

    The finite result counts as `loss` where it is the scalar of a step, as `result` where it is another scalar, and by
    its Euclidean norm as `result_norm` where it is a tensor, whose mean may be nothing but cancellation. The attribute
    `check` of what the factory returned, a function that returns a mapping of names to numbers, adds its own.

    Raises UnsoundCaseError: the benchmark's own check is not callable or gives something else than finite numbers.
    """
    if hasattr(result, "detach") and result.numel() > 1:
        checks = {"result_norm": float(result.detach().double().norm())}
    else:
        checks = {"loss" if case["phase"] == "step" else "result": _mean(result)}
    check = getattr(call, "check", None)
    return checks if check is None else {**checks, **own_checks(check, case["id"])}


def own_checks(check: object, case_id: str) -> dict[str, float]:
    """What a benchmark's own check gives.

    Raises UnsoundCaseError: it is not callable or gives something else than finite numbers.
    """
    checks: dict[str, float] = {}
    own = check() if callable(check) else check
    if not isinstance(own, Mapping):
        raise UnsoundCaseError(
            f"the check of {case_id} gives {type(own).__name__}; it must be a function that returns a mapping of "
            "names to numbers"
        )
    for name, value in own.items():
        try:
            number = checks[str(name)] = float(value)
        except (TypeError, ValueError):
            raise UnsoundCaseError(
                f"the check of {case_id} gives {type(value).__name__} as {str(name)!r}; it must be a number"
            ) from None
        if not math.isfinite(number):
            raise UnsoundCaseError(f"{case_id} computes {number} as {name}; a diverged benchmark times something else")
    return checks


class TimedLook:
    """A look at what timed calls compute, on inputs of their own where the benchmark can draw them anew (`vary`)."""

    def __init__(self, call: object, *, seed: int, case_id: str) -> None:
        """Draw the inputs anew under the seed."""
        draw_anew = getattr(call, "vary", None)
        self.is_varied = draw_anew is not None
        self._case_id = case_id
        self._check: object = None
        if draw_anew is not None:
            seed_generators(seed, case_id)
            drawn = draw_anew()
            self._check = drawn if callable(drawn) else None

    def checks(self, result: Any, *, seed: int) -> dict[str, float]:
        """Named numbers of what was computed, on which both arms must agree; the seed says where a tensor is looked at.

        Raises UnsoundCaseError: they are not finite.
        """
        if self._check is not None:
            return {f"timed_{name}": value for name, value in own_checks(self._check, self._case_id).items()}
        return timed_checks(result, seed=seed, case_id=self._case_id)


def timed_checks(result: Any, *, seed: int, case_id: str) -> dict[str, float]:
    """What a timed call returned, as a number that both arms must agree on; empty where it is nothing of the kind.

    A number counts as it is. A tensor counts by the norm of few of its elements, whose positions the seed draws: a norm
    over all of them would hardly tell one result from another of the same distribution.

    Raises UnsoundCaseError: it is not finite.
    """
    if hasattr(result, "detach") and (not _is_plain(result) or result.is_sparse):
        return {}
    if hasattr(result, "detach") and result.numel() > 1:
        draw = random.Random(seed)  # noqa: S311 - the caller's seed is what nobody may guess
        places = tuple([draw.randrange(size) for _ in range(_PROBED_ELEMENTS)] for size in result.shape)
        name, value = "timed_elements", float(result.detach()[places].double().norm())
    elif hasattr(result, "detach") or isinstance(result, (int, float)):
        name, value = "timed_result", _mean(result)
    else:
        return {}
    if not math.isfinite(value):
        raise UnsoundCaseError(f"{case_id} computes {value}; a diverged benchmark times something else")
    return {name: value}


def _is_plain(result: object) -> bool:
    """Whether a tensor is of torch's own class: one of a subclass may compute when it is looked at, after the clock."""
    torch = sys.modules.get("torch")
    return torch is None or type(result) in (torch.Tensor, torch.nn.Parameter)


def seed_everything(seed: int, case_id: str) -> None:
    """Seed Python, NumPy and torch, where they are imported, with a block's seed mixed with the case id."""
    seed_generators(seed, case_id)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(_mixed(seed, case_id))


def seed_generators(seed: int, case_id: str) -> None:
    """The same of generators that are in use: `torch.manual_seed` takes a millisecond in a worker's first call.

    For accelerators that nobody has used yet, it keeps a stack with lines of source files.
    """
    mixed = _mixed(seed, case_id)
    random.seed(mixed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(mixed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(mixed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(mixed)


def _mixed(seed: int, case_id: str) -> int:
    return (seed ^ zlib.crc32(case_id.encode())) % 2**32
