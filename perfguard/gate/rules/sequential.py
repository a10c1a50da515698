"""A gate that looks at its data while it grows: early red, early clean, and p-values that stay valid.

A case that has its answer is not measured any further, so that the minutes go to those that are still open. What is
decided at an interim analysis stands: later blocks of other cases cannot take it back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfguard.gate.rules.compare import compare_paired
from perfguard.gate.rules.policy import decide_cases, p_or_one
from perfguard.records.run import PairedData
from perfguard.records.spec import Case
from perfguard.records.verdict import Comparison, Outcome, Policy, Verdict
from perfguard.stats.power import ANALYSES
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


@dataclass(slots=True)
class _Path:
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
        """Judge what was measured so far, in so many finished blocks; gives the cases that got their answer now.

        At the final analysis each test spends what is left of its level. It is the budget, the block limit or the user
        that ends the measuring, never what the data showed.
        """
        self._latest = blocks
        self.voiding = void_blocks(data.conditions, self._policy.max_void_fraction)
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
            path.is_answered = is_shown or outcome in (Outcome.FAILED, Outcome.NO_BASELINE)
        return found


def plan_analyses(first_block_s: float, *, left_s: float, max_blocks: int) -> int:
    """Blocks that the rest of the budget, `left_s` after the first block, will hold; `max_blocks` at most.

    A quarter more than a division gives: blocks get shorter as cases get their answers. Too high a guess makes the
    early analyses a little stricter; too low a guess would spend the level before the end.
    """
    further = max(left_s, 0.0) / max(first_block_s, 1e-3)
    return max(1, min(max_blocks, math.ceil(1.25 * (1 + further))))
