from __future__ import annotations

import pytest

from perfguard.profile.changes.causes import find_causes
from perfguard.profile.changes.diff import diff_ops
from perfguard.profile.changes.paired_ops import CauseKind, find_twins
from perfguard.records.steps.ops import ChangeClass, StepPhase
from tests.changed_values import replace
from tests.culprit_network import CONV, NET, OPTIMIZER, contiguous, copy_in, found, module, slower, told
from tests.simulated_profiles import BACKWARD, SILENCE, Arm, Op, fused_adam, op_key, profiled, python_key


def test_what_an_optimizer_executes_is_one_culprit_with_its_python_time():
    small = {op_key(f"aten::{name}", "Adam", OPTIMIZER): Op(620, 2e-3) for name in ("mul_", "addcdiv_")}
    python = slower(python_key("Adam", OPTIMIZER), by_s=0.5e-3)
    (culprit,) = found(NET.with_ops({fused_adam(): None, **small, **python})).culprits
    assert told(culprit) == ("optimizer.unfused", "Adam", 1)
    assert culprit.fact.values["lost"] == ("_fused_adam_",)
    assert culprit.fact.values["after"] == 1240
    assert culprit.change is ChangeClass.NEW
    assert culprit.phase is OPTIMIZER
    assert culprit.phases == (OPTIMIZER,)
    assert culprit.delta_s == pytest.approx(3.5e-3)
    assert set(culprit.ops) == {fused_adam(), *small, python_key("Adam", OPTIMIZER)}


def test_an_optimizer_in_place_of_another_is_one_culprit():
    sgd = op_key("aten::_fused_sgd_", "SGD", OPTIMIZER)
    (culprit,) = found(NET.with_ops({fused_adam(): None, sgd: Op(1, 3e-3)})).culprits
    assert told(culprit)[:2] == ("optimizer.replaced", "SGD")
    assert culprit.fact.values["replaced"] == "Adam"
    assert culprit.delta_s == pytest.approx(2e-3)


def test_two_optimizers_are_two_culprits():
    other = replace(fused_adam(), module="SGD")
    net = NET.with_ops({other: Op(1, 1e-3)})
    slow = {replace(key, op="aten::mul_"): Op(9, 3e-3) for key in (fused_adam(), other)}
    result = found(net.with_ops({fused_adam(): None, other: None, **slow}), net)
    assert {told(culprit) for culprit in result.culprits} == {
        ("optimizer.unfused", "Adam", 1),
        ("optimizer.unfused", "SGD", 1),
    }


def test_gradient_clipping_is_no_part_of_the_optimizer():
    clipping = op_key("aten::_foreach_norm", "", OPTIMIZER, shapes="{62:11689512}")
    (culprit,) = found(NET.with_ops({clipping: Op(1, 1e-3)})).culprits
    assert told(culprit) == ("ops.added", None, 1)
    assert culprit.fact.values["phases"] == ("optimizer",)
    assert culprit.ops == (clipping,)


def test_a_slower_optimizer_is_one_culprit():
    (culprit,) = found(NET.with_ops(slower(fused_adam()))).culprits
    assert told(culprit) == ("op.slower", "Adam", 1)


def test_a_lost_memory_format_is_one_culprit_with_its_copies():
    changed = {}
    for number in range(8):
        conv = op_key(CONV, module(number))
        changed |= {conv: None, contiguous(conv): Op(1, 2.5e-3), copy_in(number): Op(2, 0.3e-3)}
    (culprit,) = found(NET.with_ops(changed)).culprits
    assert told(culprit) == ("layout.lost", None, 8)
    assert culprit.fact.values["extra_copies"] == 16
    assert culprit.delta_s == pytest.approx(8 * 0.8e-3)
    assert culprit.share == pytest.approx(1)


VIEW = op_key("aten::as_strided_", module(0), layouts="contiguous")


@pytest.mark.parametrize(
    ("near", "beside", "cost_s"),
    [(op_key("aten::copy_", "Net.layer1"), copy_in(5), 1e-3), (VIEW, replace(VIEW, module=module(5)), 0.5e-3)],
    ids=["copies above", "views and allocations there"],
)
def test_what_serves_a_lost_memory_format_belongs_to_it_and_the_same_elsewhere_does_not(near, beside, cost_s):
    conv = op_key(CONV, module(0))
    changed = {conv: None, contiguous(conv): Op(1, 3e-3), near: Op(1, cost_s), beside: Op(1, 0.5e-3)}
    first, second = found(NET.with_ops(changed)).culprits
    assert set(first.ops) == {conv, contiguous(conv), near}
    assert second.ops[0] == beside


