"""The exit code of a submission."""

from __future__ import annotations

import pytest

from perfguard.errors import ExitCode
from perfguard.fleet.verdict import exit_code_of
from perfguard.records.fleet import Shard, ShardState
from perfguard.report.terminal.fleet import counted_outcomes
from tests.changed_values import replace

DONE, FAILED, CANCELLED = ShardState.DONE, ShardState.FAILED, ShardState.CANCELLED


def a_shard(state, code):
    return Shard(
        id=1, submission_id=1, machine_class="xeon", patterns=(), state=state, attempt=1, host="host-1",
        lease_until=None, changed_at=0.0, exit_code=code,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shards", "code"),
    [
        ([(DONE, 0), (DONE, 0)], ExitCode.PASS),
        ([(DONE, 0), (DONE, 4)], ExitCode.INCONCLUSIVE),
        ([(DONE, 0), (FAILED, 3)], ExitCode.INFRASTRUCTURE),
        ([(DONE, 4), (CANCELLED, None)], ExitCode.INFRASTRUCTURE),
        ([(DONE, 1), (FAILED, 3), (DONE, 4)], ExitCode.REGRESSION),
        ([(FAILED, 1)], ExitCode.INFRASTRUCTURE),
    ],
)
def test_a_regression_counts_first_then_what_was_not_measured_then_what_was_not_decided(shards, code):
    assert exit_code_of([a_shard(state, number) for state, number in shards]) is code


def test_results_that_differ_are_not_called_noise():
    different = replace(a_shard(DONE, 4), outcome="different")
    assert counted_outcomes([different, a_shard(DONE, 0), a_shard(FAILED, 3)]) == "1 failed, 1 different, 1 pass"
    assert counted_outcomes([a_shard(DONE, 4), a_shard(DONE, 1)]) == "1 regression, 1 inconclusive"
