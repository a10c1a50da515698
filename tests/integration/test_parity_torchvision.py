"""The models equal torchvision's: same parameter names, same outputs, same loss and gradients.

Opt-in: runs where torchvision can be imported; perfguard does not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision", reason="parity with torchvision is checked only where it is installed")

from torchvision.models import mobilenet_v3_large, mobilenet_v3_small, resnet18, resnet50, resnext50_32x4d  # noqa: E402
from torchvision.models.detection import RetinaNet as ReferenceRetinaNet  # noqa: E402
from torchvision.models.detection.anchor_utils import AnchorGenerator  # noqa: E402
from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor  # noqa: E402
from torchvision.ops import FrozenBatchNorm2d, sigmoid_focal_loss  # noqa: E402
from torchvision.ops.feature_pyramid_network import LastLevelP6P7  # noqa: E402

from perfguard.benchmarks.networks import focal_losses  # noqa: E402
from perfguard.benchmarks.networks.classifiers import MobileNetV3, ResNet18, ResNet50  # noqa: E402
from perfguard.benchmarks.networks.retinanet import RetinaNet, Target  # noqa: E402

if TYPE_CHECKING:
    from torch import nn

pytestmark = pytest.mark.torch

SIZE = 128
CLASSES = 17


def load_same_weights(model: nn.Module, reference: nn.Module) -> None:
    """Give both models the reference's weights, and batch norm statistics that do something."""
    torch.manual_seed(0)
    for name, buffer in reference.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    model.load_state_dict(reference.state_dict(), strict=True)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "large", "small"])
def test_classifier_equals_torchvision(name: str, training: bool) -> None:
    torch.manual_seed(0)
    pairs = {
        "resnet18": (ResNet18, resnet18),
        "resnet50": (ResNet50, resnet50),
        "large": (lambda: MobileNetV3(variant="large", dropout=0.0), lambda: mobilenet_v3_large(dropout=0.0)),
        "small": (lambda: MobileNetV3(variant="small", dropout=0.0), lambda: mobilenet_v3_small(dropout=0.0)),
    }
    build, build_reference = pairs[name]
    model, reference = build(), build_reference()
    load_same_weights(model, reference)
    model.train(training)
    reference.train(training)
    images = torch.randn(4, 3, 96, 96)
    output, expected = model(images), reference(images)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
    output.square().mean().backward()
    expected.square().mean().backward()
    first, first_expected = next(model.parameters()).grad, next(reference.parameters()).grad
    torch.testing.assert_close(first, first_expected, rtol=1e-3, atol=1e-4)


def reference_retinanet() -> ReferenceRetinaNet:
    body = resnext50_32x4d(norm_layer=FrozenBatchNorm2d)
    backbone = _resnet_fpn_extractor(
        body, trainable_layers=3, returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256)
    )
    sizes = tuple((x, int(x * 2 ** (1 / 3)), int(x * 2 ** (2 / 3))) for x in (32, 64, 128, 256, 512))
    anchors = AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))
    return ReferenceRetinaNet(backbone, CLASSES, min_size=SIZE, max_size=SIZE, anchor_generator=anchors)


def test_retinanet_equals_torchvision_in_outputs_loss_and_gradients() -> None:
    torch.manual_seed(0)
    model, reference = RetinaNet(classes=CLASSES), reference_retinanet()
    load_same_weights(model, reference)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {name for name, parameter in reference.named_parameters() if parameter.requires_grad}

    images = torch.rand(2, 3, SIZE, SIZE)
    boxes = [
        torch.tensor([[10.0, 12, 60, 70], [50.0, 40, 120, 118], [3.0, 90, 20, 100]]),
        torch.tensor([[0.0, 0, 127, 127]]),
    ]
    labels = [torch.tensor([3, 16, 1]), torch.tensor([7])]
    heads = {}
    reference.head.register_forward_hook(lambda _module, _inputs, output: heads.update(output))
    losses = reference(
        list(images), [{"boxes": box, "labels": label} for box, label in zip(boxes, labels, strict=True)]
    )
    targets = [Target(boxes=box, labels=label) for box, label in zip(boxes, labels, strict=True)]

    detections = model.detect(images)
    torch.testing.assert_close(detections.logits, heads["cls_logits"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(detections.offsets, heads["bbox_regression"], rtol=1e-4, atol=1e-4)

    loss, expected = model(images, targets), sum(losses.values())
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
    loss.backward()
    expected.backward()
    for (name, parameter), (_, other) in zip(model.named_parameters(), reference.named_parameters(), strict=True):
        if parameter.requires_grad:
            torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-3, atol=1e-4, msg=name)


def test_focal_loss_equals_torchvision() -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(50, 9), torch.randint(0, 2, (50, 9)).float()
    expected = sigmoid_focal_loss(logits, targets, reduction="sum")
    torch.testing.assert_close(focal_losses.reference(logits, targets), expected, rtol=0, atol=0)
