"""What the rules about optimizers, frozen layers and frozen norms say."""

from __future__ import annotations

import pytest

from perfguard.records.facts import Severity
from tests.finding_evidence import (
    BACKWARD,
    OPTIMIZER,
    all_of,
    layer,
    nothing,
    only,
    op,
    place_of,
    primitive,
    program,
    python,
    seen_codes,
    told,
)

IMAGE = "[2,64,56,56]"


def update(names, ms=1.0, calls=62, module="Adam"):
    place = {"module": module, "phase": OPTIMIZER}
    return [op(name, ms, calls=calls, shapes="[64,64]", **place) for name in names.split()]


def test_a_loop_is_told_with_its_calls_and_its_python():
    finding = only(
        "unfused_optimizer",
        *update("mul_ addcmul_ addcdiv_"),
        *update("empty detach zero_", ms=0.5),
        python(2, module="Adam", phase=OPTIMIZER),
    )
    assert told(finding, "optimizer", "is_foreach") == ("Adam", False)
    assert told(finding, "calls", "ops") == (186, ("addcdiv_", "addcmul_", "mul_"))
    assert told(finding, "time_s", "python_s") == (0.0065, 0.002)
    assert place_of(finding) == ("optimizer", "Adam", 1, None)
    assert finding.severity is Severity.NOTABLE


def test_foreach_on_cpus_is_no_fusion():
    assert told(only("unfused_optimizer", *update("_foreach_mul_ _foreach_add_", calls=1)), "is_foreach") is True


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
    assert nothing("unfused_optimizer", *calls)


def test_each_optimizer_has_a_finding_of_its_own():
    found = all_of("unfused_optimizer", *update("add_", ms=3, module="SGD"), *update("mul_", ms=3))
    assert [told(finding, "optimizer") for finding in found] == ["Adam", "SGD"]


def backward(module, ms=5.0):
    return op("convolution_backward", ms, module=module, phase=BACKWARD, shapes=IMAGE)


def weights(module, ms=2.0):
    return primitive("convolution", "jit:avx512_core", ms, direction="BWD_W", module=module, phase=BACKWARD)


def test_forgotten_layers_before_the_first_one_that_learns_compute_for_nobody():
    finding = only(
        "frozen_backward",
        backward("Net.stem"),
        backward("Net.layer1", 3),
        backward("Net.layer2"),
        program=program(layer("Net.stem", forgotten=True), layer("Net.layer1", forgotten=True), layer("Net.layer2")),
    )
    assert finding.code == "advice.frozen_backward"
    assert seen_codes(finding) == ["layers", "forgotten"]
    assert [each.values["modules"] for each in finding.seen] == [("Net.stem", "Net.layer1")] * 2
    assert finding.share == pytest.approx(0.08)
    assert finding.severity is Severity.NOTABLE


def test_frozen_layers_that_only_pass_gradients_on_are_a_hint():
    finding = only(
        "frozen_backward", backward("Net.stem", 20), program=program(layer("Net.stem", learns=False), layer("Net.head"))
    )
    assert finding.severity is Severity.INFO


def test_frozen_layers_whose_weight_gradients_are_computed_are_more_than_a_hint():
    finding = only(
        "frozen_backward",
        backward("Net.stem", 20),
        weights("Net.stem", 8),
        program=program(layer("Net.stem", learns=False), layer("Net.head")),
    )
    assert finding.severity is Severity.NOTABLE


def test_frozen_layers_behind_one_that_learns_must_pass_gradients_on():
    modules = (layer("Net.stem"), layer("Net.body", learns=False))
    assert nothing("frozen_backward", backward("Net.stem"), backward("Net.body"), program=program(*modules))


def test_weight_gradients_of_frozen_layers_behind_one_that_learns_are_wasted():
    finding = only(
        "frozen_backward",
        backward("Net.body"),
        weights("Net.body"),
        program=program(layer("Net.stem"), layer("Net.body", learns=False)),
    )
    assert finding.code == "advice.unused_weight_gradients"
    assert told(finding, "layers", "weights_s") == (1, 0.002)


def test_forgotten_norms_make_frozen_layers_compute():
    finding = only(
        "frozen_backward",
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
    assert finding.code == "advice.frozen_backward_for_norms"
    assert seen_codes(finding) == ["layers", "norms"]
    assert [each.values["modules"] for each in finding.seen] == [("Net.layer1",), ("Net.bn1",)]
    assert finding.severity is Severity.INFO


def test_training_norms_alone_is_meant():
    modules = (layer("Net.bn1", "BatchNorm2d"), layer("Net.layer1", learns=False), layer("Net.bn2", "LayerNorm"))
    assert nothing("frozen_backward", backward("Net.layer1", 9), program=program(*modules))


def test_a_frozen_model_passes_gradients_on_to_another_one():
    modules = (layer("Critic.conv", learns=False), layer("Generator.conv"))
    assert nothing("frozen_backward", backward("Critic.conv", 30), program=program(*modules))


def test_without_an_optimizer_what_requires_gradients_learns():
    modules = (layer("Net.stem", forgotten=True), layer("Net.head", forgotten=True))
    assert nothing("frozen_backward", backward("Net.stem", 30), program=program(*modules, optimizers=()))


def test_layers_without_backward_or_weights_are_left_alone():
    modules = (layer("Net.stem", learns=False), layer("Net.norm", "FrozenBatchNorm2d", parameters=0), layer("Net.head"))
    views = op("view", 5, module="Net.stem", phase=BACKWARD, shapes=IMAGE)
    assert nothing(
        "frozen_backward",
        views,
        python(5, module="Net.stem", phase=BACKWARD),
        backward("Net.norm"),
        program=program(*modules),
    )
    assert nothing("frozen_backward", backward("Net.stem"))


def norm(module, values="[1,64,1,1]", names="mul add"):
    return [op(name, 2, module=module, shapes=f"{IMAGE} {values}") for name in names.split()]


def test_frozen_norms_are_counted_with_their_backward():
    finding = only(
        "frozen_batch_norm",
        *norm("Net.layer1.0.bn1"),
        *norm("Net.layer1.1.bn1", "[64,1,1]", "mul_ add_"),
        op("mul", 2, module="Net.layer1.0.bn1", phase=BACKWARD, shapes=f"{IMAGE} [1,64,1,1]"),
        program=program(layer("Net.layer1.0.bn1", "FrozenBatchNorm2d"), layer("Net.head", "Linear")),
    )
    assert told(finding, "modules", "kinds", "time_s") == (2, ("FrozenBatchNorm2d",), 0.01)
    assert place_of(finding) == ("forward backward", "Net.layer1.*.bn1", 2, None)


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
    assert nothing("frozen_batch_norm", *ops)
