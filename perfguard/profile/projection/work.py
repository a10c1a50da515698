"""What a problem has to do, by the sizes and dtypes of its tensors; here ops that are limited by memory.

Of these only what they read and write is counted, not their few operations. Values of whole channels, such as the mean
of a batch, and single numbers are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from msgspec.structs import replace

from perfguard.profile.projection.arguments import (
    ELEMENT_BYTES,
    Arguments,
    Formula,
    TensorSize,
    Work,
    broadcast,
    like,
    made,
    result_dtype,
    work_of_tensors,
)
from perfguard.profile.projection.problems import Problem
from perfguard.profile.projection.products import PRODUCTS
from perfguard.profile.trace.op_groups import group_of

_NOT_ELEMENT_WISE = frozenset(
    {
        "glu", "glu_backward", "log_sigmoid_forward", "_prelu_kernel_backward", "rrelu_with_noise", "polar", "eye",
        "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
    }
)  # fmt: skip
"""Ops of that group which read or write something else than all elements of their tensors once."""
_TRUE_OR_FALSE = frozenset(
    {
        "eq", "ge", "gt", "isfinite", "isinf", "isnan", "le", "logical_and", "logical_not", "logical_or", "logical_xor",
        "lt", "ne", "not_equal",
    }
)  # fmt: skip
_LISTS_DTYPE = "fp32"  # Traces do not record what is in a list of tensors; it is what parameters are trained in


def work_of(problem: Problem) -> Work | None:
    """The least that one call has to do; None for unknown ops, and where the trace does not record enough."""
    namespace, _, name = problem.op.partition("::")
    if namespace != "aten":
        return None
    args = Arguments(problem)
    try:
        if name in _FORMULAS:
            work = _FORMULAS[name](args)
        elif group_of(problem.op) == "element-wise" and name not in _NOT_ELEMENT_WISE:
            work = _element_wise(name, args)
        else:
            return None
    except (LookupError, SyntaxError, TypeError, ValueError, ZeroDivisionError):
        # A call of another overload, or of another version of torch, has its arguments elsewhere.
        return None
    return work if work.size_bytes else None


def _element_wise(name: str, args: Arguments) -> Work:
    """An op that makes each element from those at the same place."""
    tensors = args.tensors
    if name.endswith("_"):
        return work_of_tensors([] if name in {"fill_", "zero_"} else tensors, [like(tensors[0])])
    values = tensors[1:] if name == "where" else tensors
    dtype = "bool" if name in _TRUE_OR_FALSE else result_dtype(values)
    return work_of_tensors(tensors, [made(broadcast([each.sizes for each in tensors]), dtype)])


def _reduction(dimensions: int) -> Formula:
    """An op that reduces the dimensions that an argument names, all of them where it names none."""

    def formula(args: Arguments) -> Work:
        data = args.tensor(0)
        if args.optional(1) is not None:
            raise ValueError("it has two tensors")
        # Overloads without dimensions have a dtype there, as their last argument.
        named = args.numbers(dimensions) if len(args) > dimensions + 1 else []
        reduced = {index % len(data.sizes) for index in named} if data.sizes else set()
        left = [size for index, size in enumerate(data.sizes) if reduced and index not in reduced]
        return work_of_tensors([data], [made(left, data.dtype)])

    return formula


def _makes(output: Callable[[Arguments], TensorSize], *read: int) -> Formula:
    """An op that makes one tensor from some arguments, or from all tensors where none are named."""
    return lambda args: work_of_tensors(map(args.tensor, read) if read else args.tensors, [output(args)])


def _as_large_as(index: int) -> Callable[[Arguments], TensorSize]:
    return lambda args: like(args.tensor(index))


def _cast(args: Arguments) -> TensorSize:
    """`to` and `_to_copy`. The first plain value that is a number is the dtype, if there is one."""
    source = args.tensor(0)
    dtype = args.dtype(1) if args.text(1).isdigit() else None
    if dtype is None or dtype == source.dtype:
        raise ValueError("whether it copies is not known")
    return like(source, dtype)


def _embedding(args: Arguments) -> Work:
    table, indices = args.tensor(0), args.tensor(1)
    rows = made((indices.elements, *table.sizes[1:]), table.dtype)
    found = work_of_tensors([indices], [rows])
    # Rows that are looked up again are in the caches.
    read_bytes = min(rows.size_bytes, table.size_bytes)
    return replace(found, size_bytes=found.size_bytes + read_bytes, dtype=table.dtype)


def _embedding_gradient(rows: int) -> Formula:
    """The gradient of a whole table, whose number of rows an argument holds."""
    return _makes(lambda args: made((args.number(rows), args.tensor(0).sizes[-1]), args.tensor(0).dtype), 0, 1)


def _pool(*, ceil_mode: int, dilation: int | None) -> Callable[[Arguments], TensorSize]:
    """What 2d pooling makes. Source: the documentation of torch.nn.MaxPool2d and AvgPool2d."""

    def pooled(args: Arguments) -> TensorSize:
        data = args.tensor(0)
        kernel = _pair(args, 1)
        strides, pads = _pair(args, 2) or kernel, _pair(args, 3)
        spread = (1, 1) if dilation is None else _pair(args, dilation)
        sizes = []
        for size, window, stride, pad, distance in zip(data.sizes[-2:], kernel, strides, pads, spread, strict=True):
            free = size + 2 * pad - distance * (window - 1) - 1
            steps = -(-free // stride) if args.flag(ceil_mode) else free // stride
            # A window that would begin in the padding behind the data is left out.
            sizes.append(steps + 1 if steps * stride < size + pad else steps)
        return made((*data.sizes[:-2], *sizes), data.dtype)

    return pooled


def _pair(args: Arguments, index: int) -> Sequence[int]:
    numbers = args.numbers(index)
    return numbers * 2 if len(numbers) == 1 else numbers


_MAX_POOL = _pool(ceil_mode=5, dilation=4)


def _max_pool_with_indices(args: Arguments) -> Work:
    values = _MAX_POOL(args)
    return work_of_tensors([args.tensor(0)], [values, like(values, "int64")])


def _adaptive_pool(args: Arguments) -> TensorSize:
    return made((*args.tensor(0).sizes[:-2], *_pair(args, 1)), args.tensor(0).dtype)


def _fused_update(args: Arguments) -> Work:
    """A fused optimizer: reads all of its lists and writes all but the gradients."""
    elements = {index: sum(map(prod, args.list_of_sizes(index))) for index in args.lists}
    size_bytes = (
        sum(count * (1 if index == 1 else 2) for index, count in elements.items()) * ELEMENT_BYTES[_LISTS_DTYPE]
    )
    return Work(flops=None, size_bytes=size_bytes, dtype=_LISTS_DTYPE, assumed=(f"list_dtype={_LISTS_DTYPE}",))


_FORMULAS: Mapping[str, Formula] = {
    **PRODUCTS,
    **dict.fromkeys(("sum", "nansum", "mean", "prod", "amax", "amin", "all", "any", "var", "std"), _reduction(1)),
    **dict.fromkeys(("norm", "linalg_vector_norm"), _reduction(2)),
    **dict.fromkeys(
        (
            "batch_norm", "native_batch_norm", "layer_norm", "native_layer_norm", "group_norm", "native_group_norm",
            "instance_norm", "rms_norm", "native_batch_norm_backward", "native_layer_norm_backward",
            "native_group_norm_backward", "_softmax_backward_data", "_log_softmax_backward_data",
        ),
        _makes(_as_large_as(0)),
    ),
    **dict.fromkeys(("softmax", "log_softmax"), _makes(lambda args: like(args.tensor(0), args.dtype(2)), 0)),
    **dict.fromkeys(("_softmax", "_log_softmax", "clone"), _makes(_as_large_as(0), 0)),
    **dict.fromkeys(("to", "_to_copy"), _makes(_cast, 0)),
    "copy_": _makes(_as_large_as(0), 1),
    "embedding": _embedding,
    "embedding_backward": _embedding_gradient(2),
    "embedding_dense_backward": _embedding_gradient(2),
    "_embedding_bag_dense_backward": _embedding_gradient(5),
    "_embedding_bag_backward": _embedding_gradient(6),
    "max_pool2d": _makes(_MAX_POOL, 0),
    "max_pool2d_with_indices": _max_pool_with_indices,
    "avg_pool2d": _makes(_pool(ceil_mode=4, dilation=None), 0),
    **dict.fromkeys(("adaptive_avg_pool2d", "_adaptive_avg_pool2d"), _makes(_adaptive_pool, 0)),
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"),
        _makes(_as_large_as(1)),
    ),
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"), _fused_update),
}  # fmt: skip
"""By name of the op."""
