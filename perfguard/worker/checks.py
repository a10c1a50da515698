"""Named numbers that tell whether two arms compute the same thing, taken once at set-up, outside any timed region."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

STEP = "step"
"""Phase whose scalar result is a loss."""


class UnsoundCaseError(Exception):
    """The benchmark computes nothing that can be checked, or not the same thing each time."""

    is_plain = True


def digest_of(result: object, case_id: str) -> float:
    """One finite number for what a call returned: a float as it is, a tensor by its mean in float64.

    Raises:
        UnsoundCaseError: None, another type, or not finite.
    """
    if result is None:
        raise UnsoundCaseError(
            f"the function that {case_id} times returns nothing, so its result cannot be checked; return the loss"
        )
    if isinstance(result, (int, float)):
        value = float(result)
    elif hasattr(result, "detach"):
        value = float(result.detach().double().mean())
    else:
        raise UnsoundCaseError(f"{case_id} returns {type(result).__name__}; return the loss as a tensor or a float")
    if not math.isfinite(value):
        raise UnsoundCaseError(f"{case_id} computes {value}; a diverged benchmark times something else")
    return value


def checks_of(call: object, result: object, case: Mapping[str, Any]) -> dict[str, float]:
    """What a case is recognised by: its result, and whatever its attribute `check` adds.

    Args:
        call: What the factory returned; its attribute `check`, where it has one, returns a mapping of names to numbers.
        result: What the first call returned; already known to be finite.
        case: `id` and `phase`.

    Returns:
        `loss` for the scalar of a step, `result` for another scalar, `result_norm` (Euclidean) for a tensor, whose mean
        may be nothing but cancellation; then the benchmark's own.

    Raises:
        UnsoundCaseError: The benchmark's own check is not callable or gives something else than finite numbers.
    """
    checks = {_name_of(result, case["phase"]): _size_of(result)}
    check = getattr(call, "check", None)
    if check is None:
        return checks
    told = check() if callable(check) else check
    if not isinstance(told, Mapping):
        raise UnsoundCaseError(
            f"the check of {case['id']} gives {type(told).__name__}; it must be a function that returns a mapping of "
            "names to numbers"
        )
    for name, value in told.items():
        checks[str(name)] = _finite(value, str(name), case["id"])
    return checks


def _name_of(result: object, phase: str) -> str:
    if _is_tensor(result):
        return "result_norm"
    return "loss" if phase == STEP else "result"


def _size_of(result: Any) -> float:
    if _is_tensor(result):
        return float(result.detach().double().norm())
    return float(result.detach().double().mean()) if hasattr(result, "detach") else float(result)


def _is_tensor(result: Any) -> bool:
    """Whether a result holds more than one number."""
    return hasattr(result, "detach") and result.numel() > 1


def _finite(value: Any, name: str, case_id: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UnsoundCaseError(
            f"the check of {case_id} gives {type(value).__name__} as {name!r}; it must be a number"
        ) from None
    if not math.isfinite(number):
        raise UnsoundCaseError(f"{case_id} computes {number} as {name}; a diverged benchmark times something else")
    return number
