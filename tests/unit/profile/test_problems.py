from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.errors import StoreError
from perfguard.profile.projection.problems import StepProblems, read_problems, untold, without_profiler
from perfguard.records.facts import fact
from perfguard.records.steps.ops import StepPhase
from tests.profile_traces import TraceBuilder, tensors_of, training_step
from tests.recorded_ops import plain, problem, tensor, tensors

SQUARE = [[4, 4]]


def read(trace, path):
    return read_problems([trace.write(path / "trace.json")])


def named(step, op):
    return [problem for problem in step.problems if problem.op == op]


def test_ops_inside_others_and_annotations_are_no_problems(tmp_path):
    trace = TraceBuilder()
    training_step(trace)
    step = read(trace, tmp_path)
    assert {problem.op for problem in step.problems} == {
        "aten::randn",
        "aten::conv2d",
        "aten::mse_loss",
        "aten::ones_like",
        "aten::mse_loss_backward",
        "aten::convolution_backward",
        "aten::detach",
        "aten::linalg_vector_norm",
        "aten::_fused_adam_",
    }
    (convolution,) = named(step, "aten::conv2d")
    assert convolution.observed_s == pytest.approx(34e-6)
    assert convolution.events == 2
    assert convolution.dims == [[2, 3, 8, 8], [4, 3, 3, 3]]
    assert convolution.types == ["float", "float"]
    assert convolution.strides[1] == [27, 9, 3, 1]
    assert (convolution.phases, convolution.modules) == ((StepPhase.FORWARD,), ("Net.conv",))
    assert convolution.detail.startswith("[2,3,8,8] [4,3,3,3]  f32 f32  contiguous")
    assert step.wall_s == pytest.approx(200e-6)
    assert step.ops_s == pytest.approx(sum(problem.observed_s for problem in step.problems))


def test_equal_calls_are_one_problem_and_other_arguments_another(tmp_path):
    trace = TraceBuilder()
    with trace.step():
        for _ in range(3):
            trace.leaf("aten::relu", 10, shapes=SQUARE)
        trace.leaf("aten::relu", 7, shapes=[[4, 8]])
        trace.leaf("aten::relu", 5, shapes=SQUARE, types=["double"])
        trace.leaf("aten::relu", 3, shapes=SQUARE, strides=[[1, 4]])
    step = read(trace, tmp_path)
    assert [(problem.calls, problem.observed_s) for problem in step.problems] == [
        (3, pytest.approx(30e-6)),
        (1, pytest.approx(7e-6)),
        (1, pytest.approx(5e-6)),
        (1, pytest.approx(3e-6)),
    ]


def leaf_with(trace, name, us, concrete):
    tensors = {
        **tensors_of(shapes=[[4], []], types=["float", "Scalar"], strides=[[1], []]),
        "Concrete Inputs": concrete,
    }
    with trace.span(name, "cpu_op", **tensors):
        trace.wait(us)


def test_plain_arguments_tell_problems_apart_but_computed_ones_do_not(tmp_path):
    trace = TraceBuilder()
    with trace.step():
        leaf_with(trace, "aten::pow", 1, ["", "2."])
        leaf_with(trace, "aten::pow", 1, ["", "0.5"])
        leaf_with(trace, "aten::mul_", 1, ["", "0.90000000000000002"])
        leaf_with(trace, "aten::mul_", 1, ["", "0.99900000000000000"])
        leaf_with(trace, "aten::mul_", 1, ["", "0.0031622776601683794"])
        leaf_with(trace, "aten::mul_", 1, ["", "0.0044721359549995794"])
    step = read(trace, tmp_path)
    assert sorted(problem.concrete[1] for problem in named(step, "aten::pow")) == ["0.5", "2."]
    assert sorted(problem.calls for problem in named(step, "aten::mul_")) == [1, 1, 2]


def test_an_op_that_calls_itself_is_passed_through(tmp_path):
    """As under autocast: the outer call has the dtypes before the cast, and the cast beside it is an op of its own."""
    trace = TraceBuilder()
    with trace.step(), trace.op("aten::linear", us=5, shapes=SQUARE):
        with trace.op("aten::to", us=2, shapes=SQUARE):
            trace.leaf("aten::copy_", 3, shapes=SQUARE)
        with trace.op("aten::linear", us=1, shapes=SQUARE, types=["c10::BFloat16"]):
            trace.leaf("aten::mm", 9, shapes=SQUARE, types=["c10::BFloat16"])
    step = read(trace, tmp_path)
    assert [(problem.op, problem.types, problem.observed_s) for problem in step.problems] == [
        ("aten::linear", ["c10::BFloat16"], pytest.approx(10e-6)),
        ("aten::to", ["float"], pytest.approx(5e-6)),
    ]


def test_what_autograd_and_other_libraries_call_counts_as_far_as_it_is_dispatched(tmp_path):
    trace = TraceBuilder()
    with trace.step(), trace.gradient("NmsBackward0", 1, us=2):
        trace.leaf("torchvision::nms", 4, shapes=SQUARE)
        trace.leaf("profiler::_record_function_exit", 1)
    assert [problem.op for problem in read(trace, tmp_path).problems] == ["torchvision::nms"]


def test_what_happens_outside_of_steps_is_left_out(tmp_path):
    trace = TraceBuilder()
    trace.leaf("aten::relu", 50, shapes=SQUARE)
    with trace.step():
        trace.leaf("aten::relu", 5, shapes=SQUARE)
    step = read(trace, tmp_path)
    assert [problem.observed_s for problem in step.problems] == [pytest.approx(5e-6)]


