"""Sizes of the lists of tensors that optimizers are called with, which a trace leaves out where they are long.

torch's profiler writes no sizes of lists of more than 30 tensors. A fused optimizer is called with lists of all
parameters, of their gradients and of its moments, each as large as the parameter; and how large the parameters are
follows from the accumulation of their gradients in the same step.

Source: `TENSOR_LIST_DISPLAY_LENGTH_LIMIT` in torch/csrc/profiler/util.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

ACCUMULATION = "torch::autograd::AccumulateGrad"
"""Node of autograd that adds a gradient to a parameter's; called with the gradient."""
TENSOR_LIST = "TensorList"
"""Type of an argument that is a list of tensors."""
LONGEST_LIST = 30
"""Tensors of the longest list whose sizes a trace holds."""


class _Lists(NamedTuple):
    """The lists that an op is called with."""

    like_parameters: tuple[int, ...]
    """Arguments that have one tensor for each parameter, of its size."""
    counts: int | None = None
    """Argument that has one number for each parameter."""
    optional: int | None = None
    """Argument that is like the parameters only where a flag is true or a factor is not zero."""
    switch: int = 0
    """That flag or factor."""
    increment: bool = False
    """Whether it has such lists only where it adds 1 to them."""


_ADAM = _Lists((0, 1, 2, 3), counts=5, optional=4, switch=11)
_LISTS = {
    "aten::_fused_adam_": _ADAM,
    "aten::_fused_adamw_": _ADAM,
    "aten::_fused_sgd_": _Lists((0, 1), optional=2, switch=4),
    "aten::_fused_adagrad_": _Lists((0, 1, 2), counts=3),
    "aten::_foreach_add_": _Lists((), counts=0, increment=True),
    "aten::_foreach_norm": _Lists((0,)),
    "aten::_foreach_mul_": _Lists((0,)),
}
"""As torch.optim and clip_grad_norm_ call them. Source: their schemas in native_functions.yaml."""


def filled_lists(
    parameters: Sequence[Sequence[int]], op: str, dims: Sequence[Any], types: Sequence[str], concrete: Sequence[str]
) -> list[Any] | None:
    """`Input Dims` of an op that is called for all parameters, lists filled in; None where not needed or known.

    `parameters` are the sizes of the parameters that a step makes gradients of; the rest is as in the trace.
    """
    lists = _LISTS.get(op)
    is_left_out = types[:1] == [TENSOR_LIST] and dims[:1] == [[]]
    if lists is None or not is_left_out or len(parameters) <= LONGEST_LIST or len(dims) != len(types):
        return None
    if lists.increment and concrete[1:] != ["1"]:
        return None
    found = list(dims)
    for index in lists.like_parameters:
        found[index] = [list(size) for size in parameters]
    (switch,) = concrete[lists.switch : lists.switch + 1] or [""]
    if lists.optional is not None and switch.strip("0.") not in {"", "False"}:
        found[lists.optional] = [list(size) for size in parameters]
    if lists.counts is not None:
        found[lists.counts] = [[] for _ in parameters]
    return found
