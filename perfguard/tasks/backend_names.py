"""Names of backends, without importing one."""

from __future__ import annotations

from perfguard.errors import UsageError, did_you_mean

GROUP = "perfguard.task_backends"
"""Entry points with backends of others."""
BUILTIN = {
    "eager": "eager",
    "compile": "compiled",
    "onnxruntime": "onnx_runtime",
    "openvino": "open_vino",
    "litert": "lite_rt",
}
"""Modules of `perfguard.tasks.child.backends` by the name that is typed."""


def require_backend(name: str) -> None:
    """Check a name.

    Raises:
        UsageError: There is no backend of this name.
    """
    from importlib.metadata import entry_points

    known = [*BUILTIN, *(entry.name for entry in entry_points(group=GROUP))]
    if name not in known:
        hint = did_you_mean(name, known)
        raise UsageError(f"backend {name!r} is unknown; {hint}choose from {', '.join(known)}")
