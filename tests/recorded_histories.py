"""Imagined runs for the history's database."""

from __future__ import annotations

from perfguard.records.history import CaseRecord, MeasuredCode, RecordedSamples, RunRecord
from tests.changed_values import replace

PROJECT = "team/nets"
STARTED = 1_790_000_000.0
CASES = ("step.bert-tiny", "step.resnet18")
COMMITS = tuple(f"{number:040x}" for number in range(1, 40))
SAMPLES = {CASES[0]: RecordedSamples(baseline_s=((0.01, 0.011),), candidate_s=((0.012, 0.0125), (0.0121, 0.013)))}


def code(number: int, **fields) -> MeasuredCode:
    made = MeasuredCode(source_id=f"{number:040x}", stack_id="torch-2.13", commit=COMMITS[number])
    return replace(made, **fields)


def a_run(number: int, median_s: float = 0.01, **fields) -> RunRecord:
    """The run of a commit, an hour after the one before."""
    cases = tuple(
        CaseRecord(case_id=case_id, median_s=median_s * (1 + index), spread_ratio=0.004, blocks=7)
        for index, case_id in enumerate(CASES)
    )
    made = RunRecord(
        project=PROJECT, run_id=f"20260101T{number:06d}-abcdef", started_at=STARTED + 3600.0 * number, mode="rounds",
        suite="quick", machine_id="machine", outcome="measured", exit_code=0, candidate=code(number % len(COMMITS)),
        events_bytes=1000 + number, cases=cases,
    )  # fmt: skip
    return replace(made, **fields)


def a_gate(before: int, after: int, log_ratio: float, **fields) -> RunRecord:
    """A run that compared two commits."""
    run = a_run(after)
    judged = [
        replace(case, outcome="regressed", log_ratio=log_ratio, lower=log_ratio - 0.01, upper=log_ratio + 0.01)
        for case in run.cases
    ]
    return replace(
        run, mode="paired", run_id=f"gate-{before}-{after}", baseline=code(before), cases=tuple(judged), **fields
    )
