"""Culprits of injected slowdowns, false culprits, coverage and false discoveries, by seeded simulation.

Each slowdown is 3 % of the step. The noise is in `tests/simulated_profiles.py`: luck of layout in every process,
bursts, drift that both arms share, and the profiler's own cost.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from perfguard.profile.changes.attribution import attribute
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, StepPhase
from tests.changed_values import replace
from tests.simulated_profiles import (
    BACKWARD,
    CONVOLUTION,
    CONVOLUTION_BACKWARD,
    Noise,
    Op,
    fused_adam,
    network,
    op_key,
    profiled,
)

NETWORK = network()
SLOWDOWN = 0.03
TRIALS = 40


def extra_s():
    return SLOWDOWN * NETWORK.step_s


def slower(op, by_s):
    return replace(op, self_s=op.self_s + by_s)


def one_of(rng, *names):
    keys = [key for key in NETWORK.ops if key.op in names]
    return keys[rng.integers(len(keys))]


def large_ops():
    return [key for key, op in NETWORK.ops.items() if op.self_s > 20e-6 and key.op != PYTHON_OP]


def spin_in_one_op(rng):
    keys = large_ops()
    key = keys[rng.integers(len(keys))]
    return NETWORK.with_ops({key: slower(NETWORK.ops[key], extra_s())}), {key}


def spin_in_a_tiny_op(rng):
    key = one_of(rng, "aten::conv2d", "aten::batch_norm")
    return NETWORK.with_ops({key: slower(NETWORK.ops[key], extra_s())}), {key}


def python_in_one_module(rng):
    key = one_of(rng, PYTHON_OP)
    return NETWORK.with_ops({key: slower(NETWORK.ops[key], extra_s())}), {key}


def extra_contiguous(rng):
    conv = one_of(rng, CONVOLUTION)
    now = replace(conv, layouts="contiguous")
    copies = {
        op_key("aten::contiguous", conv.module, shapes=conv.shapes): Op(1, 2e-6),
        op_key("aten::clone", conv.module, shapes=conv.shapes): Op(1, 3e-6),
        op_key("aten::copy_", conv.module, shapes=conv.shapes): Op(1, extra_s()),
    }
    return NETWORK.with_ops({conv: None, now: NETWORK.ops[conv], **copies}), {*copies, conv, now}


def lost_channels_last(rng):
    changed = {}
    convs = [key for key in NETWORK.ops if key.op in {CONVOLUTION, CONVOLUTION_BACKWARD}]
    for key in convs:
        changed[key] = None
        changed[replace(key, layouts="contiguous")] = slower(NETWORK.ops[key], extra_s() / len(convs) / 2)
        copy = op_key("aten::copy_", key.module, key.phase, shapes=key.shapes)
        changed[copy] = Op(2, extra_s() / len(convs) / 2)
    return NETWORK.with_ops(changed), set(changed)


def unfused_optimizer(rng):
    names = {"aten::mul_": 0.35, "aten::addcmul_": 0.2, "aten::addcdiv_": 0.3, "aten::sqrt": 0.15}
    total_s = NETWORK.ops[fused_adam()].self_s + extra_s()
    small = {
        op_key(name, "Adam", StepPhase.OPTIMIZER, shapes=f"[{64 + size},64]"): Op(10, share * total_s / 6)
        for name, share in names.items()
        for size in range(6)
    }
    return NETWORK.with_ops({fused_adam(): None, **small}), {fused_adam(), *small}


def capped_isa(rng):
    slow = {key: slower(op, extra_s() / 48) for key, op in NETWORK.ops.items() if key in NETWORK.implementations}
    arm = NETWORK.with_ops(slow)
    return replace(arm, implementations=dict.fromkeys(slow, ("brg_conv:avx2",))), set(slow)


def reference_kernel(rng):
    key = one_of(rng, CONVOLUTION_BACKWARD)
    arm = NETWORK.with_ops({key: slower(NETWORK.ops[key], extra_s())})
    return replace(arm, implementations={**NETWORK.implementations, key: ("ref:any",)}), {key}


def denormals_in_one_layer(rng):
    conv = one_of(rng, CONVOLUTION)
    back = replace(conv, op=CONVOLUTION_BACKWARD, phase=BACKWARD)
    slow = {conv: slower(NETWORK.ops[conv], 0.6 * extra_s()), back: slower(NETWORK.ops[back], 0.4 * extra_s())}
    return NETWORK.with_ops(slow), set(slow)


def denormals_everywhere(rng):
    convs = [key for key in NETWORK.ops if key.op == CONVOLUTION]
    slow = {key: slower(NETWORK.ops[key], extra_s() / len(convs)) for key in convs}
    return NETWORK.with_ops(slow), set(slow)


def doubled_call(rng):
    conv = one_of(rng, CONVOLUTION)
    place = [key for key in NETWORK.ops if key.module == conv.module]
    now_s = sum(NETWORK.ops[key].self_s for key in place)
    twice = {key: Op(2 * NETWORK.ops[key].calls, NETWORK.ops[key].self_s * (1 + extra_s() / now_s)) for key in place}
    twice[op_key("aten::add_", conv.module, BACKWARD, shapes=conv.shapes)] = Op(1, 3e-6)
    return NETWORK.with_ops(twice), set(twice)


@pytest.mark.parametrize(
    "inject",
    [
        spin_in_one_op,
        spin_in_a_tiny_op,
        python_in_one_module,
        extra_contiguous,
        lost_channels_last,
        unfused_optimizer,
        capped_isa,
        reference_kernel,
        denormals_in_one_layer,
        denormals_everywhere,
        doubled_call,
    ],
)
def test_the_true_culprit_comes_first(inject):
    rng = np.random.default_rng([11, len(inject.__name__)])
    first, shares = 0, []
    for _ in range(TRIALS):
        candidate, changed = inject(rng)
        found = attribute("case", *profiled(NETWORK, candidate, Noise(), rng), ())
        right = bool(found.culprits) and found.culprits[0].ops[0] in changed
        first += right
        if right:
            shares.append(found.culprits[0].delta_s / extra_s())
    assert first >= 0.95 * TRIALS
    # Of denormals in one layer the larger half alone is first: forward and backward are other ops.
    assert 0.5 <= np.median(shares) <= 1.5


@pytest.mark.parametrize(
    "noise",
    [
        Noise(),
        Noise(processes=2),
        Noise(processes=8, steps=3),
        Noise(process_sd=0.05),
        Noise(process_sd=0.05, layout_sd=(0.001, 0.003), kernel_sd=0, bimodal=0),
        Noise(layout_sd=(0.0, 0.1)),
        Noise(kernel_sd=0.03),
        Noise(bimodal=0.5),
        Noise(burst=0.2),
    ],
    ids=[
        "usual",
        "two pairs",
        "eight pairs",
        "luck of processes",
        "luck of processes alone",
        "uneven",
        "kernels",
        "modes",
        "bursts",
    ],
)
def test_without_a_change_nothing_is_blamed(noise):
    rng = np.random.default_rng([12, noise.processes])
    trials = 100
    blamed = sum(bool(attribute("case", *profiled(NETWORK, NETWORK, noise, rng), ()).culprits) for _ in range(trials))
    assert blamed <= 0.05 * trials


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_without_a_change_nothing_is_blamed_in_a_small_network(blocks):
    rng = np.random.default_rng([13, blocks])
    small = network(blocks)
    trials = 200
    blamed = sum(bool(attribute("case", *profiled(small, small, Noise(), rng), ()).culprits) for _ in range(trials))
    assert blamed <= 0.05 * trials


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_intervals_cover_the_true_differences(processes):
    rng = np.random.default_rng([14, processes])
    covered, material, steps = [], [], []
    for _ in range(40):
        candidate, _changed = spin_in_one_op(rng)
        found = attribute("case", *profiled(NETWORK, candidate, Noise(processes=processes), rng), ())
        for delta in found.deltas:
            # Means of log-normal noise lie a little above its median, in both arms.
            truth = (candidate.ops[delta.key].self_s - NETWORK.ops[delta.key].self_s) * 1.01
            inside = delta.lower_s <= truth <= delta.upper_s
            covered.append(inside)
            if delta.baseline_s > 1e-3 * NETWORK.step_s:
                material.append(inside)
        steps.append(found.balance.lower_s <= extra_s() <= found.balance.upper_s)
    assert np.mean(covered) >= 0.93
    assert np.mean(material) >= 0.93
    assert sum(steps) >= stats.binom.ppf(1e-4, 40, 0.95)


def test_few_of_the_ops_called_slower_or_faster_are_neither():
    rng = np.random.default_rng(15)
    keys = large_ops()
    false_share, power = [], []
    for _ in range(60):
        picked = [keys[column] for column in rng.choice(len(keys), size=12, replace=False)]
        factors = rng.choice([0.7, 0.8, 1.15, 1.3], size=12)
        changed = {
            key: replace(NETWORK.ops[key], self_s=NETWORK.ops[key].self_s * factor)
            for key, factor in zip(picked, factors, strict=True)
        }
        found = attribute("case", *profiled(NETWORK, NETWORK.with_ops(changed), Noise(), rng), ())
        named = {
            delta.key
            for delta in found.deltas
            if delta.change in {ChangeClass.SLOWER, ChangeClass.FASTER, ChangeClass.MOVED}
        }
        false_share.append(len(named - set(changed)) / max(1, len(named)))
        power.append(len(named & set(changed)) / len(changed))
    assert np.mean(false_share) <= 0.05
    assert np.mean(power) >= 0.5


def test_the_balance_leaves_little_unexplained():
    rng = np.random.default_rng(16)
    left, held = [], []
    for _ in range(TRIALS):
        candidate, _changed = unfused_optimizer(rng)
        balance = attribute("case", *profiled(NETWORK, candidate, Noise(), rng), ()).balance
        left.append(abs(balance.unexplained_s) / balance.baseline_s)
        held.append(balance.unexplained_lower_s <= 0 <= balance.unexplained_upper_s)
    assert np.mean(np.array(left) <= 0.05) >= 0.95
    assert np.mean(held) >= 0.9
