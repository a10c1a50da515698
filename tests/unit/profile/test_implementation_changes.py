"""Ops that leave oneDNN, or come to it, without being called otherwise: facts and culprits."""

from __future__ import annotations

import pytest

from perfguard.profile.changes.attribution import attribute
from perfguard.profile.libraries.join import NO_LIBRARY
from perfguard.records.steps.ops import ChangeClass
from tests.changed_values import replace
from tests.simulated_profiles import BACKWARD, SILENCE, Arm, Op, op_key, profiled

MATMUL, CONVOLUTION = "brg_matmul:avx512_core_bf16", "brg_conv_fwd:avx512_core_bf16"
PRODUCT = {"shapes": "[128,768] [768,3072]", "dtypes": "bf16", "layouts": "contiguous"}
MM = op_key("aten::mm", "Net.linear", BACKWARD, **PRODUCT)
ADDMM = op_key("aten::addmm", "Net.linear", **PRODUCT)
LINEAR = op_key("aten::linear", "Net.linear", **PRODUCT)
RELU = op_key("aten::relu", "Net.act", **PRODUCT)
NET = Arm({MM: Op(2, 1e-3), ADDMM: Op(1, 0.5e-3), LINEAR: Op(1, 1e-6), RELU: Op(1, 0.1e-3)})
IN_ONEDNN = {MM: (MATMUL,), ADDMM: (MATMUL,), LINEAR: (NO_LIBRARY,), RELU: (NO_LIBRARY,)}
IN_NONE = dict.fromkeys(NET.ops, (NO_LIBRARY,))


def compared(before, after, changed=None, *, baseline=NET, noise=SILENCE):
    """The attribution of a step whose ops were computed by `before`, and by `after` with some ops changed."""
    candidate = replace(baseline.with_ops(changed or {}), implementations=after)
    return attribute("case", *profiled(replace(baseline, implementations=before), candidate, noise), ())


def slow(*keys, times=38):
    return {key: replace(NET.ops[key], self_s=NET.ops[key].self_s * times) for key in keys}


def changes_of(attribution):
    return {delta.key: delta.change for delta in attribution.deltas}


def test_products_that_leave_onednn_are_one_culprit_that_says_so():
    result = compared(IN_ONEDNN, IN_NONE, slow(MM, ADDMM))
    (culprit,) = result.culprits
    assert culprit.change is ChangeClass.OTHER_IMPLEMENTATION
    assert set(culprit.ops) == {MM, ADDMM}
    assert (culprit.fact.code, culprit.fact.subject.op) == ("implementation.changed", "Net.linear")
    assert culprit.fact.subject.place == "train.py:0"
    values = culprit.fact.values
    assert (values["primitive"], values["lost"], values["gained"]) == ("mm", (MATMUL,), (NO_LIBRARY,))
    assert {delta.detail for delta in result.deltas if delta.key in {MM, ADDMM}} == {f"{MATMUL} → no library"}


def test_one_product_that_leaves_onednn_is_told_with_its_tensors():
    after = {**IN_ONEDNN, MM: (NO_LIBRARY,)}
    (culprit,) = compared(IN_ONEDNN, after, slow(MM)).culprits
    assert culprit.share == pytest.approx(1)
    assert culprit.fact.values["tensors"] == f"{MM.shapes} bf16 contiguous"


def test_products_that_come_to_onednn_make_a_step_faster_for_that_reason():
    baseline = NET.with_ops(slow(MM))
    before = {**IN_ONEDNN, MM: (NO_LIBRARY,)}
    (culprit,) = compared(before, IN_ONEDNN, {MM: NET.ops[MM]}, baseline=baseline).culprits
    assert culprit.delta_s < 0
    assert (culprit.fact.values["lost"], culprit.fact.values["gained"]) == ((NO_LIBRARY,), (MATMUL,))


@pytest.mark.parametrize(
    ("before", "after"),
    [((MATMUL,), ("sgemm of MKL",)), (("sgemm of MKL",), (MATMUL,)), (("sgemm of MKL",), (NO_LIBRARY,))],
)
def test_another_library_is_another_implementation(before, after):
    result = compared({**IN_ONEDNN, MM: before}, {**IN_ONEDNN, MM: after}, slow(MM, times=2))
    assert changes_of(result)[MM] is ChangeClass.OTHER_IMPLEMENTATION
    values = result.culprits[0].fact.values
    assert (values["lost"], values["gained"]) == (before, after)


def test_a_capped_instruction_set_and_products_that_leave_onednn_for_it_are_two_culprits():
    convolution = op_key("aten::mkldnn_convolution", "Net.stem", dtypes="bf16")
    net = NET.with_ops({convolution: Op(1, 1e-3)})
    before, after = {**IN_ONEDNN, convolution: (CONVOLUTION,)}, {**IN_NONE, convolution: ("brg_conv_fwd:avx2",)}
    result = compared(before, after, {**slow(MM, ADDMM), convolution: Op(1, 3e-3)}, baseline=net)
    assert [culprit.ops[0] for culprit in result.culprits] == [MM, convolution]


def test_where_silence_is_not_proven_the_op_is_only_slower():
    result = compared(IN_ONEDNN, {}, slow(MM))
    assert changes_of(result)[MM] is ChangeClass.SLOWER


def test_a_call_that_was_placed_in_the_op_around_its_own_is_no_change():
    after = {**IN_ONEDNN, ADDMM: (NO_LIBRARY,), LINEAR: (MATMUL,)}
    assert set(changes_of(compared(IN_ONEDNN, after)).values()) == {ChangeClass.UNCHANGED}


def test_an_op_that_left_its_library_where_another_came_to_one_is_no_change():
    after = {**IN_ONEDNN, ADDMM: (NO_LIBRARY,), LINEAR: ("sgemm of MKL",)}
    assert set(changes_of(compared(IN_ONEDNN, after)).values()) == {ChangeClass.UNCHANGED}


def test_a_call_that_was_placed_in_an_op_elsewhere_is_no_change():
    after = {**IN_ONEDNN, ADDMM: (NO_LIBRARY,), RELU: (MATMUL,)}
    assert set(changes_of(compared(IN_ONEDNN, after)).values()) == {ChangeClass.UNCHANGED}


def test_an_op_whose_work_a_new_op_does_did_not_leave_the_library():
    backward = op_key("aten::convolution_backward", "Net.stem", BACKWARD)
    slow_backward = replace(backward, op="aten::_slow_conv2d_backward")
    net = NET.with_ops({backward: Op(1, 5e-3)})
    before, after = {**IN_ONEDNN, backward: (CONVOLUTION,)}, {**IN_ONEDNN, backward: (NO_LIBRARY,)}
    result = compared(before, after, {backward: Op(1, 0.1e-3), slow_backward: Op(1, 60e-3)}, baseline=net)
    assert changes_of(result)[backward] is not ChangeClass.OTHER_IMPLEMENTATION
    assert result.culprits[0].ops[0] == slow_backward


def test_new_buffers_at_its_place_do_not_excuse_an_op_that_left():
    buffer = op_key("aten::empty", "Net.linear", BACKWARD)
    after = {**IN_ONEDNN, MM: (NO_LIBRARY,)}
    result = compared(IN_ONEDNN, after, {**slow(MM), buffer: Op(1, 1e-6)})
    assert changes_of(result)[MM] is ChangeClass.OTHER_IMPLEMENTATION
