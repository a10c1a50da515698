from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfguard
from perfguard.profile.projection.arguments import broadcast
from perfguard.profile.projection.problems import read_problems
from perfguard.profile.projection.work import work_of
from tests.recorded_ops import plain, problem, tensor, tensors

BF16, INT64, DOUBLE = "c10::BFloat16", "long int", "double"
NONE = plain(None)
STRIDES, PADS, ONES, ZEROS = plain([2, 2]), plain([1, 1]), plain([1, 1]), plain([0, 0])
IMAGE, KERNEL = tensor(2, 4, 8, 8), tensor(6, 4, 3, 3)
MASK = plain([True, True, False])
SIZE = st.integers(1, 9)

# op, floating-point operations, bytes
KNOWN = [
    (problem("aten::mm", tensor(2, 3), tensor(3, 5)), 60, 4 * (6 + 15 + 10)),
    (problem("aten::mm", tensor(2, 3, kind=BF16), tensor(3, 5, kind=BF16)), 60, 2 * (6 + 15 + 10)),
    (problem("aten::addmm", tensor(5), tensor(2, 3), tensor(3, 5), plain(1), plain(1)), 60, 4 * (5 + 6 + 15 + 10)),
    (problem("aten::bmm", tensor(7, 2, 3), tensor(7, 3, 5)), 420, 4 * 7 * (6 + 15 + 10)),
    (problem("aten::baddbmm", tensor(7, 1, 5), tensor(7, 2, 3), tensor(7, 3, 5)), 420, 4 * 7 * (5 + 6 + 15 + 10)),
    (problem("aten::matmul", tensor(7, 1, 2, 3), tensor(4, 3, 5)), 28 * 60, 4 * (42 + 60 + 280)),
    (problem("aten::matmul", tensor(3), tensor(3)), 6, 4 * 7),
    (problem("aten::linear", tensor(4, 2, 3), tensor(5, 3), tensor(5)), 240, 4 * (24 + 15 + 5 + 40)),
    (problem("aten::linear", tensor(4, 2, 3), tensor(5, 3), NONE), 240, 4 * (24 + 15 + 40)),
    # 2 images, 6 filters of 4 x 3 x 3, 4 x 4 places
    (
        problem("aten::conv2d", IMAGE, KERNEL, tensor(6), STRIDES, PADS, ONES, plain(1)),
        13824,
        4 * (512 + 216 + 6 + 192),
    ),
    (problem("aten::conv2d", IMAGE, KERNEL, NONE, ONES, PADS, ONES, plain(1)), 55296, 4 * (512 + 216 + 768)),
    (
        problem("aten::convolution", IMAGE, KERNEL, NONE, STRIDES, PADS, ONES, plain(False), ZEROS, plain(1)),
        13824,
        4 * (512 + 216 + 192),
    ),
    # As deep as wide: each filter sees one channel.
    (
        problem("aten::conv1d", tensor(1, 4, 9), tensor(4, 1, 3), NONE, plain([1]), plain([0]), plain([1]), plain(4)),
        168,
        4 * (36 + 12 + 28),
    ),
    (
        problem("aten::conv_transpose2d", IMAGE, tensor(4, 6, 3, 3), NONE, STRIDES, PADS, PADS, plain(1), ONES),
        55296,
        4 * (512 + 216 + 2 * 6 * 16 * 16),
    ),
    (
        problem(
            "aten::convolution_backward",
            *(tensor(2, 6, 4, 4), IMAGE, KERNEL, plain([0]), STRIDES, PADS, ONES, plain(False), ZEROS, plain(1), MASK),
        ),
        2 * 13824,
        4 * (192 + 216 + 512 + 512 + 216),
    ),
    (problem("aten::scaled_dot_product_attention", *[tensor(2, 4, 8, 16)] * 3), 2 * 8 * 8 * 8 * 32, 4 * 1024 * 4),
    (
        problem("aten::_scaled_dot_product_flash_attention_for_cpu_backward", *[tensor(2, 4, 8, 16)] * 5),
        2 * 8 * 8 * 8 * 80,
        4 * 1024 * 8,
    ),
    # 5 vectors of 8 through matrices of 16 x 8 and 16 x 4
    (
        problem(
            "aten::lstm",
            tensor(5, 1, 8),
            tensors([1, 1, 4], [1, 1, 4]),
            tensors([16, 8], [16, 4], [16], [16]),
            *map(plain, (True, 1, "0.", True, False, False)),
        ),
        2 * 5 * 192,
        4 * (40 + 224 + 20),
    ),
    (problem("aten::embedding", tensor(100, 8), tensor(4, 3, kind=INT64)), None, 96 + 2 * 4 * 96),
    (
        problem("aten::embedding_dense_backward", tensor(12, 8), tensor(12, kind=INT64), plain(100)),
        None,
        384 + 96 + 3200,
    ),
    (problem("aten::relu", tensor(6, 7)), None, 2 * 168),
    (problem("aten::add", tensor(6, 7), tensor(7), plain(1)), None, 4 * (42 + 7 + 42)),
    (problem("aten::add_", tensor(6, 7), tensor(7), plain(1)), None, 4 * (42 + 7 + 42)),
    (problem("aten::mul", tensor(6, 7, kind=BF16), tensor(kind=DOUBLE)), None, 2 * 84 + 8),
    (problem("aten::add", tensor(6, kind=BF16), tensor(6)), None, 12 + 24 + 24),
    (problem("aten::add", tensor(6, 7, strides=[1, 0]), tensor(6, 7)), None, 4 * (6 + 42 + 42)),
    (problem("aten::gt", tensor(6, 7), tensor(6, 7)), None, 2 * 168 + 42),
    (problem("aten::where", tensor(6, kind="bool"), tensor(6), tensor(6)), None, 6 + 72),
    (problem("aten::zero_", tensor(6, 7)), None, 168),
    (problem("aten::copy_", tensor(6, kind=BF16), tensor(6), plain(False)), None, 12 + 24),
    (problem("aten::to", tensor(6), plain(15), plain(False), plain(False), NONE), None, 24 + 12),
    (problem("aten::sum", tensor(4, 6), plain([0]), plain(False), NONE), None, 4 * (24 + 6)),
    (problem("aten::sum", tensor(4, 6), plain([-1]), plain(True), NONE), None, 4 * (24 + 4)),
    (problem("aten::sum", tensor(4, 6), NONE), None, 4 * 25),
    (problem("aten::native_layer_norm", tensor(4, 6), plain([6]), tensor(6), tensor(6), plain(1)), None, 4 * 60),
    (problem("aten::_log_softmax", tensor(4, 6), plain(1), plain(False)), None, 192),
    (
        problem("aten::max_pool2d", tensor(2, 8, 9, 9), plain([3, 3]), STRIDES, PADS, ONES, plain(False)),
        None,
        4 * (1296 + 400),
    ),
    (
        problem("aten::max_pool2d", tensor(1, 1, 6, 6), plain([3, 3]), STRIDES, ZEROS, ONES, plain(True)),
        None,
        4 * (36 + 9),
    ),
    (
        problem("aten::avg_pool2d", tensor(1, 1, 6, 6), plain([2, 2]), plain([]), ZEROS, plain(False)),
        None,
        4 * (36 + 9),
    ),
    (problem("aten::adaptive_avg_pool2d", tensor(2, 8, 9, 9), ONES), None, 4 * (1296 + 16)),
    (problem("aten::_fused_sgd_", tensors([3, 4], [5]), tensors([3, 4], [5]), tensors()), None, 4 * 17 * 3),
]


