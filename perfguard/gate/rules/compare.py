"""From measurements to evidence, and what a gate decides while its data grow: early red, early clean, valid p-values.

There is one comparison for each case. A case that has its answer is not measured any further, so that the minutes go to
those that are still open. What is decided at an interim analysis stands: later blocks of other cases cannot take it
back.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.errors import MeasurementError
from perfguard.gate.rules.policy import decide_cases, p_or_one
from perfguard.records.facts import Fact, Severity, Subject, fact
from perfguard.records.run import Arm, CaseFailed, CaseSamples, PairedData, Round
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Comparison, Design, Outcome, Policy, Verdict
from perfguard.stats.dependence import inflation_of, widened
from perfguard.stats.p_values import p_faster, p_outside, p_slower
from perfguard.stats.paired import block_effect, estimate_paired
from perfguard.stats.power import ANALYSES
from perfguard.stats.rounds import MIN_ROUNDS, estimate_rounds
from perfguard.stats.spending import Spending, sequential_p
from perfguard.stats.voiding import Voiding, void_blocks

_LATEST_INTERIM = 0.95
"""An interim analysis never spends more than up to this part of the information: the last analysis keeps the rest."""

_TESTS = {
    "p_regressed": Spending.CAUTIOUS,
    "p_improved": Spending.CAUTIOUS,
    "p_unclean": Spending.EVEN,
    "p_outside": Spending.EVEN,
}
"""How each p-value of a comparison spends its level."""


def compare_paired(
    data: PairedData, cases: Sequence[Case], policy: Policy, *, voiding: Voiding | None = None
) -> tuple[Comparison, ...]:
    """Evidence of a paired run, in the order of `cases`, from the blocks that the arm-blind rule leaves.

    A case that failed, was never measured, or holds a value that is no time has a `problem` instead of an estimate; it
    never stops the other cases. Samples of one case and block given in several entries are joined, never counted as
    blocks. The voiding is what `void_blocks` says of `data.conditions`, worked out here when None.
    """
    voiding = voiding or void_blocks(data.conditions, policy)
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

    A case without stored rounds is `no-baseline`; one without fresh ones is `failed`, even if its suite skips it now.
    At most one failure is given for each case.
    """
    failed = {
        failure.case_id: replace(failure, skipped=False) if baseline.get(failure.case_id) else failure
        for failure in failures
    }
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
    log_ratios = [effect.log_ratio for effect in effects]
    inflation = inflation_of(log_ratios)
    estimate = widened(
        estimate_paired(log_ratios, policy.interval_level, [effect.variance for effect in effects]), inflation
    )
    margin_ratio = policy.margin_of(case.id)
    return replace(
        lacking(),
        estimate=estimate,
        inflation=inflation,
        p_regressed=p_slower(estimate, margin_ratio),
        p_improved=p_faster(estimate, margin_ratio),
        baseline_median_s=median(median(baseline_s) for baseline_s, _ in usable),
        candidate_median_s=median(median(candidate_s) for _, candidate_s in usable),
        p_outside=p_outside(estimate, policy.equivalence_ratio),
        p_unclean=p_outside(estimate, min(policy.clean_ratio, policy.equivalence_ratio)),
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
    return replace(
        lacking(),
        estimate=result.estimate,
        p_regressed=result.p_slower,
        p_improved=result.p_faster,
        baseline_median_s=median(median(entry.values_s) for entry in baseline),
        candidate_median_s=median(median(entry.values_s) for entry in candidate),
    )


def _failed(case: Case, failure: CaseFailed, policy: Policy, design: Design) -> Comparison:
    problem, outcome = failure.reason, Outcome.NO_BASELINE
    if failure.skipped:
        case = dataclasses.replace(case, gating=Gating.ADVISORY)
    elif failure.missing and failure.arm is Arm.BASELINE:
        problem = fact("case.not_in_baseline", error=failure.reason.values.get("error"))
    else:
        problem = dataclasses.replace(failure.reason, severity=Severity.GRAVE, subject=Subject(arm=failure.arm.value))
        outcome = Outcome.INVALID if failure.is_below_target else Outcome.FAILED
    return without_estimate(case, policy, outcome, problem, design=design)


class _Path(Struct):
    """What the analyses saw of one case."""

    information: list[float] = field(default_factory=list)
    fractions: list[float] = field(default_factory=list)
    p_values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _TESTS})
    comparison: Comparison | None = None
    is_answered: bool = False


