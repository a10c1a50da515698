"""Which ops, places, phases, tensors and lines a culprit names; times in units, at the limits of the rules."""

from __future__ import annotations

import pytest

from perfguard.profile.changes.attribution import attribute
from perfguard.records.changed_lines import NO_LINES, ChangedLines, ChangedStatement
from perfguard.records.steps.ops import StepPhase
from tests.changed_values import replace
from tests.exact_profiles import Timed, exact_arms
from tests.simulated_profiles import BACKWARD, FORWARD, fused_adam, op_key

OPTIMIZER = StepPhase.OPTIMIZER
CONV = op_key("aten::mkldnn_convolution", "Net.layer1.0.conv")


def culprits(*ops, step_more=20, changed=NO_LINES, **steps):
    arms = exact_arms([Timed(key=op_key("aten::unchanged")), *ops], step_more=step_more, **steps)
    return attribute("case", *arms, changed=changed).culprits


def came(name, takes, *, module=CONV.module, phase=FORWARD, calls=1):
    return Timed(key=op_key(f"aten::{name}", module, phase), calls=(0, calls), before=0, more=takes)


def went(key, took=16):
    return Timed(key=key, calls=(1, 0), before=took, more=-took)


def called(name, more, *, module=CONV.module, phase=FORWARD, scatter=0.0, calls=(1, 2)):
    return Timed(key=op_key(f"aten::{name}", module, phase), calls=calls, more=more, scatter=scatter)


@pytest.mark.parametrize(
    ("lost", "place", "second", "third"),
    [(CONV, {}, 5, 4.75), (fused_adam(), {"module": "Adam", "phase": OPTIMIZER}, 2, 1.75)],
    ids=["a quarter of the longest", "a tenth for a fused op"],
)
def test_ops_that_came_are_named_and_counted_from_a_part_of_the_longest_one(lost, place, second, third):
    ops = [
        came("long", 20, **place),
        came("counted", second, calls=4, **place),
        came("wrapper", third, calls=8, **place),
    ]
    (culprit,) = culprits(went(lost), *ops)
    assert culprit.fact.values["gained"] == ("long", "counted")
    assert (culprit.fact.values["before"], culprit.fact.values["after"]) == (1, 5)


@pytest.mark.parametrize(
    ("forward", "backward", "phases"),
    [
        (8, 16, (FORWARD, BACKWARD)),
        (7.75, 16, (BACKWARD,)),
        (16, 7.75, (FORWARD,)),
        (-8, -16, (FORWARD, BACKWARD)),
        (-7.75, -16, (BACKWARD,)),
        (16, 0, (FORWARD,)),
    ],
)
def test_phases_are_named_from_half_of_the_largest_on(forward, backward, phases):
    ops = [called("a", forward), called("b", backward, phase=BACKWARD)]
    (culprit,) = culprits(*ops, step_more=forward + backward)
    assert (culprit.phases, culprit.phase) == (phases, phases[-1])


@pytest.mark.parametrize(
    ("first", "second", "place", "places", "tensors"),
    [
        (8, 2, "Net.layer1.0.conv", 1, "[2,8,16,16] f32 channels_last"),
        (7.75, 2.25, "Net.layer1", 2, ""),
        (2, 8, "Net.layer1.1.conv", 1, "[2,8,16,16] f32 channels_last"),
    ],
    ids=["four fifths", "less", "the other one"],
)
def test_a_module_and_its_op_are_named_alone_from_four_fifths_on(first, second, place, places, tensors):
    keys = (CONV, replace(CONV, module="Net.layer1.1.conv"))
    (culprit,) = culprits(*(Timed(key=key, more=more) for key, more in zip(keys, (first, second), strict=True)))
    assert (culprit.fact.subject.op, culprit.fact.values["places"]) == (place, places)
    assert culprit.fact.values["tensors"] == tensors


def test_what_costs_nothing_in_the_mean_is_of_all_places():
    there = [called("op", 8, scatter=8), called("op", -8, module="Net.layer1.1.conv")]
    (culprit,) = culprits(*there)
    assert culprit.delta_s == 0
    assert (culprit.fact.subject.op, culprit.fact.values["places"]) == ("Net.layer1", 2)


