"""What a study measured, as it is stored: one file an item, written as soon as the item is measured."""

from __future__ import annotations

from msgspec import Struct, field

from perfguard.records.estimate import Estimate
from perfguard.records.facts import Fact
from perfguard.records.steps.profile import Breakdown

EVIDENCE_SCHEMA = 1
DTYPES = ("fp32", "bf16")


class StudyMachine(Struct, frozen=True, kw_only=True):
    """Where a study is measured. Items of another machine or torch do not belong to it."""

    machine_id: str
    machine: str  # One line for people
    torch: str
    cpus: tuple[int, ...]  # CPUs that were measured on, one thread each
    is_intel: bool  # Whether it is an Intel CPU
    has_bf16: bool  # Whether it has instructions for BF16: AVX-512 BF16, AVX-NE-CONVERT or AMX


class LibraryShare(Struct, frozen=True, kw_only=True):
    """Calls of oneDNN or MKL of one kind in a step."""

    name: str  # oneDNN's primitive, or `MKL gemm`
    direction: str  # benchdnn's word where the primitive has one, else `forward` or `backward` by the phase, else empty
    calls: float  # In a step
    time_s: float  # Seconds in a step, as the library reports them
    share: float  # Of all time that libraries report; the shares of a step add up to 1


class ModelDonut(Struct, frozen=True, kw_only=True):
    """Fig. 2: where the time of one model's training step is."""

    model: str
    case_id: str
    step_s: float | None  # Without the profiler; None where that was not measured
    slices: tuple[LibraryShare, ...]  # Largest first; empty where the step calls neither library
    breakdown: Breakdown  # The whole step, with what calls no library

    def share(self, *names: str, direction: str = "") -> float:
        """Of the libraries' time, in calls of these names (all, without one) and directions that begin like this."""
        return sum(
            s.share
            for s in self.slices
            if (not names or s.name in names) and s.direction.lower().startswith(direction.lower())
        )


class PhaseTimes(Struct, frozen=True, kw_only=True):
    """One part of the step, with few and with many classes, in pairs of fresh processes."""

    phase: str  # `backbone`, `head`, `loss`, `forward`, `backward`
    few_s: float  # Seconds in a step, mean over the processes
    many_s: float
    ratio: Estimate  # Many over few


class ClassesCompared(Struct, frozen=True, kw_only=True):
    """Fig. 4: what more classes cost, phase by phase."""

    case_id: str  # With few classes
    few: int  # Classes
    many: int
    phases: tuple[PhaseTimes, ...]
    loss_backward_share: float  # Of backward, in the loss, with many classes


class KernelBlock(Struct, frozen=True, kw_only=True):
    """One block: two variants of a kernel in two fresh processes, medians of their samples."""

    dtype: str
    block: int
    reference_forward_s: float
    reference_both_s: float  # Forward and backward together
    variant_forward_s: float
    variant_both_s: float


class KernelPair(Struct, frozen=True, kw_only=True):
    """Fig. 6: one variant of the focal loss against the default, in interleaved blocks."""

    variant: str
    anchors: int  # Rows of the logits
    classes: int  # Columns
    blocks: tuple[KernelBlock, ...]
    is_different: bool = False  # Whether it computed something else, so that its times do not count


class ToggleCompared(Struct, frozen=True, kw_only=True):
    """A case study: one toggle against the reference, in interleaved blocks."""

    name: str
    case_id: str
    baseline: str  # The arm, as on the command line
    candidate: str
    baseline_s: float | None  # Median seconds of an iteration
    candidate_s: float | None
    effect: Estimate | None  # Candidate over baseline; None where it could not be estimated
    is_different: bool = False  # Whether the arms computed different results
    reasons: tuple[Fact, ...] = ()  # What the gate says of it


class RankCell(Struct, frozen=True, kw_only=True):
    """A cell of table 2."""

    threads: int  # Of each rank
    ranks: int
    throughput_per_s: float  # Examples a second, all ranks together
    rounds: int  # Fresh processes that it is the median of
    sd_ratio: float | None  # Standard deviation of their logarithms; None with one


class Scaling(Struct, frozen=True, kw_only=True):
    """Table 2: one step over threads and ranks that average their gradients."""

    case_id: str  # Of one rank
    cells: tuple[RankCell, ...]  # The fewest threads first, of these the fewest ranks


class StudyEvidence(Struct, frozen=True, kw_only=True):
    """Everything that was measured; what is missing was not."""

    schema: int = EVIDENCE_SCHEMA
    machine: StudyMachine
    donuts: tuple[ModelDonut, ...] = ()
    classes: ClassesCompared | None = None
    kernels: tuple[KernelPair, ...] = ()
    toggles: tuple[ToggleCompared, ...] = ()
    ranks: tuple[RankCell, ...] = ()
    problems: dict[str, Fact] = field(default_factory=dict)
    """By item, `donuts-lstm`: why it was not measured, beside that nobody asked for it."""

    def donut(self, model: str) -> ModelDonut | None:
        """Of one model; None where it was not measured."""
        return next((donut for donut in self.donuts if donut.model == model), None)

    def toggle(self, name: str) -> ToggleCompared | None:
        """One case study; None where it was not measured."""
        return next((toggle for toggle in self.toggles if toggle.name == name), None)

    def kernel(self, variant: str) -> KernelPair | None:
        """One variant that computes the same as the default; None where there is none."""
        return next((k for k in self.kernels if k.variant == variant and k.blocks and not k.is_different), None)
