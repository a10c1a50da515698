from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from perfguard.model.ops import ChangeClass, StepPhase
from perfguard.profile.attribution import attribute
from perfguard.profile.culprits.causes import Rule
from perfguard.profile.culprits.finding import find_causes
from perfguard.profile.diff import diff_ops
from perfguard.profile.twins import find_twins
from tests.simulated_profiles import BACKWARD, SILENCE, Arm, Noise, Op, fused_adam, op_key, profiled, python_key

OPTIMIZER = StepPhase.OPTIMIZER
CONV = "aten::mkldnn_convolution"


def module(number):
    return f"Net.layer{1 + number // 4}.{number}.conv"


def small_net(modules=8):
    ops = {}
    for number in range(modules):
        ops[op_key(CONV, module(number))] = Op(1, 2e-3)
        ops[op_key("aten::convolution_backward", module(number), BACKWARD)] = Op(1, 4e-3)
        ops[op_key("aten::relu", module(number))] = Op(1, 0.5e-3)
        ops[python_key(module(number))] = Op(1, 0.1e-3)
        ops[python_key(module(number), BACKWARD)] = Op(1, 0.1e-3)
    return Arm({**ops, fused_adam(): Op(1, 1e-3), python_key("Adam", OPTIMIZER): Op(1, 0.1e-3)})


NET = small_net()


def found(candidate, baseline=NET, noise=SILENCE):
    return attribute("case", *profiled(baseline, candidate, noise), ())


def slower(*keys, by_s=1e-3, of=NET):
    return {key: replace(of.ops[key], self_s=of.ops[key].self_s + by_s) for key in keys}


def changes_of(attribution):
    return {delta.key: delta.change for delta in attribution.deltas}


def test_every_op_is_in_exactly_one_cause():
    rng = np.random.default_rng(1)
    candidate = NET.with_ops({fused_adam(): None, op_key("aten::mul_", "Adam", OPTIMIZER): Op(9, 2e-3)})
    diff = diff_ops(*profiled(NET, candidate, Noise(), rng))
    columns = [column for cause in find_causes(diff) for column in cause.columns]
    assert sorted(columns) == list(range(len(diff.ops.keys)))


def test_no_difference_has_no_culprit():
    assert found(NET).culprits == ()


def test_one_slower_op_is_its_own_culprit():
    key = op_key(CONV, module(3))
    result = found(NET.with_ops(slower(key)))
    (culprit,) = result.culprits
    assert culprit.ops[0] == key
    assert culprit.change is ChangeClass.SLOWER
    assert culprit.phase is StepPhase.FORWARD
    assert culprit.share == pytest.approx(1)
    assert culprit.name == f"aten::mkldnn_convolution in {module(3)}"


def test_the_same_op_slower_in_many_modules_is_one_culprit():
    keys = [op_key(CONV, module(number)) for number in range(8)]
    (culprit,) = found(NET.with_ops(slower(*keys))).culprits
    assert set(culprit.ops) == set(keys)
    assert culprit.delta_s == pytest.approx(8e-3)
    assert culprit.name == "aten::mkldnn_convolution in 8 places"


def test_slow_modules_are_named_by_what_they_have_in_common():
    keys = [op_key(CONV, module(number)) for number in range(4, 8)]
    (culprit,) = found(NET.with_ops(slower(*keys))).culprits
    assert culprit.name == "aten::mkldnn_convolution in 4 places of Net.layer2"


def test_a_module_with_most_of_the_cost_is_named_alone():
    keys = [op_key(CONV, module(number)) for number in range(3)]
    changed = {**slower(keys[0], by_s=9e-3), **slower(*keys[1:], by_s=0.5e-3)}
    (culprit,) = found(NET.with_ops(changed)).culprits
    assert culprit.name == f"aten::mkldnn_convolution in {module(0)}"
    assert set(culprit.ops) == set(keys)


def test_slowdowns_too_small_to_see_one_by_one_are_seen_together():
    rng = np.random.default_rng(2)
    net = small_net(40)
    noise = replace(SILENCE, processes=4, layout_sd=(0.03, 0.03))
    keys = [key for key in net.ops if key.op == CONV]
    arms = profiled(net, net.with_ops(slower(*keys, by_s=0.05e-3, of=net)), noise, rng)
    result = attribute("case", *arms, ())
    assert result.culprits[0].ops[0].op == CONV
    assert "aten::mkldnn_convolution in 40 places" in {culprit.name for culprit in result.culprits}
    assert not any(change is ChangeClass.SLOWER for change in changes_of(result).values())