def test_what_comes_with_a_copy_above_a_lost_memory_format_belongs_to_it():
    conv = op_key(CONV, module(0))
    copy, empty = (op_key(f"aten::{name}", "Net.layer1") for name in ("copy_", "empty"))
    back = op_key("CloneBackward0", "Net.layer1", StepPhase.BACKWARD)
    came = {copy: Op(1, 1e-3), empty: Op(1, 0.5e-3), back: Op(1, 0.5e-3)}
    (culprit,) = found(NET.with_ops({conv: None, contiguous(conv): Op(1, 3e-3), **came})).culprits
    assert set(culprit.ops) == {conv, contiguous(conv), *came}


def test_another_dtype_is_one_culprit_with_its_casts():
    changed = {}
    for number in range(8):
        conv = op_key(CONV, module(number))
        cast = op_key("aten::_to_copy", module(number))
        changed |= {conv: None, replace(conv, dtypes="bf16"): Op(1, 3e-3), cast: Op(1, 0.1e-3)}
    (culprit,) = found(NET.with_ops(changed)).culprits
    assert told(culprit) == ("dtype.changed", None, 8)
    assert (culprit.fact.values["lost"], culprit.fact.values["gained"]) == ("f32", "bf16")


def test_a_capped_isa_is_one_culprit_and_a_fallback_to_the_reference_another():
    keys = [op_key(CONV, module(number)) for number in range(8)]
    before = replace(NET, implementations=dict.fromkeys(keys, ("brg_conv:avx512_core",)))
    after = dict.fromkeys(keys, ("brg_conv:avx2",)) | {keys[0]: ("ref:any",)}
    changed = {**slower(*keys[1:]), **slower(keys[0], by_s=20e-3)}
    first, second = found(replace(NET.with_ops(changed), implementations=after), before).culprits
    assert first.ops == (keys[0],)
    assert set(second.ops) == set(keys[1:])
    assert {first.change, second.change} == {ChangeClass.OTHER_IMPLEMENTATION}


def test_a_module_that_is_called_twice_is_one_culprit_forward_and_backward():
    place = [key for key in NET.ops if key.module == module(1)]
    twice = {key: Op(2, 2 * NET.ops[key].self_s) for key in place}
    twice[op_key("aten::add_", module(1), BACKWARD)] = Op(1, 0.1e-3)
    (culprit,) = found(NET.with_ops(twice)).culprits
    assert culprit.change is ChangeClass.MORE_CALLS
    assert culprit.phase is BACKWARD
    assert culprit.phases == (StepPhase.FORWARD, BACKWARD)
    assert set(culprit.ops) == set(twice)
    assert told(culprit) == ("calls.added", module(1), 1)
    assert (culprit.fact.values["before"], culprit.fact.values["after"]) == (1, 2)


def test_an_op_that_replaced_another_is_one_culprit_wherever_it_did():
    changed = {}
    for number in (0, 3, 6):
        conv = op_key(CONV, module(number))
        changed |= {conv: None, replace(conv, op="aten::_slow_conv2d_forward"): Op(1, 9e-3)}
    (culprit,) = found(NET.with_ops(changed)).culprits
    assert told(culprit) == ("convolution.changed", None, 3)
    assert culprit.fact.values["gained"] == ("_slow_conv2d_forward",)
    assert culprit.delta_s == pytest.approx(21e-3)


def test_different_changes_of_different_places_are_different_culprits():
    changed = {copy_in(1): Op(1, 3e-3), op_key("aten::add", module(2)): Op(1, 1e-3)}
    first, second = found(NET.with_ops(changed)).culprits
    assert first.ops[0] == copy_in(1)
    assert second.ops[0] == op_key("aten::add", module(2))


def test_without_modules_ops_of_one_call_are_found_by_their_tensors():
    plain = Arm({replace(key, module=""): op for key, op in list(NET.ops.items())[:5]})
    copies = {
        op_key(name, "", shapes="[2,64,56,56]"): Op(1, cost)
        for name, cost in (("aten::contiguous", 2e-6), ("aten::clone", 3e-6), ("aten::copy_", 1e-3))
    }
    other = {op_key("aten::add", "", shapes="[4]"): Op(1, 0.5e-3)}
    first, second = found(plain.with_ops(copies | other), plain).culprits
    assert set(first.ops) == set(copies)
    assert set(second.ops) == set(other)