class SequentialGate:
    """Judges a growing paired run at a few analyses; the same calls give the same answer, live or from a recording."""

    def __init__(self, cases: Sequence[Case], policy: Policy, *, planned_blocks: int) -> None:
        """Begin without data.

        The cases are in the order of the suite, the planned blocks those that the budget is expected to hold. A wrong
        guess of them costs power, never validity.
        """
        self._cases = tuple(cases)
        self._policy = policy
        self.plan(planned_blocks)
        self._first = max(policy.min_blocks, round(self._planned / ANALYSES))
        self._paths = {case.id: _Path() for case in self._cases}
        self._latest = 0
        self.voiding: Voiding | None = None
        """What the arm-blind rule said at the latest analysis."""

    def plan(self, blocks: int) -> None:
        """Expect that the budget holds so many blocks in all; they may get more as cases get their answers.

        Nothing that was spent of a level is taken back.
        """
        self._planned = max(blocks, self._policy.min_blocks)
        self._every = max(2, round(self._planned / ANALYSES))

    def is_due(self, blocks: int) -> bool:
        """Whether to look after so many finished blocks."""
        return blocks >= self._first and blocks - self._latest >= self._every

    def analyse(self, data: PairedData, *, blocks: int, final: bool) -> dict[str, Outcome]:
        """Judge what was measured so far, in so many finished blocks; gives the cases that got their answer now.

        At the final analysis each test spends what is left of its level. It is the budget, the block limit or the user
        that ends the measuring, never what the data showed.
        """
        self._latest = blocks
        self.voiding = void_blocks(data.conditions, self._policy)
        for comparison in compare_paired(data, self._cases, self._policy, voiding=self.voiding):
            path = self._paths[comparison.case_id]
            if not path.is_answered:
                self._take(path, comparison, final=final)
        return self._answer()

    def verdicts(self) -> tuple[Verdict, ...]:
        """What the analyses so far add up to, in the order of the suite; answered cases by the one that answered."""
        comparisons = [path.comparison for path in self._paths.values() if path.comparison is not None]
        return decide_cases(comparisons, self._policy)

    def answered(self) -> frozenset[str]:
        """Cases that need no more measuring."""
        return frozenset(case_id for case_id, path in self._paths.items() if path.is_answered)

    def _take(self, path: _Path, comparison: Comparison, *, final: bool) -> None:
        estimate = comparison.estimate
        if estimate is None or estimate.blocks < self._policy.min_blocks:
            path.comparison = comparison
            return
        if not final and path.information and estimate.blocks <= path.information[-1]:
            return  # voided blocks took away what was gained: nothing new to look at
        fraction = 1.0 if final else min(estimate.blocks / self._planned, _LATEST_INTERIM)
        path.information.append(float(estimate.blocks))
        path.fractions.append(max(fraction, path.fractions[-1] if path.fractions else 0.0))
        sequential: dict[str, Any] = {}
        for name, spending in _TESTS.items():
            path.p_values[name].append(p_or_one(getattr(comparison, name)))
            sequential[name] = sequential_p(spending, path.p_values[name], path.information, path.fractions)
        path.comparison = replace(comparison, **sequential, analyses=len(path.information))

    def _answer(self) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        clean_level = (1 - self._policy.interval_level) / 2
        for verdict in self.verdicts():
            path, outcome = self._paths[verdict.case_id], verdict.outcome
            if path.is_answered:
                continue
            is_clean = p_or_one(verdict.comparison.p_unclean) <= clean_level
            is_shown = outcome in (Outcome.REGRESSED, Outcome.IMPROVED) or (outcome is Outcome.UNCHANGED and is_clean)
            if is_shown:
                found[verdict.case_id] = outcome
            path.is_answered = is_shown or outcome in (Outcome.FAILED, Outcome.INVALID, Outcome.NO_BASELINE)
        return found


def plan_analyses(block_s: float, *, left_s: float, max_blocks: int, finished: int = 1) -> int:
    """Blocks that the budget will hold in all, after `finished` blocks: `left_s` are left, and a block takes `block_s`.

    A quarter more are to come than a division gives: blocks get shorter as cases get their answers. Too high a guess
    makes the early analyses a little stricter; too low a guess would spend the level before the end.
    """
    further = max(left_s, 0.0) / max(block_s, 1e-3)
    return max(1, min(max_blocks, math.ceil(finished + 1.25 * further)))
