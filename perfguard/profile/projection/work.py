"""What a problem has to do, by the sizes and dtypes of its tensors."""

from __future__ import annotations

from perfguard.profile.projection.convolution_work import CONVOLUTIONS
from perfguard.profile.projection.matrix_work import MATRIX_OPS
from perfguard.profile.projection.memory_work import MEMORY_OPS, element_wise_work
from perfguard.profile.projection.problems import Problem
from perfguard.profile.projection.recorded_arguments import Arguments, UnknownWorkError
from perfguard.profile.projection.work_amount import Work
from perfguard.profile.trace.op_groups import group_of

_FORMULAS = {**CONVOLUTIONS, **MATRIX_OPS, **MEMORY_OPS}
_NAMESPACE = "aten"


def work_of(problem: Problem) -> Work | None:
    """The least that one call has to do; None for ops that are not known, and where the trace does not tell enough."""
    namespace, _, name = problem.op.partition("::")
    if namespace != _NAMESPACE:
        return None
    args = Arguments(problem)
    try:
        if name in _FORMULAS:
            work = _FORMULAS[name](args)
        elif group_of(problem.op) == "element-wise":
            work = element_wise_work(name, args)
        else:
            return None
    except (UnknownWorkError, IndexError, TypeError, ValueError, ZeroDivisionError):
        # A call of another overload, or of another version of torch, has its arguments elsewhere.
        return None
    return work if work.size_bytes else None
