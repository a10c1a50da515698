"""The convolutions of a step by the layout that they read: what both rules about channels_last look at."""

from __future__ import annotations

from dataclasses import dataclass

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.tensors import CHANNELS_LAST, tensors_of
from perfguard.records.steps.findings import Gain
from perfguard.records.steps.ops import OpTotal, StepPhase

CHANNELS_LAST_GAIN = Gain(
    text="unknown for this model; a small convolution step took 46.6 ms contiguous and 29.7 ms channels_last",
    source="perfguard's own measurement: torch 2.8, two CPUs of an AMD EPYC with AVX-512",
)

_OP = "aten::convolution"
"""Every convolution of eager mode passes through it once, with its tensors as the program gave them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One kind of convolution that a step calls."""

    total: OpTotal
    """Its op."""
    reads: str
    """Layout of what it reads; empty where that is left open or unknown."""
    weights: str
    """Layout of its weights, likewise."""

    @property
    def is_channels_last(self) -> bool:
        """Whether it reads channels_last."""
        return self.reads in CHANNELS_LAST

    @property
    def is_other(self) -> bool:
        """Whether it surely reads another layout."""
        return bool(self.reads) and not self.is_channels_last


def convolutions_of(evidence: Evidence) -> tuple[Convolution, ...]:
    """Convolutions on images and volumes, outside of backward."""
    found = []
    for total in evidence.totals:
        tensors = tensors_of(total.key)
        if total.key.op == _OP and total.key.phase is not StepPhase.BACKWARD and len(tensors) > 1:
            image, weights = tensors[:2]
            found.append(Convolution(total=total, reads=image.image_layout, weights=weights.image_layout))
    return tuple(found)
