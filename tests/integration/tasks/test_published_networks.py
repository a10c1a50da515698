"""Networks of MLPerf Mobile: as many parameters as the published checkpoints hold, and the shapes of their outputs.

The numbers are those of the checkpoints' own tables of variables, without the moving statistics of batch norms.
Source: mlcommons/mobile_open, `vision/*/checkpoints` and `language/bert`, `*.index`.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from perfguard.tasks.child.models import new_module  # noqa: E402
from perfguard.tasks.child.networks.layers import SameConvolution, same_padding  # noqa: E402

IMAGES = {
    "mobilenet_edgetpu": (224, 4_092_713, [(1, 1001)]),
    "ssd_mobiledet": (320, 4_146_543, [(1, 2034, 4), (1, 2034, 91)]),
    "deeplab_mobilenetv2": (512, 2_273_936, [(1, 32, 128, 128)]),
}


def parameters(module):
    return sum(each.numel() for each in module.parameters())


@pytest.mark.parametrize(("name", "about"), IMAGES.items(), ids=IMAGES)
def test_networks_for_images(name, about):
    side, count, shapes = about
    torch.manual_seed(0)
    module = new_module(name).eval()
    with torch.inference_mode():
        outputs = module(torch.rand(1, 3, side, side))
    assert parameters(module) == count
    assert [tuple(each.shape) for each in (outputs if isinstance(outputs, tuple) else (outputs,))] == shapes


def test_mobilebert_reads_words_where_the_mask_lets_it():
    torch.manual_seed(0)
    module = new_module("mobilebert").eval()
    tokens = torch.ones(2, 3, 64, dtype=torch.long)
    tokens[:, 0] = torch.randint(1000, 30522, (64,))
    tokens[:, 1, 40:] = 0
    tokens[1, 0, 50:] = 7  # behind the mask, and out of reach of its neighbours
    with torch.inference_mode():
        first, second = module(tokens)
    assert parameters(module) == 24_582_914
    assert first.shape == (64, 2)
    assert torch.allclose(first[:40], second[:40], atol=1e-5)
    assert not torch.allclose(first[50:], second[50:], atol=1e-5)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "sides"),
    [(224, 3, 2, (0, 1)), (225, 3, 2, (1, 1)), (20, 5, 2, (1, 2)), (20, 5, 1, (2, 2)), (7, 1, 1, (0, 0))],
)
def test_padding_is_tensorflows(size, kernel, stride, sides):
    assert same_padding(size, kernel, stride) == sides


def test_a_convolution_covers_every_pixel_and_keeps_the_size():
    layer = SameConvolution(1, 1, 3, stride=2, bias=False)
    torch.nn.init.ones_(layer.weight)
    found = layer(torch.ones(1, 1, 4, 4))
    assert found.tolist() == [[[[9.0, 6.0], [6.0, 4.0]]]]  # nothing is added before, one row and column after
    dilated = SameConvolution(1, 1, 3, dilation=2, bias=False)
    assert dilated(torch.ones(1, 1, 9, 9)).shape == (1, 1, 9, 9)
