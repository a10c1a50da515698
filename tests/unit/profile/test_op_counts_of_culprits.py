"""Which change of op counts says what a culprit is; sizes in units, at the limits of the rules."""

from __future__ import annotations

import pytest

from perfguard.profile.changes.attribution import attribute
from perfguard.profile.changes.counted import Change, Place, RowKey
from perfguard.records.facts import fact
from perfguard.records.steps.ops import OpCountChange, OpCountKind
from tests.exact_profiles import Timed, exact_arms
from tests.simulated_profiles import FORWARD, op_key

FIRST, SECOND = "copies.added", "ops.added"
OWN = "calls.added"  # What the timed ops say


def called(name, more, *, module="Net.there", factor=2):
    return Timed(key=op_key(f"aten::{name}", module), calls=(1, factor), more=more)


def change(code, names, *, module="Net.there"):
    """A change of the op counts that is about these ops of a module."""
    rows = frozenset(
        RowKey(
            kind=OpCountKind.OP,
            place=Place(phase=FORWARD, module=module),
            name=f"aten::{name}",
            detail="",
            implementation="",
        )
        for name in names.split()
    )
    record = OpCountChange(
        fact=fact(code, {"before": 1, "after": 2}), phase=FORWARD, module=module, rule="calls", before=1, after=2
    )
    return Change(record=record, rows=rows)


def codes(ops, changes):
    found = attribute("case", *exact_arms([Timed(key=op_key("aten::unchanged")), *ops], step_more=20), changes)
    return [culprit.fact.code for culprit in found.culprits]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("a b", "a"), FIRST),
        (("a", "a b"), SECOND),
        (("a b", "a b"), FIRST),
        (("a", "b"), FIRST),
        (("other", "a"), SECOND),
        (("other",), OWN),
        (("smaller",), OWN),
        ((), OWN),
    ],
    ids=[
        *("the first has all", "the second has all", "both have all", "halves", "another op first", "another op"),
        *("less than half", "none"),
    ],
)
def test_a_culprit_is_what_the_change_that_has_most_of_it_says(names, code):
    """A place is called twice: two ops cost eight each, or a little less the smaller one."""
    changes = [change(code, ops) for code, ops in zip((FIRST, SECOND), names, strict=False)]
    ops = [called("a", 8), called("b", 8)] if names != ("smaller",) else [called("larger", 8), called("smaller", 7.75)]
    assert codes(ops, changes) == [code]


LAYERS = "Net.*.conv"  # Op counts don't tell layers apart, whose times differ


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([change(FIRST, "a b", module=LAYERS)], [FIRST, OWN]),
        ([change(FIRST, "b", module=LAYERS), change(SECOND, "a b", module=LAYERS)], [SECOND, FIRST]),
        ([change(FIRST, "a b", module=LAYERS), change(SECOND, "a b", module=LAYERS)], [FIRST, SECOND]),
        ([change(FIRST, "a b", module="Net.elsewhere")], [OWN, OWN]),
    ],
    ids=["one for both", "one for the smaller", "two for both", "of another place"],
)
def test_each_change_is_one_culprit_and_the_larger_one_gets_what_both_could_be(changes, expected):
    """Of two ops one is called twice and costs eight, the other is called three times and costs four."""
    ops = [called("b", 4, module="Net.0.conv", factor=3), called("a", 8, module="Net.1.conv")]
    assert codes(ops, changes) == expected


def test_of_culprits_that_cost_the_same_each_has_a_change():
    ops = [called("a", 8, module="Net.0.conv"), called("b", 8, module="Net.1.conv", factor=3)]
    both = [change(code, "a b", module=LAYERS) for code in (FIRST, SECOND)]
    assert codes(ops, both) == [FIRST, SECOND]
