"""What a run measured of its cases, block by block, for whoever wants to see whether an effect is real."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfguard.errors import MeasurementError
from perfguard.records.facts import fact
from perfguard.records.run import BlockConditions, CaseSamples, Stage
from perfguard.records.run_data import RunData
from perfguard.records.verdict import Policy
from perfguard.report.html.content import BlockPoint, CaseEvidence
from perfguard.report.messages.catalog import describe

_MAX_VOID_FRACTION = Policy().max_void_fraction
_STAGES = (Stage.MAIN, Stage.PAIRING, Stage.CONFIRMATION)


def evidence_of(data: RunData, problems: list[str]) -> dict[str, CaseEvidence]:
    """Blocks and samples of each case; a case whose times are none has no evidence, which is said."""
    found: dict[str, CaseEvidence] = {}
    samples = {stage: data.paired(stage).samples for stage in _STAGES}
    for case_id in data.case_ids:
        own = {stage: [each for each in samples[stage] if each.case_id == case_id] for stage in _STAGES}
        stage = Stage.PAIRING if own[Stage.PAIRING] else Stage.MAIN
        shown = (stage, Stage.CONFIRMATION)
        voided = {of: _voided(data.paired(of).conditions, own[of], problems) for of in shown}
        try:
            blocks = tuple(
                BlockPoint(block=each.block, log_ratio=ratio, stage=of, voided=voided[of].get(each.block, ()))
                for of in shown
                for each in own[of]
                if math.isfinite(ratio := _log_ratio(each.baseline_s, each.candidate_s))
            )
        except MeasurementError as error:
            problems.append(f"{case_id}: {error}")
            continue
        counted = [each for each in own[stage] if each.block not in voided[stage]]
        found[case_id] = CaseEvidence(
            case_id=case_id,
            blocks=blocks,
            baseline_s=tuple(value for each in counted for value in each.baseline_s),
            candidate_s=tuple(value for each in counted for value in each.candidate_s),
        )
    return found


def _voided(
    conditions: Sequence[BlockConditions], own: Sequence[CaseSamples], problems: list[str]
) -> dict[int, tuple[str, ...]]:
    """Blocks that the arm-blind rule left out when the case was judged: right after the last one that holds it."""
    from perfguard.stats.voiding import void_blocks

    last = max((each.block for each in own), default=-1)
    try:
        voiding = void_blocks([known for known in conditions if known.block <= last], _MAX_VOID_FRACTION)
    except MeasurementError as error:
        problems.append(f"cannot tell which blocks were disturbed: {error}")
        return {}
    return {block.block: (describe(fact("host.block_causes", block.causes)),) for block in voiding.voided}


def _log_ratio(baseline_s: Sequence[float], candidate_s: Sequence[float]) -> float:
    from perfguard.stats.paired import block_effect

    return block_effect(baseline_s, candidate_s).log_ratio
