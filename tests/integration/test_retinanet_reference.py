"""RetinaNet has the structure and the loss of the MLCommons training reference."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perfguard.benchmarks.networks import retinanet as anchor_boxes  # noqa: E402 - torch must be there first
from perfguard.benchmarks.networks.focal_losses import reference as sigmoid_focal_loss  # noqa: E402
from perfguard.benchmarks.networks.frozen_norms import FrozenBatchNorm2d  # noqa: E402
from perfguard.benchmarks.networks.retinanet import (  # noqa: E402
    REFERENCE_LOSS,
    AnchorGenerator,
    Detections,
    RetinaNet,
    Target,
    classification_loss,
    regression_loss,
)

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model() -> RetinaNet:
    torch.manual_seed(0)
    return RetinaNet(classes=264)


@pytest.mark.parametrize(
    ("size", "grids", "count"), [(800, (100, 50, 25, 13, 7), 120_087), (256, (32, 16, 8, 4, 2), 12_276)]
)
def test_number_of_anchors(size: int, grids: tuple[int, ...], count: int) -> None:
    anchors = AnchorGenerator()((size, size), [(grid, grid) for grid in grids])
    assert anchors.shape == (count, 4)


@pytest.mark.parametrize("size", [64, 96, 200, 256, 333, 800])
def test_levels_on_a_canvas_have_zeros_between_them(size: int) -> None:
    grids = [math.ceil(size / stride) for stride in (8, 16, 32, 64, 128)]
    regions = anchor_boxes.regions_on_canvas([torch.empty(1, 1, grid, grid) for grid in grids])
    canvas = torch.zeros(2 * max(grids) + 9, 2 * max(grids) + 9, dtype=torch.int64)
    for number, (rows, columns) in enumerate(regions, start=1):
        around = canvas[max(0, rows.start - 1) : rows.stop + 1, max(0, columns.start - 1) : columns.stop + 1]
        assert not around.any()
        canvas[rows, columns] = number
    assert [int((canvas == number).sum()) for number in range(1, 6)] == [grid**2 for grid in grids]


def test_first_cell_has_three_scales_of_three_ratios_around_the_origin() -> None:
    cell = AnchorGenerator()((256, 256), [(n, n) for n in (32, 16, 8, 4, 2)])[:9]
    width, height = (cell[:, 2] - cell[:, 0]).tolist(), (cell[:, 3] - cell[:, 1]).tolist()
    assert (cell[:, :2] == -cell[:, 2:]).all()
    # 32·2^⅓ and 32·2^⅔ are cut to 40 and 50; ratios 1 keep the size, 0.5 is wider than high.
    assert width[3:6] == height[3:6] == [32, 40, 50]
    assert (width[0], height[0]) == (46, 22)
    assert (width[6], height[6]) == (22, 46)


def test_detections_cover_all_anchors_of_an_image(model: RetinaNet) -> None:
    with torch.no_grad():
        detections = model.detect(torch.rand(1, 3, 256, 256))
    assert detections.logits.shape == (1, 12_276, 264)
    assert detections.offsets.shape == (1, 12_276, 4)
    assert detections.anchors.shape == (12_276, 4)


def test_initial_foreground_probability_is_one_percent(model: RetinaNet) -> None:
    head = model.head.classification_head
    assert head.cls_logits.bias.unique().tolist() == [pytest.approx(-math.log(99), rel=1e-6)]
    assert head.cls_logits.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert model.head.regression_head.bbox_reg.bias.abs().max().item() == 0


def test_stem_and_first_stage_are_frozen(model: RetinaNet) -> None:
    frozen = {name.split(".")[0] for name, p in model.backbone.body.named_parameters() if not p.requires_grad}
    trained = {name.split(".")[0] for name, p in model.backbone.body.named_parameters() if p.requires_grad}
    assert frozen == {"conv1", "layer1"}
    assert trained == {"layer2", "layer3", "layer4"}


def test_all_batch_norms_are_buffers_without_parameters(model: RetinaNet) -> None:
    norms = [module for module in model.modules() if isinstance(module, FrozenBatchNorm2d)]
    assert len(norms) == 53
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules())
    for norm in norms:
        assert {name for name, _ in norm.named_buffers()} == {"weight", "bias", "running_mean", "running_var"}
        assert list(norm.parameters()) == []


def test_frozen_batch_norm_equals_batch_norm_in_evaluation() -> None:
    frozen, reference = FrozenBatchNorm2d(5), torch.nn.BatchNorm2d(5).eval()
    for name, buffer in frozen.named_buffers():
        values = torch.rand(5) + 0.5
        buffer.copy_(values)
        getattr(reference, name).data.copy_(values)
    x = torch.randn(2, 5, 4, 4)
    torch.testing.assert_close(frozen(x), reference(x))


@pytest.mark.parametrize("gamma", [1.0, 1.5, 2.0, 3.0])
def test_focal_loss_and_gradient_equal_the_stable_formula(gamma: float) -> None:
    x = np.linspace(-12, 12, 97)
    alpha = 0.25
    for target in (0.0, 1.0):
        # With z = x for background and -x for objects: weight * softplus(z) * sigmoid(z)**gamma.
        z, weight, sign = (-x, alpha, -1) if target else (x, 1 - alpha, 1)
        softplus, sigmoid = np.logaddexp(0, z), 1 / (1 + np.exp(-z))
        loss = weight * softplus * sigmoid**gamma
        gradient = sign * weight * sigmoid**gamma * (sigmoid + gamma * (1 - sigmoid) * softplus)

        logits = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        result = sigmoid_focal_loss(logits, torch.full_like(logits, target), gamma=gamma)
        result.backward()
        assert result.item() == pytest.approx(loss.sum(), rel=1e-9)
        # Where the object's gradient vanishes, 1 - p_t cancels: absolute tolerance.
        np.testing.assert_allclose(logits.grad.numpy(), gradient, rtol=1e-6, atol=1e-12)


def test_matches_follow_the_thresholds() -> None:
    # The first anchor is the best of both objects, so that only the thresholds speak for the others.
    iou = torch.tensor([[0.95, 0.5, 0.49, 0.4, 0.39, 0.0], [0.9, 0.6, 0.1, 0.1, 0.1, 0.0]])
    assert anchor_boxes.match(iou).tolist() == [
        0,
        1,
        anchor_boxes.IGNORED,
        anchor_boxes.IGNORED,
        anchor_boxes.BACKGROUND,
        anchor_boxes.BACKGROUND,
    ]


def test_object_without_a_good_anchor_takes_its_best_ones_with_ties() -> None:
    iou = torch.tensor([[0.2, 0.2, 0.1, 0.0], [0.0, 0.0, 0.0, 0.7]])
    assert anchor_boxes.match(iou).tolist() == [0, 0, anchor_boxes.BACKGROUND, 1]


def test_low_quality_match_goes_to_the_object_that_the_anchor_overlaps_most() -> None:
    # Anchor 0 is the best of object 1, but overlaps object 0 more.
    iou = torch.tensor([[0.45, 0.9], [0.3, 0.1]])
    assert anchor_boxes.match(iou).tolist() == [0, 0]


def test_intersection_over_union() -> None:
    boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0]])
    others = torch.tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 3.0, 3.0], [2.0, 2.0, 4.0, 4.0]])
    torch.testing.assert_close(anchor_boxes.box_iou(boxes, others), torch.tensor([[1.0, 1 / 7, 0.0]]))


def test_boxes_can_be_decoded_from_their_offsets() -> None:
    torch.manual_seed(0)
    corners, anchor_corners = torch.rand(100, 2) * 200, torch.rand(100, 2) * 200
    boxes = torch.cat([corners, corners + 1 + torch.rand(100, 2) * 300], dim=1)
    anchors = torch.cat([anchor_corners, anchor_corners + 16 + torch.rand(100, 2) * 300], dim=1)
    offsets = anchor_boxes.encode(boxes, anchors)
    torch.testing.assert_close(anchor_boxes.decode(offsets, anchors), boxes, rtol=1e-4, atol=1e-2)
    shifts, log_ratios = offsets.split(2, dim=1)
    sizes = anchors[:, 2:] - anchors[:, :2]
    centres, half = anchors[:, :2] + (shifts + 0.5) * sizes, log_ratios.exp() * sizes / 2
    torch.testing.assert_close(torch.cat([centres - half, centres + half], dim=1), boxes, rtol=1e-4, atol=1e-2)


def test_box_coder_values() -> None:
    anchors = torch.tensor([[0.0, 0.0, 10.0, 20.0]])
    boxes = torch.tensor([[5.0, 5.0, 25.0, 25.0]])
    expected = torch.tensor([[1.0, 0.25, math.log(2.0), 0.0]])
    torch.testing.assert_close(anchor_boxes.encode(boxes, anchors), expected)


def test_losses_are_sums_over_anchors_per_foreground_and_means_over_images() -> None:
    torch.manual_seed(0)
    anchors = torch.tensor([[0.0, 0, 8, 8], [4.0, 4, 12, 12], [0.0, 0, 16, 16], [8.0, 0, 16, 8]])
    detections = Detections(logits=torch.randn(2, 4, 3), offsets=torch.randn(2, 4, 4), anchors=anchors)
    targets = [
        Target(boxes=torch.tensor([[0.0, 0, 9, 9], [0.0, 0, 15, 15]]), labels=torch.tensor([2, 1])),
        Target(boxes=torch.tensor([[7.0, 0, 15, 9]]), labels=torch.tensor([0])),
    ]
    matches = [
        torch.tensor([0, anchor_boxes.IGNORED, 1, anchor_boxes.BACKGROUND]),
        torch.full((4,), anchor_boxes.BACKGROUND),
    ]
    classification, regression = 0.0, 0.0
    for image, (target, matched) in enumerate(zip(targets, matches, strict=True)):
        foreground = max(1, sum(int(m) >= 0 for m in matched))
        for anchor, match in enumerate(matched.tolist()):
            if match == anchor_boxes.IGNORED:
                continue
            one_hot = torch.zeros(3)
            if match >= 0:
                one_hot[target.labels[match]] = 1
                wanted = anchor_boxes.encode(target.boxes[match : match + 1], anchors[anchor : anchor + 1])[0]
                regression += float((detections.offsets[image, anchor] - wanted).abs().sum()) / foreground / 2
            loss = sigmoid_focal_loss(detections.logits[image, anchor], one_hot)
            classification += float(loss) / foreground / 2
    assert classification_loss(detections, targets, matches, REFERENCE_LOSS).item() == pytest.approx(
        classification, rel=1e-5
    )
    assert regression_loss(detections, targets, matches).item() == pytest.approx(regression, rel=1e-5)
