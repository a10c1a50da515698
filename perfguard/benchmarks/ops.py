"""Single operations of training: products, convolutions, norms, losses, recurrent layers, copies, optimizer updates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.networks.focal_losses import focal_loss_named
from perfguard.benchmarks.optimizers import optimizer_of
from perfguard.benchmarks.shared import (
    Check,
    checked,
    dtype_of,
    in_memory_format,
    integers,
    leaf,
    move_values,
    norm_of,
    phased,
    redraw_integers,
    varied,
)
from perfguard.benchmarks.stack import prepare_module
from perfguard.records.spec import Phase

_LEARNING_RATE = 1e-6  # So small that a million steps along a fixed gradient leave the weights of order one


def linear(*, m: int, dtype: str, phase: str, in_features: int = 768, out_features: int = 3072) -> Timed:
    """A linear layer on (m, in_features); the default widths are BERT-base's feed-forward layer."""
    layer = prepare_module(nn.Linear(in_features, out_features), dtype=dtype)
    tokens = leaf(m, in_features, dtype=dtype)
    return phased(lambda: layer(tokens), [tokens, *layer.parameters()], phase=phase)


def matmul(*, size: int, dtype: str, phase: str) -> Timed:
    """The product of two square matrices of `size` rows."""
    left, right = leaf(size, size, dtype=dtype), leaf(size, size, dtype=dtype)
    return phased(lambda: torch.matmul(left, right), [left, right], phase=phase)


def bmm(*, batch: int, dtype: str, phase: str, size: int = 128, inner: int = 64) -> Timed:
    """Products of (size, inner) and (inner, size) matrices: the attention scores of `batch` heads."""
    left, right = leaf(batch, size, inner, dtype=dtype), leaf(batch, inner, size, dtype=dtype)
    return phased(lambda: torch.bmm(left, right), [left, right], phase=phase)


def sdpa(
    *, sequence: int, causal: bool, dtype: str, phase: str, batch: int = 2, heads: int = 12, head_dim: int = 64
) -> Timed:
    """Attention over (batch, heads, sequence, head_dim) without dropout; BERT-base's heads by default."""
    query, key, value = (leaf(batch, heads, sequence, head_dim, dtype=dtype) for _ in range(3))
    return phased(
        lambda: functional.scaled_dot_product_attention(query, key, value, is_causal=causal),
        [query, key, value],
        phase=phase,
    )


def conv1x1(*, channels: int, size: int, dtype: str, memory_format: str, phase: str, batch: int = 4) -> Timed:
    """Pointwise convolution: the expansion of a bottleneck, channels to 4·channels."""
    return _convolution(nn.Conv2d(channels, 4 * channels, 1, bias=False), (batch, size), dtype, memory_format, phase)


def conv3x3(*, channels: int, size: int, dtype: str, memory_format: str, phase: str, batch: int = 4) -> Timed:
    """Dense 3x3 convolution, channels to channels."""
    layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    return _convolution(layer, (batch, size), dtype, memory_format, phase)


def conv_grouped(
    *, channels: int, size: int, dtype: str, memory_format: str, phase: str, batch: int = 4, groups: int = 32
) -> Timed:
    """Grouped 3x3 convolution of ResNeXt 32x4d (arXiv 1611.05431): 128 channels are its first stage."""
    layer = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=False)
    return _convolution(layer, (batch, size), dtype, memory_format, phase)


def conv_depthwise(
    *, channels: int, size: int, dtype: str, memory_format: str, phase: str, batch: int = 4, kernel: int = 3
) -> Timed:
    """Depthwise convolution of MobileNet: one filter for each channel."""
    layer = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)
    return _convolution(layer, (batch, size), dtype, memory_format, phase)


def _convolution(layer: nn.Conv2d, shape: tuple[int, int], dtype: str, memory_format: str, phase: str) -> Timed:
    batch, size = shape
    features = leaf(batch, layer.in_channels, size, size, dtype=dtype, memory_format=memory_format)
    module = prepare_module(in_memory_format(layer, memory_format), dtype=dtype)
    return phased(lambda: module(features), [features, *module.parameters()], phase=phase)


def batch_norm(*, channels: int, size: int, dtype: str, memory_format: str, phase: str, batch: int = 8) -> Timed:
    """Batch statistics over (batch, channels, size, size); the output does not depend on running ones."""
    features = leaf(batch, channels, size, size, dtype=dtype, memory_format=memory_format)
    layer = prepare_module(nn.BatchNorm2d(channels), dtype=dtype)
    return phased(lambda: layer(features), [features, *layer.parameters()], phase=phase)


def layer_norm(*, tokens: int, dtype: str, phase: str, features: int = 768) -> Timed:
    """Layer norm over the last axis of (tokens, features)."""
    hidden = leaf(tokens, features, dtype=dtype)
    layer = prepare_module(nn.LayerNorm(features), dtype=dtype)
    return phased(lambda: layer(hidden), [hidden, *layer.parameters()], phase=phase)


def softmax(*, sequence: int, dtype: str, phase: str, rows: int = 4096) -> Timed:
    """Softmax over the last axis of (rows, sequence): attention weights."""
    scores = leaf(rows, sequence, dtype=dtype)
    return phased(lambda: torch.softmax(scores, dim=-1), [scores], phase=phase)


def gelu(*, tokens: int, dtype: str, phase: str, features: int = 3072) -> Timed:
    """Exact (erf) GELU on (tokens, features); the default width is BERT-base's feed-forward layer."""
    hidden = leaf(tokens, features, dtype=dtype)
    return phased(lambda: functional.gelu(hidden), [hidden], phase=phase)