@pytest.mark.parametrize(("call", "flops", "size_bytes"), KNOWN, ids=[each[0].op for each in KNOWN])
def test_work_that_was_counted_by_hand(call, flops, size_bytes):
    work = work_of(call)
    assert (work.flops, work.size_bytes) == (flops, size_bytes)


@pytest.mark.parametrize(
    "call",
    [
        problem("aten::mm", tensor(2, 3), tensor(4, 5)),
        problem("aten::mm", tensor(2, 3)),
        problem("aten::mm", tensor(2, 3, kind="c10::Float8_e4m3fn"), tensor(3, 4)),
        problem("aten::conv2d", IMAGE, KERNEL, NONE, plain([1, 1, 1]), PADS, ONES, plain(1)),
        problem("aten::conv2d", IMAGE, KERNEL),
        problem("aten::conv2d", IMAGE, KERNEL, NONE, ONES, NONE, ONES, plain(1)),
        problem("aten::lstm", tensor(5, 1, 8), {"type": "TensorList"}, {"type": "TensorList"}),
        problem("aten::_foreach_add_", tensors([3]), plain(1)),
        problem("aten::to", tensor(6), plain(6), plain(False), plain(False), NONE),
        problem("aten::glu", tensor(6), plain(0)),
        problem("aten::view", tensor(6), plain([2, 3])),
        problem("aten::topk", tensor(6), plain(2)),
        problem("torchvision::nms", tensor(6, 4)),
        problem("aten::add", tensor(3), tensor(4)),
        problem("aten::relu"),
    ],
    ids=lambda call: call.op,
)
def test_work_that_is_not_known_is_none(call):
    assert work_of(call) is None


def test_what_is_computed_in_is_the_first_dtype_of_real_numbers():
    assert work_of(problem("aten::embedding", tensor(9, 8, kind=BF16), tensor(4, kind=INT64))).dtype == "bf16"
    assert work_of(problem("aten::mm", tensor(2, 2, kind=DOUBLE), tensor(2, 2, kind=DOUBLE))).dtype == "fp64"
    assert work_of(problem("aten::add", tensor(4, kind=INT64), tensor(4, kind=INT64))).dtype == "int64"


def test_guesses_are_told():
    assert work_of(problem("aten::_fused_sgd_", tensors([3]), tensors([3]), tensors())).assumed == ("list_dtype=fp32",)


