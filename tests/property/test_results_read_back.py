"""What `to_json` writes of a result is read back, but for numbers that JSON cannot say."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.codec import from_builtins, to_builtins, to_json
from perfguard.recordings import with_nan
from perfguard.records.estimate import Estimate, Interval
from perfguard.records.facts import Fact, Severity, Subject
from perfguard.records.result import CaseMeasured
from perfguard.records.steps.ops import Culprit, OpDelta, StepBalance
from perfguard.records.verdict import Comparison, ModeReport, SignalFinding

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
INTERVALS = st.builds(Interval, lower=NUMBERS, upper=NUMBERS, level=NUMBERS)
ESTIMATES = st.builds(
    Estimate,
    log_ratio=NUMBERS,
    standard_error=NUMBERS,
    block_sd=NUMBERS,
    blocks=st.integers(0, 10**6),
    degrees_of_freedom=NUMBERS,
    interval=INTERVALS,
)
VALUES = st.one_of(st.none(), st.booleans(), st.text(), st.integers(-(2**53), 2**53), NUMBERS)
LISTS = st.lists(st.one_of(st.text(), st.integers(-(2**53), 2**53), NUMBERS)).map(tuple)
st.register_type_strategy(
    Fact,
    st.builds(
        Fact,
        code=st.text(),
        severity=st.sampled_from(Severity),
        subject=st.builds(Subject),
        values=st.dictionaries(st.text(), st.one_of(VALUES, LISTS)),
    ),
)


def read_back(value, kind):
    return from_builtins(with_nan(json.loads(to_json(value)), kind), kind, source="test")


@given(ESTIMATES)
def test_an_estimate_reads_back_with_its_unknown_numbers(estimate):
    back = read_back(estimate, Estimate)
    assert to_builtins(back) == to_builtins(estimate)
    assert math.isfinite(back.interval.lower) == math.isfinite(estimate.interval.lower)
    if math.isfinite(estimate.log_ratio):
        assert back.log_ratio == estimate.log_ratio


@pytest.mark.parametrize(
    "kind", [Fact, Comparison, SignalFinding, ModeReport, CaseMeasured, OpDelta, StepBalance, Culprit]
)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_every_part_of_a_result_that_holds_numbers_reads_back(kind, data):
    part = data.draw(st.from_type(kind))
    assert to_builtins(read_back(part, kind)) == to_builtins(part)
