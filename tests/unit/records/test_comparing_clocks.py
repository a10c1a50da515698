"""What the parent's clock saw of a sample beyond what its worker claims."""

from __future__ import annotations

import pytest

from perfguard.records.case_block import CaseBlock, clock_of
from perfguard.records.events import SampleTimed
from perfguard.records.run import Arm, Stage
from tests.changed_values import replace

HONEST = SampleTimed(
    block=0,
    case_id="step.train",
    arm=Arm.BASELINE,
    index=0,
    warmup=False,
    value_s=0.010,
    cpu_s=0.010,
    minor_faults=0,
    involuntary_switches=0,
    iterations=2,
    elapsed_s=0.0205,
    parent_cpu_s=0.0205,
    parent_waited_s=0.0,
    waited_s=0.0,
)


def unexplained_ms(**candidate):
    block = CaseBlock(case_id="step.train", block=0, stage=Stage.MAIN)
    for _ in range(3):
        block.baseline.append(HONEST)
        block.candidate.append(replace(HONEST, arm=Arm.CANDIDATE, **candidate))
    return 1e3 * clock_of(block).unexplained_s


def test_equal_arms_leave_nothing():
    assert unexplained_ms() == pytest.approx(0.0)


def test_what_passed_unclaimed_while_the_candidate_ran_is_unexplained():
    assert unexplained_ms(value_s=0.004, cpu_s=0.004) == pytest.approx(12.0)


@pytest.mark.parametrize("waited_s", [0.0, 0.008], ids=["seen outside the sample", "seen beside the timed part"])
def test_a_wait_for_a_cpu_that_no_claim_holds_explains_itself(waited_s):
    """The meters see more than the clock: the second wait is theirs, and not of what was timed."""
    assert unexplained_ms(elapsed_s=0.0285, parent_waited_s=0.008, waited_s=waited_s) == pytest.approx(0.0)


def test_a_wait_that_is_claimed_explains_nothing_else():
    waited = {"elapsed_s": 0.0285, "parent_waited_s": 0.008, "waited_s": 0.008, "cpu_s": 0.010}
    assert unexplained_ms(**waited, value_s=0.014) == pytest.approx(0.0)
    assert unexplained_ms(**{**waited, "cpu_s": 0.004}, value_s=0.008) == pytest.approx(12.0)


def test_a_false_word_about_waits_hides_no_more_than_the_kernel_saw():
    assert unexplained_ms(value_s=0.004, cpu_s=1e6, parent_waited_s=0.001) == pytest.approx(11.0)


def test_recordings_without_waits_are_compared_by_time_alone():
    assert unexplained_ms(elapsed_s=0.0285, parent_waited_s=None, waited_s=0.008) == pytest.approx(8.0)
