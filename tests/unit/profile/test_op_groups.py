from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.trace.op_groups import Group, base_name, group_of, is_bookkeeping


@pytest.mark.parametrize(
    ("op", "base"),
    [
        ("aten::add_", "add"),
        ("aten::_foreach_add_", "add"),
        ("aten::_softmax_backward_data", "softmax"),
        ("aten::native_layer_norm_backward", "layer_norm"),
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::_native_batch_norm_legit", "batch_norm_legit"),
        ("aten::t", "t"),
        ("aten::__and__", "and"),
    ],
)
def test_the_many_forms_of_an_op_have_one_name(op, base):
    assert base_name(op) == base


@pytest.mark.parametrize(
    ("group", "ops"),
    [
        (Group.ELEMENT_WISE, ["aten::relu_", "aten::threshold_backward", "aten::gelu_backward", "aten::_foreach_sqrt"]),
        (Group.ELEMENT_WISE, ["aten::add", "aten::zero_", "aten::_foreach_addcdiv_", "aten::where"]),
        (
            Group.NORM,
            ["aten::native_batch_norm", "aten::batch_norm_backward", "aten::layer_norm", "aten::_fused_rms_norm"],
        ),
        (Group.POOLING, ["aten::max_pool2d_with_indices_backward", "aten::_adaptive_avg_pool2d", "aten::avg_pool2d"]),
        (Group.SOFTMAX, ["aten::_log_softmax", "aten::_softmax_backward_data"]),
        (
            Group.LOSS,
            ["aten::nll_loss_forward", "aten::nll_loss_backward", "aten::mse_loss", "aten::cross_entropy_loss"],
        ),
        (Group.EMBEDDING, ["aten::embedding_dense_backward", "aten::_embedding_bag"]),
        (Group.ATTENTION, ["aten::_scaled_dot_product_flash_attention_for_cpu_backward"]),
        (Group.CONVOLUTION, ["aten::convolution_backward", "aten::mkldnn_convolution", "aten::_slow_conv2d_forward"]),
        (Group.RECURRENT, ["aten::lstm", "aten::mkldnn_rnn_layer_backward", "aten::_thnn_fused_gru_cell"]),
        (Group.MATMUL, ["aten::mm", "aten::addmm", "aten::baddbmm_", "aten::linear", "aten::addmv_", "aten::dot"]),
        (Group.RANDOM, ["aten::native_dropout_backward", "aten::bernoulli_", "aten::randn"]),
        (Group.COPY, ["aten::copy_", "aten::clone", "aten::_to_copy", "aten::cat", "aten::constant_pad_nd"]),
        (Group.INDEXING, ["aten::index_put_", "aten::scatter_add_", "aten::topk"]),
        (Group.REDUCTION, ["aten::sum", "aten::linalg_vector_norm", "aten::_foreach_norm", "aten::argmax"]),
        (Group.VIEWS, ["aten::view", "aten::empty_strided", "aten::t", "aten::_reshape_alias", "aten::as_strided"]),
        (Group.AUTOGRAD, ["torch::autograd::AccumulateGrad", "ConvolutionBackward0", "AddmmBackward0"]),
        (Group.OTHER, ["torchvision::nms", "aten::something_new"]),
        (Group.PYTHON, ["(python)", "forward pass", "Optimizer.step#SGD.step"]),
    ],
)
def test_ops_by_the_kind_of_their_work(group, ops):
    assert {op: group_of(op) for op in ops} == dict.fromkeys(ops, group)


def test_libraries_compute_in_gelu_but_never_in_a_view():
    assert not is_bookkeeping("aten::gelu")
    assert is_bookkeeping("aten::expand")


@given(st.text(max_size=40))
def test_whatever_an_event_is_called_it_has_a_group(name):
    assert isinstance(group_of(name), Group)
    assert isinstance(group_of(f"aten::{name}"), Group)
