"""Which values of toggles follow a finding: `perfguard tune` tries them first, advice quotes what they saved."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.records.steps.findings import PREFIX

Answer = tuple[str, str]  # The name of a toggle and a value

_CHANNELS_LAST = (("memory_format", "channels_last"),)

ANSWERS: Mapping[str, tuple[Answer, ...]] = {
    PREFIX + code: values
    for code, values in {
        "threads": (("threads", "1"),),
        "emulated_dtype": (("dtype", "fp32"),),
        "bf16_untried": (("dtype", "bf16"),),
        "layout_lost": _CHANNELS_LAST,
        "mixed_layouts": _CHANNELS_LAST,
        "channels_last_untried": _CHANNELS_LAST,
        "reorders": _CHANNELS_LAST,
        "unfused_optimizer": (("optimizer", "fused"), ("optimizer", "foreach")),
        "frozen_backward": (("frozen", "skipped"),),
        "unused_weight_gradients": (("frozen", "skipped"),),
        "frozen_batch_norm": (("norm", "folded"),),
        "fragmented_trace": (("focal", "fused"), ("heads", "packed"), ("mode", "compile")),
        "allocator_faults": (("allocator", "jemalloc"), ("allocator", "tcmalloc")),
        "low_precision_loss": (("loss", "fp32"),),
    }.items()
}
"""Toggles with values by the code of a finding, the most direct answer first."""
