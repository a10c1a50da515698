"""Bytes of ops that are limited by memory: what they read and write. Their few operations are not counted.

Values of whole channels, such as the mean of a batch, and single numbers are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from perfguard.profile.projection.recorded_arguments import (
    ELEMENT_BYTES,
    Arguments,
    UnknownWorkError,
    broadcast,
    result_dtype,
)
from perfguard.profile.projection.work_amount import Formula, Output, Work, like, work_of_tensors

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
_LISTS_DTYPE = "fp32"
"""Traces do not tell what is in a list of tensors; it is what parameters are trained in."""


def element_wise_work(name: str, args: Arguments) -> Work:
    """The work of an op that makes each element from those at the same place.

    Args:
        name: Of the op, without its namespace.
        args: Its arguments.

    Raises:
        UnknownWorkError: They do not tell.
    """
    if name in _NOT_ELEMENT_WISE:
        raise UnknownWorkError(f"{name} is not known")
    tensors = args.tensors
    if name in {"fill_", "zero_"}:
        return work_of_tensors([], [like(tensors[0])])
    if name.endswith("_"):
        return work_of_tensors(tensors, [like(tensors[0])])
    values = tensors[1:] if name == "where" else tensors
    dtype = "bool" if name in _TRUE_OR_FALSE else result_dtype(values)
    return work_of_tensors(tensors, [Output(elements=prod(broadcast([each.sizes for each in tensors])), dtype=dtype)])


def _reduction(dimensions: int) -> Formula:
    """An op that reduces the dimensions that an argument names, all of them where it names none."""

    def formula(args: Arguments) -> Work:
        data = args.tensor(0)
        if args.optional(1) is not None:
            raise UnknownWorkError("it has two tensors")
        # Overloads without dimensions have a dtype there, as their last argument.
        named = args.numbers(dimensions) if len(args) > dimensions + 1 else []
        reduced = {index % len(data.sizes) for index in named} if data.sizes else set()
        left = [size for index, size in enumerate(data.sizes) if reduced and index not in reduced]
        return work_of_tensors([data], [Output(elements=prod(left), dtype=data.dtype)])

    return formula


def _like_first(args: Arguments) -> Work:
    """Normalisations, softmax, their gradients, and gradients of pooling: the result is as large as the first input."""
    return work_of_tensors(args.tensors, [like(args.tensor(0))])


def _like_second(args: Arguments) -> Work:
    return work_of_tensors(args.tensors, [like(args.tensor(1))])


def _softmax(args: Arguments) -> Work:
    return work_of_tensors([args.tensor(0)], [like(args.tensor(0), args.dtype(2))])


def _copy_into(args: Arguments) -> Work:
    return work_of_tensors([args.tensor(1)], [like(args.tensor(0))])


def _copy(args: Arguments) -> Work:
    return work_of_tensors([args.tensor(0)], [like(args.tensor(0))])


def _cast(args: Arguments) -> Work:
    """`to` and `_to_copy`. The first plain value that is a number tells the dtype, if there is one."""
    source = args.tensor(0)
    dtype = args.dtype(1) if args.text(1).isdigit() else None
    if dtype is None or dtype == source.dtype:
        raise UnknownWorkError("whether it copies is not known")
    return work_of_tensors([source], [like(source, dtype)])


def _embedding(args: Arguments) -> Work:
    table, indices = args.tensor(0), args.tensor(1)
    rows = Output(elements=indices.elements * prod(table.sizes[1:]), dtype=table.dtype)
    found = work_of_tensors([indices], [rows])
    # Rows that are looked up again are in the caches.
    read_bytes = min(rows.size_bytes, table.size_bytes)
    return replace(found, size_bytes=found.size_bytes + read_bytes, dtype=table.dtype)


def _embedding_gradient(rows: int) -> Formula:
    """The gradient of a whole table, whose number of rows an argument tells."""

    def formula(args: Arguments) -> Work:
        gradient, indices = args.tensor(0), args.tensor(1)
        table = Output(elements=args.number(rows) * gradient.sizes[-1], dtype=gradient.dtype)
        return work_of_tensors([gradient, indices], [table])

    return formula


def _pool(args: Arguments, *, ceil_mode: int, dilation: int | None) -> Output:
    """What 2d pooling makes. Source: the documentation of torch.nn.MaxPool2d and AvgPool2d."""
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
    return Output(elements=prod(data.sizes[:-2]) * prod(sizes), dtype=data.dtype)


def _pair(args: Arguments, index: int) -> tuple[int, ...]:
    numbers = args.numbers(index)
    return (numbers[0], numbers[0]) if len(numbers) == 1 else tuple(numbers)


def _max_pool(args: Arguments) -> Work:
    return work_of_tensors([args.tensor(0)], [_pool(args, ceil_mode=5, dilation=4)])


def _max_pool_with_indices(args: Arguments) -> Work:
    values = _pool(args, ceil_mode=5, dilation=4)
    return work_of_tensors([args.tensor(0)], [values, replace(values, dtype="int64")])


def _average_pool(args: Arguments) -> Work:
    return work_of_tensors([args.tensor(0)], [_pool(args, ceil_mode=4, dilation=None)])


def _adaptive_pool(args: Arguments) -> Work:
    data = args.tensor(0)
    output = Output(elements=prod(data.sizes[:-2]) * prod(_pair(args, 1)), dtype=data.dtype)
    return work_of_tensors([data], [output])


def _update(gradients: int) -> Formula:
    """A fused optimizer: reads all of its lists and writes all but the gradients."""

    def formula(args: Arguments) -> Work:
        element_bytes, size_bytes = ELEMENT_BYTES[_LISTS_DTYPE], 0
        for index in args.lists:
            elements = sum(map(prod, args.list_of_sizes(index)))
            size_bytes += elements * element_bytes * (1 if index == gradients else 2)
        if not size_bytes:
            raise UnknownWorkError("the sizes of its lists are not recorded")
        return Work(flops=None, size_bytes=size_bytes, dtype=_LISTS_DTYPE, assumed=(f"list_dtype={_LISTS_DTYPE}",))

    return formula


MEMORY_OPS: Mapping[str, Formula] = {
    **dict.fromkeys(("sum", "nansum", "mean", "prod", "amax", "amin", "all", "any", "var", "std"), _reduction(1)),
    **dict.fromkeys(("norm", "linalg_vector_norm"), _reduction(2)),
    **dict.fromkeys(
        (
            "batch_norm", "native_batch_norm", "layer_norm", "native_layer_norm", "group_norm", "native_group_norm",
            "instance_norm", "rms_norm", "native_batch_norm_backward", "native_layer_norm_backward",
            "native_group_norm_backward", "_softmax_backward_data", "_log_softmax_backward_data",
        ),
        _like_first,
    ),
    **dict.fromkeys(("softmax", "log_softmax"), _softmax),
    **dict.fromkeys(("_softmax", "_log_softmax", "clone"), _copy),
    **dict.fromkeys(("to", "_to_copy"), _cast),
    "copy_": _copy_into,
    "embedding": _embedding,
    "embedding_backward": _embedding_gradient(2),
    "embedding_dense_backward": _embedding_gradient(2),
    "_embedding_bag_dense_backward": _embedding_gradient(5),
    "_embedding_bag_backward": _embedding_gradient(6),
    "max_pool2d": _max_pool,
    "max_pool2d_with_indices": _max_pool_with_indices,
    "avg_pool2d": _average_pool,
    **dict.fromkeys(("adaptive_avg_pool2d", "_adaptive_avg_pool2d"), _adaptive_pool),
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"), _like_second
    ),
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"), _update(1)),
}  # fmt: skip
"""By name of the op."""
