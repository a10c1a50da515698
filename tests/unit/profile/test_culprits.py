from __future__ import annotations

import numpy as np
import pytest

from perfguard.profile.changes.attribution import attribute
from perfguard.profile.changes.causes import find_causes
from perfguard.profile.changes.diff import diff_ops
from perfguard.records.steps.ops import ChangeClass, StepPhase
from tests.changed_values import replace
from tests.culprit_network import CONV, NET, OPTIMIZER, changes_of, found, module, slower, small_net, told
from tests.simulated_profiles import SILENCE, Noise, Op, fused_adam, op_key, profiled, python_key


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
    assert told(culprit) == ("op.slower", module(3), 1)
    assert culprit.fact.values["ops"] == ("mkldnn_convolution",)


def test_the_same_op_slower_in_many_modules_is_one_culprit():
    keys = [op_key(CONV, module(number)) for number in range(8)]
    (culprit,) = found(NET.with_ops(slower(*keys))).culprits
    assert set(culprit.ops) == set(keys)
    assert culprit.delta_s == pytest.approx(8e-3)
    assert told(culprit) == ("op.slower", None, 8)


def test_slow_modules_are_named_by_what_they_have_in_common():
    keys = [op_key(CONV, module(number)) for number in range(4, 8)]
    (culprit,) = found(NET.with_ops(slower(*keys))).culprits
    assert told(culprit) == ("op.slower", "Net.layer2", 4)


def test_a_module_with_most_of_the_cost_is_named_alone():
    keys = [op_key(CONV, module(number)) for number in range(3)]
    changed = {**slower(keys[0], by_s=9e-3), **slower(*keys[1:], by_s=0.5e-3)}
    (culprit,) = found(NET.with_ops(changed)).culprits
    assert told(culprit) == ("op.slower", module(0), 1)
    assert set(culprit.ops) == set(keys)


def test_slowdowns_too_small_to_see_one_by_one_are_seen_together():
    rng = np.random.default_rng(2)
    net = small_net(40)
    noise = replace(SILENCE, processes=4, layout_sd=(0.03, 0.03))
    keys = [key for key in net.ops if key.op == CONV]
    arms = profiled(net, net.with_ops(slower(*keys, by_s=0.05e-3, of=net)), noise, rng)
    result = attribute("case", *arms, ())
    assert result.culprits[0].ops[0].op == CONV
    assert ("op.slower", None, 40) in {told(culprit) for culprit in result.culprits}
    assert not any(change is ChangeClass.SLOWER for change in changes_of(result).values())


def test_python_time_of_a_module_is_a_culprit_of_its_own():
    (culprit,) = found(NET.with_ops(slower(python_key(module(2))))).culprits
    assert told(culprit) == ("python.time", module(2), 1)
    assert culprit.fact.values["is_more"]
