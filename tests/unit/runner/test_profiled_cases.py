"""The profiling loop with scripted workers in place of processes."""

from __future__ import annotations

import pytest

from perfguard.errors import MeasurementError
from perfguard.records.plan import MeasureSettings
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.runner.process.worker_process import WorkerFailure
from perfguard.runner.profiling.cases import Profiling, case_folder, profile_cases
from tests.worker_replies import REFUSAL, QueuedReplies, profiled, ready

CPUS = (2, 3)
BOTH = (Arm.BASELINE, Arm.CANDIDATE)
FIRST, SECOND = (Case(benchmark=name, target=f"bench.py:{name}") for name in ("first", "second"))


class FakeWorker(QueuedReplies):
    """Answers as a worker does; a fault happens at the command and case that it is keyed by."""

    def __init__(self, arm, log, faults, step_s):
        super().__init__()
        self.arm, self.log, self.faults, self.step_s = arm, log, faults, step_s

    def send(self, do, **fields):
        case = fields.get("case", {}).get("id")
        self.log.append((self.arm, do, case, fields.get("kind")))
        self.replies.append(self.faults.get((do, case)) or self._reply(do, fields))

    def _reply(self, do, fields):
        mask = list(CPUS)
        if do == "hello":
            return ready(CPUS, software={})
        if do == "prepare":
            return {"reply": "prepared", "digest": 1.5, "affinity": mask, "compile_events": {"frames": 1}}
        if do == "program":
            return {"reply": "program", "program": {"modules": []}, "affinity": mask}
        return profiled(CPUS, fields["kind"], wall_s=self.step_s)


class FakeStarter:
    """Hands out fake workers; `faults` are by process and arm."""

    def __init__(self, faults=None, step_s=0.2):
        self.faults = faults or {}
        self.step_s = step_s
        self.log = []
        self.workers = []
        self.blocks = []

    def start(self, arm, block, settings):
        assert settings is None, "a profiling worker must not be one that times slices"
        self.blocks.append(block)
        self.workers.append(FakeWorker(arm, self.log, self.faults.get((block.index, arm), {}), self.step_s))
        return self.workers[-1]


def profile(
    tmp_path,
    starter,
    cases=(FIRST, SECOND),
    arms=BOTH,
    *,
    processes=2,
    steps=3,
    most_steps=0,
    where=True,
    stop=None,
    **more,
):
    return profile_cases(
        cases,
        Profiling(
            starter=starter,
            settings=MeasureSettings(seed=7),
            cpus=CPUS,
            folder=tmp_path / "profiles",
            arms=arms,
            processes=processes,
            steps=steps,
            most_steps=most_steps,
            where=where,
            should_stop=stop or (lambda: False),
            progress=lambda _: None,
            **more,
        ),
    )


def test_every_process_alternates_bare_and_traced_steps_of_both_arms(tmp_path):
    starter = FakeStarter()
    found = profile(tmp_path, starter, (FIRST,), processes=1, steps=3, where=False)
    kinds = [(arm, kind) for arm, do, _, kind in starter.log if do == "profile"]
    timed = kinds[: 3 * 2 * 2]
    for step in range(3):
        bare, traced = timed[4 * step : 4 * step + 2], timed[4 * step + 2 : 4 * step + 4]
        assert {kind for _, kind in bare} == {"bare"}
        assert {kind for _, kind in traced} == {"trace"}
        assert [arm for arm, _ in bare] == [arm for arm, _ in traced]
        assert {arm for arm, _ in bare} == set(BOTH)
    assert timed[0][0] is not timed[4][0], "the arm that goes first changes from step to step"
    (record,) = found.processes[FIRST.id, Arm.BASELINE]
    assert (len(record.bare), len(record.traced), record.process) == (3, 3, 0)


@pytest.mark.parametrize(("step_s", "bare"), [(1e-3, 3), (30e-3, 3), (50e-3, 2), (0.07, 1)])
def test_short_steps_run_without_the_profiler_more_often(tmp_path, step_s, bare):
    """They cost 60 ms in each arm before a profiled step, or one step; arms take turns."""
    starter = FakeStarter(step_s=step_s)
    found = profile(tmp_path, starter, (FIRST,), processes=1, steps=2, where=False)
    (record,) = found.processes[FIRST.id, Arm.CANDIDATE]
    assert (len(record.bare), len(record.traced)) == (2 * bare, 2)
    turns = [arm for arm, do, _, kind in starter.log if do == "profile" and kind == "bare"][: 2 * bare]
    assert all(set(turns[2 * turn : 2 * turn + 2]) == set(BOTH) for turn in range(bare))
    assert all(turns[2 * turn] is turns[2 * turn - 1] for turn in range(1, bare))


@pytest.mark.parametrize(
    ("seconds", "most_steps", "traced"), [(0.01, 10, 10), (0.01, 0, 4), (0.14, 10, 5), (0.07, 10, 10), (1.0, 10, 4)]
)
def test_more_steps_are_taken_where_they_are_short(tmp_path, monkeypatch, seconds, most_steps, traced):
    """While another one fits into three seconds: here each answer of a worker takes the same time, four a step."""
    starter = FakeStarter()
    monkeypatch.setattr("time.monotonic", lambda: seconds * len(starter.log))
    found = profile(tmp_path, starter, (FIRST,), processes=1, steps=4, most_steps=most_steps, where=False)
    assert {len(found.processes[FIRST.id, arm][0].traced) for arm in BOTH} == {traced}


