"""Reorders of oneDNN: tensors copied into another layout before or after a primitive."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.places import listed
from perfguard.profile.advice.rule import Rule, longest_first, place_of_primitives, severity_by
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.op_counts.census_details import PrimitiveDetail
from perfguard.records.steps.findings import UNKNOWN_GAIN, Finding
from perfguard.records.steps.ops import PrimitiveTotal
from perfguard.units import format_bytes, format_number, format_seconds, format_share

ID = "reorders"
COUNTED_BY = "reorders"
"""Rule of the census that tells of more or fewer of them."""
LEAST_SHARE = 0.05
"""Part of a step from which reorders are told. Some are the rule in training, where weights change with every step and
so are laid out anew: of what oneDNN takes of a step, 5 % (RetinaNet, LSTM) to 16 % (ResNet18) are reorders in Fu et
al., "Deep Learning Models on CPUs" (2022), arXiv:2206.10034, Fig. 2."""


def _find(evidence: Evidence) -> list[Finding]:
    reorders = [primitive for primitive in evidence.primitives if primitive.primitive == "reorder"]
    time_s = math.fsum(reorder.time_s for reorder in reorders)
    share = evidence.ratio_of(time_s)
    if share is None or share < LEAST_SHARE:
        return []
    calls = math.fsum(reorder.calls for reorder in reorders)
    written_bytes = math.fsum(_detail(reorder).written_bytes * reorder.calls for reorder in reorders)
    return [
        Finding(
            id=ID,
            title="oneDNN reorders tensors",
            severity=severity_by(share),
            seen=(
                f"{format_number(calls)} reorders a step write {format_bytes(written_bytes)}",
                f"they take {format_seconds(time_s)}, {format_share(share)} of the step",
                f"most of the time between {_layouts(reorders)}",
            ),
            where=place_of_primitives(reorders),
            ops=(),
            share=share,
            gain=UNKNOWN_GAIN,
            trial=after_edit(
                evidence.subject,
                "give the convolutions the layout that they compute in: model.to(memory_format=torch.channels_last), "
                "the input likewise; what is left are weights, which a step of training changes and so lays out anew",
            ),
        )
    ]


def _layouts(reorders: Sequence[PrimitiveTotal]) -> str:
    """`abcd → aBcd16b of f32, abcd → acdb of f32 and 2 more`, longest first."""
    times_s = []
    for reorder in reorders:
        detail = _detail(reorder)
        dtypes = "/".join(dict.fromkeys(detail.dtypes.split()))
        times_s.append((f"{detail.tags or 'unknown layouts'} of {dtypes or 'unknown dtypes'}", reorder.time_s))
    return listed(longest_first(times_s), limit=2)


def _detail(reorder: PrimitiveTotal) -> PrimitiveDetail:
    return PrimitiveDetail(memory=reorder.memory, problem=reorder.problem, attributes="")


RULE = Rule(
    id=ID,
    finds="time that oneDNN spends on copying tensors into other layouts",
    find=_find,
    changes=frozenset({ChangeRule.REORDERS}),
)
