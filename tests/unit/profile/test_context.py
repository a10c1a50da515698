from __future__ import annotations

import numpy as np
import pytest

from perfguard.profile.trace.context import NO_STEP, PHASES, context_of
from perfguard.profile.trace.trace import read_trace
from perfguard.records.steps.ops import StepPhase
from tests.profile_traces import TraceBuilder, training_step

LOAD, FORWARD, LOSS, BACKWARD, OPTIMIZER = StepPhase


@pytest.fixture
def places(tmp_path):
    """Phase, module and source of the events of a builder, by name."""

    def of(builder):
        trace = read_trace(builder.write(tmp_path / "trace.json"))
        context = context_of(trace)
        return {
            trace.names[trace.name[event]]: (
                PHASES[context.phase[event]],
                context.modules[context.module[event]],
                context.sources[context.source[event]],
            )
            for event in range(len(trace))
        }

    return of


def phases_of(places):
    return {name: phase for name, (phase, _, _) in places.items() if name.startswith("aten::")}


def test_a_training_step_has_all_phases(places):
    builder = TraceBuilder()
    training_step(builder)
    assert phases_of(places(builder)) == {
        "aten::randn": LOAD,
        "aten::conv2d": FORWARD,
        "aten::convolution": FORWARD,
        "aten::mse_loss": LOSS,
        "aten::ones_like": LOSS,
        "aten::mse_loss_backward": BACKWARD,
        "aten::convolution_backward": BACKWARD,
        "aten::detach": BACKWARD,
        "aten::linalg_vector_norm": BACKWARD,
        "aten::_fused_adam_": OPTIMIZER,
    }


def test_backward_ops_belong_to_the_module_of_their_forward_op(places):
    builder = TraceBuilder()
    training_step(builder)
    found = places(builder)
    assert found["aten::conv2d"][1] == "Net.conv"
    assert found["aten::convolution_backward"][1] == "Net.conv"
    assert found["aten::mse_loss_backward"][1] == "MSELoss"
    assert found["aten::_fused_adam_"][1] == "Adam"
    assert found["Optimizer.zero_grad#Adam.zero_grad"][:2] == (OPTIMIZER, "Adam")
    assert found["aten::linalg_vector_norm"][1] == ""


def test_accumulation_belongs_to_the_backward_before_it(places):
    builder = TraceBuilder()
    training_step(builder)
    assert places(builder)["aten::detach"][1] == "Net.conv"


def test_of_ops_with_one_sequence_number_the_last_made_the_node(places):
    builder = TraceBuilder()
    with builder.step():
        with builder.module("Net.first"):
            builder.leaf("aten::zeros", 1, sequence=4)
        with builder.module("Net.second"):
            builder.leaf("aten::relu", 1, sequence=4)
        with builder.gradient("ReluBackward0", 4):
            builder.leaf("aten::threshold_backward", 1)
    assert places(builder)["aten::threshold_backward"][1] == "Net.second"


def test_a_gradient_of_a_gradient_belongs_to_the_module_too(places):
    builder = TraceBuilder()
    with builder.step():
        with builder.module("Net.layer"):
            builder.leaf("aten::tanh", 1, sequence=1)
        with builder.gradient("TanhBackward0", 1):
            builder.leaf("aten::tanh_backward", 1, sequence=2)
        with builder.gradient("TanhBackwardBackward0", 2):
            builder.leaf("aten::mul", 1)
    assert places(builder)["aten::mul"] == (BACKWARD, "Net.layer", "")


def test_backward_without_a_known_forward_has_no_module_of_another_step(places):
    builder = TraceBuilder()
    training_step(builder)
    with builder.step(), builder.gradient("MulBackward0", 77):
        builder.leaf("aten::mul", 1)
    assert places(builder)["aten::mul"] == (BACKWARD, "", "")


def test_forward_again_inside_backward_is_backward_of_its_module(places):
    builder = TraceBuilder()
    with builder.step():
        with builder.module("Net.block"):
            builder.leaf("aten::linear", 1)
        with builder.gradient("CheckpointFunctionBackward", 0), builder.module("Net.block"):
            builder.leaf("aten::addmm", 1)
    assert places(builder)["aten::addmm"][:2] == (BACKWARD, "Net.block")


def test_an_optimizer_that_calls_the_model_is_not_all_optimizer(places):
    builder = TraceBuilder()
    with builder.step(), builder.span("Optimizer.step#LBFGS.step"):
        with builder.module("Net"):
            builder.leaf("aten::linear", 1)
        builder.leaf("aten::dot", 1)
    assert phases_of(places(builder)) == {"aten::linear": FORWARD, "aten::dot": OPTIMIZER}


