"""Floating-point operations and bytes of ops that multiply matrices, of convolutions, and of their gradients.

Counted as `torch.utils.flop_counter` does: two operations for each multiplication with its addition, nothing for biases
and activations, and causal masks as if nothing were masked. But a gradient of a convolution's weight takes as many
operations as the convolution; flop_counter multiplies that of a grouped convolution by the number of groups.
Source of the output sizes: the documentation of torch.nn.Conv2d and torch.nn.ConvTranspose2d.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

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


def _product(left: int, right: int, *added: int) -> Formula:
    """A product of two arguments, to which others may be added."""

    def formula(args: Arguments) -> Work:
        first, second = args.tensor(left), args.tensor(right)
        rows, inner = first.sizes[-2:] if len(first.sizes) > 1 else (1, *first.sizes)
        depth, columns = second.sizes[-2:] if len(second.sizes) > 1 else (*second.sizes, 1)
        if inner != depth:
            raise ValueError(f"matrices of {first.sizes} and {second.sizes} cannot be multiplied")
        output = made((*broadcast([first.sizes[:-2], second.sizes[:-2]]), rows, columns), result_dtype([first, second]))
        read = [first, second, *args.present(*added)]
        return work_of_tensors(read, [output], flops=2 * output.elements * inner)

    return formula


def _linear(args: Arguments) -> Work:
    data, weight = args.tensor(0), args.tensor(1)
    if data.sizes[-1:] != weight.sizes[-1:]:
        raise ValueError(f"data of {data.sizes} does not fit weights of {weight.sizes}")
    output = made((*data.sizes[:-1], *weight.sizes[:-1]), data.dtype)
    return work_of_tensors(args.present(0, 1, 2), [output], flops=2 * output.elements * data.sizes[-1])


def _attention(args: Arguments) -> Work:
    query, key, value = (args.tensor(index) for index in range(3))
    output = made((*query.sizes[:-1], value.sizes[-1]), query.dtype)
    flops = _scores(query, key) * (query.sizes[-1] + value.sizes[-1])
    return work_of_tensors([query, key, value], [output], flops=flops)


def _attention_backward(args: Arguments) -> Work:
    """Five products: the scores once more, and the gradients of scores, values, queries and keys."""
    gradient, query, key, value, output = (args.tensor(index) for index in range(5))
    flops = _scores(query, key) * (3 * query.sizes[-1] + 2 * value.sizes[-1])
    return work_of_tensors([gradient, query, key, value, output], map(like, (query, key, value)), flops=flops)


def _scores(query: TensorSize, key: TensorSize) -> int:
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
    # The last matrix takes what a layer gives: hidden values, or, where it is projected, makes them.
    output = made((*data.sizes[:-1], min(matrices[-1]), directions), data.dtype)
    found = work_of_tensors([data], [output], flops=2 * prod(data.sizes[:-1]) * sum(map(prod, matrices)))
    parameter_bytes = sum(map(prod, parameters)) * ELEMENT_BYTES[data.dtype]
    return replace(found, size_bytes=found.size_bytes + parameter_bytes, assumed=(f"parameter_dtype={data.dtype}",))


def _recurrent_backward(args: Arguments) -> Work:
    """`mkldnn_rnn_layer_backward` of one layer: the gradient of the data and of the matrices, each a product."""
    data, *parameters = (args.tensor(index) for index in range(5))
    matrices = [tensor for tensor in parameters if len(tensor.sizes) == 2]
    flops = 4 * prod(data.sizes[:-1]) * sum(tensor.elements for tensor in matrices)
    return work_of_tensors(args.tensors, map(like, (data, *parameters)), flops=flops)


class _Convolution(NamedTuple):
    """Where an op that convolves has its plain arguments; None for those that it does not have."""

    groups: int
    stride: int = 3
    padding: int = 4
    dilation: int = 5
    output_padding: int | None = None
    transposed: int | None = None  # The flag; None where the op's name says it

    def work(self, args: Arguments) -> Work:
        data, weight = args.tensor(0), args.tensor(1)
        rank = len(weight.sizes) - 2
        batch, spatial = prod(data.sizes[: -rank - 1]), data.sizes[-rank:]
        is_transposed = self.output_padding is not None if self.transposed is None else args.flag(self.transposed)
        output = self._output(args, spatial, weight.sizes[2:], is_transposed=is_transposed)
        channels = weight.sizes[1] * args.number(self.groups) if is_transposed else weight.sizes[0]
        return work_of_tensors(
            args.present(0, 1, 2),
            [made((batch, channels, *output), data.dtype)],
            flops=2 * batch * prod(spatial if is_transposed else output) * weight.elements,
        )

    def _output(
        self, args: Arguments, data: Sequence[int], kernel: Sequence[int], *, is_transposed: bool
    ) -> Sequence[int]:
        """Spatial sizes of the output."""
        rank = len(kernel)
        # A padding that was given as a word is not recorded; there is then no number here.
        indices = (self.stride, self.padding, self.dilation)
        strides, padding, dilation = (_of_rank(args, index, rank) for index in indices)
        reach = [distance * (size - 1) for distance, size in zip(dilation, kernel, strict=True)]
        if is_transposed and self.output_padding is not None:
            more = _of_rank(args, self.output_padding, rank)
            sizes = zip(data, strides, padding, reach, more, strict=True)
            return [(size - 1) * stride - 2 * pad + far + extra + 1 for size, stride, pad, far, extra in sizes]
        plain = zip(data, strides, padding, reach, strict=True)
        return [(size + 2 * pad - far - 1) // stride + 1 for size, stride, pad, far in plain]


def _of_rank(args: Arguments, index: int, rank: int) -> list[int]:
    values = args.numbers(index)
    return values * rank if len(values) == 1 else values


def _convolution_backward(args: Arguments) -> Work:
    """As many operations as the convolution for each of the first two gradients."""
    gradient, data, weight = (args.tensor(index) for index in range(3))
    rank = len(weight.sizes) - 2
    spatial = (data if args.flag(7) else gradient).sizes[-rank:]
    for_data, for_weight, for_bias = (word.strip() == "True" for word in args.text(10).strip("[]").split(","))
    written = [like(tensor) for tensor, wanted in ((data, for_data), (weight, for_weight)) if wanted]
    if for_bias:
        written.append(made([gradient.sizes[-rank - 1]], gradient.dtype))
    # The gradient of the one is made with the other.
    read = [tensor for tensor, needed in ((weight, for_data), (data, for_weight)) if needed]
    once = 2 * prod(data.sizes[: -rank - 1]) * prod(spatial) * weight.elements
    return work_of_tensors([gradient, *read], written, flops=once * (for_data + for_weight))


PRODUCTS: Mapping[str, Formula] = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot", "vdot"), _product(0, 1)),
    **dict.fromkeys(("addmm", "addmm_", "_addmm_activation", "addmv", "baddbmm", "baddbmm_"), _product(1, 2, 0)),
    "linear": _linear,
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    "mkldnn_rnn_layer_backward": _recurrent_backward,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _Convolution(groups=6).work),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        _Convolution(groups=6, output_padding=5, dilation=7).work,
    ),
    **dict.fromkeys(("convolution", "_convolution"), _Convolution(groups=8, output_padding=7, transposed=6).work),
    "convolution_backward": _convolution_backward,
}
"""By name of the op."""