def embedding_bag(*, bags: int, rows: int, dtype: str, phase: str, lookups: int = 20, features: int = 64) -> Timed:
    """Sums of `lookups` rows for each bag, with a sparse gradient as DLRM trains (arXiv 1906.00091)."""
    layer = nn.EmbeddingBag(rows, features, mode="sum", sparse=True)
    module = prepare_module(layer, dtype=dtype)
    indices = integers(rows, bags * lookups)
    offsets = torch.arange(0, bags * lookups, lookups)
    timed = phased(lambda: module(indices, offsets), module.parameters(), phase=phase)

    def with_indices(timed: Timed) -> Timed:
        return varied(timed, lambda: redraw_integers(indices, rows))

    if phase == Phase.FORWARD.value:
        return with_indices(timed)

    def forward_backward() -> Tensor:
        # Sparse and not coalesced; the values are what can be checked, and taking them copies nothing.
        gradient: Tensor = timed()  # type: ignore[assignment]
        return gradient._values()  # noqa: SLF001

    return with_indices(checked(forward_backward, timed.check))  # type: ignore[attr-defined]


def cross_entropy(*, rows: int, classes: int, dtype: str, phase: str) -> Timed:
    """Mean cross-entropy of (rows, classes) logits against class labels."""
    logits, labels = leaf(rows, classes, dtype=dtype), integers(classes, rows)
    return phased(lambda: functional.cross_entropy(logits, labels), [logits], phase=phase)


def focal_loss(
    *, anchors: int, classes: int, dtype: str, phase: str, variant: str = "reference", positives: float = 0.002
) -> Timed:
    """RetinaNet's sigmoid focal loss on (anchors, classes) logits; `positives` is the share of foreground.

    12,276 anchors are a 256x256 image; 91 classes are COCO, 264 the OpenImages subset of MLPerf.
    """
    loss_of = focal_loss_named(variant)
    logits = leaf(anchors, classes, dtype=dtype)
    targets = torch.zeros(anchors, classes, dtype=dtype_of(dtype))
    foreground = integers(anchors, max(1, round(anchors * positives)))
    targets[foreground, integers(classes, foreground.numel())] = 1.0
    return phased(lambda: loss_of(logits, targets), [logits], phase=phase)


def lstm(*, hidden: int, sequence: int, dtype: str, phase: str, batch: int = 16, layers: int = 1) -> Timed:
    """An LSTM over (sequence, batch, hidden) from a zero state."""
    layer = prepare_module(nn.LSTM(hidden, hidden, num_layers=layers), dtype=dtype)
    tokens = leaf(sequence, batch, hidden, dtype=dtype)
    return phased(lambda: layer(tokens)[0], [tokens, *layer.parameters()], phase=phase)


def cat(*, rows: int, dtype: str, phase: str, features: int = 256, tensors: int = 4) -> Timed:
    """Concatenation of (rows, features) tensors along the last axis."""
    parts = [leaf(rows, features, dtype=dtype) for _ in range(tensors)]
    return phased(lambda: torch.cat(parts, dim=-1), parts, phase=phase)


def copy(*, rows: int, dtype: str, phase: str, features: int = 1024) -> Timed:
    """A copy of a (rows, features) tensor: memory bandwidth."""
    values = leaf(rows, features, dtype=dtype)
    return phased(values.clone, [values], phase=phase)


def transpose(*, rows: int, dtype: str, phase: str, features: int = 1024) -> Timed:
    """A (rows, features) tensor rewritten column by column: a strided copy."""
    values = leaf(rows, features, dtype=dtype)
    return phased(lambda: values.t().contiguous(), [values], phase=phase)


def optimizer(*, layers: int, algorithm: str, dtype: str, mode: str, hidden: int = 256) -> Timed:
    """One update of all parameters of `layers` encoder layers (12·hidden² each, in 12 tensors).

    Raises:
        UsageError: Unknown algorithm or mode.
    """
    parameters = _parameters_with_gradients(layers, hidden, dtype_of(dtype))
    momentum = {"momentum": 0.9} if algorithm == "sgd" else {}
    update = optimizer_of(algorithm, parameters, implementation=mode, lr=_LEARNING_RATE, **momentum)
    watched = parameters[0].detach().view(-1)[:1]

    def step() -> Tensor:
        update.step()
        return watched.clone()

    def check(watched: Sequence[Tensor] = parameters) -> dict[str, float]:
        # Moments, not weights: weights of order one hide an update of 1e-6.
        states = [item for parameter in watched for item in update.state[parameter].items()]
        return {"state_norm": norm_of(v for name, v in states if isinstance(v, Tensor) and name != "step")}

    def vary() -> Check:
        chosen = parameters[int(torch.randint(len(parameters), ()))]
        move_values([chosen.grad] if chosen.grad is not None else [])
        return lambda: check([chosen])

    return varied(checked(step, check), vary)


def _parameters_with_gradients(layers: int, hidden: int, dtype: torch.dtype) -> list[nn.Parameter]:
    square, wide, tall = (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden)
    matrices = [square, square, square, square, wide, tall]
    shapes = [shape for _ in range(layers) for matrix in matrices for shape in (matrix, matrix[:1])]
    parameters = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
    for parameter in parameters:
        # Magnitudes in [0.5, 1.5): no moment is ever near zero, where denormal numbers are slow.
        magnitude = torch.rand(parameter.shape) + 0.5
        parameter.grad = (magnitude * torch.randn(parameter.shape).sign()).to(dtype)
    return parameters
