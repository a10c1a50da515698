"""From measurements to evidence: one comparison per case, no decision yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from perfguard.errors import MeasurementError
from perfguard.records.facts import Fact, Severity, Subject, fact
from perfguard.records.run import Arm, CaseFailed, CaseSamples, PairedData, Round
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Comparison, Design, Outcome, Policy
from perfguard.stats.p_values import p_faster, p_outside, p_slower
from perfguard.stats.paired import block_effect, estimate_paired
from perfguard.stats.rounds import MIN_ROUNDS, estimate_rounds
from perfguard.stats.voiding import Voiding, void_blocks


def compare_paired(
    data: PairedData, cases: Sequence[Case], policy: Policy, *, voiding: Voiding | None = None
) -> tuple[Comparison, ...]:
    """Evidence of a paired run, in the order of `cases`, from the blocks that the arm-blind rule leaves.

    A case that failed, was never measured, or holds a value that is no time has a `problem` instead of an estimate; it
    never stops the other cases. Samples of one case and block given in several entries are joined, never counted as
    blocks. The voiding is what `void_blocks` said of `data.conditions`, worked out here when None.
    """
    voiding = voiding or void_blocks(data.conditions, policy.max_void_fraction)
    failures = {failure.case_id: failure for failure in data.failures}
    by_case: dict[str, list[CaseSamples]] = {}
    for entry in data.samples:
        by_case.setdefault(entry.case_id, []).append(entry)
    durations_s = {entry.block: entry.duration_s for entry in data.conditions}
    comparisons = []
    for case in cases:
        if case.id in failures:
            comparisons.append(_failed(case, failures[case.id], policy, Design.PAIRED))
            continue
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
    """Evidence of fresh rounds against stored ones, both by case id, in the order of `cases`.

    A case without stored rounds is `no-baseline`, one without fresh ones is `failed`. At most one failure is given for
    each case.
    """
    failed = {failure.case_id: failure for failure in failures}
    return tuple(
        _failed(case, failed[case.id], policy, Design.ROUNDS)
        if case.id in failed
        else _compare_sides(case, baseline.get(case.id, ()), candidate.get(case.id, ()), policy)
        for case in cases
    )


def without_estimate(
    case: Case,
    policy: Policy,
    outcome: Outcome | None = None,
    problem: Fact | None = None,
    *,
    design: Design = Design.PAIRED,
    blocks_voided: int = 0,
) -> Comparison:
    """A comparison of which no times are known, and why."""
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


def _compare_blocks(case: Case, entries: Sequence[CaseSamples], voiding: Voiding, policy: Policy) -> Comparison:
    blocks: dict[int, tuple[list[float], list[float]]] = {}
    for entry in entries:
        baseline_s, candidate_s = blocks.setdefault(entry.block, ([], []))
        baseline_s.extend(entry.baseline_s)
        candidate_s.extend(entry.candidate_s)
    kept = [samples for block, samples in blocks.items() if block not in voiding.blocks]
    voided = len(blocks) - len(kept)
    lacking = partial(without_estimate, case, policy, blocks_voided=voided)
    if blocks and not kept:
        return lacking(Outcome.INCONCLUSIVE, fact("case.all_blocks_voided", blocks=voided))
    try:
        effects = [block_effect(*samples) for samples in kept]
    except MeasurementError as error:
        return lacking(Outcome.FAILED, fact("case.unusable_times", error=str(error)))
    usable = [samples for samples, effect in zip(kept, effects, strict=True) if not math.isnan(effect.log_ratio)]
    if not usable:
        return lacking(Outcome.FAILED, fact("case.no_common_block" if blocks else "case.no_block"))
    estimate = estimate_paired(
        [effect.log_ratio for effect in effects], policy.interval_level, [effect.variance for effect in effects]
    )
    margin_ratio = policy.margin_of(case.id)
    return Comparison(
        case_id=case.id,
        gating=case.gating,
        estimate=estimate,
        p_regressed=p_slower(estimate, margin_ratio),
        p_improved=p_faster(estimate, margin_ratio),
        baseline_median_s=median(median(baseline_s) for baseline_s, _ in usable),
        candidate_median_s=median(median(candidate_s) for _, candidate_s in usable),
        margin_ratio=margin_ratio,
        p_outside=p_outside(estimate, policy.equivalence_ratio),
        p_unclean=p_outside(estimate, min(policy.clean_ratio, policy.equivalence_ratio)),
        blocks_voided=voided,
    )


def _compare_sides(case: Case, baseline: Sequence[Round], candidate: Sequence[Round], policy: Policy) -> Comparison:
    lacking = partial(without_estimate, case, policy, design=Design.ROUNDS)
    if not baseline:
        return lacking(Outcome.NO_BASELINE, fact("case.not_in_stored_baseline"))
    if not candidate:
        return lacking(Outcome.FAILED, fact("case.no_round"))
    margin_ratio = policy.margin_of(case.id)
    try:
        result = estimate_rounds(baseline, candidate, margin_ratio=margin_ratio, level=policy.interval_level)
    except MeasurementError as error:
        # Too few rounds, or none with a control workload, is thin evidence; the rest is a broken measurement.
        has_control = all(entry.control_s for entry in (*baseline, *candidate))
        is_thin = min(len(baseline), len(candidate)) < MIN_ROUNDS or not has_control
        outcome = Outcome.INCONCLUSIVE if is_thin else Outcome.FAILED
        return lacking(outcome, fact("case.unusable_times", error=str(error)))
    return Comparison(
        case_id=case.id,
        gating=case.gating,
        estimate=result.estimate,
        p_regressed=result.p_slower,
        p_improved=result.p_faster,
        baseline_median_s=median(median(entry.values_s) for entry in baseline),
        candidate_median_s=median(median(entry.values_s) for entry in candidate),
        margin_ratio=margin_ratio,
        design=Design.ROUNDS,
    )


def _failed(case: Case, failure: CaseFailed, policy: Policy, design: Design) -> Comparison:
    problem, outcome = failure.reason, Outcome.NO_BASELINE
    if failure.skipped:
        case = replace(case, gating=Gating.ADVISORY)
    elif failure.missing and failure.arm is Arm.BASELINE:
        problem = fact("case.not_in_baseline", error=failure.reason.values.get("error"))
    else:
        problem = replace(failure.reason, severity=Severity.GRAVE, subject=Subject(arm=failure.arm.value))
        outcome = Outcome.FAILED
    return without_estimate(case, policy, outcome, problem, design=design)