def test_python_time_of_a_module_is_a_culprit_of_its_own():
    (culprit,) = found(NET.with_ops(slower(python_key(module(2))))).culprits
    assert culprit.name == f"(python) in {module(2)}"


def test_what_an_optimizer_executes_is_one_culprit_with_its_python_time():
    small = {op_key(f"aten::{name}", "Adam", OPTIMIZER): Op(620, 2e-3) for name in ("mul_", "addcdiv_")}
    python = slower(python_key("Adam", OPTIMIZER), by_s=0.5e-3)
    (culprit,) = found(NET.with_ops({fused_adam(): None, **small, **python})).culprits
    assert culprit.name == "Adam"
    assert culprit.change is ChangeClass.NEW
    assert culprit.phase is OPTIMIZER
    assert culprit.delta_s == pytest.approx(3.5e-3)
    assert set(culprit.ops) == {fused_adam(), *small, python_key("Adam", OPTIMIZER)}


def test_an_optimizer_in_place_of_another_is_one_culprit():
    sgd = op_key("aten::_fused_sgd_", "SGD", OPTIMIZER)
    (culprit,) = found(NET.with_ops({fused_adam(): None, sgd: Op(1, 3e-3)})).culprits
    assert culprit.name == "Adam → SGD"
    assert culprit.delta_s == pytest.approx(2e-3)


def test_two_optimizers_are_two_culprits():
    other = replace(fused_adam(), module="SGD")
    net = NET.with_ops({other: Op(1, 1e-3)})
    slow = {replace(key, op="aten::mul_"): Op(9, 3e-3) for key in (fused_adam(), other)}
    result = found(net.with_ops({fused_adam(): None, other: None, **slow}), net)
    assert {culprit.name for culprit in result.culprits} == {"Adam", "SGD"}


def test_gradient_clipping_is_no_part_of_the_optimizer():
    clipping = op_key("aten::_foreach_norm", "", OPTIMIZER, shapes="{62:11689512}")
    (culprit,) = found(NET.with_ops({clipping: Op(1, 1e-3)})).culprits
    assert culprit.name == "aten::_foreach_norm in optimizer"
    assert culprit.ops == (clipping,)


def test_a_slower_optimizer_is_one_culprit():
    (culprit,) = found(NET.with_ops(slower(fused_adam()))).culprits
    assert culprit.name == "aten::_fused_adam_ in Adam"


def contiguous(key):
    return replace(key, layouts="contiguous")


def copy_in(number, **more):
    return op_key("aten::copy_", module(number), **more)


def test_a_lost_memory_format_is_one_culprit_with_its_copies():
    changed = {}
    for number in range(8):
        conv = op_key(CONV, module(number))
        changed |= {conv: None, contiguous(conv): Op(1, 2.5e-3), copy_in(number): Op(2, 0.3e-3)}
    (culprit,) = found(NET.with_ops(changed)).culprits
    assert culprit.name == "layout in 8 places"
    assert culprit.delta_s == pytest.approx(8 * 0.8e-3)
    assert culprit.share == pytest.approx(1)


def test_copies_above_a_lost_memory_format_belong_to_it_and_copies_elsewhere_do_not():
    conv = op_key(CONV, module(0))
    above, beside = op_key("aten::copy_", "Net.layer1"), copy_in(5)
    changed = {conv: None, contiguous(conv): Op(1, 3e-3), above: Op(1, 1e-3), beside: Op(1, 0.5e-3)}
    first, second = found(NET.with_ops(changed)).culprits
    assert set(first.ops) == {conv, contiguous(conv), above}
    assert second.ops[0] == beside


def test_views_and_allocations_at_a_lost_memory_format_belong_to_it_and_those_elsewhere_do_not():
    conv = op_key(CONV, module(0))
    here = op_key("aten::as_strided_", module(0), layouts="contiguous")
    beside = op_key("aten::as_strided_", module(5), layouts="contiguous")
    changed = {conv: None, contiguous(conv): Op(1, 3e-3), here: Op(1, 0.5e-3), beside: Op(1, 0.5e-3)}
    first, second = found(NET.with_ops(changed)).culprits
    assert set(first.ops) == {conv, contiguous(conv), here}
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
    assert culprit.name == "dtype in 8 places"


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
    assert set(culprit.ops) == set(twice)
    assert culprit.name == f"aten::convolution_backward in {module(1)}"


