"""`perfguard profile diff`: what keeps two traces from being compared is said."""

from __future__ import annotations

import os
from concurrent.futures.process import BrokenProcessPool

import pytest

from perfguard.errors import StoreError
from perfguard.profile.runs import trace_diff
from perfguard.profile.runs.trace_diff import diff_traces
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
    caveat, note = found.notes
    assert (caveat.code, note.code) == ("ops.one_process", "trace.other_updates")
    assert note.values == {"before": "a.json", "after": "b.json", "updates": 5, "updates_after": 6}
    assert found.culprits[0].fact.subject.op == "AdamW"


def test_traces_of_the_same_work_need_no_note(tmp_path):
    found = diff_traces(trace_of(tmp_path / "a.json", updates=2), trace_of(tmp_path / "b.json", updates=2))
    assert [note.code for note in found.notes] == ["ops.one_process"]


@pytest.mark.parametrize("first", [True, False])
def test_where_one_tells_no_shapes_nothing_is_blamed(tmp_path, first):
    before = trace_of(tmp_path / "a.json", updates=1, with_shapes=first)
    after = trace_of(tmp_path / "b.json", updates=1, with_shapes=not first)
    found = diff_traces(before, after)
    named = "b.json" if first else "a.json"
    assert (found.notes[0].code, found.notes[0].values["trace"]) == ("trace.no_shapes", named)
    assert found.culprits == ()


class TestLargeTraces:
    """Read in two processes, where there are two CPUs."""

    @pytest.fixture(autouse=True)
    def large(self, monkeypatch):
        monkeypatch.setattr(trace_diff, "WORTH_A_PROCESS_BYTES", 1)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    @pytest.mark.parametrize("suffix", ["json", "json.gz"])
    def test_are_compared_as_small_ones_are(self, tmp_path, monkeypatch, suffix):
        paths = trace_of(tmp_path / f"a.{suffix}", updates=5), trace_of(tmp_path / f"b.{suffix}", updates=6)
        side_by_side = diff_traces(*paths)
        monkeypatch.setattr(trace_diff, "WORTH_A_PROCESS_BYTES", 10**9)
        one_by_one = diff_traces(*paths)
        assert (side_by_side.culprits, side_by_side.notes) == (one_by_one.culprits, one_by_one.notes)
        assert side_by_side.deltas == one_by_one.deltas

    @pytest.mark.parametrize("broken", ["a.json", "b.json"])
    def test_that_are_none_are_refused_by_name(self, tmp_path, broken):
        paths = [trace_of(tmp_path / name, updates=1) for name in ("a.json", "b.json")]
        (tmp_path / broken).write_text('{"traceEvents": [{]}')
        with pytest.raises(StoreError, match=f"{broken} holds no op that ran on a CPU"):
            diff_traces(*paths)

    def test_are_read_one_after_the_other_where_the_other_process_was_killed(self, tmp_path, monkeypatch):
        class Killed:
            def __init__(self, **_):
                pass

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def submit(self, *_):
                return self

            def result(self):
                raise BrokenProcessPool("a process was killed")

        monkeypatch.setattr(trace_diff, "ProcessPoolExecutor", Killed)
        found = diff_traces(trace_of(tmp_path / "a.json", updates=5), trace_of(tmp_path / "b.json", updates=6))
        assert found.culprits[0].fact.subject.op == "AdamW"
