"""What the CPU that tests run on can do."""

from __future__ import annotations

from pathlib import Path

import pytest

_FLAGS = Path("/proc/cpuinfo").read_text(encoding="utf-8")
HAS_BF16 = any(flag in _FLAGS for flag in ("avx512_bf16", "amx_bf16"))

DTYPES_OF_STEPS = (
    "fp32",
    pytest.param(
        "bf16",
        marks=pytest.mark.skipif(
            not HAS_BF16, reason="this CPU emulates bf16: steps take many times as long, and torch has no bf16 LSTM"
        ),
    ),
)
"""Types of numbers that whole training steps are tested in."""
