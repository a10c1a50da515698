"""The list of culprits: what matters in full, what does not in one line."""

from __future__ import annotations

from dataclasses import replace

from perfguard.report.ops import render_attribution
from tests.example_attribution import attribution_of
from tests.printed_text import printed

CASE = "step.resnet50[batch=8]"


def lines_of(*shares):
    attribution = attribution_of(CASE)
    (first, *_) = attribution.culprits
    culprits = tuple(
        replace(first, sentence=f"culprit {number}", share=share, delta_s=share * 2.5e-3)
        for number, share in enumerate(shares)
    )
    return printed(render_attribution(replace(attribution, culprits=culprits), rows=0)).splitlines()


def test_culprits_of_less_than_one_per_cent_are_counted_together():
    lines = lines_of(0.9, 0.05, 0.004, 0.003)
    assert [line for line in lines if "culprit 0" in line or "culprit 1" in line] == lines[-3:-1]
    assert lines[-1].split() == ["1", "%", "+17.50", "µs", "2", "culprits", "of", "less", "than", "1", "%", "each"]


def test_the_largest_is_told_however_small_it_is():
    assert "culprit 0" in lines_of(0.004)[-1]


def test_without_small_ones_nothing_is_added():
    assert "culprit 1" in lines_of(0.9, 0.05)[-1]
