"""Recordings cut anywhere, damaged anywhere: nothing raises, and what is complete in the end is shown alike."""

from __future__ import annotations

import functools
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.watch.sources.event_sources import LocalSource, ReplaySource
from perfguard.watch.view.run_view import RunView
from perfguard.watch.view.watching import RunWatch
from tests.recorded_runs import DATA, STARTED

RECORDINGS = [(DATA / name / "events.jsonl").read_bytes() for name in ("paired", "rounds")]
NOW_S = STARTED + 3600.0


def watched(folder: Path) -> RunWatch:
    return RunWatch(LocalSource(folder), lambda: NOW_S)


def caught_up(watch: RunWatch) -> RunView:
    watch.poll()
    while watch.is_behind:
        watch.poll()
    return watch.view


@functools.cache
def at_once(number: int) -> RunView:
    with TemporaryDirectory() as scratch:
        (Path(scratch) / "events.jsonl").write_bytes(RECORDINGS[number])
        return caught_up(watched(Path(scratch)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1), st.lists(st.floats(0, 1), max_size=4))
def test_a_recording_read_in_pieces_of_any_size_ends_with_the_same_view(number, shares):
    content = RECORDINGS[number]
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "events.jsonl"
        watch = watched(Path(scratch))
        for cut in sorted(int(share * len(content)) for share in shares):
            path.write_bytes(content[:cut])
            watch.poll()
        path.write_bytes(content)
        view = caught_up(watch)
    assert view == at_once(number)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1), st.floats(0, 1), st.floats(0, 0.2), st.binary(max_size=40))
def test_a_recording_damaged_anywhere_is_read_to_its_end(number, where, length, put_instead):
    content = RECORDINGS[number]
    begin = int(where * len(content))
    damaged = content[:begin] + put_instead + content[begin + int(length * 2000) :]
    with TemporaryDirectory() as scratch:
        (Path(scratch) / "events.jsonl").write_bytes(damaged)
        watch = watched(Path(scratch))
        view = caught_up(watch)
        for case in view.cases:
            watch.series(case.case_id)
        replay = RunWatch(ReplaySource(Path(scratch), speed=1e9), lambda: NOW_S)
        caught_up(replay)
    assert view.log


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 460), st.sampled_from([b"0", b"9", b"-", b"e", b'"', b"}", b",", b"null", b"\xff"]), st.data())
def test_a_line_with_one_other_byte_never_stops_the_reader(number, byte, data):
    lines = RECORDINGS[0].splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines[number]) - 2))
    lines[number] = lines[number][:place] + byte + lines[number][place + 1 :]
    with TemporaryDirectory() as scratch:
        (Path(scratch) / "events.jsonl").write_bytes(b"".join(lines))
        view = caught_up(watched(Path(scratch)))
    assert (view.exit_code, len(view.cases)) == (1, 7)
