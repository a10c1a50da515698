from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.errors import MeasurementError
from perfguard.profile.changes.diff import diff_ops, op_deltas
from perfguard.profile.op_times.typical_steps import typical_steps
from perfguard.records.steps.ops import ChangeClass, StepPhase
from tests.changed_values import replace
from tests.simulated_profiles import BACKWARD, SILENCE, Arm, Noise, Op, network, op_key, profiled, python_key

CONV, RELU, NORM = op_key("aten::convolution"), op_key("aten::relu"), op_key("aten::native_batch_norm")
PLAIN = Arm({CONV: Op(1, 5e-3), RELU: Op(1, 1e-3), NORM: Op(2, 2e-3), python_key(): Op(1, 1e-3)})


def compared(baseline, candidate, noise=SILENCE, seed=0):
    return diff_ops(*profiled(baseline, candidate, noise, np.random.default_rng(seed)))


def deltas_of(baseline, candidate, noise=SILENCE, seed=0):
    return {delta.key: delta for delta in op_deltas(compared(baseline, candidate, noise, seed), moved=())}


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (None, Op(1, 1e-3), ChangeClass.NEW),
        (Op(1, 1e-3), None, ChangeClass.GONE),
        (Op(1, 1e-3), Op(2, 2e-3), ChangeClass.MORE_CALLS),
        (Op(3, 1e-3), Op(2, 2e-3), ChangeClass.FEWER_CALLS),
        (Op(1, 1e-3), Op(1, 2e-3), ChangeClass.SLOWER),
        (Op(1, 2e-3), Op(1, 1e-3), ChangeClass.FASTER),
        (Op(1, 1e-3), Op(1, 1e-3), ChangeClass.UNCHANGED),
    ],
)
def test_what_happened_to_an_op(before, after, change):
    key = op_key("aten::add")
    deltas = deltas_of(PLAIN.with_ops({key: before}), PLAIN.with_ops({key: after}))
    assert deltas[key].change is change
    assert {deltas[other].change for other in PLAIN.ops} == {ChangeClass.UNCHANGED}
    assert deltas[key].baseline_calls == (before.calls if before else 0)
    assert deltas[key].candidate_calls == (after.calls if after else 0)
    assert deltas[key].delta_s == pytest.approx((after.self_s if after else 0) - (before.self_s if before else 0))


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (None, Op(1, 1e-3), ChangeClass.NEW),
        (Op(1, 1e-3), None, ChangeClass.GONE),
        (Op(1, 1e-3), Op(2, 1e-3), ChangeClass.UNCHANGED),
        (Op(2, 2e-3), Op(1, 1e-3), ChangeClass.FASTER),
        (Op(1, 1e-3), Op(2, 2e-3), ChangeClass.SLOWER),
    ],
)
def test_time_in_no_op_comes_and_goes_with_its_place_and_is_else_only_measured(before, after, change):
    key, free_of_cost = python_key("Net.stem"), replace(SILENCE, event_s=0)
    deltas = deltas_of(PLAIN.with_ops({key: before}), PLAIN.with_ops({key: after}), free_of_cost)
    assert deltas[key].change is change


def test_levels_are_the_mean_of_both_arms():
    added = op_key("aten::add")
    diff = compared(PLAIN, PLAIN.with_ops({RELU: Op(1, 4e-3), added: Op(1, 2e-3)}))
    levels_s = dict(zip(diff.ops.keys, diff.levels_s, strict=True))
    assert levels_s == pytest.approx({CONV: 5e-3, RELU: 2.5e-3, NORM: 2e-3, python_key(): 1e-3, added: 1e-3})


@pytest.mark.parametrize(("part", "is_tested"), [(0.55e-3, True), (0.45e-3, False)])
def test_ops_of_less_than_half_a_thousandth_of_the_step_are_not_tested(part, is_tested):
    key, level_s = op_key("aten::add"), PLAIN.step_s * part / (1 - part)
    delta = deltas_of(PLAIN.with_ops({key: Op(1, 0.5 * level_s)}), PLAIN.with_ops({key: Op(1, 1.5 * level_s)}))[key]
    assert delta.change is (ChangeClass.SLOWER if is_tested else ChangeClass.UNCHANGED)
    assert delta.q == (0 if is_tested else 1)


