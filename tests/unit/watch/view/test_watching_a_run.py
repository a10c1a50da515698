"""A run as its events come: the views that a screen shows, from recordings that grow, end, break and vanish."""

from __future__ import annotations

import gc

import pytest

from perfguard.recordings import encode_event
from perfguard.records.events import BlockStarted, SampleTimed
from perfguard.records.facts import Fact, fact
from perfguard.records.run import Arm, Stage
from perfguard.watch.sources.event_sources import LocalSource, ReplaySource, host_of, selection_of
from perfguard.watch.view.run_view import CaseState, RunState
from perfguard.watch.view.watching import RunWatch
from tests.recorded_runs import BLOCKS, CASE_IDS, CONFIRMING, DATA, FAILING, NEW, NOISY, SAME, SLOWER, STARTED
from tests.watched_runs import LINES, PAIRED, Clock, case_of, first, polled

MOVED = fact("reader.placed", cpus="0", is_beside=False)


class TestTheWholeRun:
    def test_a_finished_run_says_what_it_concluded(self):
        view = polled(PAIRED).view
        assert (view.state, view.outcome, view.exit_code) == (RunState.FINISHED, "regressed", 1)
        assert view.reasons[0].values["case_ids"] == (SLOWER,)
        assert (view.run_id, view.mode, view.suite) == ("20260921T142640-paired", "paired", "example")
        assert [(arm.arm, arm.text) for arm in view.arms] == [(Arm.BASELINE, "git:HEAD"), (Arm.CANDIDATE, "dir:.")]
        assert (view.is_identical, view.problems) == (False, ())
        assert [note.code for note in view.notes] == ["run.started"]

    def test_cases_stand_in_the_order_of_the_suite_with_their_answers(self):
        view = polled(PAIRED).view
        assert tuple(case.case_id for case in view.cases) == CASE_IDS
        assert [case.outcome for case in view.cases] == [
            "regressed", "improved", "unchanged", "unchanged", "inconclusive", "failed", "no-baseline",
        ]  # fmt: skip
        assert case_of(view, FAILING).state is CaseState.FAILED
        assert case_of(view, NEW).state is CaseState.ANSWERED
        assert [case.is_gating for case in view.cases] == [True, True, True, True, False, False, False]

    def test_what_a_case_executes_otherwise_and_which_ops_are_to_blame_are_with_it(self):
        watch = polled(PAIRED)
        slower, same = case_of(watch.view, SLOWER), case_of(watch.view, SAME)
        assert [change.rule for change in slower.op_counts or ()] == ["implementation", "reorders"]
        assert slower.attribution is not None
        assert (same.op_counts, same.attribution) == ((), None)
        assert (len(slower.attribution.deltas), len(watch.deltas(SLOWER))) == (4, 6)
        assert (watch.deltas(SAME), watch.deltas("absent")) == ((), ())

    def test_confirmation_blocks_are_no_part_of_the_effect(self):
        watch = polled(PAIRED)
        progress = watch.view.progress
        assert progress is not None
        assert (progress.stage, progress.blocks_finished) == (Stage.CONFIRMATION, BLOCKS + CONFIRMING)
        assert case_of(watch.view, SLOWER).blocks == len(watch.series(SLOWER).blocks) == 5
        assert case_of(watch.view, NOISY).blocks == BLOCKS

    def test_the_curves_hold_every_sample_and_a_ratio_for_each_block(self):
        series = polled(PAIRED).series(NOISY)
        assert len(series.baseline_s) == len(series.candidate_s) == 4 * BLOCKS
        assert series.blocks == tuple(range(BLOCKS))
        assert len(series.block_log_ratios) == BLOCKS
        assert polled(PAIRED).series("absent").candidate_s == ()

    def test_a_run_of_one_arm_has_rounds_and_no_effect(self):
        view = polled(DATA / "rounds").view
        case = case_of(view, SAME)
        assert (view.mode, view.outcome) == ("rounds", "measured")
        assert {case.state for case in view.cases} == {CaseState.MEASURED}
        assert (case.blocks, case.samples, case.baseline_s, case.log_ratio) == (3, 12, None, None)
        assert case.candidate_s == pytest.approx(0.00042, rel=0.01)
        assert case.noise_ratio is not None
        assert view.progress is not None
        assert view.progress.blocks_planned == 3

    def test_the_machine_and_its_pinned_cpus_are_beside_the_events(self, tmp_path):
        watch = polled(PAIRED)
        host, selection = watch.host(), watch.selection()
        assert host is not None
        assert selection is not None
        assert (host, selection) == (host_of(PAIRED), selection_of(PAIRED))
        assert (host.cpu.brand, selection.cpus) == ("Example CPU", (1, 2, 3))
        (tmp_path / "fingerprint.json").write_text("{")
        (tmp_path / "plan.json").write_text('{"cpus": [1]}')
        assert (host_of(tmp_path), selection_of(tmp_path)) == (None, None)


