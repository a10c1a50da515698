"""From measurements to evidence: one comparison per case, no decision yet."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from perfguard.errors import MeasurementError
from perfguard.records.facts import Fact, Severity, Subject, fact
from perfguard.records.run import Arm
from perfguard.records.spec import Gating
from perfguard.records.verdict import Comparison, Design, Outcome
from perfguard.stats.p_values import p_faster, p_outside, p_slower
from perfguard.stats.paired import block_effect, estimate_paired
from perfguard.stats.rounds import MIN_ROUNDS, estimate_rounds
from perfguard.stats.voiding import Voiding, void_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perfguard.records.run import CaseFailed, CaseSamples, PairedData, Round
    from perfguard.records.spec import Case
    from perfguard.records.verdict import Policy


@dataclass(slots=True)
class _BlockSamples:
    baseline_s: list[float]
    candidate_s: list[float]


def compare_paired(
    data: PairedData, cases: Sequence[Case], policy: Policy, *, voiding: Voiding | None = None
) -> tuple[Comparison, ...]:
    """Evidence of a paired run, in the order of `cases`, from the blocks that the arm-blind rule leaves.

    A case that failed, was never measured, or holds a value that is no time has a `problem` instead of an
    estimate; it never stops the other cases.

    Args:
        data: The run. Samples of one case and block given in several entries are joined, never counted as
            blocks.
        cases: What was asked for; measurements of other cases are left out.
        policy: Margin, interval level and the share of blocks that may be voided.
        voiding: What `void_blocks` said of `data.conditions`; worked out here when None.
    """
    voiding = voiding or void_blocks(data.conditions, policy.max_void_fraction)
    failures = {failure.case_id: failure for failure in data.failures}
    by_case: dict[str, list[CaseSamples]] = {}
    for entry in data.samples:
        by_case.setdefault(entry.case_id, []).append(entry)
    durations_s = {entry.block: entry.duration_s for entry in data.conditions}
    comparisons = []
    for case in cases:
        failure = failures.get(case.id)
        if failure is not None:
            comparisons.append(_failed(case, failure, policy, Design.PAIRED))
        else:
            entries = by_case.get(case.id, ())
            latest = max((entry.block for entry in entries), default=-1)
            compared = _compare_blocks(case, entries, voiding, policy)
            comparisons.append(replace(compared, block_s=durations_s.get(latest)))
    return tuple(comparisons)


def compare_rounds(
    baseline: Mapping[str, Sequence[Round]],
    candidate: Mapping[str, Sequence[Round]],
    cases: Sequence[Case],
    policy: Policy,
    failures: Sequence[CaseFailed] = (),
) -> tuple[Comparison, ...]:
    """Evidence against a stored baseline, in the order of `cases`.

    Args:
        baseline: Stored rounds by case id; a case that is missing or empty is `no-baseline`.
        candidate: Fresh rounds by case id; a case that is missing or empty is `failed`.
        cases: What was asked for.
        policy: Margin and interval level.
        failures: Cases that did not run; at most one for each case.
    """
    failed = {failure.case_id: failure for failure in failures}
    return tuple(
        _failed(case, failed[case.id], policy, Design.ROUNDS)
        if case.id in failed
        else _compare_sides(case, baseline.get(case.id, ()), candidate.get(case.id, ()), policy)
        for case in cases
    )


def _compare_blocks(case: Case, entries: Sequence[CaseSamples], voiding: Voiding, policy: Policy) -> Comparison:
    blocks = _join_blocks(entries)
    kept = [samples for block, samples in blocks.items() if block not in voiding.blocks]
    voided = len(blocks) - len(kept)
    try:
        effects = [block_effect(samples.baseline_s, samples.candidate_s) for samples in kept]
    except MeasurementError as error:
        return _problem(
            case, fact("case.unusable_times", error=str(error)), Outcome.FAILED, policy, blocks_voided=voided
        )
    usable = [entry for entry, effect in zip(kept, effects, strict=True) if not math.isnan(effect.log_ratio)]
    if not usable:
        return _nothing_usable(case, len(blocks), voided, policy)
    estimate = estimate_paired(
        [effect.log_ratio for effect in effects], policy.interval_level, [effect.variance for effect in effects]
    )
    return Comparison(
        case_id=case.id,
        gating=case.gating,
        estimate=estimate,
        p_regressed=p_slower(estimate, policy.margin_of(case.id)),
        p_improved=p_faster(estimate, policy.margin_of(case.id)),
        baseline_median_s=median(median(samples.baseline_s) for samples in usable),
        candidate_median_s=median(median(samples.candidate_s) for samples in usable),
        margin_ratio=policy.margin_of(case.id),
        p_outside=p_outside(estimate, policy.equivalence_ratio),
        p_unclean=p_outside(estimate, min(policy.clean_ratio, policy.equivalence_ratio)),
        blocks_voided=voided,
    )


def _join_blocks(entries: Sequence[CaseSamples]) -> dict[int, _BlockSamples]:
    blocks: dict[int, _BlockSamples] = {}
    for entry in entries:
        joined = blocks.setdefault(entry.block, _BlockSamples([], []))
        joined.baseline_s.extend(entry.baseline_s)
        joined.candidate_s.extend(entry.candidate_s)
    return blocks


def _nothing_usable(case: Case, blocks: int, voided: int, policy: Policy) -> Comparison:
    if blocks and blocks == voided:
        return _problem(
            case, fact("case.all_blocks_voided", blocks=blocks), Outcome.INCONCLUSIVE, policy, blocks_voided=voided
        )
    return _problem(
        case, fact("case.no_common_block" if blocks else "case.no_block"), Outcome.FAILED, policy, blocks_voided=voided
    )


def _compare_sides(case: Case, baseline: Sequence[Round], candidate: Sequence[Round], policy: Policy) -> Comparison:
    if not baseline:
        return _problem(case, fact("case.not_in_stored_baseline"), Outcome.NO_BASELINE, policy, design=Design.ROUNDS)
    if not candidate:
        return _problem(case, fact("case.no_round"), Outcome.FAILED, policy, design=Design.ROUNDS)
    # Too few rounds, or none with a control workload, is thin evidence; what else is refused is a broken measurement.
    thin = min(len(baseline), len(candidate)) < MIN_ROUNDS or not all(
        entry.control_s for entry in (*baseline, *candidate)
    )
    try:
        result = estimate_rounds(
            baseline, candidate, margin_ratio=policy.margin_of(case.id), level=policy.interval_level
        )
    except MeasurementError as error:
        outcome = Outcome.INCONCLUSIVE if thin else Outcome.FAILED
        return _problem(case, fact("case.unusable_times", error=str(error)), outcome, policy, design=Design.ROUNDS)
    return Comparison(
        case_id=case.id,
        gating=case.gating,
        estimate=result.estimate,
        p_regressed=result.p_slower,
        p_improved=result.p_faster,
        baseline_median_s=median(median(entry.values_s) for entry in baseline),
        candidate_median_s=median(median(entry.values_s) for entry in candidate),
        margin_ratio=policy.margin_of(case.id),
        design=Design.ROUNDS,
    )


def _failed(case: Case, failure: CaseFailed, policy: Policy, design: Design) -> Comparison:
    if failure.skipped:
        left_out = replace(case, gating=Gating.ADVISORY)
        return _problem(left_out, failure.reason, Outcome.NO_BASELINE, policy, design=design)
    if failure.missing and failure.arm is Arm.BASELINE:
        problem = fact("case.not_in_baseline", error=failure.reason.values.get("error"))
        return _problem(case, problem, Outcome.NO_BASELINE, policy, design=design)
    problem = replace(failure.reason, severity=Severity.GRAVE, subject=Subject(arm=failure.arm.value))
    return _problem(case, problem, Outcome.FAILED, policy, design=design)


def _problem(
    case: Case,
    problem: Fact,
    outcome: Outcome,
    policy: Policy,
    *,
    design: Design = Design.PAIRED,
    blocks_voided: int = 0,
) -> Comparison:
    return Comparison(
        case_id=case.id,
        gating=case.gating,
        estimate=None,
        p_regressed=None,
        p_improved=None,
        baseline_median_s=None,
        candidate_median_s=None,
        margin_ratio=policy.margin_of(case.id),
        design=design,
        blocks_voided=blocks_voided,
        problem=problem,
        problem_outcome=outcome,
    )