def test_cases_that_the_first_processes_do_not_settle_get_more(tmp_path):
    starter, asked = FakeStarter(), []

    def is_settled(baseline, candidate):
        asked.append((len(baseline), len(candidate)))
        return len(asked) == 1

    found = profile(tmp_path, starter, processes=2, most_processes=5, is_settled=is_settled)
    assert asked == [(2, 2), (2, 2)], "each case is asked for once"
    for arm in BOTH:
        assert [record.process for record in found.processes[FIRST.id, arm]] == [0, 1]
        assert [record.process for record in found.processes[SECOND.id, arm]] == [0, 1, 2, 3, 4]
    assert len(starter.blocks) == 2 * 5


def test_a_case_that_failed_gets_no_more_processes(tmp_path):
    starter = FakeStarter({(0, Arm.CANDIDATE): {("prepare", FIRST.id): REFUSAL}})
    found = profile(tmp_path, starter, (FIRST,), processes=2, most_processes=5, is_settled=lambda *_: False)
    assert set(found.problems) == {FIRST.id}
    assert len(starter.blocks) == 2


def test_one_arm_alone_gets_no_more_processes(tmp_path):
    starter = FakeStarter()
    arms = (Arm.CANDIDATE,)
    profile(tmp_path, starter, (FIRST,), arms, processes=2, most_processes=5, is_settled=lambda *_: False)
    assert len(starter.blocks) == 2


def test_the_op_counts_and_the_source_lines_are_taken_once_a_case(tmp_path):
    starter = FakeStarter()
    found = profile(tmp_path, starter)
    for case in (FIRST, SECOND):
        for arm in BOTH:
            first, second = found.processes[case.id, arm]
            assert first.joined is not None
            assert first.joined.log is not None
            assert first.where is not None
            assert (second.joined, second.where) == (None, None)


def test_without_steps_only_the_op_counts_is_taken(tmp_path):
    starter = FakeStarter()
    profile(tmp_path, starter, (FIRST,), (Arm.CANDIDATE,), processes=1, steps=0, where=False)
    assert [kind for _, do, _, kind in starter.log if do == "profile"] == ["joined"]


def test_no_two_traces_share_a_file(tmp_path):
    found = profile(tmp_path, FakeStarter())
    traces = [
        files.trace
        for records in found.processes.values()
        for record in records
        for files in (*record.traced, record.joined, record.where)
        if files is not None
    ]
    assert len(set(traces)) == len(traces)
    assert all(trace.parent.is_dir() for trace in traces)


def test_a_case_that_refuses_is_left_out_and_the_others_go_on(tmp_path):
    starter = FakeStarter({(0, Arm.CANDIDATE): {("profile", FIRST.id): REFUSAL}})
    found = profile(tmp_path, starter)
    assert found.problems[FIRST.id].reason == "ValueError: no"
    assert FIRST.id not in {case_id for case_id, _ in found.processes}
    assert len(found.processes[SECOND.id, Arm.BASELINE]) == 2


def test_a_worker_that_dies_ends_its_process_only(tmp_path):
    death = WorkerFailure("the worker crashed with SIGSEGV", "last words")
    starter = FakeStarter({(0, Arm.BASELINE): {("prepare", FIRST.id): death}})
    found = profile(tmp_path, starter, processes=3)
    assert found.problems[FIRST.id].reason == "the worker crashed with SIGSEGV"
    records = found.processes[SECOND.id, Arm.CANDIDATE]
    assert len(records) >= 2
    assert [record.joined is not None for record in records] == [True] + [False] * (len(records) - 1)
    assert all(worker.is_closed for worker in starter.workers)


def test_an_arm_that_cannot_be_started_is_an_error_and_leaves_no_worker(tmp_path):
    starter = FakeStarter({(0, Arm.CANDIDATE): {("hello", None): REFUSAL}})
    with pytest.raises(MeasurementError, match="the candidate worker cannot be started: ValueError: no"):
        profile(tmp_path, starter)
    assert all(worker.is_closed for worker in starter.workers)


def test_an_interruption_ends_it_between_cases(tmp_path):
    starter = FakeStarter()
    found = profile(tmp_path, starter, stop=lambda: len(starter.log) > 20)
    assert len(found.processes) < 4 or len(found.processes[FIRST.id, Arm.BASELINE]) < 2
    assert all(worker.is_closed for worker in starter.workers)


def test_arms_of_a_process_share_seeds_and_processes_do_not(tmp_path):
    starter = FakeStarter()
    profile(tmp_path, starter)
    seeds = [(block.hash_seed, block.data_seed) for block in starter.blocks]
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]


def test_folders_of_cases_are_told_apart_and_fit_any_file_system(tmp_path):
    ids = ["step.bert[layers=2,dtype=bf16]", "step.bert[layers=2,dtype=fp32]", "x" * 500, "x" * 501, "a/b", "a b"]
    folders = [case_folder(tmp_path, case_id) for case_id in ids]
    assert len(set(folders)) == len(ids)
    for folder in folders:
        assert folder.parent == tmp_path
        assert len(folder.name) < 100
        assert not set(folder.name) & set('/\\:*?"<>|[], ')
