"""What a culprit says of its ops: code, names, counts, place and line; and in which order culprits come."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfguard.profile.changes.attribution import attribute
from perfguard.profile.changes.op_counts import classify
from perfguard.records.steps.ops import StepPhase
from tests.changed_values import replace
from tests.op_count_rows import FORWARD, counts, op
from tests.simulated_profiles import BACKWARD, SILENCE, Arm, Noise, Op, fused_adam, op_key, profiled, python_key

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
NOISY = replace(SILENCE, processes=4, layout_sd=(0.2, 0.2))


def compared(changed, baseline=NET, noise=SILENCE, changes=(), sources=None, **implementations):
    candidate = baseline.with_ops(changed)
    if implementations:
        baseline = replace(baseline, implementations={CONV: implementations["before"]})
        candidate = replace(candidate, implementations={CONV: implementations["after"]})
    arms = [_with_sources(arm, sources or {}) for arm in profiled(baseline, candidate, noise)]
    return attribute("case", *arms, changes)


def _with_sources(arm, sources):
    return replace(arm, profile=replace(arm.profile, sources=sources))


def slower(key, by_s):
    return {key: replace(NET.ops[key], self_s=NET.ops[key].self_s + by_s)}


def codes_of(attribution):
    return [culprit.fact.code for culprit in attribution.culprits]


def test_an_unfused_optimizer_has_both_ways_of_updating_its_calls_and_its_line():
    mul, addcdiv = op_key("aten::mul_", "Adam", OPTIMIZER), op_key("aten::addcdiv_", "Adam", OPTIMIZER)
    changed = {fused_adam(): None, mul: Op(620, 9e-3), addcdiv: Op(620, 6.828e-3), **slower(CONV, 0.372e-3)}
    found = compared(changed, sources={mul: "train.py:88"})
    culprit = found.culprits[0]
    assert culprit.fact.code == "optimizer.unfused"
    assert (culprit.fact.subject.op, culprit.fact.subject.place) == ("Adam", "train.py:88")
    values = culprit.fact.values
    assert (values["lost"], values["gained"]) == (("_fused_adam_",), ("mul_", "addcdiv_"))
    assert (values["before"], values["after"]) == (1, 1240)
    assert culprit.share == pytest.approx(0.94, abs=0.005)
    assert found.balance.delta_s / found.balance.baseline_s == pytest.approx(0.062)


def test_of_many_small_ops_wrappers_are_not_counted():
    small = {op_key(f"aten::op{index}_", "Adam", OPTIMIZER): Op(100, 5e-3 - index * 1e-4) for index in range(5)}
    wrapper = {op_key("aten::to", "Adam", OPTIMIZER): Op(100, 1e-4)}
    values = compared({fused_adam(): None, **small, **wrapper}).culprits[0].fact.values
    assert (values["gained"], values["after"]) == (tuple(f"op{index}_" for index in range(5)), 500)


def test_what_a_fused_op_had_to_prepare_is_not_named():
    copies = op_key("aten::copy_", "Adam", OPTIMIZER)
    mul = op_key("aten::mul_", "Adam", OPTIMIZER)
    baseline = NET.with_ops({copies: Op(9, 8e-3)})
    values = (
        compared({fused_adam(): None, copies: None, mul: Op(100, 40e-3)}, baseline=baseline).culprits[0].fact.values
    )
    assert (values["lost"], values["before"]) == (("_fused_adam_",), 1)
    assert (values["gained"], values["after"]) == (("mul_",), 100)


@pytest.mark.parametrize(
    ("changed", "code", "values"),
    [
        (
            slower(CONV, 4e-3),
            "op.slower",
            {"ops": ("mkldnn_convolution",), "tensors": f"{CONV.shapes} f32 channels_last", "places": 1},
        ),
        (
            {**slower(CONV, 4e-3), **slower(STEM, 4e-3)},
            "op.slower",
            {"ops": ("mkldnn_convolution",), "tensors": "", "places": 2},
        ),
        (slower(python_key(CONV.module), 4e-3), "python.time", {"is_more": True}),
        ({CONV: Op(2, 40e-3)}, "calls.added", {"ops": ("mkldnn_convolution",), "before": 1, "after": 2}),
        (
            {CONV: Op(2, 40e-3), python_key(CONV.module): Op(1, 2e-3), BACK: Op(2, 80e-3)},
            "calls.added",
            {"ops": ("convolution_backward", "mkldnn_convolution"), "before": 1, "after": 2},
        ),
        (
            {op_key("aten::copy_", CONV.module): Op(2, 5e-3), op_key("aten::clone", CONV.module): Op(2, 1e-4)},
            "copies.added",
            {"number": 2, "by": "copy_", "before": 0, "after": 2},
        ),
        (
            {CONV: None, replace(CONV, op="aten::_slow_conv2d_forward"): Op(1, 50e-3)},
            "convolution.changed",
            {"lost": ("mkldnn_convolution",), "gained": ("_slow_conv2d_forward",), "calls": 1},
        ),
        (
            {CONV: None, replace(CONV, op="aten::something"): Op(1, 50e-3)},
            "ops.replaced",
            {"lost": ("mkldnn_convolution",), "gained": ("something",), "before": 1, "after": 1},
        ),
        (
            {
                CONV: None,
                replace(CONV, layouts="contiguous"): Op(1, 21e-3),
                op_key("aten::copy_", CONV.module): Op(2, 2e-3),
            },
            "layout.lost",
            {"lost": "channels_last", "gained": "contiguous", "extra_copies": 2},
        ),
        (
            {CONV: None, replace(CONV, dtypes="bf16 bf16"): Op(1, 28e-3)},
            "dtype.changed",
            {"lost": "f32", "gained": "bf16"},
        ),
        (
            {CONV: None, replace(CONV, shapes="[4,8,16,16]"): Op(1, 28e-3)},
            "shapes.changed",
            {"examples": ("[2,8,16,16] [8,8,3,3] → [4,8,16,16]",)},
        ),
    ],
    ids=[
        *("slower", "in places", "python", "calls", "calls of two", "copies", "convolution", "replaced"),
        *("layout", "dtype", "shape"),
    ],
)  # fmt: skip
def test_a_culprit_says_what_happened_to_its_ops(changed, code, values):
    (culprit,) = compared(changed).culprits
    assert culprit.fact.code == code
    assert {name: culprit.fact.values[name] for name in values} == values
    assert culprit.share == pytest.approx(1)


def test_how_much_slower_an_op_is_is_a_part_of_its_own_time():
    assert compared(slower(CONV, 4e-3)).culprits[0].fact.values["changed_ratio"] == pytest.approx(0.2)
    faster = compared(slower(BACK, -30e-3)).culprits[0].fact
    assert (faster.code, faster.values["changed_ratio"]) == ("op.faster", pytest.approx(0.508, abs=0.001))


def test_another_implementation_has_both_names_and_the_tensors():
    found = compared(slower(CONV, 4e-3), before=("brg_conv:avx512_core_bf16",), after=("ref:any",))
    values = found.culprits[0].fact.values
    assert (values["primitive"], values["lost"]) == ("mkldnn_convolution", ("brg_conv:avx512_core_bf16",))
    assert (values["gained"], values["tensors"]) == (("ref:any",), "[2,8,16,16] [8,8,3,3] f32 channels_last")


def test_a_fused_op_in_pieces_has_the_code_of_the_op_counts():
    flash = op_key("aten::_scaled_dot_product_flash_attention_for_cpu", "Net.attention")
    pieces = {op_key(f"aten::{name}", "Net.attention"): Op(2, 10e-3) for name in ("bmm", "_softmax", "masked_fill_")}
    (culprit,) = compared({flash: None, **pieces}, baseline=NET.with_ops({flash: Op(1, 9e-3)})).culprits
    assert culprit.fact.code == "attention.unfused"
    assert culprit.fact.values["lost"] == ("_scaled_dot_product_flash_attention_for_cpu",)


def test_op_counts_say_what_a_culprit_is_and_how_often():
    mul, addcdiv = op_key("aten::mul_", "Adam", OPTIMIZER), op_key("aten::addcdiv_", "Adam", OPTIMIZER)
    adam = {"module": "Adam", "phase": OPTIMIZER}
    changes = classify(counts(op("_fused_adam_", **adam)), counts(op("mul_", 320, **adam), op("addcdiv_", 200, **adam)))
    timed = {fused_adam(): None, mul: Op(320, 15e-3), addcdiv: Op(200, 1e-3)}
    found = compared(timed, sources={mul: "train.py:88"}, changes=changes)
    (culprit,), (change,) = found.culprits, found.op_count_changes
    assert (culprit.fact.code, culprit.fact.values) == (change.fact.code, change.fact.values)
    assert (culprit.fact.subject.place, change.fact.subject.place) == ("train.py:88", None)
    assert culprit.fact.values["after"] == 520


def test_each_change_of_op_counts_is_one_culprit_s():
    first, second = op_key("aten::copy_", "Net.stem"), op_key("aten::erf", "Net.head")
    changes = classify(counts(), counts(op("copy_", 2, module="Net.stem"), op("erf", 3, module="Net.head")))
    found = compared({first: Op(2, 9e-3), second: Op(3, 4e-3)}, changes=changes)
    assert [(culprit.fact.code, culprit.fact.subject.op) for culprit in found.culprits] == [
        ("copies.added", "Net.stem"),
        ("ops.added", "Net.head"),
    ]
    assert [culprit.fact.values["after"] for culprit in found.culprits] == [2, 3]


def test_op_counts_of_other_places_say_nothing_of_a_culprit():
    changes = classify(counts(), counts(op("copy_", 7, module="Net.elsewhere", phase=FORWARD)))
    found = compared({op_key("aten::copy_", "Net.stem"): Op(2, 9e-3)}, changes=changes)
    assert found.culprits[0].fact.values["after"] == 2


def test_without_a_difference_there_is_no_culprit_and_one_process_says_why():
    assert compared({}, noise=Noise(bimodal=0, burst=0)).culprits == ()
    found = compared(slower(CONV, 9e-3), noise=Noise(processes=1))
    assert found.culprits == ()
    assert [note.code for note in found.notes] == ["ops.one_process"]


def test_python_time_that_scatters_is_named_where_nothing_else_explains_the_step():
    """As where three `.item()` calls wait: no place differs significantly, and the step does."""
    rng = np.random.default_rng(6)
    modules = [f"Net.{number}" for number in range(12)]
    net = NET.with_ops({python_key(name): Op(1, 2e-3) for name in modules})
    trifle = op_key("aten::empty", "Net.stem")
    baseline, candidate = profiled(net, net.with_ops({trifle: Op(3, 0.2e-3)}), SILENCE, rng)
    columns = [candidate.profile.keys.index(python_key(name)) for name in modules]
    self_s, process = candidate.profile.self_s.copy(), candidate.profile.process
    paying = (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2)  # one process pays for a module, and not as much as another one
    for turn, column in zip(paying, columns, strict=True):
        self_s[process == turn, column] += 9e-3
    slow = replace(
        candidate,
        profile=replace(candidate.profile, self_s=self_s),
        bare_s=candidate.bare_s + 36e-3,
        bare_thread_s=candidate.bare_thread_s + 36e-3,
    )
    found = attribute("case", baseline, slow)
    assert not found.balance.is_in_doubt
    assert codes_of(found) == ["python.time", "ops.added"]
    assert found.culprits[0].share == pytest.approx(1, abs=0.05)
    assert math.isinf(found.culprits[0].upper_s)


def test_a_step_in_doubt_has_culprits_without_a_share():
    rng = np.random.default_rng(4)
    small = {op_key(f"aten::op{index}", f"Net.{index}"): Op(1, 1e-3) for index in range(20)}
    net = NET.with_ops(small)
    slow = next(iter(small))
    noise = replace(SILENCE, processes=4, layout_sd=(0.1, 0.1))
    found = attribute("case", *profiled(net, net.with_ops({slow: Op(1, 4e-3)}), noise, rng))
    assert found.balance.is_in_doubt
    culprit = next(culprit for culprit in found.culprits if culprit.fact.values["ops"] == ("op0",))
    assert math.isnan(culprit.share)


def test_what_costs_less_than_its_noise_is_certain_and_not_blamed():
    rng = np.random.default_rng(3)
    added = op_key("aten::copy_", "Net.head")
    net = NET.with_ops({added: Op(4, 5e-3)})
    (culprit,) = attribute("case", *profiled(net, net.with_ops({added: Op(5, 5e-3)}), NOISY, rng)).culprits
    assert culprit.is_within_noise
    assert np.isnan(culprit.share)
    assert (culprit.fact.code, culprit.fact.values["before"], culprit.fact.values["after"]) == ("calls.added", 4, 5)


def test_among_changes_within_the_noise_the_one_that_brings_the_others_comes_first():
    rng = np.random.default_rng(4)
    copies, gain = op_key("aten::copy_", "Net.head"), op_key("aten::mul", "Net.gain", dtypes="f32 f32")
    net = NET.with_ops({copies: Op(4, 5e-3), gain: Op(1, 1e-3)})
    promoted = {gain: None, replace(gain, dtypes="f32 f64"): Op(1, 1e-3), copies: Op(5, 6e-3)}
    found = attribute("case", *profiled(net, net.with_ops(promoted), NOISY, rng))
    assert all(culprit.is_within_noise for culprit in found.culprits)
    assert abs(found.culprits[1].delta_s) > abs(found.culprits[0].delta_s)
    assert found.culprits[0].fact.code == "dtype.changed"


def test_a_change_that_cannot_have_cost_what_the_step_lost_comes_after_one_that_may_have():
    rng = np.random.default_rng(4)
    gain = op_key("aten::mul", "Net.large")
    update = op_key("aten::copy_", "SGD", StepPhase.OPTIMIZER)
    net = NET.with_ops({gain: Op(1, 20e-3), update: Op(4, 3e-3)})
    other = replace(gain, layouts="contiguous")
    found = attribute(
        "case", *profiled(net, net.with_ops({gain: None, other: Op(1, 24e-3), update: Op(3, 2.6e-3)}), NOISY, rng)
    )
    assert {culprit.is_within_noise for culprit in found.culprits} == {True}
    assert [culprit.ops[0].module for culprit in found.culprits] == ["Net.large", "SGD"]


@pytest.mark.parametrize(
    ("cost_s", "part", "certain_comes_first"),
    [(0.4e-3, 0.02, True), (4e-3, 0.19, True), (16e-3, 0.49, False)],
    ids=["next to nothing", "less than the change by its estimate", "more than it"],
)
def test_what_rests_on_times_comes_after_a_change_that_may_be_all_of_it_and_is_estimated_to_cost_more(
    cost_s, part, certain_comes_first
):
    """As where an optimizer that is no longer fused makes some `free` return memory that it did not before."""
    rng = np.random.default_rng(5)
    copies, free = op_key("aten::copy_", "Net.head"), op_key("ConvolutionBackward0", "Net.last", BACKWARD)
    net = NET.with_ops({copies: Op(4, 15e-3), free: Op(1, 40e-6)})
    found = attribute("case", *profiled(net, net.with_ops({copies: Op(5, 18e-3), free: Op(1, cost_s)}), NOISY, rng))
    assert not found.balance.is_in_doubt
    certain, times = (next(culprit for culprit in found.culprits if key in culprit.ops) for key in (copies, free))
    assert (certain.is_within_noise, times.is_within_noise) == (True, False)
    assert times.delta_s / found.balance.delta_s == pytest.approx(part, abs=0.005)
    assert (found.culprits[0] is certain) is certain_comes_first


def test_more_updates_by_the_same_fused_op_are_no_change_of_fusion():
    (culprit,) = compared({fused_adam(): Op(2, 30e-3)}).culprits
    assert (culprit.fact.code, culprit.fact.values["gained"]) == ("optimizer.changed", ("_fused_adam_",))


@pytest.mark.parametrize(("place", "line"), [("Net.layer1", "net.py:29"), (CONV.module, "net.py:14")])
def test_a_lost_memory_format_has_the_line_of_the_copy_above_the_ops_that_feel_it(place, line):
    now, copy = replace(CONV, layouts="contiguous"), op_key("aten::copy_", place)
    found = compared(
        {CONV: None, now: Op(1, 25e-3), copy: Op(1, 1e-3)},
        sources={CONV: "net.py:14", now: "net.py:14", copy: "net.py:29"},
    )
    assert found.culprits[0].fact.subject.place == line


@pytest.mark.parametrize("others_s", [0.0, -30e-3, 30e-3])
def test_single_traces_tell_of_an_unfused_optimizer_whatever_the_times_say(others_s):
    mul = op_key("aten::mul_", "Adam", OPTIMIZER)
    changed = {fused_adam(): None, mul: Op(620, 15e-3), **slower(BACK, others_s)}
    found = compared(changed, noise=replace(SILENCE, processes=1))
    assert codes_of(found) == ["optimizer.unfused"]
    assert found.culprits[0].fact.values["after"] == 620


def test_a_cost_that_moved_is_a_note():
    found = compared({**slower(CONV, 5e-3), **slower(BACK, -5e-3)})
    assert found.culprits == ()
    (note,) = found.notes
    assert (note.code, note.values["moved_s"]) == ("cost.moved", pytest.approx(5e-3))
    assert (note.values["source"], note.values["target"]) == ("convolution_backward", "mkldnn_convolution")
    assert note.values["source_module"] == note.values["target_module"] == "Net.layer1.0.conv"
