"""Names of backends, without importing one."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points

from perfguard.errors import UsageError

GROUP = "perfguard.task_backends"
"""Entry points with backends of others."""
BUILTIN = {"eager": "eager", "compile": "compiled", "onnxruntime": "onnx_runtime", "openvino": "open_vino"}
"""Modules of `perfguard.tasks.child.backends` by the name that is typed."""


def require_backend(name: str) -> None:
    """Check a name.

    Raises:
        UsageError: There is no backend of this name.
    """
    known = [*BUILTIN, *(entry.name for entry in entry_points(group=GROUP))]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"backend {name!r} is unknown; {hint}choose from {', '.join(known)}")