def test_an_op_on_numbers_is_no_twin_of_one_on_tensors():
    steps = op_key("aten::add_", "Adam", OPTIMIZER, shapes="[] []", layouts="")
    decay = op_key("aten::add_", "Adam", OPTIMIZER, shapes="[64,64] [64,64]", layouts="")
    diff = diff_ops(*profiled(NET.with_ops({steps: Op(9, 1e-3)}), NET.with_ops({decay: Op(9, 4e-3)}), SILENCE))
    counted = [column for column, change in enumerate(diff.changes) if change in (ChangeClass.NEW, ChangeClass.GONE)]
    assert len(counted) == 2
    assert find_twins(diff.ops, diff.changes, counted) == []


def test_without_modules_a_copy_of_another_shape_is_another_copy():
    plain = Arm({replace(key, module=""): op for key, op in list(NET.ops.items())[:5]})
    gone = op_key("aten::copy_", "", shapes="[4]")
    added = op_key("aten::copy_", "", shapes="[2,64,56,56]")
    baseline = plain.with_ops({gone: Op(1, 1e-5)})
    result = found(baseline.with_ops({gone: None, added: Op(1, 2e-3)}), baseline)
    assert result.culprits[0].ops[0] == added
    fact = result.culprits[0].fact
    assert (fact.code, fact.values["number"], fact.values["by"]) == ("copies.added", 1, "copy_")


def test_copies_at_a_place_whose_shapes_changed_belong_to_that():
    conv, copy = op_key(CONV, module(1)), copy_in(1)
    baseline = NET.with_ops({copy: Op(1, 1e-3)})
    other = {replace(key, shapes="[4,8,16,16]"): Op(1, 9e-3) for key in (conv, copy)}
    (culprit,) = found(baseline.with_ops({conv: None, copy: None, **other}), baseline).culprits
    assert {conv, copy} <= set(culprit.ops)
    assert culprit.fact.code == "shapes.changed"


def causes_of(candidate, baseline=NET, noise=SILENCE):
    """Kind, what was lost, what was gained, and the ops of each cause that is a fact."""
    diff = diff_ops(*profiled(baseline, candidate, noise))
    return [
        (cause.kind, cause.lost, cause.gained, {diff.ops.keys[column] for column in cause.columns})
        for cause in find_causes(diff)
        if cause.is_exact
    ]


@pytest.mark.parametrize(
    ("now", "kind", "taken"),
    [
        ({"shapes": "[4,8,16,16]"}, CauseKind.SHAPE, {"clone", "to"}),
        ({"dtypes": "bf16"}, CauseKind.DTYPE, {"to"}),
        ({"layouts": "contiguous"}, CauseKind.LAYOUT, {"clone"}),
    ],
)
def test_other_tensors_bring_the_copies_of_their_kind_and_no_view_that_was_there_before(now, kind, taken):
    conv, view = op_key(CONV, module(0)), op_key("aten::view", module(0))
    baseline = NET.with_ops({view: Op(1, 0.1e-3)})
    copies = {name: op_key(f"aten::{name}", module(0)) for name in ("clone", "to")}
    changed = {conv: None, replace(conv, **now): Op(1, 3e-3), **dict.fromkeys(copies.values(), Op(1, 1e-3))}
    found = causes_of(baseline.with_ops(changed), baseline)
    left = copies.keys() - taken
    assert [cause[0] for cause in found] == [kind, CauseKind.REPLACED][: 1 + len(left)]
    assert found[0][3] == {conv, replace(conv, **now), *(copies[name] for name in taken)}
    assert {copies[name] for name in left} == {key for *_, ops in found[1:] for key in ops if key in changed}


def test_other_tensors_are_named_by_the_ops_that_take_longest():
    conv, backward = op_key(CONV, module(0)), op_key("aten::convolution_backward", module(0), BACKWARD)
    changed = {
        conv: None,
        replace(conv, dtypes="bf16"): Op(1, 2e-3),
        backward: None,
        replace(backward, dtypes="f16"): Op(1, 4e-3),
    }
    ((kind, lost, gained, ops),) = causes_of(NET.with_ops(changed))
    assert (kind, lost, gained, ops) == (CauseKind.DTYPE, "f32", "f16", set(changed))


