"""`perfguard run --ranks`: from the command to the table, with real ranks on two cores."""

from __future__ import annotations

import json
import os

import pytest

STEP = "step.lstm_lm[layers=2,hidden=128,sequence=32,batch=16,dtype=fp32,mode=eager]"

pytestmark = [
    pytest.mark.long,
    pytest.mark.two_cpus,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two CPUs"),
]


def test_a_step_is_measured_in_one_rank_and_in_two_and_the_result_compares_their_throughput(project):
    how = ("--rounds", "2", "--samples", "1", "--budget", "300", "--format", "json")
    done = project.run("run", "--ranks", "1,2", "-c", STEP, *how)
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["scaling"]
    places = [(cell["threads"], cell["ranks"], cell["parallel"]) for cell in cells]
    assert places == [(1, 1, None), (1, 2, "ddp"), (1, 2, "plain")]
    assert {cell["step"] for cell in cells} == {STEP}
    assert cells[0]["throughput_ratio"] == 1
    assert all(cell["examples_per_s"] > 0 for cell in cells)
