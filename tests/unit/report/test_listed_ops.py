"""The table of ops that differ."""

from __future__ import annotations

import pytest

from perfguard.records.steps.ops import ChangeClass
from perfguard.report.terminal.ops import render_attribution
from tests.changed_values import replace
from tests.example_attribution import attribution_of
from tests.printed_text import printed

CASE = "step.resnet50[batch=8]"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_long_details_of_changes_are_wrapped_and_never_cut(width):
    attribution = attribution_of(CASE)
    detail = "from " + " then ".join(f"implementation-{number}" for number in range(30)) + " to the-last-one"
    deltas = tuple(replace(delta, detail=detail, change=ChangeClass.SLOWER) for delta in attribution.deltas)
    text = printed(render_attribution(replace(attribution, culprits=(), deltas=deltas[:1])), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "".join(detail.split()) in "".join(text.split())


def test_what_the_table_leaves_out_makes_it_add_up():
    attribution = attribution_of(CASE)
    slower, *_ = attribution.deltas
    deltas = tuple(
        replace(slower, change=change, delta_s=delta_s)
        for change, delta_s in [
            (ChangeClass.SLOWER, 9e-6), (ChangeClass.NEW, 3e-6), (ChangeClass.GONE, -1e-6),
            (ChangeClass.UNCHANGED, -7e-6),
        ]
    )  # fmt: skip
    found = replace(attribution, deltas=deltas, balance=replace(attribution.balance, ops_s=4e-6))
    assert printed(render_attribution(found, rows=1), width=160).splitlines()[-1] == (
        "these ops +9.000 µs, 2 more that changed +2.000 µs, 1 op not shown to differ -7.000 µs; together +4.000 µs"
    )
    assert "more that changed" not in printed(render_attribution(found, rows=3), width=160)
