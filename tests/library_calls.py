"""Calls of oneDNN as its log tells them."""

from __future__ import annotations

from perfguard.profile.libraries.verbose import PrimitiveCall
from tests.changed_values import replace

US = 1_000
BASE_NS = 1_790_857_026_000_000_000
"""Where traces of tests begin, nanoseconds since the epoch."""


def onednn_call(primitive: str, start_us: float | None, length_us: float, **changes: object) -> PrimitiveCall:
    """An execution that began some time after `BASE_NS`; None where the log does not tell when."""
    call = PrimitiveCall(
        library="onednn",
        operation="exec",
        engine="cpu",
        primitive=primitive,
        implementation="jit:avx2",
        prop_kind="forward_training",
        memory="src:f32",
        attributes="",
        auxiliary="",
        problem="mb1",
        time_s=length_us / 1e6,
        timestamp_s=(BASE_NS + start_us * US) / 1e9 if start_us is not None else None,
        line=0,
    )
    return replace(call, **changes)
