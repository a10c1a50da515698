"""`perfguard profile diff`: what keeps two traces from being compared is said."""

from __future__ import annotations

import pytest

from perfguard.pipeline.trace_diff import diff_traces
from tests.profile_traces import TraceBuilder


def trace_of(path, *, updates, with_shapes=True):
    """One marked step with so many updates."""
    builder = TraceBuilder()
    shapes = {"shapes": [[2, 3]]} if with_shapes else {}
    with builder.step():
        builder.leaf("aten::mm", 5, **shapes)
        for _ in range(updates):
            with builder.span("Optimizer.step#AdamW.step"):
                builder.leaf("aten::_fused_adamw_", 10, **shapes)
    return builder.write(path)


def test_traces_of_other_work_are_told_apart_by_their_updates(tmp_path):
    found = diff_traces(trace_of(tmp_path / "a.json", updates=5), trace_of(tmp_path / "b.json", updates=6))
    (note,) = found.notes
    assert note == (
        "a step of a.json holds 5 updates of optimizers and one of b.json 6, so they are not the same work; mark steps "
        "alike, with the profiler's step()"
    )
    assert "AdamW, 1 `_fused_adamw_` more" in found.sentence


def test_traces_of_the_same_work_need_no_note(tmp_path):
    assert diff_traces(trace_of(tmp_path / "a.json", updates=2), trace_of(tmp_path / "b.json", updates=2)).notes == ()


@pytest.mark.parametrize("first", [True, False])
def test_where_one_tells_no_shapes_nothing_is_blamed(tmp_path, first):
    before = trace_of(tmp_path / "a.json", updates=1, with_shapes=first)
    after = trace_of(tmp_path / "b.json", updates=1, with_shapes=not first)
    found = diff_traces(before, after)
    named = "b.json" if first else "a.json"
    assert found.sentence == (
        f"{named} tells no shapes and the other one does, so no op is the same; record both alike"
    )
    assert found.culprits == ()
