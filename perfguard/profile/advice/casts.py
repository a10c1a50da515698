"""Copies between dtypes, as autocast makes them for every weight in every step."""

from __future__ import annotations

from perfguard.profile.advice.copies import find_copies
from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import Rule
from perfguard.profile.advice.tensors import Tensor
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.records.steps.findings import UNKNOWN_GAIN, Finding

ID = "casts"


def _find(evidence: Evidence) -> list[Finding]:
    return find_copies(
        evidence,
        one_dtype=False,
        between=_dtypes,
        rule_id=ID,
        noun="casts",
        title="tensors are converted between dtypes",
        gain=UNKNOWN_GAIN,
        advice=(
            "keep neighbouring layers in one dtype: leave small layers between f32 ones out of autocast, and give "
            "batches the dtype that the first layer computes in"
        ),
    )


def _dtypes(source: Tensor, target: Tensor) -> str:
    """`f32 → bf16`."""
    return f"{source.dtype} → {target.dtype}"


RULE = Rule(id=ID, finds="copies between dtypes", find=_find, changes=frozenset({ChangeRule.DTYPE}))
