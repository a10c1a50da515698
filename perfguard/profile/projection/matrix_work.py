"""Floating-point operations and bytes of ops that multiply matrices.

Counted as `torch.utils.flop_counter` does: two operations for each multiplication with its addition, nothing for biases
and activations, and causal masks as if nothing were masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from perfguard.profile.projection.recorded_arguments import (
    ELEMENT_BYTES,
    Arguments,
    Tensor,
    UnknownWorkError,
    broadcast,
    result_dtype,
)
from perfguard.profile.projection.work_amount import Formula, Output, Work, like, work_of_tensors


def _product(left: int, right: int, added: int | None = None) -> Formula:
    """A product of two arguments, to which a third may be added."""

    def formula(args: Arguments) -> Work:
        first, second = args.tensor(left), args.tensor(right)
        third = None if added is None else args.optional(added)
        rows, inner = first.sizes[-2:] if len(first.sizes) > 1 else (1, *first.sizes)
        depth, columns = second.sizes[-2:] if len(second.sizes) > 1 else (*second.sizes, 1)
        if inner != depth:
            raise UnknownWorkError(f"matrices of {first.sizes} and {second.sizes} cannot be multiplied")
        elements = prod(broadcast([first.sizes[:-2], second.sizes[:-2]])) * rows * columns
        return work_of_tensors(
            [first, second] if third is None else [first, second, third],
            [Output(elements=elements, dtype=result_dtype([first, second]))],
            flops=2 * elements * inner,
        )

    return formula


def _linear(args: Arguments) -> Work:
    data, weight, bias = args.tensor(0), args.tensor(1), args.optional(2)
    if data.sizes[-1:] != weight.sizes[-1:]:
        raise UnknownWorkError(f"data of {data.sizes} does not fit weights of {weight.sizes}")
    elements = prod(data.sizes[:-1]) * prod(weight.sizes[:-1])
    return work_of_tensors(
        [data, weight] if bias is None else [data, weight, bias],
        [Output(elements=elements, dtype=data.dtype)],
        flops=2 * elements * data.sizes[-1],
    )


def _attention(args: Arguments) -> Work:
    query, key, value = (args.tensor(index) for index in range(3))
    output = Output(elements=prod(query.sizes[:-1]) * value.sizes[-1], dtype=query.dtype)
    flops = _scores(query, key) * (query.sizes[-1] + value.sizes[-1])
    return work_of_tensors([query, key, value], [output], flops=flops)


def _attention_backward(args: Arguments) -> Work:
    """Five products: the scores once more, and the gradients of scores, values, queries and keys."""
    gradient, query, key, value, output = (args.tensor(index) for index in range(5))
    return work_of_tensors(
        [gradient, query, key, value, output],
        [like(query), like(key), like(value)],
        flops=_scores(query, key) * (3 * query.sizes[-1] + 2 * value.sizes[-1]),
    )


def _scores(query: Tensor, key: Tensor) -> int:
    """Operations for each element of a vector in a score; there are as many scores as queries times keys."""
    return 2 * prod(query.sizes[:-1]) * key.sizes[-2]


def _recurrent(args: Arguments) -> Work:
    """A stack of recurrent layers: each vector of the data is multiplied with every matrix of the parameters."""
    data = args.tensor(0)
    is_packed = args.optional(1) is not None and args.tensor(1).dtype == "int64"
    position = 3 if is_packed else 2
    parameters = args.list_of_sizes(position)
    matrices = [sizes for sizes in parameters if len(sizes) == 2]
    directions = 2 if args.flag(position + 5) else 1
    vectors = prod(data.sizes[:-1])
    # The last matrix takes what a layer gives: hidden values, or, where it is projected, makes them.
    output = Output(elements=vectors * min(matrices[-1]) * directions, dtype=data.dtype)
    made = work_of_tensors([data], [output], flops=2 * vectors * sum(map(prod, matrices)))
    parameter_bytes = sum(map(prod, parameters)) * ELEMENT_BYTES[data.dtype]
    return replace(made, size_bytes=made.size_bytes + parameter_bytes, assumed=(f"parameter_dtype={data.dtype}",))


def _recurrent_backward(args: Arguments) -> Work:
    """`mkldnn_rnn_layer_backward` of one layer: the gradient of the data and of the matrices, each a product."""
    data, *parameters = (args.tensor(index) for index in range(5))
    matrices = [tensor for tensor in parameters if len(tensor.sizes) == 2]
    flops = 4 * prod(data.sizes[:-1]) * sum(tensor.elements for tensor in matrices)
    return work_of_tensors(args.tensors, [like(data), *map(like, parameters)], flops=flops)


MATRIX_OPS: Mapping[str, Formula] = {
    "mm": _product(0, 1),
    "bmm": _product(0, 1),
    "matmul": _product(0, 1),
    "mv": _product(0, 1),
    "dot": _product(0, 1),
    "vdot": _product(0, 1),
    "addmm": _product(1, 2, added=0),
    "addmm_": _product(1, 2, added=0),
    "_addmm_activation": _product(1, 2, added=0),
    "addmv": _product(1, 2, added=0),
    "baddbmm": _product(1, 2, added=0),
    "baddbmm_": _product(1, 2, added=0),
    "linear": _linear,
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "lstm": _recurrent,
    "gru": _recurrent,
    "rnn_tanh": _recurrent,
    "rnn_relu": _recurrent,
    "mkldnn_rnn_layer_backward": _recurrent_backward,
}
"""By name of the op."""
