"""A gate that looks at its data while it grows: early red, early clean, and p-values that stay valid.

A case that has its answer is not measured any further, so that the minutes go to those that are still open. What is
decided at an interim analysis stands: later blocks of other cases cannot take it back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from perfguard.gate.rules.compare import compare_paired
from perfguard.gate.rules.policy import decide_cases, p_or_one
from perfguard.records.run import PairedData
from perfguard.records.spec import Case
from perfguard.records.verdict import Comparison, Outcome, Policy, Verdict
from perfguard.stats.spending import Spending, sequential_p
from perfguard.stats.voiding import Voiding, void_blocks

ANALYSES = 8
"""About as many analyses are spread over the planned blocks; more would cost power and find little earlier."""

_LATEST_INTERIM = 0.95
"""An interim analysis never spends more than up to this part of the information: the last analysis keeps the rest."""


@dataclass(slots=True)
class _Path:
    """What the analyses saw of one case."""

    information: list[float] = field(default_factory=list)
    fractions: list[float] = field(default_factory=list)
    slower: list[float] = field(default_factory=list)
    faster: list[float] = field(default_factory=list)
    unclean: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    comparison: Comparison | None = None
    is_answered: bool = False


class SequentialGate:
    """Judges a growing paired run at a few analyses; the same calls give the same answer, live or from a recording."""

    def __init__(self, cases: Sequence[Case], policy: Policy, *, planned_blocks: int) -> None:
        """Begin without data.

        Args:
            cases: What was asked for, in the order of the suite.
            policy: The rule.
            planned_blocks: Blocks that the budget is expected to hold. A wrong guess costs power, never validity.
        """
        self._cases = tuple(cases)
        self._policy = policy
        self._planned = max(planned_blocks, policy.min_blocks)
        self._first = max(policy.min_blocks, round(self._planned / ANALYSES))
        self._every = max(2, round(self._planned / ANALYSES))
        self._paths = {case.id: _Path() for case in self._cases}
        self._latest = 0
        self.voiding: Voiding | None = None
        """What the arm-blind rule said at the latest analysis."""

    def is_due(self, blocks: int) -> bool:
        """Whether to look after so many finished blocks."""
        return blocks >= self._first and blocks - self._latest >= self._every

    def analyse(self, data: PairedData, *, blocks: int, final: bool) -> dict[str, Outcome]:
        """Judge what was measured so far; gives the cases that got their answer now.

        Args:
            data: Everything measured so far.
            blocks: Blocks that have finished.
            final: Whether nothing more will be measured, so that each test spends what is left of its level. Ended by
                the budget, the block limit or the user, never by what the data showed.
        """
        self._latest = blocks
        self.voiding = void_blocks(data.conditions, self._policy.max_void_fraction)
        for comparison in compare_paired(data, self._cases, self._policy, voiding=self.voiding):
            path = self._paths[comparison.case_id]
            if not path.is_answered:
                self._take(path, comparison, final=final)
        return self._answer()

    def verdicts(self) -> tuple[Verdict, ...]:
        """What the analyses so far add up to, in the order of the suite."""
        return decide_cases(self.comparisons(), self._policy)

    def comparisons(self) -> tuple[Comparison, ...]:
        """The evidence of each case at its latest analysis; for answered cases the analysis that answered."""
        return tuple(path.comparison for path in self._paths.values() if path.comparison is not None)

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
        path.slower.append(p_or_one(comparison.p_regressed))
        path.faster.append(p_or_one(comparison.p_improved))
        path.unclean.append(p_or_one(comparison.p_unclean))
        path.outside.append(p_or_one(comparison.p_outside))
        path.comparison = replace(
            comparison,
            p_regressed=_sequential(Spending.CAUTIOUS, path, path.slower),
            p_improved=_sequential(Spending.CAUTIOUS, path, path.faster),
            p_unclean=_sequential(Spending.EVEN, path, path.unclean),
            p_outside=_sequential(Spending.EVEN, path, path.outside),
            analyses=len(path.information),
        )

    def _answer(self) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        clean_level = (1 - self._policy.interval_level) / 2
        for verdict in self.verdicts():
            path = self._paths[verdict.case_id]
            if path.is_answered:
                continue
            if verdict.outcome is Outcome.FAILED or verdict.outcome is Outcome.NO_BASELINE:
                path.is_answered = True
                continue
            is_clean = p_or_one(verdict.comparison.p_unclean) <= clean_level
            if verdict.outcome in (Outcome.REGRESSED, Outcome.IMPROVED) or (
                verdict.outcome is Outcome.UNCHANGED and is_clean
            ):
                path.is_answered = True
                found[verdict.case_id] = verdict.outcome
        return found


def plan_analyses(first_block_s: float, *, left_s: float, max_blocks: int) -> int:
    """Blocks that the rest of the budget will hold, judged by the first one.

    A quarter more than a division gives: blocks get shorter as cases get their answers. Too high a guess makes the
    early analyses a little stricter; too low a guess would spend the level before the end.

    Args:
        first_block_s: Wall seconds of the first block.
        left_s: Wall seconds left after it.
        max_blocks: Upper bound.
    """
    further = max(left_s, 0.0) / max(first_block_s, 1e-3)
    return max(1, min(max_blocks, math.ceil(1.25 * (1 + further))))


def _sequential(spending: Spending, path: _Path, p_values: Sequence[float]) -> float:
    return sequential_p(spending, p_values, path.information, path.fractions)
