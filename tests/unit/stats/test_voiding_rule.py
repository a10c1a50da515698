from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from perfguard.errors import MeasurementError
from perfguard.records.run import BlockConditions, Stage
from perfguard.records.verdict import Policy
from perfguard.stats.voiding import void_blocks, voided_blocks


def quiet(block, **changes):
    fields = {"duration_s": 10.0, "steal_ratio": 0.0, "involuntary_switches": 0, "control_s": (1e-3, 1e-3)}
    return BlockConditions(block=block, **(fields | changes))


def run_with(*disturbed, blocks=12):
    changed = {entry.block: entry for entry in disturbed}
    return [changed.get(block, quiet(block)) for block in range(blocks)]


def rule(share, least):
    return Policy(max_void_fraction=share, min_blocks=least)


def voided(conditions, max_fraction=0.25):
    return [entry.block for entry in void_blocks(conditions, rule(max_fraction, least=1)).voided]


def test_a_quiet_run_keeps_every_block():
    voiding = void_blocks(run_with(), rule(0.25, least=5))
    assert voiding.voided == voiding.spared == ()
    assert not voiding.is_unstable
    assert voiding.blocks_total == 12


def test_stolen_time_is_judged_by_an_absolute_limit():
    assert voided(run_with(quiet(3, steal_ratio=0.051), quiet(4, steal_ratio=0.049))) == [3]


def test_the_absolute_limit_holds_in_a_short_run():
    assert voided(run_with(quiet(0, steal_ratio=0.5, control_s=(9.0,)), blocks=4)) == [0]


def test_a_slow_control_workload_voids_and_a_fast_one_does_not():
    assert voided(run_with(quiet(2, control_s=(1.08e-3, 1.08e-3, 1e-6)), quiet(5, control_s=(0.5e-3,)))) == [2]


def test_still_control_workloads_do_not_make_a_small_step_outlying():
    # Eleven identical control workloads have no spread; 2 % is under the floor all the same.
    assert voided(run_with(quiet(2, control_s=(1.02e-3,)))) == []


def test_a_spread_of_control_workloads_widens_the_limit():
    spread = [quiet(b, control_s=(1e-3 * (1 + 0.03 * (b % 4)),)) for b in range(12)]
    assert voided([*spread[:11], quiet(11, control_s=(1.1e-3,))]) == []
    assert voided([*spread[:11], quiet(11, control_s=(1.4e-3,))]) == [11]


def test_load_of_other_programs_voids_where_it_is_not_always_there():
    conditions = run_with(quiet(3, foreign_ratio=0.06), *(quiet(b, foreign_ratio=0.0) for b in (0, 1, 2, 4, 5)))
    assert void_blocks(conditions, rule(0.25, least=1)).voided[0].causes == {"foreign_share": 0.06}
    assert voided([quiet(block, foreign_ratio=0.3 + 0.001 * block) for block in range(12)]) == []
    assert voided(run_with(quiet(3, foreign_ratio=0.9))) == []  # unknown in the others


def foreign(*ratios):
    return [quiet(block, foreign_ratio=ratio) for block, ratio in enumerate(ratios)]


def test_load_of_other_programs_is_judged_from_five_blocks_on_and_beyond_its_limit():
    assert voided(foreign(0.9, 0.0, 0.0, 0.0, 0.0), 1.0) == [0]
    assert voided(foreign(0.9, 0.0, 0.0, 0.0), 1.0) == []
    assert voided(foreign(0.051, 0.0, 0.0, 0.0, 0.0), 1.0) == [0]
    assert voided(foreign(0.05, 0.0, 0.0, 0.0, 0.0), 1.0) == []


def test_voided_blocks_of_a_run_are_those_of_all_its_stages():
    stages = {
        Stage.MAIN: run_with(quiet(3, steal_ratio=0.5)),
        Stage.CONFIRMATION: [quiet(block, steal_ratio=0.5 * (block == 14)) for block in range(12, 24)],
    }
    assert voided_blocks(SimpleNamespace(conditions=lambda stage: stages.get(stage, []))) == {3, 14}
    stages[Stage.MAIN] = run_with(quiet(3, control_s=(math.nan,)))
    assert voided_blocks(SimpleNamespace(conditions=lambda stage: stages.get(stage, []))) == {14}


def test_many_involuntary_switches_void():
    conditions = run_with(quiet(7, involuntary_switches=400), quiet(8, involuntary_switches=2))
    assert voided(conditions) == [7]
    assert void_blocks(conditions, rule(0.25, least=1)).voided[0].causes == {"involuntary_switches": 400}


def test_switches_are_counted_by_the_second():
    usual = [quiet(b, involuntary_switches=100) for b in range(11)]
    assert voided([*usual, quiet(11, involuntary_switches=400, duration_s=40.0)]) == []
    assert voided([*usual, quiet(11, involuntary_switches=400)]) == [11]


def test_signals_that_a_host_lacks_void_nothing():
    assert voided([quiet(b, steal_ratio=None, involuntary_switches=None, control_s=()) for b in range(12)]) == []


def test_a_block_may_have_several_reasons():
    (entry,) = void_blocks(run_with(quiet(1, steal_ratio=0.1, control_s=(2e-3,))), rule(0.25, least=1)).voided
    assert list(entry.causes) == ["control_ratio", "stolen_share"]
    assert entry.causes == {"control_ratio": pytest.approx(1.0), "stolen_share": 0.1}


def test_only_the_worst_quarter_is_voided_and_the_host_is_called_unstable():
    steals = {0: 0.10, 4: 0.50, 6: 0.20, 9: 0.30}
    voiding = void_blocks(run_with(*(quiet(b, steal_ratio=s) for b, s in steals.items())), rule(0.25, least=1))
    assert [entry.block for entry in voiding.voided] == [4, 9, 6]
    assert [entry.block for entry in voiding.spared] == [0]
    assert voiding.is_unstable


