"""What is done to the victim, and what a right answer names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from perfguard.records.steps.ops import Culprit
from tests.proof.culprits_of_injections.denormal_ops import ops_with_more_denormals

CAP = "ONEDNN_MAX_CPU_ISA=AVX2"
LAYOUT_WORDS = ("layout", "clone", "contiguous", "copy_", "channels_last")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault."""

    name: str
    """Short, also in the journal."""
    doc: str
    """What is done, one line."""
    candidate: str
    """Variables of the candidate, as `env:` takes them."""
    baseline: str = ""
    """Variables of both arms beside it."""
    names: Callable[[Culprit], bool]
    """Whether a culprit is the one that was injected."""
    spins: bool = False
    """Whether the seconds to spin have to be put in."""


def _has(*words: str) -> Callable[[Culprit], bool]:
    def names(culprit: Culprit) -> bool:
        fact = culprit.fact
        known = (fact.code, fact.subject.op, culprit.ops[0].op, *fact.values.values())
        return any(word in str(value) for value in known for word in words)

    return names


@functools.cache
def _ops_with_more_denormals() -> frozenset[str]:
    faded = {"VICTIM_FADED": "1"}
    return ops_with_more_denormals(faded, {**faded, "VICTIM": "denormals"})


INJECTIONS = (
    Injection(
        name="spin",
        doc="an op of the victim's own spins for 4 % of the step",
        candidate="VICTIM=spin",
        names=_has("victim::gate"),
        spins=True,
    ),
    Injection(
        name="contiguous",
        doc="a .contiguous() in the middle of a channels_last model",
        candidate="VICTIM=contiguous",
        names=_has(*LAYOUT_WORDS),
    ),
    Injection(
        name="channels-last",
        doc="the model is not converted to channels_last",
        candidate="VICTIM=channels-last",
        names=_has(*LAYOUT_WORDS),
    ),
    Injection(name="unfused", doc="Adam with fused=False", candidate="VICTIM=unfused", names=_has("Adam")),
    Injection(name="capped", doc=f"{CAP}, fp32", candidate=CAP, names=_has("convolution", "avx2")),
    Injection(
        name="capped-bf16",
        doc=f"{CAP}, bf16 under autocast",
        candidate=CAP,
        baseline="VICTIM_DTYPE=bf16",
        names=_has("convolution", "avx2", "mm", "conv2d"),
    ),
    Injection(
        name="denormals",
        doc="one batch norm gives denormals (1e-39) instead of small numbers (1e-30), and so does all that follows",
        candidate="VICTIM=denormals",
        baseline="VICTIM_FADED=1",
        names=lambda culprit: culprit.ops[0].op in _ops_with_more_denormals(),
    ),
    Injection(name="doubled", doc="one block is called twice", candidate="VICTIM=doubled", names=_has("Net.second")),
    Injection(name="nothing", doc="no fault: nothing may be named", candidate="VICTIM=", names=lambda _: False),
)