def test_seconds_are_medians_over_the_steps_of_all_traces(tmp_path):
    paths = []
    for number, times_us in enumerate([(10, 12), (11, 900)]):
        trace = TraceBuilder()
        for us in times_us:
            with trace.step():
                trace.leaf("aten::relu", us, shapes=SQUARE)
        paths.append(trace.write(tmp_path / f"{number}.json.gz"))
    step = read_problems(paths)
    (relu,) = step.problems
    assert (step.steps, relu.calls) == (4, 1)
    assert relu.observed_s == pytest.approx(11.5e-6)
    assert step.wall_s == pytest.approx(11.5e-6)


@given(st.lists(st.sampled_from(["aten::relu", "aten::add", "aten::mm"]), min_size=1, max_size=12), st.integers(1, 3))
def test_calls_of_all_problems_are_all_outermost_calls(tmp_path_factory, names, steps):
    trace = TraceBuilder()
    for _ in range(steps):
        with trace.step():
            for name in names:
                with trace.op(name, us=2, shapes=SQUARE):
                    trace.leaf("aten::empty", 1)
    step = read(trace, tmp_path_factory.mktemp("traces"))
    assert sum(problem.calls for problem in step.problems) == pytest.approx(len(names))
    assert step.ops_s == pytest.approx(3e-6 * len(names))
    assert step.ops_s <= step.wall_s + 1e-12


RELU = problem("aten::relu", tensor(4), calls=2, observed_s=20e-6, events=6)
SMALL = problem("aten::t", tensor(4), calls=1, observed_s=1e-6, events=3)


@pytest.mark.parametrize(
    ("bare_s", "event_s", "relu_s", "small_s"),
    [
        (990e-6, 1e-6, 15e-6, 0.0),  # ten events explain all of it
        # Caches become colder for 20 us of ReLU, 1 us of the other and twice 30 us of what is in no op.
        (991.9e-6, 0.0, 18e-6, 0.9e-6),
        (982.5e-6, 1e-6, 13.5e-6, 0.0),  # ten events explain 10 us; of the 15, 0 and 60 us left a tenth is cold caches'
        (995e-6, 1e-6, 17.5e-6, 0.0),  # events cannot cost more than 5 us, so 0.5 us each
        (1100e-6, 1e-6, 20e-6, 1e-6),  # a profiler that seems to save time costs nothing
        (None, 1e-6, 20e-6, 1e-6),
    ],
)
def test_the_profilers_cost_is_taken_out_by_events_and_the_rest_by_what_cools_caches(bare_s, event_s, relu_s, small_s):
    step = without_profiler(step_of(RELU, SMALL), bare_s=bare_s, event_s=event_s, own_share=0.5)
    assert [(problem.op, problem.observed_s) for problem in step.problems] == [
        ("aten::relu", pytest.approx(relu_s)),
        ("aten::t", pytest.approx(small_s)),
    ]


def step_of(*problems):
    return StepProblems(problems=problems, wall_s=1e-3, events=10, steps=1)


def test_no_trace_has_no_problems():
    with pytest.raises(ValueError, match="no trace"):
        read_problems([])


def test_a_file_that_is_no_trace_is_told(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a trace")
    with pytest.raises(StoreError, match="notes.txt"):
        read_problems([path])


SIZES = [[n, 3] for n in range(1, 41)]
LEFT_OUT = {"dims": [], "type": "TensorList", "strides": []}


def adam(trace, *, lists=5, amsgrad="False", us=30):
    """As torch writes it for more parameters than it tells the sizes of."""
    kinds = ["TensorList"] * (lists + 1) + ["Scalar"] * 7
    concrete = [""] * (lists + 1) + ["0.001", "0.9", "0.999", "0.", "1e-08", amsgrad, "False"]
    empty = [[] for _ in kinds]
    arguments = {"Input Dims": empty, "Input type": kinds, "Input Strides": empty, "Concrete Inputs": concrete}
    with trace.span("aten::_fused_adam_", "cpu_op", **arguments):
        trace.wait(us)


def accumulated(trace, sizes):
    for size in sizes:
        with trace.span("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "cpu_op"):
            with trace.span("torch::autograd::AccumulateGrad", "cpu_op", **tensors_of(shapes=[size])):
                trace.wait(1)


@pytest.mark.parametrize("amsgrad", ["False", "True"])
def test_lists_of_a_fused_optimizer_get_the_sizes_of_the_parameters(tmp_path, amsgrad):
    trace = TraceBuilder()
    with trace.step():
        accumulated(trace, SIZES)
        adam(trace, amsgrad=amsgrad)
    (update,) = read(trace, tmp_path).problems
    assert update.dims[:4] == [SIZES] * 4
    assert update.dims[4] == (SIZES if amsgrad == "True" else [])
    assert update.dims[5] == [[]] * len(SIZES)
    assert update.assumed == ("lists=parameters_with_gradient",)
    assert untold(update) is None


def test_lists_stay_unknown_where_an_optimizer_is_called_for_several_groups(tmp_path):
    trace = TraceBuilder()
    with trace.step():
        accumulated(trace, SIZES)
        adam(trace)
        adam(trace)
    (update,) = read(trace, tmp_path).problems
    assert update.assumed == ()
    assert untold(update) == fact("replay.no_sizes")


def test_a_list_that_a_trace_would_tell_was_empty(tmp_path):
    trace = TraceBuilder()
    with trace.step():
        accumulated(trace, SIZES[:3])
        adam(trace)
    (update,) = read(trace, tmp_path).problems
    assert update.dims[0] == []


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (problem("aten::relu"), fact("replay.no_arguments")),
        (problem("aten::stack", {**LEFT_OUT}, plain(0)), fact("replay.no_sizes")),
        (problem("aten::cat", tensors([2], [3]), plain(0)), None),
        (problem("aten::relu", tensor(2)), None),
    ],
)
def test_what_a_trace_does_not_tell_enough_of(call, reason):
    assert untold(call) == reason
