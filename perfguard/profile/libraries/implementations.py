"""What oneDNN chose to run a primitive with: how one choice stands to another, whatever a version calls it.

A choice reads `family:instruction set`: `brg_conv_fwd:avx512_core_bf16`, `jit:avx2`, `gemm:jit`, `ref:any`.

Source: oneDNN include/oneapi/dnnl/dnnl_types.h, `dnnl_cpu_isa_t`, for the instruction sets and their second names.
"""

from __future__ import annotations

from enum import IntEnum

_X86 = (
    "sse41 avx avx2 avx2_vnni avx2_vnni_2 avx512_core avx512_core_vnni avx512_core_bf16 avx512_core_fp16=avx10_1_512 "
    "avx512_core_amx=avx10_1_512_amx avx512_core_amx_fp16=avx10_1_512_amx_fp16"
)
_ARM = "asimd sve_128 sve_256 sve_512"
"""Instruction sets of x86 and of Arm from the narrowest up; the second name of a class is another one for the first."""
_PLACES = {
    name: (architecture, rank, names.split("=")[0])
    for architecture, ladder in enumerate((_X86, _ARM))
    for rank, names in enumerate(ladder.split())
    for name in names.split("=")
}


class Turn(IntEnum):
    """How a second choice stands to a first; the opposite turn has the opposite sign."""

    FALLBACK = 2  # From an optimised kernel to the reference or to a plain matrix product
    LOWER = 1  # To narrower vectors, or from one fallback to the worse one
    SIDEWAYS = 0  # Another kernel of the same instruction set, or one that cannot be ranked
    HIGHER = -1  # To wider vectors, or from one fallback to the better one
    RECOVERED = -2  # From a fallback back to an optimised kernel


def turn_of(before: str, after: str) -> Turn:
    """How the choice `after` stands to `before`."""
    depths = _fallback_depth(before), _fallback_depth(after)
    if depths[0] != depths[1]:
        if min(depths) == 0:
            return Turn.FALLBACK if depths[1] else Turn.RECOVERED
        return Turn.LOWER if depths[1] > depths[0] else Turn.HIGHER
    first, second = _place_of(before), _place_of(after)
    if first is None or second is None or first[0] != second[0] or first == second:
        return Turn.SIDEWAYS
    return Turn.LOWER if second < first else Turn.HIGHER


def class_of(implementation: str) -> str:
    """The same choice with its instruction set by this project's name, so that equal choices are equal strings."""
    return ":".join(isa_class(part) for part in implementation.split(":"))


def isa_class(name: str) -> str:
    """`avx512_core_fp16` for `avx10_1_512`, too; a name that is not known stays as it is."""
    return _PLACES[name][2] if name in _PLACES else name


def _fallback_depth(implementation: str) -> int:
    """0 for an optimised kernel, 1 for a plain matrix product, 2 for the reference."""
    families = {part.partition("_")[0] for part in implementation.split(":")}
    return 2 if "ref" in families else int("gemm" in families)


def _place_of(implementation: str) -> tuple[int, int, str] | None:
    """Architecture, place on its ladder and name; None for `any`, `uni` and what is not known."""
    return next((_PLACES[part] for part in reversed(implementation.split(":")) if part in _PLACES), None)
