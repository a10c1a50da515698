"""Whole training steps, and the loop body that all share: zero_grad, autocast forward, loss, backward, update."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.networks.classifiers import MobileNetV3, ResNet18, ResNet50
from perfguard.benchmarks.networks.dlrm import DENSE_FEATURES, DLRM, TABLES
from perfguard.benchmarks.networks.focal_losses import focal_loss_named
from perfguard.benchmarks.networks.frozen_norms import fold_frozen_norms
from perfguard.benchmarks.networks.language import LSTMLanguageModel, MaskedLanguageModel
from perfguard.benchmarks.networks.retinanet import DetectionLoss, RetinaNet, Target
from perfguard.benchmarks.optimizers import DEFAULT_IMPLEMENTATION, optimizer_of
from perfguard.benchmarks.shared import (
    checked,
    dtype_of,
    images,
    in_memory_format,
    integers,
    norm_of,
    normal,
    redraw_images,
    redraw_integers,
    require_compiler,
    varied,
)
from perfguard.benchmarks.stack import distributed, prepare
from perfguard.errors import MeasurementError, UsageError

MODES = ("eager", "compile")  # How the model is run; `compile` is torch.compile with Inductor
CLASSES = 1000  # Classes of ImageNet
LABEL_SMOOTHING = 0.1
"""As in the MLPerf and torchvision recipes; also keeps the loss on a memorised batch away from zero."""
OBJECTS = 4  # Ground-truth boxes of each image
RETINANET_LEARNING_RATE = 1e-5
"""Within the reference's warm-up from 1e-7 to 1e-4.

