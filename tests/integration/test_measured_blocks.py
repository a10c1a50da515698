"""What real workers leave of the benchmarks that they time, in events and files. No torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perfguard.records.events import CaseFinished, SampleTimed
from perfguard.records.run import Arm
from perfguard.store.pyperf_files import join_suites, write_suite
from tests.worker_rigs import completed, failures


def test_what_a_benchmark_computes_is_recorded_for_both_arms(rig):
    made = rig(
        """
        def bad():
            def call():
                return 2.5
            call.check = lambda: {"gradient_norm": 7}
            return call
        """
    )
    finished = [event for event in made.measure("bad", "good") if isinstance(event, CaseFinished)]
    by_case = {event.case_id: (event.baseline_checks, event.candidate_checks) for event in finished}
    assert by_case["bad"] == ({"result": 2.5, "gradient_norm": 7.0, "timed_result": 2.5},) * 2
    assert by_case["good"] == (dict.fromkeys(("result", "timed_result"), float(sum(range(1000)))),) * 2


def test_the_raw_files_are_pyperfs_and_hold_every_sample(rig):
    made = rig("")
    events = made.measure("good")
    for arm, code in ((Arm.BASELINE, "a"), (Arm.CANDIDATE, "b")):
        suite = join_suites((made.folder / "raw").glob(f"*-{code}.json"), skipped=pytest.fail)
        write_suite(suite, made.folder / f"{arm.value}.json")
        (benchmark,) = suite.get_benchmarks()
        assert benchmark.get_name() == "good"
        timed = [event for event in events if isinstance(event, SampleTimed) and event.arm is arm and not event.warmup]
        assert len(timed) == 4
        assert benchmark.get_values() == pytest.approx([event.value_s for event in timed], rel=1e-9)
        assert {run.get_metadata()["perfguard_arm"] for run in benchmark.get_runs()} == {arm.value}
    for arguments in (("stats", "candidate.json"), ("compare_to", "baseline.json", "candidate.json")):
        done = subprocess.run(
            [sys.executable, "-m", "pyperf", *arguments], cwd=made.folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_what_a_benchmark_prints_goes_to_the_log_and_disturbs_nothing(rig):
    made = rig(
        """
        import os, sys
        def bad():
            def call():
                print("loud", '{"reply":"sample"}')
                print("louder", file=sys.stderr)
                os.write(1, b"\\xff\\xfe\\0 raw")
                return 1.0
            return call
        """
    )
    events = made.measure("bad", "good")
    assert failures(events) == {}
    assert sorted(completed(events)) == ["bad", "bad", "good", "good"]
    log = (made.folder / "logs" / "0000-b.log").read_bytes()
    assert b"loud" in log
    assert b"\xff\xfe\0 raw" in log


def test_a_benchmark_that_stops_the_clock_does_not_stop_ours(rig):
    """The clock is bound before the code under test is imported; halving or freezing `time`'s own changes nothing."""
    made = rig(
        """
        import time
        def bad():
            time.perf_counter = lambda: 0.0
            return lambda: float(sum(range(1000)))
        """
    )
    events = made.measure("bad", "good")
    assert failures(events) == {}
    assert set(completed(events)) == {"bad", "good"}