class TestGrowing:
    def test_before_anything_is_there_it_waits(self, folder, clock):
        watch = RunWatch(LocalSource(folder), clock)
        assert watch.poll() is None
        assert watch.view.state is RunState.WAITING

    def test_arms_are_prepared_then_measured(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(first(b"arm_ready"))
        assert watch.poll().state is RunState.PREPARING
        write(first(b"sample"))
        view = watch.poll()
        assert view.state is RunState.MEASURING
        assert [case.state for case in view.cases].count(CaseState.MEASURING) == 1
        assert view.progress.case_id == next(c.case_id for c in view.cases if c.state is CaseState.MEASURING)
        assert case_of(view, FAILING).state is CaseState.FAILED

    def test_an_effect_is_there_from_the_second_block_on(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        one = first(b"block_finished")
        write(one)
        case = case_of(watch.poll(), SAME)
        assert (case.blocks, case.log_ratio, case.state) == (1, None, CaseState.OPEN)
        assert case.candidate_s is not None
        write(first(b"block_finished", after=one))
        case = case_of(watch.poll(), SAME)
        assert case.blocks == 2
        assert case.lower < case.log_ratio < case.upper
        assert (case.outcome, case.noise_ratio > 0) == (None, True)

    def test_samples_of_an_open_block_leave_the_effect_alone(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        two = first(b"block_finished", after=first(b"block_finished"))
        write(two)
        before = case_of(watch.poll(), SAME)
        write(first(b"block_finished", after=two) - 1)
        after = case_of(watch.poll(), SAME)
        assert after.samples > before.samples
        assert (after.log_ratio, after.blocks) == (before.log_ratio, before.blocks)

    def test_an_answer_at_a_look_is_shown_before_the_verdict(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        looked = (
            next(n for n, line in enumerate(LINES) if b'"event":"interim_analysis"' in line and b"improved" in line) + 1
        )
        write(looked)
        view = watch.poll()
        answered = [case.case_id for case in view.cases if case.state is CaseState.ANSWERED]
        assert SLOWER in answered
        assert case_of(view, SLOWER).outcome == "regressed"
        assert case_of(view, SLOWER).reasons == ()

    def test_in_the_middle_of_a_cases_samples_nothing_is_to_be_painted(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(first(b"block_started"))
        watch.poll()
        assert watch.is_between_samples
        write(first(b"sample"))
        watch.poll()
        assert not watch.is_between_samples
        write(first(b"case_finished"))
        watch.poll()
        assert watch.is_between_samples

    def test_painting_a_replay_or_an_ended_run_disturbs_nobody(self, clock):
        replay = RunWatch(ReplaySource(PAIRED, clock=clock), clock)
        replay.poll()
        clock.now_s += 14.0
        replay.poll()
        assert replay.view.progress.case_id is not None
        assert replay.is_between_samples
        assert polled(PAIRED).is_between_samples

    def test_time_passes_by_the_wall_while_it_runs_and_stops_at_its_end(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(first(b"block_started"))
        clock.now_s = STARTED + 30.0
        progress = watch.poll().progress
        assert (progress.elapsed_s, progress.left_s, progress.budget_s) == (30.0, 90.0, 120.0)
        clock.now_s += 10.0
        assert watch.poll().progress.elapsed_s == 40.0
        write(len(LINES))
        progress = watch.poll().progress
        assert (progress.elapsed_s, progress.left_s) == (56.0, None)

    def test_nothing_new_is_no_new_view(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(60)
        assert watch.poll() is not None
        assert watch.poll() is None
        clock.now_s += 0.2
        assert watch.poll() is None

    def test_parts_that_did_not_change_are_the_same_objects(self, folder, write, clock):
        watch = RunWatch(LocalSource(folder), clock)
        write(60)
        before = watch.poll()
        write(61)
        after = watch.poll()
        same = [old is new for old, new in zip(before.cases, after.cases, strict=True)]
        assert same.count(False) == 1
        assert before.log is after.log

    def test_lines_of_the_log_are_heard_as_they_come(self, folder, write, clock):
        heard = []
        watch = RunWatch(LocalSource(folder), clock, listen=heard.append)
        write(first(b"arm_ready"))
        watch.poll()
        assert [line.seq for line in heard] == [0, 1, 2]
        assert tuple(heard) == watch.view.log

    def test_the_reader_leaves_the_measured_cpus_once_they_are_known(self, folder, write, clock):
        asked = []

        def keep_off(cpus) -> Fact:
            asked.append(cpus)
            return MOVED

        plan = (folder / "plan.json").read_bytes()
        (folder / "plan.json").unlink()
        watch = RunWatch(LocalSource(folder), clock, keep_off=keep_off)
        write(first(b"block_started"))
        watch.poll()
        assert asked == []
        (folder / "plan.json").write_bytes(plan)
        clock.now_s += 1.0
        watch.poll()
        watch.poll()
        assert asked == [(1, 2, 3)]
        assert [line.what for line in watch.view.log if line.seq == -1] == [MOVED]

    def test_nobody_is_moved_for_a_run_that_has_ended(self):
        asked = []
        watch = RunWatch(LocalSource(PAIRED), Clock(), keep_off=lambda cpus: asked.append(cpus) or MOVED)
        watch.poll()
        assert asked == []


def test_events_of_samples_are_not_kept(folder, clock):
    """An event of a sample has some hundred bytes; what is kept of it has eight, so hours of them fit."""
    blocks, samples = 20, 500
    with (folder / "events.jsonl").open("wb") as file:
        file.write(LINES[0])
        for block in range(blocks):
            event = BlockStarted(block=block, hash_seed=1, data_seed=1, case_ids=(SAME,))
            file.write(encode_event(event, seq=-1, t_wall=STARTED, t_mono=1.0))
            for index in range(samples):
                timed = SampleTimed(
                    block=block, case_id=SAME, arm=Arm.CANDIDATE, index=index, warmup=False, value_s=0.01 + index,
                    cpu_s=0.01, minor_faults=0, involuntary_switches=0,
                )  # fmt: skip
                file.write(encode_event(timed, seq=-1, t_wall=STARTED, t_mono=1.0))
    del timed
    before = _slices_alive()
    watch = polled(folder, clock)
    assert len(watch.series(SAME).candidate_s) == blocks * samples
    assert _slices_alive() <= before


def _slices_alive():
    gc.collect()
    return sum(type(kept) is SampleTimed for kept in gc.get_objects())
