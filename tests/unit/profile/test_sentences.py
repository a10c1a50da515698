from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from perfguard.profile.changes.culprits.finding import find_causes
from perfguard.profile.changes.culprits.offsets import MovedCost
from perfguard.profile.changes.culprits.weighing import established
from perfguard.profile.changes.sentences import is_worth_telling

from perfguard.profile.changes.attribution import attribute
from perfguard.profile.changes.balance import balance_of
from perfguard.profile.changes.diff import diff_ops
from perfguard.records.steps.ops import CensusChange, StepPhase
from tests.simulated_profiles import (
    BACKWARD,
    SILENCE,
    Arm,
    Noise,
    Op,
    fused_adam,
    op_key,
    profiled,
    python_key,
)

OPTIMIZER = StepPhase.OPTIMIZER
CONV = op_key("aten::mkldnn_convolution", "Net.layer1.0.conv", shapes="[2,8,16,16] [8,8,3,3]", dtypes="f32 f32")
BACK = replace(CONV, op="aten::convolution_backward", phase=BACKWARD)
STEM = replace(CONV, module="Net.stem")
NET = Arm(
    {
        CONV: Op(1, 20e-3),
        STEM: Op(1, 10e-3),
        BACK: Op(1, 59e-3),
        fused_adam(): Op(1, 10e-3),
        python_key(CONV.module): Op(1, 1e-3),
    }
)
MISSES = CensusChange(
    phase=StepPhase.FORWARD,
    module="Net",
    rule="cache-misses",
    before=0,
    after=1,
    sentence="steady-state primitive-cache misses: 1 a step",
)


def sentence(changed, baseline=NET, noise=SILENCE, census=(), sources=None, **implementations):
    candidate = baseline.with_ops(changed)
    if implementations:
        baseline = replace(baseline, implementations={CONV: implementations["before"]})
        candidate = replace(candidate, implementations={CONV: implementations["after"]})
    arms = [_with_sources(arm, sources or {}) for arm in profiled(baseline, candidate, noise)]
    return attribute("case", *arms, census).sentence


def _with_sources(arm, sources):
    return replace(arm, profile=replace(arm.profile, sources=sources))


def slower(key, by_s):
    return {key: replace(NET.ops[key], self_s=NET.ops[key].self_s + by_s)}


def test_an_unfused_optimizer():
    mul, addcdiv = op_key("aten::mul_", "Adam", OPTIMIZER), op_key("aten::addcdiv_", "Adam", OPTIMIZER)
    changed = {fused_adam(): None, mul: Op(620, 9e-3), addcdiv: Op(620, 6.828e-3), **slower(CONV, 0.372e-3)}
    assert sentence(changed, sources={mul: "train.py:88"}) == (
        "step +6.2 % [+6.2 %, +6.2 %]; 94 % of it: Adam no longer fused, 1 `_fused_adam_` → 1,240 `mul_`/`addcdiv_` "
        "(train.py:88)"
    )


def test_of_many_small_ops_two_are_named_and_all_are_counted():
    small = {op_key(f"aten::op{index}_", "Adam", OPTIMIZER): Op(100, 5e-3 - index * 1e-4) for index in range(5)}
    wrapper = {op_key("aten::to", "Adam", OPTIMIZER): Op(100, 1e-4)}
    said = sentence({fused_adam(): None, **small, **wrapper})
    assert said.endswith("Adam no longer fused, 1 `_fused_adam_` → 500 `op0_`/`op1_`/…")