def test_a_count_that_varies_within_an_arm_is_no_change_of_counts():
    baseline, candidate = profiled(PLAIN, PLAIN)
    calls = candidate.profile.calls.copy()
    calls[0, list(candidate.profile.keys).index(RELU)] += 1
    candidate = replace(candidate, profile=replace(candidate.profile, calls=calls))
    assert {*diff_ops(baseline, candidate).changes} == {ChangeClass.UNCHANGED}


@pytest.mark.parametrize(
    ("before", "after", "change", "detail"),
    [
        (("brg_conv:avx512_core",), ("ref:any",), ChangeClass.OTHER_IMPLEMENTATION, "brg_conv:avx512_core → ref:any"),
        (
            ("jit:uni", "brg_conv:avx512_core"),
            ("jit:uni", "brg_conv:avx2"),
            ChangeClass.OTHER_IMPLEMENTATION,
            "brg_conv:avx512_core → brg_conv:avx2",
        ),
        (("brg_conv:avx512_core",), (), ChangeClass.UNCHANGED, ""),
        (("brg_conv:avx512_core",), ("brg_conv:avx512_core", "jit:uni"), ChangeClass.UNCHANGED, ""),
    ],
    ids=["replaced", "one of two", "not placed", "one more placed"],
)
def test_another_implementation_is_one_that_went_and_one_that_came(before, after, change, detail):
    deltas = deltas_of(replace(PLAIN, implementations={CONV: before}), replace(PLAIN, implementations={CONV: after}))
    assert deltas[CONV].change is change
    assert deltas[CONV].detail == detail


def test_an_op_called_from_another_module_only_moved():
    there = replace(CONV, module="Net.stem")
    deltas = deltas_of(PLAIN, PLAIN.with_ops({CONV: None, there: Op(1, 5e-3)}))
    assert deltas[CONV].change is ChangeClass.MOVED
    assert deltas[CONV].detail == "to Net.stem"
    assert deltas[there].change is ChangeClass.MOVED
    assert deltas[there].detail == "from Net.conv"


def test_a_renamed_module_takes_its_python_time_with_it():
    renamed = Arm({replace(key, module="Net.features"): op for key, op in PLAIN.ops.items()})
    assert {delta.change for delta in deltas_of(PLAIN, renamed).values()} == {ChangeClass.MOVED}


@pytest.mark.parametrize("now", [Op(2, 5e-3), None], ids=["called more often", "not at all"])
def test_an_op_that_is_not_called_as_often_elsewhere_did_not_move(now):
    there = replace(CONV, module="Net.stem")
    assert deltas_of(PLAIN, PLAIN.with_ops({CONV: None, there: now}))[CONV].change is ChangeClass.GONE


def test_an_op_prefers_to_have_moved_within_its_phase():
    back, stem = replace(CONV, phase=BACKWARD, module="Net.back"), replace(CONV, module="Net.stem")
    old_back = replace(CONV, phase=BACKWARD, module="Net.old")
    deltas = deltas_of(
        PLAIN.with_ops({old_back: Op(1, 5e-3)}), PLAIN.with_ops({CONV: None, stem: Op(1, 5e-3), back: Op(1, 5e-3)})
    )
    assert deltas[CONV].detail == "to Net.stem"
    assert deltas[old_back].detail == "to Net.back"


@pytest.mark.parametrize(
    ("now", "detail"),
    [
        ({"layouts": "contiguous"}, "layout channels_last → contiguous"),
        ({"dtypes": "bf16"}, "dtype f32 → bf16"),
        ({"shapes": "[4,8,16,16]"}, "shape [2,8,16,16] → [4,8,16,16]"),
        ({"shapes": "[4,8,16,16]", "dtypes": "bf16"}, "shape [2,8,16,16] → [4,8,16,16]"),
    ],
)
def test_an_op_on_other_tensors_says_what_changed_of_them(now, detail):
    other = replace(CONV, **now)
    deltas = deltas_of(PLAIN, PLAIN.with_ops({CONV: None, other: Op(1, 6e-3)}))
    assert deltas[CONV].detail == deltas[other].detail == detail


