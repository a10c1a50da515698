"""What the rules about optimizers, frozen layers and frozen norms say."""

from __future__ import annotations

import pytest

from perfguard.profile.advice import frozen_backward, frozen_norm, unfused_optimizer
from perfguard.records.steps.findings import Severity
from tests.finding_evidence import (
    BACKWARD,
    OPTIMIZER,
    evidence,
    layer,
    op,
    primitive,
    program,
    python,
)

IMAGE = "[2,64,56,56]"


def only(module, *items, **more):
    (finding,) = module.RULE.find(evidence(*items, **more))
    return finding


def nothing(module, *items, **more):
    return module.RULE.find(evidence(*items, **more)) == []


def update(names, ms=1.0, calls=62, module="Adam"):
    place = {"module": module, "phase": OPTIMIZER}
    return [op(name, ms, calls=calls, shapes="[64,64]", **place) for name in names.split()]


def test_a_loop_is_told_with_its_calls_and_its_python():
    finding = only(
        unfused_optimizer,
        *update("mul_ addcmul_ addcdiv_"),
        *update("empty detach zero_", ms=0.5),
        python(2, module="Adam", phase=OPTIMIZER),
    )
    assert finding.title == "Adam updates one tensor at a time"
    assert finding.seen == (
        "186 calls a step of addcdiv_/addcmul_/mul_",
        "they take 6.500 ms a step, 2.000 ms in Python",
    )
    assert finding.where == "in Adam"
    assert finding.severity is Severity.NOTABLE
    assert "torch.optim.Adam(…, fused=True)" in finding.trial.change


def test_foreach_on_cpus_is_no_fusion():
    assert (
        only(unfused_optimizer, *update("_foreach_mul_ _foreach_add_", calls=1)).title == "Adam updates by foreach ops"
    )


@pytest.mark.parametrize(
    "calls",
    [
        update("_fused_adamw_", module="AdamW"),
        update("mul_ addcdiv_", module="Lion"),
        update("add_ _indices _values", module="SGD"),
        update("zero_", module="SGD"),
        update("mul_ add_", ms=0.2, module="SGD"),
    ],
    ids=["fused", "without a fused kernel", "sparse", "zero_grad alone", "next to nothing"],
)
def test_what_cannot_or_need_not_be_fused_is_left_alone(calls):
    assert nothing(unfused_optimizer, *calls)


def test_each_optimizer_has_a_finding_of_its_own():
    found = unfused_optimizer.RULE.find(evidence(*update("add_", ms=3, module="SGD"), *update("mul_", ms=3)))
    assert [finding.where for finding in found] == ["in Adam", "in SGD"]


def backward(module, ms=5.0):
    return op("convolution_backward", ms, module=module, phase=BACKWARD, shapes=IMAGE)


def weights(module, ms=2.0):
    return primitive("convolution", "jit:avx512_core", ms, direction="BWD_W", module=module, phase=BACKWARD)


def test_forgotten_layers_before_the_first_one_that_learns_compute_for_nobody():
    finding = only(
        frozen_backward,
        backward("Net.stem"),
        backward("Net.layer1", 3),
        backward("Net.layer2"),
        program=program(layer("Net.stem", forgotten=True), layer("Net.layer1", forgotten=True), layer("Net.layer2")),
    )
    assert finding.title == "backward runs through layers that nobody learns from"
    assert finding.seen == (
        "backward of 2 layers before the first one that learns: Net.stem and Net.layer1",
        "parameters of Net.stem and Net.layer1 require gradients, but no optimizer holds them",
    )
    assert finding.share == pytest.approx(0.08)
    assert finding.severity is Severity.NOTABLE


def test_frozen_layers_that_only_pass_gradients_on_are_a_hint():
    finding = only(
        frozen_backward, backward("Net.stem", 20), program=program(layer("Net.stem", learns=False), layer("Net.head"))
    )
    assert finding.severity is Severity.HINT


def test_frozen_layers_whose_weight_gradients_are_computed_are_more_than_a_hint():
    finding = only(
        frozen_backward,
        backward("Net.stem", 20),
        weights("Net.stem", 8),
        program=program(layer("Net.stem", learns=False), layer("Net.head")),
    )
    assert finding.severity is Severity.NOTABLE