def test_without_modules_all_before_the_loss_is_forward(places):
    builder = TraceBuilder()
    with builder.step():
        builder.leaf("aten::conv2d", 1)
        with builder.op("aten::cross_entropy_loss"):
            builder.leaf("aten::log_softmax", 1)
        with builder.gradient("NllLossBackward0", 0):
            builder.leaf("aten::nll_loss_backward", 1)
        builder.leaf("aten::sgd", 1)
    assert phases_of(places(builder)) == {
        "aten::conv2d": FORWARD,
        "aten::cross_entropy_loss": LOSS,
        "aten::log_softmax": LOSS,
        "aten::nll_loss_backward": BACKWARD,
        "aten::sgd": OPTIMIZER,
    }


def test_gradients_may_be_accumulated_over_several_batches(places):
    builder = TraceBuilder()
    with builder.step():
        for number in "12":
            builder.leaf(f"aten::load{number}", 1)
            with builder.module("Net"):
                builder.leaf(f"aten::forward{number}", 1)
            builder.leaf(f"aten::divide{number}", 1)
            with builder.gradient("DivBackward0", None):
                builder.leaf(f"aten::backward{number}", 1)
    found = phases_of(places(builder))
    assert list(found.values()) == [LOAD, FORWARD, LOSS, BACKWARD] * 2


def test_without_modules_what_precedes_the_backward_of_a_further_batch_is_forward(places):
    builder = TraceBuilder()
    with builder.step():
        for number in range(2):
            builder.leaf(f"aten::forward{number}", 1, sequence=3 * number)
            for node in (2, 1):
                with builder.gradient("MulBackward0", 3 * number + node):
                    builder.leaf(f"aten::backward{number}_{node}", 1)
                builder.leaf(f"aten::hook{number}_{node}", 1)
                with builder.gradient("torch::autograd::AccumulateGrad", None):
                    builder.leaf(f"aten::accumulate{number}_{node}", 1)
        builder.leaf("aten::update", 1)
    assert phases_of(places(builder)) == {
        **{
            name: phase
            for number in range(2)
            for name, phase in [
                (f"aten::forward{number}", FORWARD),
                *(
                    (f"aten::{part}{number}_{node}", BACKWARD)
                    for node in (2, 1)
                    for part in ("backward", "hook", "accumulate")
                ),
            ]
        },
        "aten::update": OPTIMIZER,
    }


def test_the_backward_of_each_step_begins_anew(places):
    builder = TraceBuilder()
    for number in range(2):
        with builder.step():
            builder.leaf(f"aten::forward{number}", 1, sequence=number)
            with builder.gradient("MulBackward0", number):
                builder.leaf(f"aten::backward{number}", 1)
            builder.leaf(f"aten::update{number}", 1)
    assert list(phases_of(places(builder)).values()) == [FORWARD, BACKWARD, OPTIMIZER] * 2


def test_a_data_loader_is_load_even_where_its_transforms_are_modules(places):
    builder = TraceBuilder()
    with builder.step():
        with builder.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            with builder.module("Compose"):
                builder.leaf("aten::flip", 1)
            builder.leaf("aten::stack", 1)
        builder.leaf("aten::to", 1)
        with builder.module("Net"):
            builder.leaf("aten::linear", 1)
    assert phases_of(places(builder)) == {
        "aten::flip": LOAD,
        "aten::stack": LOAD,
        "aten::to": LOAD,
        "aten::linear": FORWARD,
    }


def test_forgetting_gradients_anywhere_changes_no_other_phase(places):
    builder = TraceBuilder()
    with builder.step():
        builder.leaf("aten::load", 1)
        with builder.module("Net"):
            builder.leaf("aten::linear", 1)
        builder.leaf("aten::mean", 1)
        with builder.span("Optimizer.zero_grad#SGD.zero_grad"):
            builder.leaf("aten::zero_", 1)
        builder.leaf("aten::ones_like", 1)
        with builder.gradient("MeanBackward0", 0):
            builder.leaf("aten::expand", 1)
    assert list(phases_of(places(builder)).values()) == [LOAD, FORWARD, LOSS, OPTIMIZER, LOSS, BACKWARD]


def test_an_annotation_of_the_user_around_everything_tells_no_phase(places):
    builder = TraceBuilder()
    with builder.step(), builder.span("my training step"):
        builder.leaf("aten::load", 1)
        with builder.module("Net"):
            builder.leaf("aten::linear", 1)
        builder.leaf("aten::mean", 1)
        with builder.gradient("MeanBackward0", 0):
            builder.leaf("aten::expand", 1)
    assert list(phases_of(places(builder)).values()) == [LOAD, FORWARD, LOSS, BACKWARD]


