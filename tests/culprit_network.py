"""A small network whose ops change, and what is blamed for that."""

from __future__ import annotations

from perfguard.profile.changes.attribution import attribute
from perfguard.records.steps.ops import StepPhase
from tests.changed_values import replace
from tests.simulated_profiles import BACKWARD, SILENCE, Arm, Op, fused_adam, op_key, profiled, python_key

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


def told(culprit):
    """Code, module and number of places."""
    return culprit.fact.code, culprit.fact.subject.op, culprit.fact.values["places"]


def changes_of(attribution):
    return {delta.key: delta.change for delta in attribution.deltas}


def contiguous(key):
    return replace(key, layouts="contiguous")


def copy_in(number, **more):
    return op_key("aten::copy_", module(number), **more)
