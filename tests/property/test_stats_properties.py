from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perfguard.records.run import BlockConditions, Round
from perfguard.records.verdict import Policy
from perfguard.stats.p_values import benjamini_hochberg, holm, p_faster, p_slower
from perfguard.stats.paired import block_effect, estimate_paired
from perfguard.stats.power import minimum_detectable_effect
from perfguard.stats.rounds import estimate_rounds
from perfguard.stats.voiding import void_blocks

times = st.floats(min_value=1e-7, max_value=1e3)
samples = st.lists(times, min_size=1, max_size=25)
log_ratios = st.lists(st.floats(min_value=-2, max_value=2), min_size=2, max_size=35)
p_values = st.lists(st.floats(min_value=0, max_value=1), max_size=20)
margins = st.sampled_from([0.0, 0.005, 0.05])


@given(samples, samples, st.floats(min_value=1e-3, max_value=1e3))
def test_a_slower_machine_changes_no_block(baseline, candidate, factor):
    scaled = block_effect([factor * t for t in baseline], [factor * t for t in candidate]).log_ratio
    assert scaled == pytest.approx(block_effect(baseline, candidate).log_ratio, abs=1e-9)


@given(samples, samples)
def test_swapping_the_arms_negates_a_block(baseline, candidate):
    assert block_effect(candidate, baseline).log_ratio == pytest.approx(
        -block_effect(baseline, candidate).log_ratio, abs=1e-9
    )


@given(log_ratios, margins)
def test_swapping_the_arms_negates_the_estimate_and_exchanges_the_tests(values, margin):
    there = estimate_paired(values, 0.95)
    back = estimate_paired([-value for value in values], 0.95)
    assert back.log_ratio == pytest.approx(-there.log_ratio, abs=1e-12)
    assert back.standard_error == pytest.approx(there.standard_error, rel=1e-6, abs=1e-12)
    assert back.interval.lower == pytest.approx(-there.interval.upper, rel=1e-6, abs=1e-11)
    # Rounding decides on which side of a margin a degenerate estimate falls.
    assume(there.standard_error > 1e-9)
    assert p_slower(back, margin) == pytest.approx(p_faster(there, margin), rel=1e-5, abs=1e-9)


@given(log_ratios, st.randoms(use_true_random=False))
def test_the_order_of_blocks_is_irrelevant(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    assert estimate_paired(shuffled, 0.95) == estimate_paired(values, 0.95)


@given(log_ratios, st.floats(min_value=-1, max_value=1))
def test_a_common_effect_shifts_the_estimate_and_nothing_else(values, shift):
    before, after = estimate_paired(values, 0.9), estimate_paired([v + shift for v in values], 0.9)
    assert after.log_ratio == pytest.approx(before.log_ratio + shift, abs=1e-9)
    assert after.standard_error == pytest.approx(before.standard_error, rel=1e-6, abs=1e-10)


@given(log_ratios, margins)
def test_p_values_are_probabilities_and_both_directions_are_never_significant(values, margin):
    estimate = estimate_paired(values, 0.95)
    slower, faster = p_slower(estimate, margin), p_faster(estimate, margin)
    assert 0 <= slower <= 1
    assert 0 <= faster <= 1
    assert max(slower, faster) >= 0.5


@given(log_ratios)
def test_a_larger_margin_never_lowers_p(values):
    estimate = estimate_paired(values, 0.95)
    assert p_slower(estimate, 0.0) <= p_slower(estimate, 0.01) <= p_slower(estimate, 0.1)


@given(p_values)
def test_holm_keeps_the_order_and_only_raises_p(values):
    adjusted = holm(values)
    assert all(p <= q <= 1 for p, q in zip(values, adjusted, strict=True))
    by_p = [q for _, q in sorted(zip(values, adjusted, strict=True))]
    assert by_p == sorted(by_p)


@given(p_values)
def test_benjamini_hochberg_lies_between_raw_and_holm(values):
    for raw, listed, gated in zip(values, benjamini_hochberg(values), holm(values), strict=True):
        assert raw - 1e-12 <= listed <= gated + 1e-12


@given(p_values, st.data())
def test_a_smaller_p_never_raises_another_adjusted_p(values, data):
    assume(values)
    index = data.draw(st.integers(min_value=0, max_value=len(values) - 1))
    lowered = list(values)
    lowered[index] *= data.draw(st.floats(min_value=0, max_value=1))
    assert all(q <= p + 1e-12 for p, q in zip(holm(values), holm(lowered), strict=True))


@given(
    st.floats(min_value=1e-6, max_value=0.1),
    st.floats(min_value=1, max_value=60),
    st.sampled_from([0.05, 0.008, 0.008 / 12]),
)
def test_the_mde_grows_with_the_error_and_lies_above_the_margin(error, df, alpha):
    small = minimum_detectable_effect(error, df, alpha=alpha, margin_ratio=0.005)
    assert 0.005 <= small <= minimum_detectable_effect(2 * error, df, alpha=alpha, margin_ratio=0.005)


rounds = st.lists(
    st.builds(
        lambda value, control: Round(values_s=(value,), control_s=(control,), started_at=0.0),
        st.floats(min_value=1e-3, max_value=1e-1),
        st.floats(min_value=1e-3, max_value=1e-2),
    ),
    min_size=2,
    max_size=8,
)


@given(rounds, rounds)
def test_swapping_the_sides_of_rounds_negates_the_effect(old, new):
    there = estimate_rounds(old, new, margin_ratio=0.005, level=0.95)
    back = estimate_rounds(new, old, margin_ratio=0.005, level=0.95)
    assert back.estimate.log_ratio == pytest.approx(-there.estimate.log_ratio, rel=1e-6, abs=1e-9)
    assert 0 <= there.p_slower <= 1
    assert there.estimate.interval.lower <= there.estimate.log_ratio <= there.estimate.interval.upper


conditions = st.builds(
    lambda steal, switches, control: (steal, switches, control),
    st.none() | st.floats(min_value=0, max_value=1),
    st.none() | st.integers(min_value=0, max_value=10_000),
    st.lists(st.floats(min_value=1e-4, max_value=1e-2), max_size=3),
)


@given(st.lists(conditions, max_size=30), st.floats(min_value=0, max_value=1), st.integers(0, 8))
def test_voiding_keeps_its_share_and_takes_the_worst_first(rows, share, least):
    voiding = void_blocks(
        [
            BlockConditions(
                block=block, duration_s=1.0, steal_ratio=steal, involuntary_switches=switches, control_s=tuple(control)
            )
            for block, (steal, switches, control) in enumerate(rows)
        ],
        Policy(max_void_fraction=share, min_blocks=least),
    )
    assert len(voiding.voided) <= share * len(rows) + 0.5
    assert len(rows) - len(voiding.voided) >= min(least, len(rows))
    severities = [entry.severity for entry in (*voiding.voided, *voiding.spared)]
    assert severities == sorted(severities, reverse=True)
    assert all(entry.causes and entry.severity > 1 for entry in voiding.voided)