@given(SIZE, SIZE, SIZE)
def test_a_product_does_the_same_whichever_op_makes_it(rows, inner, columns):
    left, right, bias = tensor(rows, inner), tensor(inner, columns), tensor(columns)
    works = [
        work_of(problem("aten::mm", left, right)),
        work_of(problem("aten::matmul", left, right)),
        work_of(problem("aten::bmm", tensor(1, rows, inner), tensor(1, inner, columns))),
        work_of(problem("aten::linear", left, tensor(columns, inner), NONE)),
        work_of(problem("aten::addmm", bias, left, right)),
    ]
    assert {work.flops for work in works} == {2 * rows * inner * columns}
    assert len({work.size_bytes for work in works[:4]}) == 1


@given(SIZE, SIZE, SIZE, st.integers(1, 3), st.integers(1, 2))
def test_a_convolution_of_one_pixel_kernels_is_a_product(batch, channels, filters, height, width):
    image, kernel = tensor(batch, channels, height, width), tensor(filters, channels, 1, 1)
    convolution = work_of(problem("aten::conv2d", image, kernel, NONE, ONES, ZEROS, ONES, plain(1)))
    product = work_of(problem("aten::mm", tensor(batch * height * width, channels), tensor(channels, filters)))
    assert (convolution.flops, convolution.size_bytes) == (product.flops, product.size_bytes)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 3))
def test_shapes_broadcast_to_the_larger_one(shape, cut):
    shape = tuple(shape)
    ones = tuple(1 if index % 2 else size for index, size in enumerate(shape))
    assert broadcast([shape, ones, shape[cut:]]) == shape
    work = work_of(problem("aten::mul", tensor(*shape), tensor(*ones)))
    assert work.size_bytes == 4 * (2 * prod(shape) + prod(ones))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="do not fit each other"):
        broadcast([(2, 3), (4,)])


# Counts what torch counts, and records the same calls; prints torch's sum.
COUNTED = """
import json, sys
import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils import flop_counter

torch.manual_seed(0)
r = lambda *sizes: torch.randn(*sizes, requires_grad=True)


def work():
    image = r(2, 6, 12, 10)
    results = [
        F.conv2d(image, r(8, 6, 3, 5), r(8), stride=(2, 1), padding=(1, 2), dilation=(2, 1)),
        F.conv2d(image, r(4, 6, 3, 3), padding=1),
        F.conv1d(r(3, 4, 20), r(5, 4, 3), stride=2),
        F.conv_transpose2d(image, r(6, 4, 3, 3), stride=2, padding=1, output_padding=1),
        F.conv3d(r(1, 2, 5, 5, 5), r(3, 2, 2, 2, 2)),
        F.linear(r(2, 3, 7), r(5, 7), r(5)),
        r(3, 4, 5) @ r(5, 6),
        r(3, 1, 4, 5) @ r(2, 5, 6),
        torch.mm(r(3, 4), r(4, 5)),
        torch.addmm(r(5), r(3, 4), r(4, 5)),
        torch.bmm(r(2, 3, 4), r(2, 4, 5)),
        torch.baddbmm(r(2, 3, 5), r(2, 3, 4), r(2, 4, 5)),
    ]
    sum(result.square().mean() for result in results).backward()


work()
with flop_counter.FlopCounterMode(display=False) as counter:
    work()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as profiler:
    with record_function("perfguard::step"):
        work()
profiler.export_chrome_trace(sys.argv[1])
q = (2, 4, 8, 16)
print(json.dumps({
    "step": counter.get_total_flops(),
    "attention": flop_counter.sdpa_flop_count(q, (2, 4, 9, 16), (2, 4, 9, 12)),
    "attention_backward": flop_counter.sdpa_backward_flop_count((2, 4, 8, 12), q, (2, 4, 9, 16), (2, 4, 9, 12)),
}))
"""


@pytest.mark.torch
def test_operations_are_counted_as_torch_counts_them(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "trace.json"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(COUNTED), str(path)],
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
        env={
            "PYTHONPATH": str(Path(perfguard.__file__).parent.parent),
            "OMP_NUM_THREADS": "1",
            "PATH": "/usr/bin:/bin",
        },
    )
    told = json.loads(done.stdout.splitlines()[-1])
    step = read_problems([path])
    counted = {each.op: each.calls * work.flops for each in step.problems if (work := work_of(each)) and work.flops}
    total = sum(each.calls * work.flops for each in step.problems if (work := work_of(each)) and work.flops)
    assert total == told["step"], counted
    q, k, v, g = tensor(2, 4, 8, 16), tensor(2, 4, 9, 16), tensor(2, 4, 9, 12), tensor(2, 4, 8, 12)
    forward = work_of(problem("aten::scaled_dot_product_attention", q, k, v))
    backward = work_of(problem("aten::_scaled_dot_product_flash_attention_for_cpu_backward", g, q, k, v, g))
    assert (forward.flops, backward.flops) == (told["attention"], told["attention_backward"])