def test_no_blocks_are_no_trouble():
    assert void_blocks([], rule(0.25, least=1)).blocks_total == 0


def test_a_block_given_twice_is_refused():
    with pytest.raises(MeasurementError, match="twice"):
        void_blocks([quiet(1), quiet(1)], rule(0.25, least=1))


def test_a_control_workload_that_is_no_time_is_refused():
    with pytest.raises(MeasurementError, match="control workload"):
        void_blocks(run_with(quiet(1, control_s=(0.0,))), rule(0.25, least=1))


def severities(conditions):
    return {entry.block: entry.severity for entry in void_blocks(conditions, rule(1.0, least=0)).voided}


@pytest.mark.parametrize(
    ("blocks", "disturbed", "allowed"), [(4, 4, 1), (5, 5, 1), (6, 6, 2), (9, 9, 2), (10, 10, 3), (11, 1, 1), (0, 0, 0)]
)
def test_the_share_that_may_be_voided_is_rounded_to_the_nearest_block(blocks, disturbed, allowed):
    """A quarter of 4 to 11 blocks is 1, 1.25, 1.5, 2.25, 2.5 and 2.75; halves are rounded up."""
    voiding = void_blocks(
        [quiet(b, steal_ratio=0.5 if b < disturbed else 0.0) for b in range(blocks)], rule(0.25, least=1)
    )
    assert voiding.blocks == frozenset(range(allowed))
    assert len(voiding.spared) == disturbed - allowed
    assert voiding.is_unstable == (disturbed > allowed)


@pytest.mark.parametrize(("blocks", "voided"), [(4, 0), (5, 0), (6, 1), (7, 2)])
def test_as_many_blocks_as_a_verdict_needs_stay(blocks, voided):
    voiding = void_blocks([quiet(b, steal_ratio=0.5 if b < 2 else 0.0) for b in range(blocks)], rule(0.5, least=5))
    assert (len(voiding.voided), len(voiding.spared)) == (voided, 2 - voided)
    assert not voiding.is_unstable


def test_the_limit_of_stolen_time_itself_is_allowed():
    assert severities(run_with(quiet(3, steal_ratio=0.05), quiet(4, steal_ratio=0.1))) == {4: pytest.approx(2.0)}


@pytest.mark.parametrize("signal", [{"control_s": (2e-3,)}, {"involuntary_switches": 10_000}])
def test_five_blocks_tell_what_is_normal_and_four_do_not(signal):
    assert voided(run_with(quiet(0, **signal), blocks=4), 1.0) == []
    assert voided(run_with(quiet(0, **signal), blocks=5), 1.0) == [0]
    blind = {"control_s": ()} if "control_s" in signal else {"involuntary_switches": None}
    assert voided([quiet(0, **signal), *(quiet(b, **(blind if b > 3 else {})) for b in range(1, 9))], 1.0) == []
    assert voided([quiet(0, **signal), *(quiet(b, **(blind if b > 4 else {})) for b in range(1, 9))], 1.0) == [0]


def test_a_block_of_no_length_has_no_rate_of_switches():
    short = [quiet(b, duration_s=0.5) for b in range(6)]
    assert voided([*short, quiet(6, duration_s=0.5, involuntary_switches=10_000)], 1.0) == [6]
    assert voided([*short, quiet(6, duration_s=0.0, involuntary_switches=10_000)], 1.0) == []


@pytest.mark.parametrize(
    ("usual", "duration_s", "limit"),
    [
        (0, 10.0, 50),  # 5 a second beyond the typical block
        (0, 0.4, 4),  # counts scatter by one at least, and four of that are outlying
        (400, 10.0, 480),  # by their root, 20
        (16, 1.0, 32),
    ],
)
def test_switches_beyond_the_typical_block_have_a_floor(usual, duration_s, limit):
    quiet_blocks = [quiet(b, duration_s=duration_s, involuntary_switches=usual) for b in range(11)]
    at_limit = quiet(11, duration_s=duration_s, involuntary_switches=limit)
    beyond = quiet(11, duration_s=duration_s, involuntary_switches=limit + 1)
    assert severities([*quiet_blocks, at_limit]) == {}
    assert severities([*quiet_blocks, beyond]) == {11: pytest.approx((limit + 1 - usual) / (limit - usual))}


def test_switches_are_brought_to_the_length_of_the_typical_block():
    """25 in half the time are 50, on the limit; in twice the time 102 are 51."""
    usual = [quiet(b) for b in range(9)]
    assert severities([*usual, quiet(9, duration_s=5.0, involuntary_switches=25)]) == {}
    assert severities([*usual, quiet(9, duration_s=20.0, involuntary_switches=102)]) == {9: pytest.approx(51 / 50)}


def test_a_scatter_beyond_the_floor_makes_the_limit():
    """Counts 0 to 100 have the MAD 30 about 50; so 4 x 1.4826 x 30 beyond 50 is outlying."""
    usual = [quiet(b, involuntary_switches=10 * b) for b in range(11)]
    limit = 50 + 4 * 1.4826 * 30
    found = severities([*usual, quiet(11, involuntary_switches=50), quiet(12, involuntary_switches=240)])
    assert found == {12: pytest.approx((240 - 50) / (limit - 50))}


@pytest.mark.parametrize(("ratio", "is_voided"), [(1.061, False), (1.063, True)])
def test_a_block_less_than_6_percent_slow_is_never_voided(ratio, is_voided):
    found = severities(run_with(quiet(2, control_s=(1e-3 * ratio,))))
    assert found == ({2: pytest.approx(math.log(ratio) / 0.06)} if is_voided else {})
