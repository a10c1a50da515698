"""Floating-point operations and bytes of convolutions and their gradients.

Source: `conv_flop_count` in torch/utils/flop_counter.py; output sizes as in the documentation of torch.nn.Conv2d and
torch.nn.ConvTranspose2d. A gradient of the weight takes as many operations as the convolution; flop_counter multiplies
that of a grouped convolution by the number of groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from perfguard.profile.projection.recorded_arguments import Arguments, UnknownWorkError
from perfguard.profile.projection.work_amount import Formula, Output, Work, like, work_of_tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Convolution:
    """Where an op that convolves has its plain arguments; None for those that it does not have."""

    groups: int
    stride: int = 3
    padding: int = 4
    dilation: int = 5
    output_padding: int | None = None
    transposed: int | None = None
    """The flag; None where the op's name tells."""

    def work(self, args: Arguments) -> Work:
        data, weight = args.tensor(0), args.tensor(1)
        rank = len(weight.sizes) - 2
        batch, spatial = prod(data.sizes[: -rank - 1]), data.sizes[-rank:]
        transposed = self._is_transposed(args)
        output = self._output(args, spatial, weight.sizes[2:])
        channels = weight.sizes[1] * args.number(self.groups) if transposed else weight.sizes[0]
        made = Output(elements=batch * channels * prod(output), dtype=data.dtype)
        bias = args.optional(2)
        return work_of_tensors(
            [data, weight] if bias is None else [data, weight, bias],
            [made],
            flops=2 * batch * prod(spatial if transposed else output) * weight.elements,
        )

    def _is_transposed(self, args: Arguments) -> bool:
        return self.output_padding is not None if self.transposed is None else args.flag(self.transposed)

    def _output(self, args: Arguments, data: Sequence[int], kernel: Sequence[int]) -> Sequence[int]:
        """Spatial sizes of the output."""
        rank = len(kernel)
        # A padding that was given as a word is not recorded; there is then no number here.
        strides, padding, dilation = (
            _of_rank(args, index, rank) for index in (self.stride, self.padding, self.dilation)
        )
        reach = [distance * (size - 1) for distance, size in zip(dilation, kernel, strict=True)]
        if self._is_transposed(args) and self.output_padding is not None:
            more = _of_rank(args, self.output_padding, rank)
            sizes = zip(data, strides, padding, reach, more, strict=True)
            return [(size - 1) * stride - 2 * pad + far + extra + 1 for size, stride, pad, far, extra in sizes]
        plain = zip(data, strides, padding, reach, strict=True)
        return [(size + 2 * pad - far - 1) // stride + 1 for size, stride, pad, far in plain]


def _gradients(args: Arguments) -> Work:
    """`convolution_backward`: as many operations as the convolution for each of the first two gradients."""
    gradient, data, weight = (args.tensor(index) for index in range(3))
    rank = len(weight.sizes) - 2
    spatial = (data if args.flag(7) else gradient).sizes[-rank:]
    for_data, for_weight, for_bias = _mask(args, 10)
    made = [like(tensor) for tensor, wanted in ((data, for_data), (weight, for_weight)) if wanted]
    if for_bias:
        made.append(Output(elements=gradient.sizes[-rank - 1], dtype=gradient.dtype))
    # The gradient of the one is made with the other.
    read = [tensor for tensor, needed in ((weight, for_data), (data, for_weight)) if needed]
    once = 2 * prod(data.sizes[: -rank - 1]) * prod(spatial) * weight.elements
    return work_of_tensors([gradient, *read], made, flops=once * (for_data + for_weight))


def _mask(args: Arguments, index: int) -> tuple[bool, bool, bool]:
    words = [word.strip() for word in args.text(index).strip("[]").split(",")]
    if len(words) != 3:
        raise UnknownWorkError(f"which gradients are made was recorded as {args.text(index)!r}")
    data, weight, bias = (word == "True" for word in words)
    return data, weight, bias


def _of_rank(args: Arguments, index: int, rank: int) -> list[int]:
    values = args.numbers(index)
    if len(values) not in {1, rank}:
        raise UnknownWorkError(f"argument {index} is neither one number nor {rank}")
    return values * rank if len(values) == 1 else values


_PLAIN = _Convolution(groups=6)
_GENERAL = _Convolution(groups=8, output_padding=7, transposed=6)
_TRANSPOSED = _Convolution(groups=6, output_padding=5, dilation=7)

CONVOLUTIONS: Mapping[str, Formula] = {
    "conv1d": _PLAIN.work,
    "conv2d": _PLAIN.work,
    "conv3d": _PLAIN.work,
    "conv_transpose1d": _TRANSPOSED.work,
    "conv_transpose2d": _TRANSPOSED.work,
    "conv_transpose3d": _TRANSPOSED.work,
    "convolution": _GENERAL.work,
    "_convolution": _GENERAL.work,
    "convolution_backward": _gradients,
}
"""By name of the op."""
