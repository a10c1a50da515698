"""perfguard: performance-regression testing for PyTorch training on CPUs.

`perfguard.benchmark` declares a benchmark; everything else is reached through the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfguard.benchmarks.api import benchmark as benchmark

__version__ = "1.0.0"
__all__ = ["__version__", "benchmark"]


def __getattr__(name: str) -> Any:  # PEP 562: whatever the name stands for
    """Import the public names on first use, so that `import perfguard` costs nothing."""
    if name == "benchmark":
        from perfguard.benchmarks.api import benchmark

        return benchmark
    raise AttributeError(f"module 'perfguard' has no attribute {name!r}")