def test_frozen_layers_behind_one_that_learns_must_pass_gradients_on():
    modules = (layer("Net.stem"), layer("Net.body", learns=False))
    assert nothing(frozen_backward, backward("Net.stem"), backward("Net.body"), program=program(*modules))


def test_weight_gradients_of_frozen_layers_behind_one_that_learns_are_wasted():
    finding = only(
        frozen_backward,
        backward("Net.body"),
        weights("Net.body"),
        program=program(layer("Net.stem"), layer("Net.body", learns=False)),
    )
    assert finding.title == "gradients of weights are computed for nobody"
    assert "oneDNN computes them in 2.000 ms a step" in finding.seen


def test_forgotten_norms_make_frozen_layers_compute():
    finding = only(
        frozen_backward,
        backward("Net.bn1", 1),
        backward("Net.layer1", 6),
        backward("Net.head", 1),
        program=program(
            layer("Net.conv1", learns=False),
            layer("Net.bn1", "BatchNorm2d", parameters=2),
            layer("Net.layer1", learns=False),
            layer("Net.head", "Linear"),
        ),
    )
    assert finding.seen == ("backward of 1 frozen layer only serves 1 norm layer before: Net.bn1",)
    assert finding.severity is Severity.HINT


def test_training_norms_alone_is_meant():
    modules = (layer("Net.bn1", "BatchNorm2d"), layer("Net.layer1", learns=False), layer("Net.bn2", "LayerNorm"))
    assert nothing(frozen_backward, backward("Net.layer1", 9), program=program(*modules))


def test_a_frozen_model_passes_gradients_on_to_another_one():
    modules = (layer("Critic.conv", learns=False), layer("Generator.conv"))
    assert nothing(frozen_backward, backward("Critic.conv", 30), program=program(*modules))


def test_without_an_optimizer_what_requires_gradients_learns():
    modules = (layer("Net.stem", forgotten=True), layer("Net.head", forgotten=True))
    assert nothing(frozen_backward, backward("Net.stem", 30), program=program(*modules, optimizers=()))


def test_layers_without_backward_or_weights_are_left_alone():
    modules = (layer("Net.stem", learns=False), layer("Net.norm", "FrozenBatchNorm2d", parameters=0), layer("Net.head"))
    views = op("view", 5, module="Net.stem", phase=BACKWARD, shapes=IMAGE)
    assert nothing(
        frozen_backward,
        views,
        python(5, module="Net.stem", phase=BACKWARD),
        backward("Net.norm"),
        program=program(*modules),
    )
    assert nothing(frozen_backward, backward("Net.stem"))


def norm(module, values="[1,64,1,1]", names="mul add"):
    return [op(name, 2, module=module, shapes=f"{IMAGE} {values}") for name in names.split()]


def test_frozen_norms_are_counted_with_their_backward():
    finding = only(
        frozen_norm,
        *norm("Net.layer1.0.bn1"),
        *norm("Net.layer1.1.bn1", "[64,1,1]", "mul_ add_"),
        op("mul", 2, module="Net.layer1.0.bn1", phase=BACKWARD, shapes=f"{IMAGE} [1,64,1,1]"),
        program=program(layer("Net.layer1.0.bn1", "FrozenBatchNorm2d"), layer("Net.head", "Linear")),
    )
    assert finding.seen == (
        "in 2 modules (FrozenBatchNorm2d) each channel is scaled and shifted by two ops",
        "they take 10.00 ms a step, forward and backward",
    )
    assert finding.where == "in forward and backward of Net.layer1.*.bn1, at 2 places"


@pytest.mark.parametrize(
    "ops",
    [
        norm("Net.excitation", "[2,64,1,1]"),
        norm("Net.scale", names="mul"),
        norm("Net.shift", names="add"),
        norm("", "[1,64,1,1]"),
        [*norm("Net.affine"), op("native_batch_norm", 2, module="Net.affine", shapes=IMAGE)],
        [op(name, 2, module="Net.bias", shapes="[2,64] [1,64]") for name in ("mul", "add")],
    ],
    ids=["by image", "scale alone", "shift alone", "outside modules", "beside a norm", "no image"],
)
def test_other_products_and_sums_are_no_frozen_norm(ops):
    assert nothing(frozen_norm, *ops)
