from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.worker.profiling import replay as replaying
from perfguard.worker.profiling.replay import (
    NotReplayableError,
    RecordedCall,
    UnknownArgumentError,
    answer,
    arguments_of,
    index_limit,
    replay,
    time_call,
)


def recorded(op, *arguments, overload=None):
    """A call from one `(dims, strides, type, concrete)` for each argument."""
    dims, strides, types, concrete = zip(*arguments, strict=True)
    return RecordedCall(op=op, overload=overload, dims=dims, strides=strides, types=types, concrete=concrete)


def tensor(*dims, kind="float", strides=None):
    if strides is None:
        strides, step = [], 1
        for size in reversed(dims):
            strides.insert(0, step)
            step *= size
    return (list(dims), list(strides), kind, "")


def plain(value):
    return ([], [], "ScalarList" if isinstance(value, list) else "Scalar", str(value))


NOTHING = ([], [], "", "")


@given(st.integers(1, 5), st.booleans(), st.booleans())
def test_lists_that_are_cut_short_are_filled(length, has_strides, has_values):
    fields = {"op": "aten::add", "dims": [[2]], "types": ["float"] * length}
    fields |= {"strides": [[1]]} if has_strides else {}
    fields |= {"concrete": ["1"]} if has_values else {}
    call = RecordedCall.of(fields)
    assert len(call.dims) == len(call.strides) == len(call.types) == len(call.concrete) == length


@pytest.mark.parametrize(
    ("call", "name", "sizes", "limit"),
    [
        (recorded("aten::embedding", tensor(1000, 8), tensor(4, kind="long")), "indices", {"weight": [1000, 8]}, 1000),
        (recorded("aten::embedding_dense_backward", tensor(4, 8), tensor(4), plain(77)), "indices", {}, 77),
        (recorded("aten::nll_loss_forward", tensor(4, 10), tensor(4, kind="long")), "target", {"self": [4, 10]}, 10),
        (recorded("aten::nll_loss", tensor(10), tensor(kind="long")), "target", {"self": [10]}, 10),
        (recorded("aten::_embedding_bag", tensor(9, 2), tensor(6), tensor(3)), "offsets", {"indices": [6]}, 6),
        (recorded("aten::gather", tensor(4, 10), plain(-1), tensor(4, 1)), "index", {"self": [4, 10]}, 10),
        (recorded("aten::gather", tensor(4, 10), plain(5), tensor(4, 1)), "index", {"self": [4, 10]}, 1),
        (recorded("aten::add", tensor(4), tensor(4, kind="long")), "other", {"self": [4]}, 1),
    ],
)
def test_integers_that_are_indices_stay_in_range(call, name, sizes, limit):
    assert index_limit(call, name, sizes) == limit


def test_batches_are_undone_before_the_next():
    state, seen = [0], []

    def call():
        state[0] += 1
        seen.append(state[0])

    def restore():
        state[0] = 0

    time_call(call, budget_s=0.0, max_batch=4, restore=restore)
    assert max(seen[3:]) <= 4


def test_a_few_batches_are_timed_even_without_a_budget():
    assert len(time_call(lambda: None, budget_s=0.0)) >= 3


def quickly(call):
    return replay(call, budget_s=0.001)


def made_for(torch, call, overload):
    return arguments_of(call, overload, seed=1)