At 1e-4 the fixed batch is memorised in 200 steps, and Adam's second moments of the vanishing gradients become
denormal numbers, which are slow.
"""
MASKED_SHARE = 0.15  # Share of the tokens that BERT predicts


def training_step(
    model: nn.Module,
    optimizer: Optimizer,
    loss_of: Callable[[nn.Module], Tensor],
    *,
    dtype: str,
    mode: str,
    vary: Callable[[], None] | None = None,
    clip_norm: float | None = None,
) -> Timed:
    """One training step as a callable that returns the loss before the update; checked by its gradients' norm, too.

    With `bf16` the forward and the loss run under CPU autocast; bf16 has the exponents of fp32, so there is
    no gradient scaler. In mode `compile` one step is taken, so that compilation belongs to the set-up.

    The model, fp32 in the memory format of the case, and its optimizer go through the stack. `loss_of` calls the model
    that it is given on a fixed batch, which `vary` draws anew; `clip_norm` is the largest total norm of the gradients,
    None does not clip.

    Raises:
        UsageError: Unknown dtype, mode or stack.
        MeasurementError: The stack does not take the model; or mode `compile` has no C++ compiler, or nothing of this
            model can be compiled.
    """
    model, updater = prepare(model, optimizer, dtype=dtype)
    model = distributed(model)
    autocast = dtype_of(dtype) is not torch.float32
    if mode not in MODES:
        raise UsageError(f"unknown mode {mode!r}; choose from {', '.join(MODES)}")
    trained = [p for group in updater.param_groups for p in group["params"]]
    norm_before_clipping: Tensor | None = None

    def step() -> Tensor:
        nonlocal norm_before_clipping
        updater.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = loss_of(model)
        loss.backward()
        if clip_norm is not None:
            norm_before_clipping = nn.utils.clip_grad_norm_(trained, clip_norm)
        updater.step()
        return loss.detach()

    def check() -> dict[str, float]:
        if norm_before_clipping is not None:
            return {"gradient_norm": float(norm_before_clipping)}
        return {"gradient_norm": norm_of(p.grad for p in trained)}

    if mode == "compile":
        _compile(model, step)
    timed = checked(step, check)
    return timed if vary is None else varied(timed, vary)


_COMPILED: set[type[nn.Module]] = set()  # In this process


def _compile(model: nn.Module, step: Timed) -> None:
    from torch._dynamo.utils import counters

    require_compiler()
    graphs_before = counters["stats"]["unique_graphs"]
    model.compile()
    step()
    # Where Dynamo gives up on the outermost frame it silently runs eagerly: that must not pass for compiled.
    # Another instance of a model that was compiled before runs its graphs.
    if counters["stats"]["unique_graphs"] > graphs_before:
        _COMPILED.add(type(model))
    if type(model) not in _COMPILED:
        raise MeasurementError(
            f"torch.compile of torch {torch.__version__} compiled nothing of {type(model).__name__}; "
            "choose the case with mode=eager"
        )


def resnet18(
    *, image_size: int, batch: int, dtype: str, memory_format: str, mode: str, optimizer: str = DEFAULT_IMPLEMENTATION
) -> Timed:
    """ResNet-18, trained as ResNet-50 is."""
    return _resnet(ResNet18, image_size, batch, memory_format, dtype=dtype, mode=mode, optimizer=optimizer)


def resnet50(
    *, image_size: int, batch: int, dtype: str, memory_format: str, mode: str, optimizer: str = DEFAULT_IMPLEMENTATION
) -> Timed:
    """ResNet-50 v1.5 with SGD, momentum 0.9 and weight decay 1e-4."""
    return _resnet(ResNet50, image_size, batch, memory_format, dtype=dtype, mode=mode, optimizer=optimizer)


def _resnet(
    network: type[ResNet18 | ResNet50],
    image_size: int,
    batch: int,
    memory_format: str,
    *,
    dtype: str,
    mode: str,
    optimizer: str,
) -> Timed:
    pixels, labels = _classified_images(image_size, batch, memory_format)
    model = in_memory_format(network(classes=CLASSES), memory_format)
    updater = optimizer_of(
        "sgd", model.parameters(), implementation=optimizer, lr=1e-4, momentum=0.9, weight_decay=1e-4
    )
    return _classification_step(model, updater, pixels, labels, dtype=dtype, mode=mode)


def mobilenetv3(
    *,
    variant: str,
    image_size: int,
    batch: int,
    dtype: str,
    memory_format: str,
    mode: str,
    optimizer: str = DEFAULT_IMPLEMENTATION,
) -> Timed:
    """MobileNetV3 with RMSprop as in the paper: momentum 0.9, weight decay 1e-5."""
    pixels, labels = _classified_images(image_size, batch, memory_format)
    model = in_memory_format(MobileNetV3(variant=variant, classes=CLASSES), memory_format)
    settings = {"lr": 1e-4, "alpha": 0.9, "eps": 0.0316, "momentum": 0.9, "weight_decay": 1e-5}
    updater = optimizer_of("rmsprop", model.parameters(), implementation=optimizer, **settings)
    return _classification_step(model, updater, pixels, labels, dtype=dtype, mode=mode)


def _classified_images(image_size: int, batch: int, memory_format: str) -> tuple[Tensor, Tensor]:
    pixels = (images(batch, image_size, memory_format=memory_format) - 0.5) / 0.25
    return pixels, integers(CLASSES, batch)


def _classification_step(
    model: nn.Module, updater: Optimizer, pixels: Tensor, labels: Tensor, *, dtype: str, mode: str
) -> Timed:
    def vary() -> None:
        redraw_images(pixels)
        redraw_integers(labels, CLASSES)

    return training_step(
        model, updater, lambda net: _class_loss(net, pixels, labels), dtype=dtype, mode=mode, vary=vary
    )


def _class_loss(model: nn.Module, pixels: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(pixels), labels, label_smoothing=LABEL_SMOOTHING)


def retinanet_resnext50(
    *,
    image_size: int,
    classes: int,
    batch: int,
    dtype: str,
    memory_format: str,
    mode: str,
    optimizer: str = DEFAULT_IMPLEMENTATION,
    norm: str = "module",
    frozen: str = "skipped",
    focal: str = "reference",
    anchors: str = "counted",
    loss: str = "autocast",
    heads: str = "levels",
) -> Timed:
    """RetinaNet with Adam; the reference takes 800x800 pixels and 264 classes.

    Left out are the data pipeline, the resize (images have their final size) and the rate's schedule. `norm=folded`
    folds the frozen batch norms into the convolutions, `frozen=computed` computes gradients of the frozen stages that
    nobody uses, `focal` is one of `FOCAL_LOSSES`, `anchors=all` computes it over all anchors and subtracts the ignored
    ones, `loss=fp32` keeps the whole loss in float32 under autocast, and `heads=packed` applies the heads once to all
    levels of the pyramid.
    """
    pixels = images(batch, image_size, memory_format=memory_format)
    targets = [_objects(image_size, classes) for _ in range(batch)]
    options = {"norm": norm, "focal": focal, "anchors": anchors, "loss": loss, "heads": heads}
    model = retinanet_of(classes=classes, memory_format=memory_format, **options)
    trained = [p for p in model.parameters() if p.requires_grad]
    if _is_on("frozen", frozen, off="skipped", on="computed"):
        model.requires_grad_()
    updater = optimizer_of("adam", trained, implementation=optimizer, lr=RETINANET_LEARNING_RATE)

    def vary() -> None:
        redraw_images(pixels)
        for target in targets:
            fresh = _objects(image_size, classes)
            target.boxes.copy_(fresh.boxes)
            target.labels.copy_(fresh.labels)

    return training_step(model, updater, lambda net: net(pixels, targets), dtype=dtype, mode=mode, vary=vary)


def retinanet_of(
    *,
    classes: int,
    memory_format: str,
    norm: str = "module",
    focal: str = "reference",
    anchors: str = "counted",
    loss: str = "autocast",
    heads: str = "levels",
) -> RetinaNet:
    """The detector with these options of `retinanet_resnext50`.

    Raises:
        UsageError: An option has no such value.
    """
    how = DetectionLoss(
        focal=focal_loss_named(focal),
        over_all_anchors=_is_on("anchors", anchors, off="counted", on="all"),
        in_float=_is_on("loss", loss, off="autocast", on="fp32"),
    )
    model = in_memory_format(RetinaNet(classes=classes, loss=how), memory_format)
    if _is_on("norm", norm, off="module", on="folded"):
        fold_frozen_norms(model.backbone.body)
    for head in (model.head.classification_head, model.head.regression_head):
        head.is_packed = _is_on("heads", heads, off="levels", on="packed")
    return model


def _is_on(name: str, value: str, *, off: str, on: str) -> bool:
    if value not in (off, on):
        raise UsageError(f"{name}={value} is unknown; choose from {off}, {on}")
    return value == on


def _objects(image_size: int, classes: int) -> Target:
    extent = (0.2 + 0.4 * torch.rand(OBJECTS, 2)) * image_size
    corner = torch.rand(OBJECTS, 2) * (image_size - extent)
    return Target(boxes=torch.cat([corner, corner + extent], dim=1), labels=integers(classes, OBJECTS, low=1))


def bert(
    *,
    layers: int,
    hidden: int,
    sequence: int,
    batch: int,
    dtype: str,
    mode: str,
    optimizer: str = DEFAULT_IMPLEMENTATION,
    vocabulary: int = 8192,
) -> Timed:
    """Masked-language-model training with AdamW.

    The vocabulary is smaller than BERT's 30,522, so that the encoder and not the embedding table dominates
    the small sizes.
    """
    tokens = integers(vocabulary, batch, sequence)
    masked = torch.randperm(batch * sequence)[: round(MASKED_SHARE * batch * sequence)]
    labels = integers(vocabulary, masked.numel())
    model = MaskedLanguageModel(hidden=hidden, layers=layers, sequence=sequence, vocabulary=vocabulary)
    updater = optimizer_of("adamw", model.parameters(), implementation=optimizer, lr=1e-4, weight_decay=0.01)

    def vary() -> None:
        redraw_integers(tokens, vocabulary)
        redraw_integers(labels, vocabulary)

    return training_step(
        model,
        updater,
        lambda net: functional.cross_entropy(net(tokens, masked), labels),
        dtype=dtype,
        mode=mode,
        vary=vary,
    )


def lstm_lm(
    *,
    layers: int,
    hidden: int,
    sequence: int,
    batch: int,
    dtype: str,
    mode: str,
    optimizer: str = DEFAULT_IMPLEMENTATION,
    vocabulary: int = 4096,
) -> Timed:
    """Next-token training with SGD and gradients clipped to norm 0.25; the last token predicts the first."""
    tokens = integers(vocabulary, sequence, batch)
    labels = tokens.roll(-1, dims=0).flatten()
    model = LSTMLanguageModel(hidden=hidden, layers=layers, vocabulary=vocabulary)
    updater = optimizer_of("sgd", model.parameters(), implementation=optimizer, lr=1.0)

    def vary() -> None:
        redraw_integers(tokens, vocabulary)
        labels.copy_(tokens.roll(-1, dims=0).flatten())

    return training_step(
        model,
        updater,
        lambda net: functional.cross_entropy(net(tokens), labels),
        dtype=dtype,
        mode=mode,
        vary=vary,
        clip_norm=0.25,
    )


def dlrm(*, batch: int, rows: int, dtype: str, mode: str, features: int = 64, lookups: int = 4) -> Timed:
    """Click prediction on 26 tables of `rows` rows with `lookups` rows a bag; SGD on sparse gradients."""
    dense = normal(batch, DENSE_FEATURES)
    indices = [integers(rows, batch * lookups) for _ in range(TABLES)]
    offsets = torch.arange(0, batch * lookups, lookups)
    clicks = integers(2, batch).float()
    model = DLRM(rows=rows, features=features)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def vary() -> None:
        dense.normal_()
        for index in indices:
            redraw_integers(index, rows)
        clicks.random_(0, 2)

    return training_step(
        model,
        optimizer,
        lambda net: functional.binary_cross_entropy_with_logits(net(dense, indices, offsets).float(), clicks),
        dtype=dtype,
        mode=mode,
        vary=vary,
    )
