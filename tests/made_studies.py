"""Evidence of a study as it could have been measured: every claim of the paper holds, unless a test changes it."""

from __future__ import annotations

import math

from perfguard.records.estimate import Estimate, Interval
from perfguard.records.steps.profile import Breakdown, Slice
from perfguard.study.evidence import (
    ClassesCompared,
    KernelBlock,
    KernelPair,
    LibraryShare,
    ModelDonut,
    PhaseTimes,
    RankCell,
    StudyEvidence,
    StudyMachine,
    ToggleCompared,
)
from perfguard.study.items import CASE_STUDIES, MODELS
from tests.changed_values import replace

MACHINE = StudyMachine(
    machine_id="intel-test-vm-1s2c-00000000",
    machine="Intel test machine",
    torch="2.13.0+cpu",
    cpus=(1,),
    is_intel=True,
    has_bf16=True,
)
Shares = dict[tuple[str, str], float]


def estimate(factor: float, *, spread: float = 0.02) -> Estimate:
    """A ratio with an interval of so much on either side, on the log scale."""
    middle = math.log(factor)
    return Estimate(
        log_ratio=middle,
        standard_error=spread / 2,
        block_sd=spread,
        blocks=6,
        degrees_of_freedom=5.0,
        interval=Interval(lower=middle - spread, upper=middle + spread, level=0.95),
    )


def donut(model: str, shares: Shares, *, norm_share: float = 0.0) -> ModelDonut:
    """A step of 100 ms that spends all but its norms in libraries."""
    slices = tuple(
        LibraryShare(name=name, direction=direction, calls=1.0, time_s=share * 0.1, share=share)
        for (name, direction), share in sorted(shares.items(), key=lambda pair: -pair[1])
    )
    whole = [
        Slice(name=s.name, direction=s.direction, calls=1.0, time_s=s.time_s, share=s.share * (1 - norm_share))
        for s in slices
    ]
    if norm_share:
        whole.append(Slice(name="norm", direction="backward", calls=1.0, time_s=0.1 * norm_share, share=norm_share))
    breakdown = Breakdown(step_s=0.1, slices=tuple(whole), phases=(), unplaced_calls=0.0, unplaced_s=0.0)
    return ModelDonut(model=model, case_id=MODELS[model], step_s=0.09, slices=slices, breakdown=breakdown)


DONUTS = (
    donut(
        "resnet18",
        {("convolution", "BWD_W"): 0.45, ("convolution", "BWD_D"): 0.2, ("convolution", "FWD_D"): 0.25,
         ("reorder", ""): 0.1},
        norm_share=0.05,
    ),
    donut("lstm", {("rnn", "BWD_DW"): 0.6, ("rnn", "FWD_D"): 0.3, ("MKL gemm", "backward"): 0.1}),
    donut("transformer", {("MKL gemm", "backward"): 0.6, ("MKL gemm", "forward"): 0.3, ("eltwise", "FWD_D"): 0.1}),
    donut(
        "retinanet",
        {("convolution", "BWD_W"): 0.5, ("convolution", "BWD_D"): 0.2, ("convolution", "FWD_D"): 0.25,
         ("reorder", ""): 0.05},
    ),
)  # fmt: skip
RATIOS = {"backbone": 1.1, "head": 1.7, "loss": 5.0, "forward": 1.9, "backward": 1.8}


def classes(ratios: dict[str, float], *, spread: float = 0.02, loss_backward_share: float = 0.4) -> ClassesCompared:
    """Phases of 10 ms with few classes."""
    return ClassesCompared(
        case_id=MODELS["retinanet"],
        few=91,
        many=264,
        phases=tuple(
            PhaseTimes(phase=name, few_s=0.01, many_s=0.01 * ratio, ratio=estimate(ratio, spread=spread))
            for name, ratio in ratios.items()
        ),
        loss_backward_share=loss_backward_share,
    )


def kernel(variant: str, *, forward: float, backward: float, bf16: float = 0.5, noise: float = 0.01) -> KernelPair:
    """A variant by its times over those of a default of 8 + 6 ms; `bf16` is the time of everything there."""
    blocks = []
    for number in range(4):
        drift = 1 + noise * (number - 1.5)
        for dtype, scale in (("fp32", 1e-3), ("bf16", bf16 * 1e-3)):
            blocks.append(
                KernelBlock(
                    dtype=dtype,
                    block=number,
                    reference_forward_s=8 * scale,
                    reference_both_s=14 * scale,
                    variant_forward_s=8 * forward * scale * drift,
                    variant_both_s=(8 * forward + 6 * backward) * scale * drift,
                )
            )
    return KernelPair(variant=variant, anchors=12_276, classes=264, blocks=tuple(blocks))


KERNELS = (kernel("implicit", forward=0.5, backward=1.2), kernel("explicit", forward=0.3, backward=0.5))
GAINS = {"frozen": 1.15, "dtype": 1.9, "loss": 0.99, "folded": 1.2, "optimizer": 4.0, "layout": 1.1, "overall": 2.6}


def toggle(name: str, gain: float, *, spread: float = 0.02) -> ToggleCompared:
    """A toggle that makes a step of 500 ms so many times as fast."""
    asked = next(toggle for toggle in CASE_STUDIES if toggle.name == name)
    return ToggleCompared(
        name=name,
        case_id=asked.case,
        baseline=asked.baseline,
        candidate=asked.candidate,
        baseline_s=0.5,
        candidate_s=0.5 / gain,
        effect=estimate(1 / gain, spread=spread),
    )


RANKS = tuple(
    RankCell(threads=threads, ranks=ranks, throughput_per_s=rate, rounds=4, sd_ratio=0.01)
    for threads, ranks, rate in ((1, 1, 2.0), (1, 2, 3.9), (2, 1, 3.4))
)
EVIDENCE = StudyEvidence(
    machine=MACHINE,
    donuts=DONUTS,
    classes=classes(RATIOS),
    kernels=KERNELS,
    toggles=tuple(toggle(name, gain) for name, gain in GAINS.items()),
    ranks=RANKS,
)
NOTHING = StudyEvidence(machine=MACHINE)


def with_donut(changed: ModelDonut) -> StudyEvidence:
    """The evidence with another donut of one model."""
    return replace(EVIDENCE, donuts=tuple(changed if d.model == changed.model else d for d in DONUTS))


def with_kernel(changed: KernelPair) -> StudyEvidence:
    """The evidence with another variant."""
    return replace(EVIDENCE, kernels=tuple(changed if k.variant == changed.variant else k for k in KERNELS))


def with_toggle(changed: ToggleCompared) -> StudyEvidence:
    """The evidence with another toggle of one name."""
    return replace(EVIDENCE, toggles=tuple(changed if t.name == changed.name else t for t in EVIDENCE.toggles))