def test_what_a_fused_op_had_to_prepare_is_not_named():
    copies = op_key("aten::copy_", "Adam", OPTIMIZER)
    mul = op_key("aten::mul_", "Adam", OPTIMIZER)
    baseline = NET.with_ops({copies: Op(9, 8e-3)})
    said = sentence({fused_adam(): None, copies: None, mul: Op(100, 40e-3)}, baseline=baseline)
    assert "; all of it: Adam no longer fused, 1 `_fused_adam_` → 100 `mul_`" in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            slower(CONV, 4e-3),
            f"all of it: `mkldnn_convolution` 20.0 % slower in Net.layer1.0.conv on {CONV.shapes} f32 channels_last",
        ),
        (
            {**slower(CONV, 4e-3), **slower(STEM, 4e-3)},
            "all of it: `mkldnn_convolution` 26.7 % slower in 2 places",
        ),
        (slower(python_key(CONV.module), 4e-3), "all of it: python time in Net.layer1.0.conv"),
        (
            {CONV: Op(2, 40e-3)},
            "all of it: `mkldnn_convolution` called 2 instead of 1 times in Net.layer1.0.conv",
        ),
        (
            {CONV: Op(2, 40e-3), python_key(CONV.module): Op(1, 2e-3), BACK: Op(2, 80e-3)},
            "all of it: `convolution_backward` and 1 other op called 2 instead of 1 times in Net.layer1.0.conv",
        ),
        (
            {op_key("aten::copy_", CONV.module): Op(2, 5e-3), op_key("aten::clone", CONV.module): Op(2, 1e-4)},
            "all of it: 2 `copy_` more in Net.layer1.0.conv",
        ),
        (
            {CONV: None, replace(CONV, op="aten::_slow_conv2d_forward"): Op(1, 50e-3)},
            "all of it: 1 `mkldnn_convolution` → 1 `_slow_conv2d_forward` in Net.layer1.0.conv",
        ),
        (
            {
                CONV: None,
                replace(CONV, layouts="contiguous"): Op(1, 21e-3),
                op_key("aten::copy_", CONV.module): Op(2, 2e-3),
            },
            "all of it: channels_last lost in Net.layer1.0.conv (now contiguous), 2 `copy_` more",
        ),
        (
            {CONV: None, replace(CONV, dtypes="bf16 bf16"): Op(1, 28e-3)},
            "all of it: dtype f32 → bf16 in Net.layer1.0.conv",
        ),
        (
            {CONV: None, replace(CONV, shapes="[4,8,16,16]"): Op(1, 28e-3)},
            "all of it: shape [2,8,16,16] [8,8,3,3] → [4,8,16,16] in Net.layer1.0.conv",
        ),
    ],
    ids=["slower", "in places", "python", "calls", "calls of two", "copies", "replaced", "layout", "dtype", "shape"],
)
def test_what_happened_is_said_in_the_ops_own_words(changed, said):
    assert sentence(changed).partition("; ")[2] == said


def test_another_implementation_is_said_with_both_names_and_the_tensors():
    said = sentence(slower(CONV, 4e-3), before=("brg_conv:avx512_core_bf16",), after=("ref:any",))
    assert said.endswith(
        "; all of it: `mkldnn_convolution` in Net.layer1.0.conv: brg_conv:avx512_core_bf16 → ref:any, "
        "[2,8,16,16] [8,8,3,3] f32 channels_last"
    )


def test_culprits_are_named_until_most_of_the_step_is_explained():
    changed = {**slower(CONV, 6e-3), **slower(BACK, 3e-3), **slower(fused_adam(), 1e-3)}
    said = sentence(changed)
    assert "; 60 % of it: `mkldnn_convolution`" in said
    assert "; 30 % of it: `convolution_backward`" in said
    assert "_fused_adam_" not in said


def test_a_culprit_that_is_offset_elsewhere_is_more_than_all_of_it():
    said = sentence({**slower(CONV, 6e-3), **slower(BACK, -3e-3)})
    assert said.startswith("step +3.0 % [+3.0 %, +3.0 %]; more than all of it: `mkldnn_convolution`")


def test_a_faster_step_is_explained_too():
    said = sentence(slower(BACK, -30e-3))
    assert said.startswith("step -30.0 % [-30.0 %, -30.0 %]; all of it: `convolution_backward` 50.8 % faster")


def test_without_a_culprit_the_sentence_says_why():
    assert sentence({}, noise=Noise(bimodal=0, burst=0)).endswith("; no op stands out from the noise")
    assert sentence(slower(CONV, 9e-3), noise=Noise(processes=1)).endswith(
        "; one process of each arm, so times prove nothing"
    )


