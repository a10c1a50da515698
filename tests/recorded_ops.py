"""Calls of ops as a trace records them, for tests that look at single ops."""

from __future__ import annotations

from typing import Any

from perfguard.profile.projection.problems import Problem
from tests.profile_traces import contiguous


def tensor(*sizes: int, kind: str = "float", strides: list[int] | None = None) -> dict[str, Any]:
    """One tensor among the arguments of `problem`."""
    return {"dims": list(sizes), "type": kind, "strides": contiguous(list(sizes)) if strides is None else strides}


def tensors(*shapes: list[int]) -> dict[str, Any]:
    """A list of tensors."""
    return {"dims": [list(shape) for shape in shapes], "type": "TensorList", "strides": [contiguous(s) for s in shapes]}


def plain(value: object) -> dict[str, Any]:
    """A number, a flag or a list of them; None for what was not given."""
    if value is None:
        return {"type": ""}
    return {"type": "ScalarList" if isinstance(value, list) else "Scalar", "concrete": str(value)}


def problem(op: str, *arguments: dict[str, Any], **fields: Any) -> Problem:
    """An op with its arguments; called once in a step, for a millisecond, where nothing else is said."""
    known = {"calls": 1.0, "observed_s": 1e-3, "events": 1.0, "phases": (), "modules": (), "detail": "", **fields}
    return Problem(
        op=op,
        dims=[argument.get("dims", []) for argument in arguments],
        types=[argument["type"] for argument in arguments],
        strides=[argument.get("strides", []) for argument in arguments],
        concrete=[argument.get("concrete", "") for argument in arguments],
        **known,
    )
