"""Which values of toggles follow a finding: what `perfguard tune` tries first."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.records.steps.findings import PREFIX

_CHANNELS_LAST = (("memory_format", "channels_last"),)

ANSWERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    PREFIX + code: values
    for code, values in {
        "threads": (("threads", "1"),),
        "emulated_dtype": (("dtype", "fp32"),),
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