def test_without_a_culprit_what_is_executed_otherwise_is_told():
    assert sentence({}, census=(MISSES,)).endswith(
        "; executed otherwise: steady-state primitive-cache misses: 1 a step"
    )
    assert "executed otherwise" not in sentence(slower(CONV, 9e-3), census=(MISSES,))


def test_a_step_in_doubt_has_culprits_with_their_own_size():
    rng = np.random.default_rng(4)
    small = {op_key(f"aten::op{index}", f"Net.{index}"): Op(1, 1e-3) for index in range(20)}
    net = NET.with_ops(small)
    slow = next(iter(small))
    noise = replace(SILENCE, processes=4, layout_sd=(0.1, 0.1))
    said = attribute("case", *profiled(net, net.with_ops({slow: Op(1, 4e-3)}), noise, rng), ()).sentence
    assert said.startswith("the profiled steps cannot be told apart (")
    assert "% of the step: `op0`" in said


def test_what_costs_less_than_its_noise_is_told_as_a_fact_and_not_blamed():
    rng = np.random.default_rng(3)
    noisy = replace(SILENCE, processes=4, layout_sd=(0.2, 0.2))
    added = op_key("aten::copy_", "Net.head")
    net = NET.with_ops({added: Op(4, 5e-3)})
    found = attribute("case", *profiled(net, net.with_ops({added: Op(5, 5e-3)}), noisy, rng), ())
    (fact,) = found.culprits
    assert fact.is_within_noise
    assert np.isnan(fact.share)
    assert found.sentence.endswith(
        "; executed otherwise, at a cost within the noise: `copy_` called 5 instead of 4 times in Net.head (train.py:5)"
    )


def test_among_facts_within_the_noise_the_one_that_brings_the_others_is_told():
    rng = np.random.default_rng(4)
    noisy = replace(SILENCE, processes=4, layout_sd=(0.2, 0.2))
    copies, gain = op_key("aten::copy_", "Net.head"), op_key("aten::mul", "Net.gain", dtypes="f32 f32")
    net = NET.with_ops({copies: Op(4, 5e-3), gain: Op(1, 1e-3)})
    promoted = {gain: None, replace(gain, dtypes="f32 f64"): Op(1, 1e-3), copies: Op(5, 6e-3)}
    found = attribute("case", *profiled(net, net.with_ops(promoted), noisy, rng), ())
    assert all(fact.is_within_noise for fact in found.culprits)
    assert abs(found.culprits[1].delta_s) > abs(found.culprits[0].delta_s)
    assert "executed otherwise, at a cost within the noise: dtype f32 → f64 in Net.gain" in found.sentence


def test_a_fact_that_cannot_have_cost_what_the_step_lost_comes_after_one_that_may_have():
    rng = np.random.default_rng(4)
    noisy = replace(SILENCE, processes=4, layout_sd=(0.2, 0.2))
    gain = op_key("aten::mul", "Net.large")
    update = op_key("aten::copy_", "SGD", StepPhase.OPTIMIZER)
    net = NET.with_ops({gain: Op(1, 20e-3), update: Op(4, 3e-3)})
    other = replace(gain, layouts="contiguous")
    found = attribute(
        "case", *profiled(net, net.with_ops({gain: None, other: Op(1, 24e-3), update: Op(3, 2.6e-3)}), noisy, rng), ()
    )
    assert {culprit.is_within_noise for culprit in found.culprits} == {True}
    assert [culprit.ops[0].module for culprit in found.culprits] == ["Net.large", "SGD"]