def test_an_op_that_replaced_another_is_one_culprit_wherever_it_did():
    changed = {}
    for number in (0, 3, 6):
        conv = op_key(CONV, module(number))
        changed |= {conv: None, replace(conv, op="aten::_slow_conv2d_forward"): Op(1, 9e-3)}
    (culprit,) = found(NET.with_ops(changed)).culprits
    assert culprit.name == "aten::_slow_conv2d_forward in 3 places"
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
    assert find_twins(diff.ops, diff.changes, counted) == ()


def test_without_modules_a_copy_of_another_shape_is_another_copy():
    plain = Arm({replace(key, module=""): op for key, op in list(NET.ops.items())[:5]})
    gone = op_key("aten::copy_", "", shapes="[4]")
    added = op_key("aten::copy_", "", shapes="[2,64,56,56]")
    baseline = plain.with_ops({gone: Op(1, 1e-5)})
    result = found(baseline.with_ops({gone: None, added: Op(1, 2e-3)}), baseline)
    assert result.culprits[0].ops[0] == added
    assert "1 `copy_` more" in result.sentence


def test_copies_at_a_place_whose_shapes_changed_belong_to_that():
    conv, copy = op_key(CONV, module(1)), copy_in(1)
    baseline = NET.with_ops({copy: Op(1, 1e-3)})
    other = {replace(key, shapes="[4,8,16,16]"): Op(1, 9e-3) for key in (conv, copy)}
    (culprit,) = found(baseline.with_ops({conv: None, copy: None, **other}), baseline).culprits
    assert {conv, copy} <= set(culprit.ops)
    assert culprit.sentence.startswith("shape ")


def test_fewer_calls_are_no_culprit_of_a_slower_step():
    conv = op_key(CONV, module(0))
    result = found(NET.with_ops({conv: None, **slower(op_key("aten::relu", module(1)), by_s=5e-3)}))
    assert [culprit.ops[0].op for culprit in result.culprits] == ["aten::relu"]
    assert result.culprits[0].share == pytest.approx(5 / 3)


def test_a_faster_step_has_culprits_too():
    conv = op_key(CONV, module(0))
    result = found(NET.with_ops({conv: None, **slower(op_key("aten::relu", module(1)), by_s=0.5e-3)}))
    assert [culprit.ops[0] for culprit in result.culprits] == [conv]
    assert result.culprits[0].change is ChangeClass.GONE
    assert result.culprits[0].share == pytest.approx(2 / 1.5)


def test_a_cost_that_moved_within_an_unchanged_step_is_labelled_and_not_blamed():
    relu, conv = op_key("aten::relu", module(5)), op_key(CONV, module(2))
    result = found(NET.with_ops({**slower(relu), **slower(conv, by_s=-1e-3)}))
    assert result.culprits == ()
    assert changes_of(result)[relu] is changes_of(result)[conv] is ChangeClass.MOVED


def test_a_cost_that_moved_to_two_ops_is_labelled_too():
    relu, add = op_key("aten::relu", module(5)), op_key("aten::convolution_backward", module(5), BACKWARD)
    conv = op_key(CONV, module(2))
    changed = {**slower(relu, by_s=0.6e-3), **slower(add, by_s=0.4e-3), **slower(conv, by_s=-1e-3)}
    result = found(NET.with_ops(changed))
    assert result.culprits == ()
    assert {changes_of(result)[key] for key in (relu, add, conv)} == {ChangeClass.MOVED}


def test_a_reorder_that_left_the_op_that_hid_it_is_not_blamed():
    conv = op_key(CONV, module(2))
    result = found(NET.with_ops({copy_in(2): Op(1, 1e-3), **slower(conv, by_s=-1e-3)}))
    assert result.culprits == ()
    assert changes_of(result)[copy_in(2)] is ChangeClass.MOVED