def test_the_profilers_cost_is_no_ones_time():
    small = {op_key("aten::mul_", shapes=f"[{size}]"): Op(50, 1e-4) for size in range(20)}
    deltas = deltas_of(PLAIN, PLAIN.with_ops(small), replace(SILENCE, event_s=3e-6))
    assert deltas[python_key()].delta_s == pytest.approx(0, abs=1e-9)
    for key in small:
        assert deltas[key].candidate_s == pytest.approx(1e-4)


def test_an_uncertain_cost_of_events_widens_the_interval_of_what_has_more_of_them():
    small = op_key("aten::mul_")
    candidate = PLAIN.with_ops({small: Op(1000, 1e-3)})
    noise = replace(SILENCE, processes=4, steps=6, process_sd=0.01, drift_sd=0.01)
    widths = {delta.key: delta.upper_s - delta.lower_s for delta in deltas_of(PLAIN, candidate, noise, seed=3).values()}
    assert widths[small] > 5 * widths[RELU]


def test_one_process_says_nothing_of_noise():
    diff = compared(PLAIN, PLAIN.with_ops({CONV: Op(1, 9e-3), op_key("aten::add"): Op(1, 1e-3)}), Noise(processes=1))
    deltas = {delta.key: delta for delta in op_deltas(diff, moved=())}
    assert deltas[CONV].change is ChangeClass.UNCHANGED
    assert (deltas[CONV].lower_s, deltas[CONV].upper_s, deltas[CONV].q) == (-np.inf, np.inf, 1.0)
    assert deltas[op_key("aten::add")].change is ChangeClass.NEW


def test_processes_are_paired_by_their_numbers_whatever_their_order():
    noise = Noise(process_sd=0.2)
    baseline, candidate = profiled(PLAIN, PLAIN, noise)
    turned = np.argsort(-candidate.profile.process, kind="stable")
    profile = replace(
        candidate.profile,
        calls=candidate.profile.calls[turned],
        self_s=candidate.profile.self_s[turned],
        wall_s=candidate.profile.wall_s[turned],
        process=candidate.profile.process[turned],
    )
    there, turned_back = diff_ops(baseline, candidate), diff_ops(baseline, replace(candidate, profile=profile))
    np.testing.assert_allclose(there.ops.deltas_s, turned_back.ops.deltas_s)


def test_two_single_traces_are_a_pair_whatever_their_processes_are_called():
    baseline, candidate = profiled(PLAIN, PLAIN, Noise(processes=1))
    profile = replace(candidate.profile, process=candidate.profile.process + 7)
    diff = diff_ops(_without_bare_steps(baseline), _without_bare_steps(replace(candidate, profile=profile)))
    assert len(diff.pairs) == 1


def test_arms_without_a_common_process_cannot_be_compared():
    baseline, candidate = profiled(PLAIN, PLAIN)
    profile = replace(candidate.profile, process=candidate.profile.process + 7)
    with pytest.raises(MeasurementError, match=r"no process was profiled in both arms \(baseline: \[0, 1, 2\]"):
        diff_ops(baseline, replace(candidate, profile=profile))


def test_a_process_that_only_one_arm_has_is_left_out():
    baseline, candidate = profiled(PLAIN, PLAIN)
    kept = candidate.profile.process != 1
    profile = replace(
        candidate.profile,
        calls=candidate.profile.calls[kept],
        self_s=candidate.profile.self_s[kept],
        module_calls=candidate.profile.module_calls[kept],
        child_events=candidate.profile.child_events[kept],
        wall_s=candidate.profile.wall_s[kept],
        process=candidate.profile.process[kept],
    )
    assert diff_ops(baseline, replace(candidate, profile=profile)).pairs.baseline == (0, 2)


