"""What the newest run of a case is compared with."""

from __future__ import annotations

import math

import pytest

from perfguard.records.history import History, HistoryPoint
from perfguard.report.case_history import histories_of

CASE = "kernel.linear[m=128]"


def case_of(*runs, baseline_s=None, machine_id="here"):
    """A case whose runs are pairs of machine and median."""
    points = tuple(
        HistoryPoint(
            run_id=f"run-{number}",
            t_wall=float(number),
            case_id=CASE,
            median_s=median_s,
            spread_ratio=0.01,
            source_id="tree",
            machine_id=machine,
            stack_id="stack",
            outcome=None,
        )
        for number, (machine, median_s) in enumerate(runs)
    )
    baselines_s = {} if baseline_s is None else {CASE: baseline_s}
    (case,) = histories_of(History(points=points, baselines_s=baselines_s, machine_id=machine_id))
    return case


def test_is_the_stored_baseline_where_there_is_one():
    case = case_of(("here", 2.0), ("here", 3.0), baseline_s=1.5)
    assert (case.reference, case.log_ratio) == ("stored baseline", pytest.approx(math.log(2)))


def test_is_the_run_before_without_a_baseline():
    case = case_of(("here", 2.0), ("here", 3.0))
    assert (case.reference, case.log_ratio) == ("run before", pytest.approx(math.log(1.5)))


def test_is_never_a_time_of_another_machine():
    elsewhere = case_of(("here", 2.0), ("there", 3.0), baseline_s=1.5)
    assert (elsewhere.reference, elsewhere.log_ratio) == (None, None)
    back = case_of(("there", 2.0), ("here", 9.0), ("there", 3.0), baseline_s=1.5)
    assert (back.reference, back.log_ratio) == ("run before", pytest.approx(math.log(1.5)))


def test_is_nothing_for_a_first_run_and_for_times_of_nothing():
    assert case_of(("here", 2.0)).reference is None
    assert case_of(("here", 0.0), ("here", 2.0)).reference is None
    assert case_of(("here", 2.0), baseline_s=0.0).reference is None
