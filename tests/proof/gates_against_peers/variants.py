"""The variants of the victim, as data: what each changes, what a gate should say of it, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CASES = ("conv_step", "linear", "layer_norm", "attention", "lstm", "embedding_bag")
"""What the gates under test guard, in the order of the suite."""
EFFECTS = (0.01, 0.02, 0.03, 0.05, 0.10)


class Kind(str, Enum):
    """What a variant is for."""

    IDENTICAL = "identical"
    PLACEBO = "placebo"
    SPIN = "spin"
    """Injected: one op spins for a fixed time."""
    WORK = "work"
    """Injected: one layer is wider."""
    FAULT = "fault"
    """A mistake that people make."""
    REPORTED = "reported"
    """A regression of PyTorch that was reported."""
    SILENT = "silent"
    """Looks like a regression and is none: must not fire."""


class Expected(str, Enum):
    """What a gate should answer."""

    NOTHING = "nothing"
    REGRESSION = "regression"
    CPU = "cpu"
    """Wall time stands still; CPU seconds grow."""
    REFUSAL = "refusal"
    """The arm is not fit to be compared (exit code 3), or it regressed."""
    INCOMPARABLE = "incomparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """A text in the victim's module that stands there once, and what takes its place."""

    old: str
    """Text before."""
    new: str
    """Text after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Two functions of the victim's module that change places."""

    first: str
    """Name of the one that stands first."""
    second: str
    """Name of the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way in which a candidate differs from the victim as it stands."""

    name: str
    """Also the name of its branch."""
    kind: Kind
    """What it is for."""
    doc: str
    """How it is made, one line."""
    cases: tuple[str, ...] = ()
    """Cases it should slow down; empty where nothing should be said."""
    controls: tuple[str, ...] = ()
    """Cases measured beside them that it must leave alone."""
    expected: Expected = Expected.REGRESSION
    """What a gate should answer."""
    effect: float | None = None
    """Effect that was injected, as a ratio; None where it follows from the machine."""
    edits: tuple[Replace | Exchange, ...] = ()
    """Changes of the sources."""
    spins: str | None = None
    """Case whose op spins for `effect` of its own time, calibrated once and alone."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of the candidate's workers; an empty value unsets one."""
    baseline_environment: tuple[tuple[str, str], ...] = ()
    """The same for the baseline's."""
    is_deep: bool = False
    """Whether its checkout lies at a longer path."""
    cpus: int = 1
    """CPUs that the gate measures on."""
    neighbour: bool = False
    """Whether a noisy neighbour shares the measured CPU."""
    stored: bool = False
    """Whether the gate is against a stored baseline (N1)."""
    needs: tuple[str, ...] = ()
    """Flags of the CPU without which it changes nothing."""
    hardware: str = ""
    """What of the hardware it takes to show, one line."""
    source: str = ""
    """Where it was seen."""


IDENTICAL = Variant(
    name="identical", kind=Kind.IDENTICAL, doc="byte for byte the same; its own commit", expected=Expected.NOTHING
)

PLACEBOS = (
    Variant(
        name="placebo-comment",
        kind=Kind.PLACEBO,
        doc="a comment more",
        expected=Expected.NOTHING,
        edits=(Replace(old="import time\n", new="# What follows is as it was before this comment.\nimport time\n"),),
    ),
    Variant(
        name="placebo-import",
        kind=Kind.PLACEBO,
        doc="an import that nothing uses",
        expected=Expected.NOTHING,
        edits=(Replace(old="import time\n", new="import decimal  # noqa: F401\nimport time\n"),),
    ),
    Variant(
        name="placebo-order",
        kind=Kind.PLACEBO,
        doc="two functions have changed places",
        expected=Expected.NOTHING,
        edits=(Exchange(first="layer_norm", second="lstm"),),
    ),
    Variant(
        name="placebo-path",
        kind=Kind.PLACEBO,
        doc="the same files at a longer path",
        expected=Expected.NOTHING,
        is_deep=True,
    ),
    Variant(
        name="placebo-environment",
        kind=Kind.PLACEBO,
        doc="1 kB more of environment",
        expected=Expected.NOTHING,
        environment=(("VICTIM_NOTHING", "x" * 1024),),
    ),
)

INJECTED = (
    *(
        Variant(
            name=f"spin-{effect * 100:02.0f}",
            kind=Kind.SPIN,
            doc=f"the activation of the conv step spins for {effect:.0%} of the step",
            cases=("conv_step",),
            effect=effect,
            spins="conv_step",
        )
        for effect in EFFECTS
    ),
    *(
        Variant(
            name=f"work-{effect * 100:02.0f}",
            kind=Kind.WORK,
            doc=f"the hidden layer is {effect:.0%} wider, the loss the same",
            cases=("linear",),
            effect=effect,
            edits=(Replace(old="\nHIDDEN = 3200\n", new=f"\nHIDDEN = {3200 * (1 + effect):.0f}\n"),),
        )
        for effect in EFFECTS
    ),
)