@pytest.mark.torch
class TestMakingArguments:
    def test_tensors_have_the_recorded_sizes_strides_and_dtypes(self, torch):
        call = recorded(
            "aten::convolution",
            tensor(2, 3, 8, 8, kind="c10::BFloat16", strides=(192, 1, 24, 3)),
            tensor(4, 3, 3, 3, kind="c10::BFloat16"),
            NOTHING,
            plain([1, 1]),
            plain([0, 0]),
            plain([1, 1]),
            plain(False),
            plain([0, 0]),
            plain(1),
        )
        image, weight, bias, *rest = made_for(torch, call, torch.ops.aten.convolution.default).positional
        assert (image.shape, image.stride(), image.dtype) == ((2, 3, 8, 8), (192, 1, 24, 3), torch.bfloat16)
        assert image.is_contiguous(memory_format=torch.channels_last)
        assert weight.is_contiguous()
        assert bias is None
        assert rest == [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]

    def test_expanded_and_empty_tensors_can_be_made(self, torch):
        call = recorded("aten::add", tensor(4, 5, strides=(0, 1)), tensor(0, 5), plain(1))
        expanded, empty = made_for(torch, call, torch.ops.aten.add.Tensor).positional
        assert (expanded.stride(), empty.shape) == ((0, 1), (0, 5))

    def test_tensors_without_strides_are_contiguous(self, torch):
        call = recorded("aten::relu", ([2, 3, 4], [], "double", ""))
        (value,) = made_for(torch, call, torch.ops.aten.relu.default).positional
        assert (value.stride(), value.dtype) == ((12, 4, 1), torch.float64)

    def test_the_same_seed_gives_the_same_values(self, torch):
        call = recorded("aten::relu", tensor(50))
        values = [made_for(torch, call, torch.ops.aten.relu.default).positional[0] for _ in range(2)]
        assert torch.equal(*values)
        assert len(values[0].unique()) > 40

    def test_what_stands_under_a_root_is_positive(self, torch):
        per_channel = [tensor(4) for _ in range(4)]
        call = recorded(
            "aten::native_batch_norm", tensor(2, 4, 5, 5), *per_channel, plain(True), plain(0.1), plain(1e-05)
        )
        made = made_for(torch, call, torch.ops.aten.native_batch_norm.default)
        assert float(made.positional[4].min()) > 0

    def test_offsets_of_bags_ascend_from_zero(self, torch):
        call = recorded(
            "aten::_embedding_bag", tensor(20, 4), tensor(12, kind="long"), tensor(5, kind="long"), plain(False),
            plain(0), plain(False), NOTHING, plain(False), plain(-1),
        )  # fmt: skip
        _, indices, offsets, *_ = made_for(torch, call, torch.ops.aten._embedding_bag.default).positional
        assert int(indices.max()) < 20
        assert int(offsets[0]) == 0
        assert (offsets.diff() >= 0).all()
        assert int(offsets[-1]) < 12

    def test_a_default_that_stands_in_is_told(self, torch):
        call = recorded("aten::gelu", tensor(3), NOTHING)
        made = made_for(torch, call, torch.ops.aten.gelu.default)
        assert made.named == {"approximate": "none"}
        assert made.assumed == ("approximate='none'",)

    @pytest.mark.parametrize(
        ("call", "overload", "said"),
        [
            (recorded("aten::add", tensor(3), tensor(3)), "add.Tensor", "called with 2 arguments, not 3"),
            (recorded("aten::add", tensor(3), plain(2), plain(1)), "add.Tensor", "'other' is a tensor"),
            (recorded("aten::add", tensor(3), tensor(3), plain(1)), "add.Scalar", "'other' is no tensor"),
            (recorded("aten::relu", tensor(3, kind="c10::Mystery")), "relu.default", "unknown type 'c10::Mystery'"),
            (recorded("aten::view", tensor(3), NOTHING), "view.default", "'size' is not in the trace"),
            (recorded("aten::view", tensor(3), ([], [], "ScalarList", "[3, ")), "view.default", "recorded as '[3, '"),
        ],
    )
    def test_a_call_that_does_not_fit_says_why(self, torch, call, overload, said):
        packet, _, name = overload.partition(".")
        with pytest.raises(UnknownArgumentError) as refused:
            made_for(torch, call, getattr(getattr(torch.ops.aten, packet), name))
        assert said in str(refused.value)