@given(st.lists(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=12), min_size=1, max_size=4))
def test_a_typical_step_lies_among_the_middle_ones_of_its_process(walls):
    process = np.repeat(np.arange(len(walls)), [len(steps) for steps in walls])
    typical = typical_steps(np.concatenate(walls), process, tuple(range(len(walls))))
    for steps, value in zip(walls, typical, strict=True):
        assert np.quantile(steps, 0.25) <= value * (1 + 1e-9)
        assert value <= np.quantile(steps, 0.75) * (1 + 1e-9)


def test_bursts_in_two_steps_of_six_count_for_no_op():
    baseline, candidate = profiled(PLAIN, PLAIN, replace(SILENCE, steps=6))
    self_s, wall_s = candidate.profile.self_s.copy(), candidate.profile.wall_s.copy()
    for step, op in ((7, 0), (9, 0), (8, 1), (9, 1)):
        self_s[step, op] += 0.1
        wall_s[step] += 0.1
    disturbed = replace(candidate, profile=replace(candidate.profile, self_s=self_s, wall_s=wall_s))
    there, quiet = diff_ops(baseline, disturbed), diff_ops(baseline, candidate)
    np.testing.assert_allclose(there.ops.deltas_s, quiet.ops.deltas_s, atol=1e-12)


times = st.floats(1e-5, 1e-2)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(times, times, st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8), st.integers(0, 9)
)
def test_exchanging_the_arms_negates_every_difference(ops, seed):
    keys = [op_key(f"aten::op{index}") for index in range(len(ops))]
    before = PLAIN.with_ops({k: Op(c, s) if c else None for k, (s, _, c, _) in zip(keys, ops, strict=True)})
    after = PLAIN.with_ops({k: Op(c, s) if c else None for k, (_, s, _, c) in zip(keys, ops, strict=True)})
    arms = profiled(before, after, Noise(), np.random.default_rng(seed))
    there = {delta.key: delta for delta in op_deltas(diff_ops(*arms), moved=())}
    back = {delta.key: delta for delta in op_deltas(diff_ops(*reversed(arms)), moved=())}
    opposite = {
        ChangeClass.NEW: ChangeClass.GONE,
        ChangeClass.MORE_CALLS: ChangeClass.FEWER_CALLS,
        ChangeClass.SLOWER: ChangeClass.FASTER,
    }
    opposite |= {there: back for back, there in opposite.items()}
    for key, delta in there.items():
        assert back[key].delta_s == pytest.approx(-delta.delta_s, abs=1e-12)
        assert back[key].lower_s == pytest.approx(-delta.upper_s, rel=1e-6, abs=1e-9)
        assert back[key].change is opposite.get(delta.change, delta.change)


def test_the_largest_difference_comes_first():
    diff = compared(PLAIN, PLAIN.with_ops({CONV: Op(1, 1e-3), RELU: Op(1, 3e-3)}))
    sizes = [abs(delta.delta_s) for delta in op_deltas(diff, moved=())]
    assert sizes == sorted(sizes, reverse=True)


def test_ops_too_small_to_matter_are_not_tested_but_still_counted():
    arm = network(8)
    tiny = op_key("aten::conv2d", "ResNet.layer1.0.conv", shapes="[8,64,28,28]")
    diff = compared(arm, arm.with_ops({tiny: Op(3, 4e-6)}), Noise())
    delta = next(delta for delta in op_deltas(diff, moved=()) if delta.key == tiny)
    assert delta.change is ChangeClass.MORE_CALLS
    assert delta.q == 1.0


def test_a_source_line_comes_with_its_op():
    assert deltas_of(PLAIN, PLAIN)[RELU].source == "train.py:1"


def test_a_phase_of_its_own_is_another_op():
    other = replace(CONV, phase=StepPhase.LOSS)
    deltas = deltas_of(PLAIN.with_ops({other: Op(1, 1e-3)}), PLAIN.with_ops({other: Op(1, 3e-3)}))
    assert deltas[other].change is ChangeClass.SLOWER
    assert deltas[CONV].change is ChangeClass.UNCHANGED


def _without_bare_steps(arm):
    none = np.empty(0)
    return replace(arm, bare_s=none, bare_thread_s=none, bare_process=none.astype(np.int64))
