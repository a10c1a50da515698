"""Every optimization of a training step computes what the reference computes."""

from __future__ import annotations

import functools
import math

import pytest
import torch

from perfguard.benchmarks import ops, steps
from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.benchmarks.networks.focal_losses import FOCAL_LOSSES, focal_loss_named
from perfguard.benchmarks.networks.frozen_norms import FoldedConv2d, FrozenBatchNorm2d, fold_frozen_norms
from perfguard.benchmarks.networks.retinanet import Backbone
from perfguard.benchmarks.optimizers import ALGORITHMS, IMPLEMENTATIONS, optimizer_of
from perfguard.errors import MeasurementError, UsageError
from perfguard.gate.rules.rulings import TOLERANCES
from perfguard.kernels import build
from perfguard.records.ranks import RANK_OPTIONS
from tests.cpu_features import DTYPES_OF_STEPS

pytestmark = [  # what torch.compile says of itself
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]

RETINANET = {"image_size": 96, "classes": 7, "batch": 1, "mode": "eager"}
"""On 64x64 pixels oneDNN's bf16 convolutions give other gradients each time, NaN among them (torch 2.13, AMX)."""
REFERENCE = {"dtype": "fp32", "memory_format": "contiguous"}
TOGGLES = [
    (name, value)
    for spec in BENCHMARKS
    if spec.name == "step.retinanet_resnext50"
    for name, values in spec.options
    if name not in RANK_OPTIONS
    for value in values[1:]
]
STEPS = 3


def trained(**parameters):
    """Loss of each step, and the gradients' norm of the first."""
    torch.manual_seed(3)
    step = steps.retinanet_resnext50(**{**RETINANET, **REFERENCE, **parameters})
    losses = [float(step())]
    norm = step.check()["gradient_norm"]
    losses += [float(step()) for _ in range(STEPS - 1)]
    return losses, norm


@pytest.fixture(scope="module")
def reference():
    return functools.cache(lambda dtype: trained(dtype=dtype))


@pytest.mark.parametrize(("name", "value"), [*TOGGLES, ("memory_format", "channels_last")])
@pytest.mark.parametrize("dtype", DTYPES_OF_STEPS)
def test_a_toggle_changes_no_loss_and_no_gradient_beyond_rounding(reference, dtype, name, value):
    losses, norm = trained(dtype=dtype, **{name: value})
    expected, expected_norm = reference(dtype)
    assert losses == pytest.approx(expected, rel=TOLERANCES[dtype].result)
    assert norm == pytest.approx(expected_norm, rel=TOLERANCES[dtype].gradient)


def test_all_toggles_together_train_like_the_reference(reference):
    chosen = {
        "optimizer": "fused",
        "norm": "folded",
        "focal": "fused",
        "anchors": "all",
        "loss": "fp32",
        "heads": "packed",
    }
    losses, norm = trained(dtype="bf16", memory_format="channels_last", **chosen)
    expected, expected_norm = reference("fp32")
    assert losses == pytest.approx(expected, rel=TOLERANCES["bf16"].result)
    assert norm == pytest.approx(expected_norm, rel=TOLERANCES["bf16"].gradient)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_implementations_of_an_optimizer_take_the_same_steps(algorithm, implementation):
    if (algorithm, implementation) == ("rmsprop", "fused"):
        with pytest.raises(UsageError, match="no fused RMSprop"):
            optimizer_of(algorithm, [torch.nn.Parameter(torch.ones(3))], implementation=implementation)
        return

    def weights(chosen):
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, 50))
        updater = optimizer_of(algorithm, [parameter], implementation=chosen, lr=0.1)
        for _ in range(STEPS):
            parameter.grad = parameter.detach() ** 2 + 0.1
            updater.step()
        return parameter.detach()

    torch.testing.assert_close(weights(implementation), weights("for-loop"))


def test_folding_takes_away_every_norm_and_keeps_the_weights():
    torch.manual_seed(0)
    plain, folded = Backbone(), Backbone()
    for module in plain.modules():
        if isinstance(module, FrozenBatchNorm2d):
            for buffer in (module.weight, module.bias, module.running_mean, module.running_var):
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    folded.load_state_dict(plain.state_dict())
    fold_frozen_norms(folded.body)
    assert not [module for module in folded.modules() if isinstance(module, FrozenBatchNorm2d)]
    trainable = {name for name, parameter in folded.named_parameters() if parameter.requires_grad}
    assert trainable == {name for name, parameter in plain.named_parameters() if parameter.requires_grad}
    pixels = torch.randn(1, 3, 64, 64)
    for one, other in zip(folded(pixels), plain(pixels), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_a_folded_weight_is_multiplied_in_every_step_only_where_it_is_trained():
    norm = FrozenBatchNorm2d(4)
    norm.weight.fill_(3.0)
    trainable, frozen = (torch.nn.Conv2d(2, 4, 1, bias=False) for _ in range(2))
    frozen.requires_grad_(requires_grad=False)
    expected = frozen.weight * 3 / (1 + norm.eps) ** 0.5
    torch.testing.assert_close(FoldedConv2d(frozen, norm).weight.data, expected)
    assert FoldedConv2d(trainable, norm).weight is trainable.weight


@pytest.mark.parametrize("variant", FOCAL_LOSSES)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_variants_of_the_focal_loss_agree(variant, dtype):
    def computed(chosen):
        torch.manual_seed(0)
        call = ops.focal_loss(anchors=900, classes=7, dtype=dtype, phase="forward+backward", variant=chosen)
        return call().float(), call.check()["gradient_norm"]

    gradient, norm = computed(variant)
    expected, expected_norm = computed("reference")
    narrow = dtype == "bf16"
    torch.testing.assert_close(gradient, expected, rtol=0.1 if narrow else 1e-4, atol=0.03 if narrow else 1e-5)
    assert norm == pytest.approx(expected_norm, rel=0.02 if narrow else 1e-5)


def test_the_published_formulas_fail_for_logits_that_the_others_take():
    def computed(variant, logit):
        logits = torch.tensor([logit], requires_grad=True)
        loss = FOCAL_LOSSES[variant](logits, torch.zeros(1))
        return loss.item(), torch.autograd.grad(loss, logits)[0].item()

    for variant in ("reference", "fused"):
        assert computed(variant, 90.0) == pytest.approx((0.75 * 90, 0.75))
    assert not any(map(math.isfinite, computed("implicit", 90.0)))
    assert not math.isfinite(computed("explicit", 90.0)[0])
    assert computed("implicit", 20.0) == pytest.approx(computed("reference", 20.0))
    assert computed("explicit", 40.0)[1] != pytest.approx(0.75, rel=0.1)


@pytest.mark.parametrize("variant", ["fused", "ipex_style", "compiled"])
def test_without_a_compiler_a_variant_is_refused_and_not_replaced(variant, monkeypatch, tmp_path):
    build.load.cache_clear()
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.raises(MeasurementError, match="C\\+\\+ compiler"):
        focal_loss_named(variant)


@pytest.mark.parametrize(
    "wrong",
    [{"norm": "fold"}, {"frozen": "yes"}, {"anchors": "some"}, {"loss": "bf16"}, {"heads": "one"}, {"focal": "fast"}],
)
def test_a_toggle_that_does_not_exist_is_an_error(wrong):
    with pytest.raises(UsageError, match="choose from"):
        trained(**wrong)