def test_other_kernels_are_one_cause_for_each_pair_of_instruction_sets_or_of_kernels_without_one():
    turns = {
        op_key(CONV, module(0)): ("brg_conv_fwd:avx512_core", "jit_dw:avx2"),
        op_key("aten::convolution_backward", module(1), BACKWARD): ("brg_conv_bwd_d:avx512_core", "jit:avx2"),
        op_key("aten::relu", module(2)): ("jit:avx512_core", "ref:any"),
        op_key("aten::relu", module(3)): ("jit:avx512_core", "gemm:any"),
        op_key("aten::relu", module(4)): ("sgemm of MKL", "jit:avx2"),
    }
    before, after = ({key: (names[side],) for key, names in turns.items()} for side in (0, 1))
    first, second, *one_each = turns
    assert [(lost, gained, ops) for _, lost, gained, ops in causes_of(
        replace(NET, implementations=after), replace(NET, implementations=before)
    )] == [
        ("avx512_core", "avx2", {first, second}),
        ("avx512_core", "ref:any", {one_each[0]}),
        ("avx512_core", "gemm:any", {one_each[1]}),
        ("sgemm of MKL", "avx2", {one_each[2]}),
    ]  # fmt: skip


def test_places_are_one_cause_where_they_are_called_more_often_by_the_same_factor():
    once, twice, other = (op_key("aten::relu", module(number)) for number in (1, 2, 3))
    baseline = NET.with_ops({twice: Op(2, 1e-3)})
    changed = {once: Op(2, 1e-3), twice: Op(4, 2e-3), other: Op(3, 2e-3)}
    found = [
        (kind, {key for key in ops if key in changed})
        for kind, _, _, ops in causes_of(baseline.with_ops(changed), baseline)
    ]
    assert found == [(CauseKind.CALLS, {once, twice}), (CauseKind.CALLS, {other})]


@pytest.mark.parametrize(
    ("calls", "added", "kind"),
    [
        ((2, 2, 3), 0, CauseKind.CALLS),
        ((2, 2, 1), 1, CauseKind.CALLS),
        ((2, 1, 1), 1, CauseKind.REPLACED),
        ((2, 3, 1), 0, CauseKind.REPLACED),
        ((2, 2, 1), 2, CauseKind.REPLACED),
    ],
)
def test_a_place_is_called_more_often_where_more_than_half_of_its_changed_ops_are_by_one_factor(calls, added, kind):
    place = (
        op_key(CONV, module(1)),
        op_key("aten::relu", module(1)),
        op_key("aten::convolution_backward", module(1), BACKWARD),
    )
    changed = {key: Op(number, number * 1e-3) for key, number in zip(place, calls, strict=True)}
    changed |= {op_key(f"aten::add{number}", module(1)): Op(1, 1e-3) for number in range(added)}
    assert [found for found, *_ in causes_of(NET.with_ops(changed))] == [kind]


@pytest.mark.parametrize(
    ("replaced_s", "in_no_op_s", "goes_along"),
    [(3e-3, 0.2e-3, True), (3e-3, 0.1e-3, True), (3e-3, 0.05e-3, False), (2e-3, 0.05e-3, True), (1e-3, 0.2e-3, False)],
    ids=["both more", "one as much", "more and less", "as much and less", "less and more"],
)
def test_in_single_traces_time_in_no_op_goes_along_unless_it_points_the_other_way(replaced_s, in_no_op_s, goes_along):
    conv, python = op_key(CONV, module(0)), python_key(module(0))
    slow = replace(conv, op="aten::_slow_conv2d_forward")
    candidate = NET.with_ops({conv: None, slow: Op(1, replaced_s), python: Op(1, in_no_op_s)})
    ((_, _, _, ops),) = causes_of(candidate, noise=replace(SILENCE, processes=1))
    assert ops == {conv, slow, *([python] if goes_along else [])}


def test_the_rules_claim_what_they_are_for():
    small = {op_key("aten::mul_", "Adam", OPTIMIZER): Op(9, 2e-3)}
    conv, other = op_key(CONV, module(0)), op_key(CONV, module(1))
    changed = {
        fused_adam(): None,
        **small,
        conv: None,
        contiguous(conv): Op(1, 2e-3),
        copy_in(4): Op(1, 1e-3),
        other: Op(2, 4e-3),
    }
    causes = find_causes(diff_ops(*profiled(NET, NET.with_ops(changed))))
    assert {cause.kind for cause in causes} == {
        CauseKind.OPTIMIZER,
        CauseKind.LAYOUT,
        CauseKind.REPLACED,
        CauseKind.CALLS,
        CauseKind.TIME,
    }
