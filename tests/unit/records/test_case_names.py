"""Short names of cases tell them apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.records.case_names import short_names
from perfguard.records.spec import Case

VALUES = st.sampled_from(("1", "2", "bf16", "a=b", "x,y"))
CASES = st.builds(
    lambda name, values: Case(benchmark=name, target="", parameters=tuple(values.items())),
    st.sampled_from(("step.bert", "kernel.linear", "odd[name]", "step")),
    st.dictionaries(st.sampled_from(("m", "dtype", "batch")), VALUES, max_size=3),
)


@pytest.mark.parametrize(
    ("case_ids", "names"),
    [
        (["step.bert[batch=2,dtype=bf16]"], ["step.bert"]),
        (["k.linear[m=1,dtype=bf16]", "k.linear[m=2,dtype=bf16]"], ["k.linear[m=1]", "k.linear[m=2]"]),
        (["k.linear[m=1]", "k.linear[m=1,bias=true]"], ["k.linear", "k.linear[bias=true]"]),
        (["k.linear", "k.linear[m=1]"], ["k.linear", "k.linear[m=1]"]),
        (["test_sum[2-3]"], ["test_sum[2-3]"]),
        (["evil[/][bold]x[/bold]"], ["evil[/][bold]x[/bold]"]),
        ([], []),
    ],
)
def test_what_all_cases_of_a_benchmark_share_is_left_out(case_ids, names):
    assert list(short_names(case_ids).values()) == names


@given(st.lists(st.one_of(CASES.map(lambda case: case.id), st.text(max_size=20)), unique=True, max_size=12))
def test_names_stay_unique(case_ids):
    names = short_names(case_ids)
    assert list(names) == case_ids
    assert len(set(names.values())) == len(case_ids)
    assert all(len(name) <= len(case_id) for case_id, name in names.items())
