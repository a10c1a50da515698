"""A cause: ops that changed together for one reason. Each rule claims ops from those that no earlier rule took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from perfguard.profile.changes.diff import OpDiff
from perfguard.records.steps.ops import PYTHON_OP, OpKey


class Rule(str, Enum):
    """Why ops form one cause."""

    OPTIMIZER = "optimizer"
    """They belong to one optimizer."""
    LAYOUT = "layout"
    """Their tensors have another memory format, or they copy tensors for that."""
    DTYPE = "dtype"
    """Their tensors have another dtype, or they cast tensors for that."""
    SHAPE = "shape"
    """Their tensors have other shapes."""
    IMPLEMENTATION = "implementation"
    """Libraries run them with other kernels, of the same ISA before and of the same ISA after; or one side has none."""
    CALLS = "calls"
    """Their places are called more or less often, by the same factor."""
    REPLACED = "replaced"
    """They came or went at their place, in the same manner in all of its places."""
    TIME = "time"
    """The same op in one phase, executed as before, takes another time."""


class Certainty(Enum):
    """What a cause rests on."""

    EXACT = "exact"
    """On counts or on what the library chose: a fact. Its cost is an estimate all the same."""
    SIGNIFICANT = "significant"
    """Each of its ops differs significantly."""
    OPEN = "open"
    """On nothing yet: its sum is still to be tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Ops that changed together."""

    rule: Rule
    """Why they are together."""
    certainty: Certainty
    """What it rests on."""
    columns: tuple[int, ...]
    """Columns of the ops; not empty, of no other cause."""
    label: str = ""
    """`Adam`, `channels_last → contiguous`, `avx512_core → avx2`, `2x`; empty where the rule has none."""


def exact_columns(diff: OpDiff, free: Iterable[int]) -> list[int]:
    """Those with a change that is a fact, in order."""
    return [column for column in sorted(free) if diff.is_exact(column)]


def short_op(key: OpKey) -> str:
    """`aten::mul_` as `mul_`: how an op is called in a sentence."""
    return key.op if key.op == PYTHON_OP else key.op.rpartition("::")[2] or key.op