@pytest.mark.torch
class TestReplaying:
    def test_the_overload_that_fits_is_found(self, torch):
        assert quickly(recorded("aten::add", tensor(3), tensor(3), plain(1))).overload == "Tensor"
        assert quickly(recorded("aten::add", tensor(3), plain(2.5), plain(1))).overload == "Scalar"
        assert quickly(recorded("aten::addmm", tensor(2), tensor(2, 3), tensor(3, 2), plain(1), plain(1))).call_s > 0

    def test_a_larger_problem_takes_longer(self, torch):
        small, large = (
            quickly(recorded("aten::mm", tensor(size, size), tensor(size, size))).call_s for size in (8, 256)
        )
        assert large > small

    def test_an_op_that_writes_gets_its_arguments_back(self, torch):
        found = quickly(recorded("aten::mul_", tensor(1000), plain(1e-30), overload="Scalar"))
        assert found.call_s > 0

    def test_a_fused_update_of_many_tensors_is_replayed(self, torch):
        lists = [([[8, 8], [8]], [[8, 1], [1]], "TensorList", "") for _ in range(4)]
        steps = ([[], []], [[], []], "TensorList", "")
        empty = ([], [], "TensorList", "")
        call = recorded(
            "aten::_fused_adam_", *lists, empty, steps, plain(0.001), plain(0.9), plain(0.999), plain(0.0),
            plain(1e-08), plain(False), plain(False), NOTHING, NOTHING,
        )  # fmt: skip
        found = quickly(call)
        assert found.call_s > 0
        assert "grads of float32" in found.assumed

    @pytest.mark.parametrize(
        ("op", "said"),
        [
            ("aten::_no_such_op", "no op of the dispatcher"),
            ("absent_library::op", "no op of the dispatcher"),
            ("module:Net.conv", "no op of the dispatcher"),
            ("aten::_coalesced_", "data that a trace does not hold"),
        ],
    )
    def test_an_op_that_cannot_be_replayed_says_why(self, torch, op, said):
        with pytest.raises(NotReplayableError, match=said):
            quickly(recorded(op, tensor(3)))

    def test_an_op_that_fails_on_made_up_values_says_so(self, torch):
        with pytest.raises(NotReplayableError, match="fails on values that are made up"):
            quickly(recorded("aten::mm", tensor(2, 3), tensor(4, 5)))

    def test_an_op_that_changes_its_argument_for_good_says_so(self, torch):
        with pytest.raises(NotReplayableError, match="changes the shape of its argument"):
            quickly(recorded("aten::unsqueeze_", tensor(2), plain(0)))

    def test_an_op_that_fails_later_says_so(self, torch, monkeypatch):
        def fail(*_, **__):
            raise RuntimeError("out of memory\nand more")

        monkeypatch.setattr(replaying, "time_call", fail)
        with pytest.raises(NotReplayableError, match="it cannot be called twice: out of memory$"):
            quickly(recorded("aten::relu", tensor(2)))

    def test_an_overload_that_is_not_there_says_so(self, torch):
        with pytest.raises(NotReplayableError, match="no overload of this name"):
            quickly(recorded("aten::add", tensor(3), overload="Absent"))

    def test_the_answer_is_a_time_or_a_reason(self, torch):
        fields = {"dims": [[3]], "types": ["float"]}
        told = answer({"op": {"op": "aten::relu", **fields}, "budget_s": 0.001})
        assert told["call_s"] > 0
        assert told["reason"] is None
        refused = answer({"op": {"op": "aten::absent", **fields}})
        assert refused["call_s"] is None
        assert refused["reason"]

    def test_what_a_real_trace_records_is_replayed(self, torch, tmp_path):
        import json

        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as running:
            model(torch.randn(2, 3, 8, 8)).mean().backward()
        running.export_chrome_trace(str(tmp_path / "trace.json"))
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        found = {}
        for event in events:
            recorded_inputs = event.get("args", {})
            if event.get("name", "").startswith("aten::") and "Input Dims" in recorded_inputs:
                told = answer(
                    {
                        "op": {
                            "op": event["name"],
                            "dims": recorded_inputs["Input Dims"],
                            "types": recorded_inputs["Input type"],
                            "strides": recorded_inputs.get("Input Strides"),
                            "concrete": recorded_inputs.get("Concrete Inputs"),
                        },
                        "budget_s": 0.001,
                    }
                )
                found.setdefault(event["name"], told["reason"])
        needed = ("aten::convolution", "aten::convolution_backward", "aten::native_batch_norm", "aten::clamp_min")
        assert {op: found.get(op, "not in the trace") for op in needed} == dict.fromkeys(needed)