@pytest.mark.parametrize(
    ("changed", "copy", "code"),
    [({"layouts": "contiguous"}, "clone", "layout.lost"), ({"dtypes": "bf16"}, "to", "dtype.changed")],
)
def test_other_tensors_have_the_line_of_the_copy_that_makes_them(changed, copy, code):
    now, above = replace(CONV, **changed), op_key(f"aten::{copy}", "Net.layer1")
    ops = [went(CONV), Timed(key=now, calls=(0, 1), before=0, more=32), came(copy, 2, module=above.module)]
    (culprit,) = culprits(*ops, lines={CONV: "net.py:14", now: "net.py:14", above: "net.py:29"})
    assert (culprit.fact.code, culprit.fact.subject.place) == (code, "net.py:29")


def touched(*statements, is_complete=False):
    """What a change touches: path, line and text of each statement."""
    return ChangedLines(
        statements=tuple(
            ChangedStatement(path=path, first=line, last=line, text=text) for path, line, text in statements
        ),
        is_complete=is_complete,
    )


@pytest.mark.parametrize(
    ("statements", "place"),
    [
        ([("src/net.py", 10, ""), ("src/net.py", 14, "")], "src/net.py:14"),
        ([("src/net.py", 10, ""), ("src/other.py", 14, "")], "net.py:14"),
        ([], "net.py:14"),
    ],
    ids=["the candidate's own line", "no line of the candidate", "nothing"],
)
def test_a_changed_line_that_ran_an_op_of_the_candidate_comes_first(statements, place):
    now = replace(CONV, layouts="contiguous")
    ops = [went(CONV), Timed(key=now, calls=(0, 1), before=0, more=36)]
    (culprit,) = culprits(*ops, lines={CONV: "net.py:10", now: "net.py:14"}, changed=touched(*statements))
    assert (culprit.fact.code, culprit.fact.subject.place) == ("layout.lost", place)


@pytest.mark.parametrize(
    ("text", "is_complete", "place"),
    [
        ("optimizer = Adam(net.parameters(), foreach=True)", False, "train.py:5"),
        ("optimizer = torch.optim.Adam(net.parameters())", False, "train.py:5"),
        ("options = {}", False, None),
        ("options = {}", True, "train.py:5"),
    ],
    ids=["a word of optimizers", "another", "none", "the one line that changed"],
)
def test_an_optimizer_has_the_changed_line_that_speaks_of_it(text, is_complete, place):
    ops = [went(fused_adam()), came("_foreach_add_", 36, module="Adam", phase=OPTIMIZER)]
    (culprit,) = culprits(*ops, changed=touched(("train.py", 5, text), is_complete=is_complete))
    assert (culprit.fact.code, culprit.fact.subject.place) == ("optimizer.unfused", place)


def test_a_memory_format_other_than_channels_last_is_neither_lost_nor_gained():
    before, after = (replace(CONV, layouts=layout) for layout in ("strided", "contiguous"))
    (culprit,) = culprits(went(before), Timed(key=after, calls=(0, 1), before=0, more=32))
    values = culprit.fact.values
    assert (culprit.fact.code, values["lost"], values["gained"]) == ("layout.changed", "strided", "contiguous")


def test_a_fused_op_for_further_parameters_is_no_change_of_fusion():
    further = replace(fused_adam(), shapes="{4:64}")
    (culprit,) = culprits(Timed(key=fused_adam()), Timed(key=further, calls=(0, 1), before=0, more=20))
    assert culprit.fact.code == "optimizer.changed"


def test_an_op_that_took_no_time_before_is_not_told_by_a_ratio():
    (culprit,) = culprits(Timed(key=CONV, before=0, more=20))
    assert (culprit.fact.code, culprit.fact.values["changed_ratio"]) == ("op.slower", None)


@pytest.mark.parametrize(
    ("steps_with_more", "told"),
    [(1, 2), (3, 2.09375), (16, 2.5), (31, 3)],
    ids=["one of 32", "three", "half", "all but one"],
)
def test_calls_that_differ_from_step_to_step_are_whole_where_few_do(steps_with_more, told):
    calls = (3,) * steps_with_more + (2,) * (32 - steps_with_more)
    (culprit,) = culprits(called("op", 20, calls=(1, calls)), processes=32)
    assert (culprit.fact.values["before"], culprit.fact.values["after"]) == (1, told)


def test_an_op_that_was_called_in_one_of_twenty_steps_was_called():
    (culprit,) = culprits(called("op", 20, calls=((1, *(0,) * 19), 2)), processes=20)
    assert (culprit.fact.code, culprit.fact.values["before"]) == ("calls.added", 0.05)
