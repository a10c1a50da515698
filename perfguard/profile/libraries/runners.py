"""What computed each op: a kernel of oneDNN, a routine of MKL, or no library at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from perfguard.profile.libraries.join import JoinedStep
from perfguard.profile.libraries.onednn_verbose import PrimitiveCall
from perfguard.records.steps.ops import OpKey

NO_LIBRARY = "no library"
"""Of an op that called neither oneDNN nor MKL: torch's own loops compute it, or ops that it calls."""
_REORDER = "reorder"
_BOTH = frozenset({"onednn", "mkl"})


def runners(steps: Sequence[JoinedStep], logged: Collection[str]) -> dict[OpKey, tuple[str, ...]]:
    """`brg_matmul:avx512_core`, `sgemm of MKL` or `NO_LIBRARY` for each op, sorted; without ops of which it is unknown.

    Reorders of what goes into a primitive and comes out of it count only for ops that needed nothing else.

    Args:
        steps: Of one arm.
        logged: Libraries whose log was read and is whole. That an op called none is known only where both are: built
            without MKL, torch may use another library that keeps no log.
    """
    found: dict[OpKey, set[str]] = defaultdict(set)
    reorders: dict[OpKey, set[str]] = defaultdict(set)
    for step in steps:
        for call, key in zip(step.calls, step.keys, strict=True):
            if key is not None and call.executed:
                (reorders if call.primitive == _REORDER else found)[key].add(_runner(call))
    known = {key: tuple(sorted(names - {""})) for key, names in {**reorders, **found}.items()}
    if steps and set(logged) >= _BOTH:
        silent = frozenset.intersection(*(step.silent for step in steps))
        known.update(dict.fromkeys(silent - set(known), (NO_LIBRARY,)))
    return known


def _runner(call: PrimitiveCall) -> str:
    """Empty where an old log names no implementation."""
    if call.library == "mkl":
        return f"{call.primitive} of MKL"
    return f"{_REORDER} {call.implementation}" if call.primitive == _REORDER else call.implementation
