"""Every variant by name."""

from __future__ import annotations

from tests.proof.gates_against_peers.faults import FAULTS, REPORTED, SILENT
from tests.proof.gates_against_peers.variants import IDENTICAL, INJECTED, PLACEBOS, Variant

ALL: tuple[Variant, ...] = (IDENTICAL, *PLACEBOS, *INJECTED, *FAULTS, *REPORTED, *SILENT)
BY_NAME = {variant.name: variant for variant in ALL}
COMPARED = (IDENTICAL, *PLACEBOS, *INJECTED)
"""Those that every tool's live gates are given."""
EXAMINED = (*FAULTS, *REPORTED, *SILENT)
"""Those that `faults` gives to perfguard."""


def find(name: str) -> Variant:
    """The variant of that name.

    Raises:
        SystemExit: There is none; names those that exist.
    """
    if name not in BY_NAME:
        raise SystemExit(f"there is no variant {name!r}; choose from {', '.join(BY_NAME)}")
    return BY_NAME[name]
