"""Pauses that end once the CPU is as cool, or as fast, as at the start."""

from __future__ import annotations

import pytest

from perfguard.host.cooling import Heat, cool_down


def paused(start, later, *, most_s=10.0, wants_stop=lambda: False):
    readings, slept = iter(later), []
    waited_s = cool_down(start, most_s=most_s, wants_stop=wants_stop, now=lambda: next(readings), sleep=slept.append)
    assert waited_s == pytest.approx(sum(slept))
    return waited_s


@pytest.mark.parametrize(
    ("start", "later", "waited_s"),
    [
        (Heat(celsius=50.0), [Heat(celsius=51.9)], 0.0),
        (Heat(celsius=50.0), [Heat(celsius=70.0), Heat(celsius=60.0), Heat(celsius=50.0)], 1.0),
        (Heat(hertz=3e9), [Heat(hertz=2e9), Heat(hertz=2.95e9)], 0.5),
        (Heat(celsius=50.0), [Heat(celsius=70.0)] * 30, 10.0),
        (Heat(), [Heat()] * 30, 10.0),
    ],
)
def test_a_pause_ends_when_the_cpu_is_back_or_the_time_is_up(start, later, waited_s):
    assert paused(start, later) == pytest.approx(waited_s)


def test_the_last_part_of_a_pause_is_no_longer_than_what_is_left():
    assert paused(Heat(), [Heat()] * 5, most_s=1.2) == pytest.approx(1.2)


def test_a_user_who_wants_to_end_does_not_wait():
    assert paused(Heat(), [Heat()] * 5, wants_stop=lambda: True) == 0.0


@pytest.mark.parametrize(
    ("heat", "by"), [(Heat(celsius=1.0, hertz=1.0), "temperature"), (Heat(hertz=1.0), "frequency"), (Heat(), "time")]
)
def test_what_a_pause_goes_by(heat, by):
    assert heat.by == by