def test_modules_can_be_read_from_python_frames(places):
    builder = TraceBuilder()
    with builder.step():
        with builder.frame("nn.Module: Net_0"), builder.frame("nn.Module: Conv2d_1"):
            builder.leaf("aten::conv2d", 1, sequence=1)
        with builder.frame("nn.Module: CrossEntropyLoss_0"):
            builder.leaf("aten::cross_entropy_loss", 1)
        with builder.gradient("ConvolutionBackward0", 1):
            builder.leaf("aten::convolution_backward", 1)
    found = places(builder)
    assert found["aten::conv2d"][:2] == (FORWARD, "Net_0.Conv2d_1")
    assert found["aten::cross_entropy_loss"][:2] == (LOSS, "CrossEntropyLoss_0")
    assert found["aten::convolution_backward"][:2] == (BACKWARD, "Net_0.Conv2d_1")


def test_where_modules_are_annotated_frames_of_modules_are_only_frames(places):
    builder = TraceBuilder()
    with builder.step(), builder.module("Net"), builder.frame("nn.Module: Net_0"):
        builder.leaf("aten::conv2d", 1)
    assert places(builder)["aten::conv2d"][1] == "Net"


def test_a_source_is_the_innermost_line_outside_libraries(places):
    builder = TraceBuilder()
    with builder.step(), builder.frame("train.py(88): step"):
        with builder.frame("torch/nn/modules/module.py(1775): _call_impl"), builder.frame("net.py(12): forward"):
            with builder.frame("torch/nn/functional.py(5): linear"):
                builder.leaf("aten::linear", 1, sequence=3)
        with builder.frame("torch/_tensor.py(600): backward"), builder.gradient("AddmmBackward0", 3):
            builder.leaf("aten::mm", 1)
        with builder.frame("torch/optim/adam.py(200): step"):
            builder.leaf("aten::_fused_adam_", 1)
    found = places(builder)
    assert found["aten::linear"][2] == "net.py:12"
    assert found["aten::mm"][2] == "net.py:12"
    assert found["aten::_fused_adam_"][2] == "train.py:88"


def test_an_annotation_outlives_the_frames_that_begin_it(places):
    builder = TraceBuilder()
    with builder.frame("train.py(88): step"):
        enter = builder.frame("torch/autograd/profiler.py(918): __enter__")
        enter.__enter__()
        builder.wait(1)
        with builder.step():
            builder.wait(1)
            enter.__exit__(None, None, None)
            with builder.frame("net.py(12): forward"):
                builder.leaf("aten::linear", 3)
            builder.leaf("aten::add", 3)
    found = places(builder)
    assert found["aten::linear"][2] == "net.py:12"
    assert found["aten::add"][2] == "train.py:88"


def test_frames_of_another_thread_lead_to_nothing(places):
    builder = TraceBuilder()
    with builder.step(), builder.frame("train.py(88): step"):
        builder.thread = 2
        builder.leaf("aten::linear", 1)
        builder.thread = 1
    assert places(builder)["aten::linear"][2] == ""


def test_only_what_lies_in_a_window_on_its_thread_belongs_to_a_step(tmp_path):
    builder = TraceBuilder()
    builder.leaf("aten::before", 10)
    training_step(builder)
    training_step(builder)
    builder.thread, builder.now_us = 2, 1050
    builder.leaf("aten::beside", 10)
    trace = read_trace(builder.write(tmp_path / "trace.json"))
    context = context_of(trace)
    outside = {trace.names[name] for name in trace.name[context.step == NO_STEP]}
    assert outside == {"aten::before", "aten::beside"}
    assert np.unique(context.step).tolist() == [NO_STEP, 0, 1]
    assert [trace.names[name] for name in trace.name[context.windows]] == ["perfguard::step"] * 2


def test_steps_of_the_profiler_around_ours_are_no_steps(tmp_path):
    builder = TraceBuilder()
    with builder.span("ProfilerStep#0"):
        training_step(builder)
        training_step(builder)
    trace = read_trace(builder.write(tmp_path / "trace.json"))
    assert context_of(trace).windows.size == 2


def test_a_step_with_nothing_in_it_is_a_step(tmp_path):
    builder = TraceBuilder()
    with builder.step():
        builder.wait(5)
    training_step(builder)
    trace = read_trace(builder.write(tmp_path / "trace.json"))
    assert context_of(trace).windows.size == 2
