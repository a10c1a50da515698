"""Where a run comes from: a folder, or a recording that is played again."""

from __future__ import annotations

import os
import shutil

import pytest

from perfguard.watch.sources.event_sources import LocalSource, ReplaySource, UpcomingSource
from perfguard.watch.sources.event_tail import TailUpdate
from tests.recorded_runs import DATA, STARTED

PAIRED = DATA / "paired"
FIRST_S = 50_000.001
LENGTH_S = 55.593648


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def all_of(source):
    found = []
    for _ in range(100):
        update = source.poll()
        found += update.events
        if not update.has_more:
            break
    return found


class TestLocal:
    def test_it_gives_the_events_and_the_other_files_of_a_folder(self):
        source = LocalSource(PAIRED)
        assert all_of(source)[-1].seq == 463
        assert (source.read_file("plan.json") or b"").startswith(b"{")
        assert source.wall_s(5.0) == 5.0

    @pytest.mark.parametrize("name", ["absent.json", "../rounds/plan.json", "", ".", "..", "a\0b"])
    def test_a_file_that_is_none_or_lies_elsewhere_is_not_given(self, name):
        assert LocalSource(PAIRED).read_file(name) is None

    def test_a_pipe_among_the_files_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "plan.json")
        assert LocalSource(tmp_path).read_file("plan.json") is None


class TestUpcoming:
    def test_the_first_run_of_a_project_is_read_once_it_is_there(self, tmp_path):
        runs = tmp_path / ".perfguard" / "runs"
        source = UpcomingSource(runs)
        assert source.poll() == TailUpdate()
        assert (source.folder, source.name, source.read_file("plan.json")) == (runs, str(runs), None)
        shutil.copytree(PAIRED, runs / "20200101T000000-aaaaaa")
        assert all_of(source)[-1].seq == 463
        assert source.folder == runs / "20200101T000000-aaaaaa"
        assert (source.read_file("plan.json") or b"").startswith(b"{")

    def test_a_later_run_does_not_take_its_place(self, tmp_path):
        source = UpcomingSource(tmp_path)
        shutil.copytree(PAIRED, tmp_path / "first")
        source.poll()
        shutil.copytree(PAIRED, tmp_path / "second")
        source.poll()
        assert source.folder == tmp_path / "first"


class TestReplay:
    def test_it_knows_how_long_the_recording_is(self, clock):
        assert ReplaySource(PAIRED, clock=clock).length_s == pytest.approx(LENGTH_S)

    def test_events_come_when_they_are_due(self, clock):
        source = ReplaySource(PAIRED, clock=clock)
        assert [seen.t_mono for seen in source.poll().events] == [FIRST_S]
        clock.now_s += 10.0
        due = source.poll().events
        assert due
        assert max(seen.t_mono for seen in due) <= FIRST_S + 10.0
        clock.now_s += 100.0
        last = source.poll()
        assert (last.events[-1].seq, last.is_end) == (463, True)
        assert source.poll().events == ()

    def test_at_ten_times_the_speed_a_second_holds_ten(self, clock):
        source = ReplaySource(PAIRED, speed=10.0, clock=clock)
        source.poll()
        clock.now_s += 1.0
        assert source.position_s == pytest.approx(10.0)
        assert max(seen.t_mono for seen in source.poll().events) <= FIRST_S + 10.0

    def test_another_speed_counts_from_now_on(self, clock):
        source = ReplaySource(PAIRED, clock=clock)
        source.poll()
        clock.now_s += 2.0
        source.set_speed(4.0)
        clock.now_s += 2.0
        assert (source.position_s, source.speed) == (pytest.approx(10.0), 4.0)

    def test_nothing_comes_while_it_is_paused(self, clock):
        source = ReplaySource(PAIRED, clock=clock)
        source.poll()
        clock.now_s += 5.0
        source.pause()
        clock.now_s += 500.0
        assert (source.position_s, source.is_paused) == (pytest.approx(5.0), True)
        assert max(seen.t_mono for seen in source.poll().events) <= FIRST_S + 5.0
        assert source.poll().events == ()
        source.resume()
        clock.now_s += 1.0
        assert source.position_s == pytest.approx(6.0)

    def test_forwards_the_events_between_come_at_once(self, clock):
        source = ReplaySource(PAIRED, clock=clock)
        source.poll()
        source.seek(20.0)
        update = source.poll()
        assert not update.restarted
        assert max(seen.t_mono for seen in update.events) == pytest.approx(FIRST_S + 20.0, abs=2.0)

    def test_backwards_it_begins_anew(self, clock):
        source = ReplaySource(PAIRED, clock=clock)
        source.poll()
        source.seek(30.0)
        source.poll()
        source.seek(10.0)
        update = source.poll()
        assert (update.restarted, update.problems, update.events[0].seq) == (True, (), 0)
        assert max(seen.t_mono for seen in update.events) <= FIRST_S + 10.0
        assert not source.poll().restarted

    def test_places_outside_of_it_are_its_ends(self, clock):
        source = ReplaySource(PAIRED, clock=clock)
        source.poll()
        source.seek(1e9)
        assert source.position_s == source.length_s
        source.seek(-1e9)
        assert source.position_s == 0.0

    def test_its_wall_clock_is_that_of_the_run(self, clock):
        source = ReplaySource(PAIRED, clock=clock)
        assert source.wall_s(7.0) == 7.0
        source.poll()
        clock.now_s += 10.0
        source.poll()
        assert source.wall_s(7.0) == pytest.approx(STARTED + 10.0, abs=0.01)

    def test_a_recording_that_is_missing_has_no_length_and_no_events(self, tmp_path, clock):
        source = ReplaySource(tmp_path, clock=clock)
        assert (source.length_s, source.poll().events) == (0.0, ())

    def test_a_recording_without_times_is_given_at_once(self, tmp_path, clock):
        lines = (b'{"event":"note","seq":%d,"level":"info","text":"x"}\n' % number for number in range(3))
        (tmp_path / "events.jsonl").write_bytes(b"".join(lines))
        assert len(ReplaySource(tmp_path, clock=clock).poll().events) == 3
