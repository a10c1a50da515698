"""The screen of trials: what `perfguard tune` has tried so far."""

from __future__ import annotations

import pytest

from perfguard.errors import StoreError
from perfguard.tui.launch import TuiOptions
from tests.simulated_tuning import a_tuning
from tests.tui_runs import a_watch


def unreadable():
    raise StoreError("a.jsonl:2 is corrupt")


def shown(drive, read, *keys):
    texts = []

    async def script(driver) -> None:
        await driver.press("8")
        await driver.tick()
        await driver.press(*keys)
        texts.append(driver.screen_text())

    drive(a_watch(), script, options=TuiOptions(interval_s=3600.0, read_tuning=read))
    return texts[0]


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (None, "no tuning can be read from here"),
        (lambda: None, "nothing was tuned in this project yet"),
        (unreadable, "the tuning cannot be read: a.jsonl:2 is corrupt"),
    ],
)
def test_without_trials_it_says_why(drive, read, says):
    assert says in shown(drive, read)


def test_a_trial_has_its_effect_its_result_and_its_run(drive):
    text = shown(drive, a_tuning)
    for part in ("dtype=bf16", "-25.9 %", "[-27.4 %, -24.4 %]", "faster", "20260102T030405-a1b2c3", "bf16-untried"):
        assert part in text


def test_a_trial_with_other_results_is_the_next_flag_and_has_its_reason(drive):
    assert "loss differs" not in shown(drive, a_tuning)
    assert "loss differs" in shown(drive, a_tuning, "n")
