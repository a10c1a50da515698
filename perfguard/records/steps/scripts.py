"""Steps of a user's script in two arms."""

from __future__ import annotations

from msgspec import Struct

from perfguard.records.facts import Fact
from perfguard.records.script_settings import SettingUse


class ScriptComparison(Struct, frozen=True, kw_only=True):
    """How long a step takes in a second arm against a first one; times count only where nothing is refused."""

    pairs: int  # Pairs of fresh processes
    steps: int  # Timed steps of each arm in all of them
    ratio: float | None  # Time of a step after / before: 0.8 is a fifth less; None without a pair
    lower: float | None  # Lower end of its 95 % interval, from what differs between pairs; None with fewer than two
    upper: float | None  # Upper end
    before_s: float | None  # Median seconds of a step in the first arm
    after_s: float | None  # In the second
    refused: tuple[Fact, ...]  # Why the second arm does not count: it ignores a setting, or computes something else
    settings: tuple[SettingUse, ...]  # What became of the settings of the second arm
    notes: tuple[Fact, ...]  # What the reader should know
    seconds: float  # Wall seconds that comparing took
