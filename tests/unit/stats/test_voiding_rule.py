from __future__ import annotations

import pytest

from perfguard.errors import MeasurementError
from perfguard.records.run import BlockConditions
from perfguard.stats.voiding import void_blocks


def quiet(block, **changes):
    fields = {"duration_s": 10.0, "steal_ratio": 0.0, "involuntary_switches": 0, "canary_s": (1e-3, 1e-3)}
    return BlockConditions(block=block, **(fields | changes))


def run_with(*disturbed, blocks=12):
    changed = {entry.block: entry for entry in disturbed}
    return [changed.get(block, quiet(block)) for block in range(blocks)]


def voided(conditions, max_fraction=0.25):
    return [entry.block for entry in void_blocks(conditions, max_fraction).voided]


def test_a_quiet_run_keeps_every_block():
    voiding = void_blocks(run_with(), 0.25)
    assert voiding.voided == voiding.spared == ()
    assert not voiding.host_unstable
    assert voiding.blocks_total == 12


def test_stolen_time_is_judged_by_an_absolute_limit():
    assert voided(run_with(quiet(3, steal_ratio=0.051), quiet(4, steal_ratio=0.049))) == [3]


def test_the_absolute_limit_holds_in_a_short_run():
    assert voided(run_with(quiet(0, steal_ratio=0.5, canary_s=(9.0,)), blocks=4)) == [0]


def test_a_slow_canary_voids_and_a_fast_one_does_not():
    assert voided(run_with(quiet(2, canary_s=(1.08e-3, 1.08e-3, 1e-6)), quiet(5, canary_s=(0.5e-3,)))) == [2]


def test_still_canaries_do_not_make_a_small_step_outlying():
    # Eleven identical canaries have no spread; 2 % is under the floor all the same.
    assert voided(run_with(quiet(2, canary_s=(1.02e-3,)))) == []


def test_a_spread_of_canaries_widens_the_limit():
    spread = [quiet(b, canary_s=(1e-3 * (1 + 0.03 * (b % 4)),)) for b in range(12)]
    assert voided([*spread[:11], quiet(11, canary_s=(1.1e-3,))]) == []
    assert voided([*spread[:11], quiet(11, canary_s=(1.4e-3,))]) == [11]


def test_many_involuntary_switches_void():
    conditions = run_with(quiet(7, involuntary_switches=400), quiet(8, involuntary_switches=2))
    assert voided(conditions) == [7]
    assert void_blocks(conditions, 0.25).voided[0].causes == {"involuntary_switches": 400}


def test_switches_are_counted_by_the_second():
    usual = [quiet(b, involuntary_switches=100) for b in range(11)]
    assert voided([*usual, quiet(11, involuntary_switches=400, duration_s=40.0)]) == []
    assert voided([*usual, quiet(11, involuntary_switches=400)]) == [11]


def test_signals_that_a_host_lacks_void_nothing():
    assert voided([quiet(b, steal_ratio=None, involuntary_switches=None, canary_s=()) for b in range(12)]) == []


def test_a_block_may_have_several_reasons():
    (entry,) = void_blocks(run_with(quiet(1, steal_ratio=0.1, canary_s=(2e-3,))), 0.25).voided
    assert list(entry.causes) == ["canary_ratio", "stolen_share"]


def test_only_the_worst_quarter_is_voided_and_the_host_is_called_unstable():
    steals = {0: 0.10, 4: 0.50, 6: 0.20, 9: 0.30}
    voiding = void_blocks(run_with(*(quiet(b, steal_ratio=s) for b, s in steals.items())), 0.25)
    assert [entry.block for entry in voiding.voided] == [4, 9, 6]
    assert [entry.block for entry in voiding.spared] == [0]
    assert voiding.host_unstable


def test_no_blocks_are_no_trouble():
    assert void_blocks([], 0.25).blocks_total == 0


def test_a_block_given_twice_is_refused():
    with pytest.raises(MeasurementError, match="twice"):
        void_blocks([quiet(1), quiet(1)], 0.25)


def test_a_canary_that_is_no_time_is_refused():
    with pytest.raises(MeasurementError, match="canary"):
        void_blocks(run_with(quiet(1, canary_s=(0.0,))), 0.25)
