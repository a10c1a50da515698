"""Settings of a user's own script that can be made from outside, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfguard.records.facts import Fact, Value, fact

SCRIPT_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "dtype": ("fp32", "bf16"),
    "memory_format": ("contiguous", "channels_last"),
    "optimizer": ("for-loop", "foreach", "fused"),
}
"""Values by setting, as an arm's `set:` has them. They mean what the options of built-in training steps mean."""

AS_WRITTEN = frozenset({("dtype", "fp32"), ("memory_format", "contiguous")})
"""Settings that leave the script as it is written, and so cannot be without effect."""

_COUNTED = {"dtype": "forwards", "memory_format": "modules", "optimizer": "optimizers"}

CHECKED_STEPS = 3  # Steps from the first one on whose loss and gradient norm are compared between arms


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingUse:
    """What became of one setting in a script.

    It is counted in forward passes for `dtype`, in modules for `memory_format` and in optimizers for `optimizer`.
    """

    name: str  # A key of `SCRIPT_SETTINGS`
    value: str
    changed: int = 0  # Forward passes run under autocast, modules converted, optimizers given the implementation
    kept: int = 0  # Those for which the script makes this choice itself; they are left as they are
    unable: int = 0  # Optimizers that have no such implementation

    @property
    def is_ignored(self) -> bool:
        """Whether the script runs as it would without the setting."""
        return not self.changed and (self.name, self.value) not in AS_WRITTEN

    def as_fact(self) -> Fact:
        """What became of it, for the reader."""
        counts: dict[str, Value] = {_COUNTED[self.name]: self.changed, "kept": self.kept, "unable": self.unable}
        counts["is_as_written"] = (self.name, self.value) in AS_WRITTEN
        known = {name: count for name, count in counts.items() if count}
        return fact("script.setting", known, name=self.name, value=self.value)
