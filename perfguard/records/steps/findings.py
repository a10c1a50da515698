"""Findings: advice from a profile, each with what was seen, what it may bring and how to find out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from perfguard.records.steps.ops import OpKey


class Severity(str, Enum):
    """How much a finding matters, the gravest first."""

    GRAVE = "grave"
    """An optimised way of computing is left, or threads fight for CPUs: times may be off by an order of magnitude."""
    NOTABLE = "notable"
    """A known loss, with a part of the step that is worth the change."""
    HINT = "hint"
    """Worth a try; what it brings is open, or small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What following a piece of advice has brought elsewhere; it is never an estimate for this step."""

    text: str
    """`732 → 717 ms a step of RetinaNet with fused Adam`, or `unknown`."""
    source: str
    """Paper, issue or measurement that says so; empty where nothing is known."""


UNKNOWN_GAIN = Gain(text="unknown", source="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How to find out what a piece of advice is worth here."""

    change: str
    """What to change in the code or the environment."""
    command: str
    """Measures the change against what there is now; empty where only a trace is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a step does and probably need not."""

    id: str
    """Of the rule: `reorders`, `unfused-optimizer`; stable, for machines."""
    title: str
    """One line: `Adam updates one tensor at a time`."""
    severity: Severity
    """How much it matters."""
    seen: tuple[str, ...]
    """The evidence, with its numbers, one sentence each."""
    where: str
    """`in forward of ResNet.layer3.*.conv1 (train.py:88)`; empty where it concerns the whole process."""
    ops: tuple[OpKey, ...]
    """The ops that it concerns, longest first, the longest few of them."""
    share: float | None
    """Part of the step that these ops take, all of them, not what can be saved; None where it cannot be told."""
    gain: Gain
    """What is known of its worth."""
    trial: Trial
    """How to find out."""
    since_baseline: str = ""
    """What of it is new since the baseline, where two arms were compared: the sentence of the census."""