def test_a_moved_cost_beside_a_real_slowdown_is_told_from_it():
    relu, conv, back = (
        op_key("aten::relu", module(5)),
        op_key(CONV, module(2)),
        op_key("aten::convolution_backward", module(5), BACKWARD),
    )
    changed = {**slower(relu), **slower(conv, by_s=-1e-3), **slower(back, by_s=4e-3)}
    result = found(NET.with_ops(changed))
    assert [culprit.ops[0] for culprit in result.culprits] == [back]
    assert changes_of(result)[relu] is ChangeClass.MOVED


def test_of_two_slowdowns_that_could_be_the_moved_one_none_is_excused():
    relu, conv, back = (
        op_key("aten::relu", module(5)),
        op_key(CONV, module(2)),
        op_key("aten::convolution_backward", module(5), BACKWARD),
    )
    changed = {**slower(relu), **slower(conv, by_s=-1e-3), **slower(back, by_s=1.1e-3)}
    assert {culprit.ops[0] for culprit in found(NET.with_ops(changed)).culprits} == {relu, back}


def test_a_gain_elsewhere_that_is_much_smaller_excuses_nothing():
    relu, conv = op_key("aten::relu", module(5)), op_key(CONV, module(2))
    result = found(NET.with_ops({**slower(relu, by_s=4e-3), **slower(conv, by_s=-1e-3)}))
    assert [culprit.ops[0] for culprit in result.culprits] == [relu]


def test_an_op_that_moved_and_became_slower_is_blamed_for_what_it_costs_more():
    conv = op_key(CONV, module(2))
    there = replace(conv, module="Net.stem")
    (culprit,) = found(NET.with_ops({conv: None, there: Op(1, 5e-3)})).culprits
    assert culprit.delta_s == pytest.approx(3e-3)
    assert culprit.change is ChangeClass.SLOWER
    assert {conv, there} <= set(culprit.ops)


def test_single_traces_blame_only_what_is_counted():
    one = replace(Noise(), processes=1)
    relu = op_key("aten::relu", module(5))
    result = found(NET.with_ops({**slower(relu, by_s=9e-3), copy_in(1): Op(1, 3e-3)}), noise=one)
    assert [culprit.ops[0] for culprit in result.culprits] == [copy_in(1)]
    assert (result.culprits[0].lower_s, result.culprits[0].upper_s) == (-math.inf, math.inf)
    assert result.processes == 1


def test_single_traces_blame_nothing_that_is_less_than_half_of_what_may_be_noise():
    one = replace(SILENCE, processes=1)
    relu = op_key("aten::relu", module(5))
    (culprit,) = found(NET.with_ops({**slower(relu, by_s=9e-3), copy_in(1): Op(1, 3e-3)}), noise=one).culprits
    assert culprit.ops[0] == copy_in(1)
    assert math.isnan(culprit.share)


def test_a_pause_in_a_single_trace_does_not_turn_the_cost_of_what_was_added_there():
    copy, python = op_key("aten::copy_", module(2)), python_key(module(2))
    paused = NET.with_ops({python: Op(1, 5e-3)})
    (culprit,) = found(
        NET.with_ops({copy: Op(1, 1e-3), python: Op(1, 1e-3)}), paused, replace(SILENCE, processes=1)
    ).culprits
    assert (culprit.ops, culprit.delta_s) == ((copy,), pytest.approx(1e-3))
    # Where steps repeat, what an op costs and saves beside it is its net cost.
    (culprit,) = found(NET.with_ops({copy: Op(1, 1e-3), python: Op(1, 1e-3)}), paused).culprits
    assert (set(culprit.ops), culprit.delta_s) == ({copy, python}, pytest.approx(-3e-3))


def test_a_culprit_too_small_to_matter_is_not_named():
    assert found(NET.with_ops({copy_in(1): Op(1, 1e-6)})).culprits == ()


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
    assert {cause.rule for cause in causes} == {Rule.OPTIMIZER, Rule.LAYOUT, Rule.REPLACED, Rule.CALLS, Rule.TIME}


def test_python_time_of_a_renamed_module_is_not_blamed_whatever_else_changed_in_it():
    renamed = {}
    for key, op in NET.ops.items():
        if key.module == module(0):
            now = replace(key, module="Net.stem", shapes=key.shapes.replace("[2,", "[4,"))
            renamed |= {key: None, now: op}
    result = found(NET.with_ops({**renamed, **slower(op_key("aten::relu", module(5)))}))
    assert [culprit.ops[0].op for culprit in result.culprits] == ["aten::relu"]
