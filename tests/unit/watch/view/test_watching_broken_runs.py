"""Runs that die, vanish, are replaced or damaged: a sentence in place, and the rows that there are."""

from __future__ import annotations

import shutil

import pytest

from perfguard.recordings import encode_event
from perfguard.records.events import Noted, RunStarted
from perfguard.records.facts import recorded_text
from perfguard.report.event_lines import line_text
from perfguard.report.messages.catalog import describe
from perfguard.watch.sources.event_sources import LocalSource, ReplaySource
from perfguard.watch.view.run_view import CaseState, RunState
from perfguard.watch.view.watching import FIRST_SILENCE_S, MAX_PROBLEMS, SILENCE_S, RunWatch
from tests.recorded_runs import CASE_IDS, DATA, SAME, SLOWER, STARTED
from tests.watched_runs import LINES, case_of, first, polled


class TestDying:
    def test_a_run_that_died_is_silent_after_a_while(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(first(b"block_finished"))
        clock.now_s = STARTED + 20.0
        assert watch.poll().state is RunState.MEASURING
        clock.now_s += SILENCE_S
        view = watch.poll()
        assert view.state is RunState.SILENT
        assert view.progress.left_s is None

    def test_a_run_that_a_process_holds_is_never_silent(self, folder, write, clock):
        write(first(b"block_finished"))
        clock.now_s += 10 * SILENCE_S
        watch = RunWatch(LocalSource(folder), clock)
        with (folder / "events.jsonl").open("ab"):
            assert watch.poll().state is RunState.MEASURING
        clock.now_s += SILENCE_S
        assert watch.poll().state is RunState.SILENT

    def test_a_run_whose_process_was_seen_and_is_gone_needs_no_patience(self, folder, write, clock):
        write(first(b"arm_ready"))
        watch = RunWatch(LocalSource(folder), clock)
        with (folder / "events.jsonl").open("ab"):
            assert watch.poll().state is RunState.PREPARING
        clock.now_s += 20.0
        assert watch.poll().state is RunState.SILENT

    def test_before_the_first_block_more_patience_is_needed(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(first(b"arm_ready"))
        clock.now_s += 2 * SILENCE_S
        assert watch.poll().state is RunState.PREPARING
        clock.now_s += FIRST_SILENCE_S
        assert watch.poll().state is RunState.SILENT

    def test_a_silent_run_that_goes_on_is_measured_again(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(first(b"block_finished"))
        clock.now_s += 10 * SILENCE_S
        assert watch.poll().state is RunState.SILENT
        clock.now_s = STARTED + 20.0
        write(first(b"block_finished") + 5)
        assert watch.poll().state is RunState.MEASURING

    def test_no_case_of_a_run_that_died_is_being_measured(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(first(b"sample") + 1)
        assert CaseState.MEASURING in {case.state for case in watch.poll().cases}
        clock.now_s += 2 * FIRST_SILENCE_S
        view = watch.poll()
        assert view.state is RunState.SILENT
        assert CaseState.MEASURING not in {case.state for case in view.cases}

    def test_the_end_of_a_recording_without_a_conclusion_is_silence(self, folder, write, clock):
        write(100)
        with (folder / "events.jsonl").open("ab") as file:
            file.write(LINES[100][:30])
        watch = RunWatch(ReplaySource(folder, clock=clock), clock)
        watch.poll()
        clock.now_s += 1000.0
        view = watch.poll()
        assert view.state is RunState.SILENT
        assert view.problems[0].code == "recording.cut"


class TestOtherFiles:
    def test_a_vanished_run_keeps_its_rows_and_says_so(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(100)
        watch.poll()
        shutil.rmtree(folder)
        view = watch.poll()
        assert view.state is RunState.GONE
        assert len(view.cases) == len(CASE_IDS)
        assert view.problems[0].code == "recording.vanished"
        assert (view.log[-1].what, view.log[-1].level) == (view.problems[0], "warning")

    def test_a_run_that_was_replaced_is_watched_from_its_beginning(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(200)
        watch.poll()
        shutil.copy(DATA / "rounds" / "events.jsonl", folder / "new")
        (folder / "new").replace(folder / "events.jsonl")
        view = watch.poll()
        assert (view.mode, len(view.cases), view.outcome) == ("rounds", 3, "measured")
        assert view.problems[0].code == "recording.replaced"

    def test_a_file_of_ops_that_is_missing_leaves_the_largest_ones(self, folder, write, clock):
        write(len(LINES))
        (folder / "ops-1.json").unlink()
        assert len(polled(folder, clock).deltas(SLOWER)) == 4


class TestDamage:
    def test_a_damaged_line_is_a_problem_beside_the_rows(self, folder, clock):
        lines = [*LINES[:50], b"garbage\n", *LINES[51:]]
        (folder / "events.jsonl").write_bytes(b"".join(lines))
        view = polled(folder, clock).view
        assert (view.state, len(view.problems)) == (RunState.FINISHED, 1)
        assert (view.problems[0].code, view.problems[0].values["line"]) == ("recording.corrupt", 51)

    def test_problems_do_not_pile_up(self, folder, clock):
        (folder / "events.jsonl").write_bytes(LINES[0])
        watch = polled(folder, clock)
        for _ in range(200):
            with (folder / "events.jsonl").open("ab") as file:
                file.write(b"garbage\n")
            watch.poll()
        assert len(watch.view.problems) == MAX_PROBLEMS

    def test_samples_of_a_case_that_no_run_named_make_no_row(self, folder, clock):
        number = first(b"sample")
        stranger = LINES[number - 1].replace(b'"case_id":"', b'"case_id":"other ')
        (folder / "events.jsonl").write_bytes(b"".join([*LINES[: number - 1], stranger]))
        assert [case.case_id for case in polled(folder, clock).view.cases] == list(CASE_IDS)

    def test_a_recording_that_lost_its_beginning_shows_the_cases_that_it_has(self, folder, clock):
        (folder / "events.jsonl").write_bytes(b"".join(LINES[200:]))
        view = polled(folder, clock).view
        assert view.run_id is None
        assert SLOWER in [case.case_id for case in view.cases]
        missing = next(problem for problem in view.problems if problem.code == "recording.events_missing")
        assert missing.values == {"first": 0, "last": 199}

    @pytest.mark.parametrize("value_s", [0.0, -1.0])
    def test_a_sample_that_is_no_time_is_said_in_its_row(self, folder, clock, value_s):
        two_blocks = first(b"block_finished", after=first(b"block_finished"))
        lines = [with_value(line, value_s) if is_slice_of(line, SAME) else line for line in LINES[:two_blocks]]
        (folder / "events.jsonl").write_bytes(b"".join(lines))
        case = case_of(polled(folder, clock).view, SAME)
        assert case.log_ratio is None
        assert [reason.code for reason in case.reasons] == ["case.unusable_times"]

    def test_what_benchmarks_print_moves_no_terminal(self, folder, clock):
        hostile = "red \x1b[31m and\nnew line"
        events = (
            RunStarted(run_id="r", schema=1, mode="paired", suite=hostile, case_ids=("a",), command=(), budget_s=1.0),
            Noted(fact=recorded_text(hostile)),
        )
        content = b"".join(encode_event(e, seq=n, t_wall=STARTED, t_mono=1.0) for n, e in enumerate(events))
        (folder / "events.jsonl").write_bytes(content)
        view = polled(folder, clock).view
        texts = [view.suite, *map(describe, view.notes), *(line_text(line) for line in view.log)]
        assert len(texts) == 4
        assert all(text.isprintable() for text in texts)


def is_slice_of(line: bytes, case_id: str) -> bool:
    return b'"event":"sample"' in line and case_id.encode() in line and b'"warmup":false' in line


def with_value(line: bytes, value_s: float) -> bytes:
    head, key, tail = line.partition(b'"value_s":')
    return head + key + str(value_s).encode() + b"," + tail.partition(b",")[2]