@pytest.mark.parametrize(
    ("cost_s", "part", "said"),
    [
        (0.4e-3, 0.02, "{fact}"),
        (4e-3, 0.19, "{fact}; 19 % of the difference: {times}"),
        (16e-3, 0.49, "49 % of it: {times}"),
    ],
    ids=["next to nothing", "less than the fact by its estimate", "more than it"],
)
def test_what_rests_on_times_comes_after_a_fact_that_may_be_all_of_it_and_is_estimated_to_cost_more(cost_s, part, said):
    """As where an optimizer that is no longer fused makes some `free` return memory that it did not before."""
    rng = np.random.default_rng(5)
    noisy = replace(SILENCE, processes=4, layout_sd=(0.2, 0.2))
    copies, free = op_key("aten::copy_", "Net.head"), op_key("ConvolutionBackward0", "Net.last", BACKWARD)
    net = NET.with_ops({copies: Op(4, 15e-3), free: Op(1, 40e-6)})
    found = attribute("case", *profiled(net, net.with_ops({copies: Op(5, 18e-3), free: Op(1, cost_s)}), noisy, rng), ())
    assert not found.balance.is_in_doubt
    fact, times = (next(culprit for culprit in found.culprits if key in culprit.ops) for key in (copies, free))
    assert (fact.is_within_noise, times.is_within_noise) == (True, False)
    assert times.delta_s / found.balance.delta_s == pytest.approx(part, abs=0.005)
    assert (found.culprits[0] is fact) == said.startswith("{fact}")
    assert found.sentence.endswith(
        said.format(fact=f"executed otherwise, at a cost within the noise: {fact.sentence}", times=times.sentence)
    )


def test_more_updates_by_the_same_fused_op_are_no_change_of_fusion():
    said = sentence({fused_adam(): Op(2, 30e-3)})
    assert "fused," not in said
    assert "Adam, 1 `_fused_adam_` more" in said


@pytest.mark.parametrize(("place", "line"), [("Net.layer1", "net.py:29"), (CONV.module, "net.py:14")])
def test_a_lost_memory_format_has_the_line_of_the_copy_above_the_ops_that_feel_it(place, line):
    now, copy = replace(CONV, layouts="contiguous"), op_key("aten::copy_", place)
    said = sentence(
        {CONV: None, now: Op(1, 25e-3), copy: Op(1, 1e-3)},
        sources={CONV: "net.py:14", now: "net.py:14", copy: "net.py:29"},
    )
    assert said.endswith(f"({line})")


@pytest.mark.parametrize(("others_s", "is_blamed"), [(0.0, True), (-30e-3, False), (30e-3, False)])
def test_single_traces_tell_of_an_unfused_optimizer_whatever_the_times_say(others_s, is_blamed):
    mul = op_key("aten::mul_", "Adam", OPTIMIZER)
    changed = {fused_adam(): None, mul: Op(620, 15e-3), **slower(BACK, others_s)}
    said = sentence(changed, noise=replace(SILENCE, processes=1))
    assert "Adam no longer fused, 1 `_fused_adam_` → 620 `mul_`" in said
    assert ("executed otherwise: Adam" in said) is not is_blamed


def test_a_cost_that_moved_is_told_as_such():
    said = sentence({**slower(CONV, 5e-3), **slower(BACK, -5e-3)})
    assert said.endswith(
        "; no op stands out from the noise"
        "; 5.000 ms moved from `convolution_backward` in Net.layer1.0.conv "
        "to `mkldnn_convolution` in Net.layer1.0.conv, not blamed"
    )


@pytest.mark.parametrize(
    ("moved_s", "culprits", "is_told"),
    [(0.04, 1, False), (0.06, 1, True), (0.04, 0, True)],
    ids=["small", "as large as a culprit", "nothing else to tell"],
)
def test_a_cost_that_moved_is_told_where_it_is_worth_it(moved_s, culprits, is_told):
    arms = profiled(NET, NET.with_ops(slower(STEM, 1.0)), SILENCE)
    diff = diff_ops(*arms)
    balance = balance_of(*arms, diff)
    (cause,) = established(diff, find_causes(diff))
    cost = MovedCost(rises=(replace(cause, delta_s=moved_s),), falls=(replace(cause, delta_s=-moved_s),))
    named = attribute("case", *arms, ()).culprits[:culprits]
    assert is_worth_telling(cost, balance, named) is is_told
