"""A recording that grows, read by somebody else: nothing that is wrong with it stops the reader."""

from __future__ import annotations

import os

import pytest

from perfguard.recordings import encode_event
from perfguard.records.events import EVENT_SCHEMA, Noted, RunFinished, RunStarted
from perfguard.records.facts import recorded_text
from perfguard.watch.sources.event_tail import MAX_LINE_BYTES, MAX_PROBLEMS, EventTail, LineReader


def note(number: int) -> bytes:
    return encode_event(Noted(fact=recorded_text(f"note {number}")), seq=number, t_wall=100.0 + number, t_mono=number)


def start(*, run_id: str = "run", schema: int = EVENT_SCHEMA, seq: int = 0) -> bytes:
    event = RunStarted(
        run_id=run_id, schema=schema, mode="paired", suite="s", case_ids=(), command=("perfguard",), budget_s=60.0
    )
    return encode_event(event, seq=seq, t_wall=100.0, t_mono=1.0)


def texts(update) -> list[str]:
    return [seen.event.fact.values["text"] for seen in update.events if isinstance(seen.event, Noted)]


def codes(update) -> list[str]:
    return [problem.code for problem in update.problems]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def append(path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


class TestGrowing:
    def test_every_event_comes_once_with_what_its_line_says_of_it(self, path):
        append(path, start() + note(1))
        tail = EventTail(path)
        first = tail.poll()
        assert [seen.seq for seen in first.events] == [0, 1]
        assert (first.events[1].t_wall, first.events[1].t_mono) == (101.0, 1.0)
        assert tail.poll().events == ()
        append(path, note(2))
        assert texts(tail.poll()) == ["note 2"]

    def test_a_half_written_line_is_read_when_it_is_complete(self, path):
        line = note(0)
        append(path, line[:20])
        tail = EventTail(path)
        half = tail.poll()
        assert (half.events, half.problems, half.is_cut) == ((), (), True)
        append(path, line[20:])
        whole = tail.poll()
        assert (texts(whole), whole.is_cut) == (["note 0"], False)

    def test_a_long_file_is_taken_in_pieces(self, path):
        append(path, b"".join(note(number) for number in range(100)))
        tail = EventTail(path, max_bytes=500)
        found, polls = [], 0
        while True:
            update = tail.poll()
            found += texts(update)
            polls += 1
            if not update.has_more:
                break
        assert found == [f"note {number}" for number in range(100)]
        assert polls > 10

    def test_a_file_that_comes_later_is_read_from_its_beginning(self, path):
        tail = EventTail(path)
        before = tail.poll()
        assert (before.events, before.problems, before.is_gone) == ((), (), False)
        append(path, note(0))
        assert texts(tail.poll()) == ["note 0"]


class TestOtherFiles:
    def test_a_file_that_was_cut_is_read_again_from_its_beginning(self, path):
        append(path, note(0) + note(1))
        tail = EventTail(path)
        tail.poll()
        path.write_bytes(note(0))
        update = tail.poll()
        assert (texts(update), update.restarted) == (["note 0"], True)
        assert codes(update) == ["recording.shortened"]
        assert update.problems[0].values == {"path": str(path)}

    def test_a_replaced_file_is_read_from_its_beginning(self, path):
        append(path, note(0))
        tail = EventTail(path)
        tail.poll()
        other = path.with_name("other")
        other.write_bytes(note(0) + note(1))
        other.replace(path)
        update = tail.poll()
        assert (texts(update), update.restarted) == (["note 0", "note 1"], True)
        assert codes(update) == ["recording.replaced"]

    def test_a_file_that_was_written_anew_and_is_longer_already_is_recognised(self, path):
        append(path, start(run_id="first"))
        tail = EventTail(path)
        tail.poll()
        path.write_bytes(start(run_id="second") + note(1) + note(2))
        update = tail.poll()
        assert (len(update.events), update.restarted) == (3, True)
        assert codes(update) == ["recording.rewritten"]

    def test_a_file_that_was_written_anew_and_is_as_long_is_recognised(self, path):
        append(path, start(run_id="first") + note(1))
        tail = EventTail(path)
        assert len(tail.poll().events) == 2
        size, changed_ns = path.stat().st_size, path.stat().st_mtime_ns
        path.write_bytes(start(run_id="other") + note(2))
        os.utime(path, ns=(changed_ns + 1, changed_ns + 1))
        assert path.stat().st_size == size
        update = tail.poll()
        assert update.restarted
        assert [getattr(seen.event, "run_id", None) for seen in update.events] == ["other", None]
        assert texts(update) == ["note 2"]

    def test_a_run_that_begins_behind_another_one_takes_its_place(self, path):
        append(path, start(run_id="first") + note(1))
        tail = EventTail(path)
        tail.poll()
        append(path, start(run_id="second") + note(1))
        update = tail.poll()
        assert update.restarted
        assert [getattr(seen.event, "run_id", None) for seen in update.events] == ["second", None]
        assert update.problems == ()

    def test_a_vanished_file_is_said_once_and_welcomed_back(self, path):
        append(path, note(0))
        tail = EventTail(path)
        tail.poll()
        content = path.read_bytes()
        path.unlink()
        gone = tail.poll()
        assert gone.is_gone
        assert codes(gone) == ["recording.vanished"]
        assert (tail.poll().is_gone, tail.poll().problems) == (True, ())
        path.write_bytes(content + note(1))
        back = tail.poll()
        assert not back.is_gone
        assert texts(back)[-1] == "note 1"

    def test_a_vanished_folder_is_a_vanished_file(self, tmp_path):
        folder = tmp_path / "run"
        folder.mkdir()
        (folder / "events.jsonl").write_bytes(note(0))
        tail = EventTail(folder / "events.jsonl")
        tail.poll()
        (folder / "events.jsonl").unlink()
        folder.rmdir()
        assert tail.poll().is_gone

    @pytest.mark.parametrize("kind", ["directory", "pipe"])
    def test_what_is_no_file_is_a_problem_and_nobody_waits_for_it(self, path, kind):
        path.mkdir() if kind == "directory" else os.mkfifo(path)
        tail = EventTail(path)
        assert codes(tail.poll()) == ["recording.not_a_file"]
        assert tail.poll().problems == ()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read_is_a_problem(self, path):
        append(path, note(0))
        path.chmod(0)
        (problem,) = EventTail(path).poll().problems
        assert (problem.code, problem.values["problem"]) == ("recording.unreadable", "Permission denied")


SAMPLE = (
    b'{"event":"sample","seq":1,"t_wall":1.0,"t_mono":1.0,"block":1,"case_id":"a","arm":"baseline","index":0,'
    b'"warmup":false,"value_s":%s,"cpu_s":0.1,"minor_faults":0,"involuntary_switches":0,"iterations":%s}'
)


class TestDamage:
    @pytest.mark.parametrize(
        ("line", "quoted"),
        [
            (b"\x00\xff not json", "not a JSON line"),
            (b"", "not a JSON line"),
            (b"[1, 2]", "not an event of schema 2 or older"),
            (b'{"event":"note"}', "missing required field"),
            (b'{"event":"note","fact":1}', "Expected `object`, got `int`"),
            (b'{"event":"note","seq":"one","level":"info","text":"x"}', "its number or its time is none"),
            (b'{"event":"control","block":1,"value_s":1e999}', "value_s is not finite"),
            (SAMPLE % (b"NaN", b"6"), "value_s is not finite"),
            (SAMPLE % (b"0.1", b"-9223372036854775809000"), "iterations is beyond 64 bits"),
            (b"[" * 100_000, "nested too deeply"),
        ],
    )
    def test_a_corrupt_line_is_said_and_left_out(self, path, line, quoted):
        append(path, note(0) + line + b"\n" + note(2))
        update = EventTail(path).poll()
        assert texts(update) == ["note 0", "note 2"]
        assert codes(update) == ["recording.corrupt"]
        assert update.problems[0].values["line"] == 2
        assert quoted in update.problems[0].values["problem"]

    def test_an_unknown_event_is_said_once_however_often_it_comes(self, path):
        unknown = b'{"event":"quantum","seq":%d,"t_wall":1.0,"t_mono":1.0}\n'
        append(path, note(0) + unknown % 1 + unknown % 2 + note(3))
        update = EventTail(path).poll()
        assert texts(update) == ["note 0", "note 3"]
        assert [(problem.code, problem.values) for problem in update.problems] == [
            ("recording.unknown_event", {"kind": "quantum"})
        ]

    def test_a_foreign_schema_is_said_and_what_is_known_of_it_is_shown(self, path):
        append(path, start(schema=EVENT_SCHEMA + 1) + note(1))
        update = EventTail(path).poll()
        assert len(update.events) == 2
        assert codes(update) == ["recording.foreign_schema"]
        assert update.problems[0].values == {"schema": EVENT_SCHEMA + 1, "known_schema": EVENT_SCHEMA}

    @pytest.mark.parametrize(
        ("numbers", "code", "values"),
        [
            ((0, 2), "recording.events_missing", {"first": 1, "last": None}),
            ((0, 4), "recording.events_missing", {"first": 1, "last": 3}),
            ((3,), "recording.events_missing", {"first": 0, "last": 2}),
            ((0, 1, 1), "recording.out_of_order", {"event": 1}),
        ],
    )
    def test_a_gap_in_the_numbers_is_said(self, path, numbers, code, values):
        append(path, b"".join(note(number) for number in numbers))
        update = EventTail(path).poll()
        assert len(update.events) == len(numbers)
        assert [(problem.code, problem.values) for problem in update.problems] == [(code, values)]

    def test_fields_of_a_later_version_are_passed_over(self, path):
        append(path, note(0).replace(b'"level"', b'"colour":"blue","level"'))
        update = EventTail(path).poll()
        assert (texts(update), update.problems) == (["note 0"], ())

    def test_very_many_problems_are_counted(self, path):
        append(path, b"?\n" * 1000)
        problems = EventTail(path).poll().problems
        assert len(problems) == MAX_PROBLEMS + 1
        assert (problems[-1].code, problems[-1].values) == ("recording.more_problems", {"problems": 980})

    def test_a_line_without_an_end_is_given_up_and_the_next_one_read(self):
        reader = LineReader()
        reader.feed(note(0))
        found = reader.feed(b"x" * (MAX_LINE_BYTES + 1))
        assert found.problems[0].code == "recording.line_too_long"
        assert found.problems[0].values == {"line": 2, "limit_bytes": MAX_LINE_BYTES}
        assert reader.is_inside_a_line
        assert reader.feed(b"x" * 1000).problems == ()
        rest = reader.feed(b"x\n" + note(2))
        assert [seen.seq for seen in rest.events] == [2]
        assert rest.problems == ()

    def test_the_end_of_a_run_is_an_event_like_others(self, path):
        append(path, encode_event(RunFinished(outcome="pass", exit_code=0), seq=0, t_wall=1.0, t_mono=1.0))
        assert isinstance(EventTail(path).poll().events[0].event, RunFinished)
