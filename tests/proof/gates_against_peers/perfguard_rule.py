"""perfguard's own rule on a recorded window: the looks, early answers and confirmation of a live gate.

Calls the library that a live gate calls; only the blocks come from a recording.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from perfguard.config import Config
from perfguard.gate.paired.compare_arms import CONFIRMATION_SHARE
from perfguard.gate.paired.judging import policy_of
from perfguard.gate.rules.compare import SequentialGate, plan_analyses
from perfguard.gate.rules.confirmation import apply_confirmations, confirm, flagged_cases
from perfguard.gate.rules.policy import conclude
from perfguard.records.run import CaseSamples, PairedData
from perfguard.records.spec import Case
from perfguard.records.verdict import WIDE_MARGIN, Confirmation, Margins, Outcome, Policy
from perfguard.stats.confirming import CONFIRMATION_ANALYSES
from tests.proof.gates_against_peers.stream import Block, Window, injected

CONFIRMATION_BLOCKS = CONFIRMATION_ANALYSES[-1]
"""Blocks that a window keeps ready behind its end."""
_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the rule says of a window."""

    outcome: str
    """Value of GateOutcome."""
    flagged: tuple[str, ...]
    """Cases that were flagged before confirmation."""
    red: tuple[str, ...]
    """Those that stayed red."""
    open: tuple[str, ...]
    """Inconclusive cases."""
    blocks: int
    """Blocks after which it had its answer, confirmation not counted."""
    confirmation_blocks: int
    """Blocks of the confirmation, of the flagged cases only."""
    seconds: float
    """What these blocks take: cases that have their answer are measured no further, as far as the recording tells what
    each takes; confirmation not counted."""


def decide(
    window: Window, *, case: str | None = None, effect: float = 0.0, margin_ratio: float = WIDE_MARGIN
) -> Decision:
    """The rule's answer where `case` is slower by `effect`; None leaves the arms identical."""
    policy, limit = policy_of(Config(), Margins(ratio=margin_ratio)), Config().max_blocks
    blocks = injected((*window.blocks, *window.further), case, effect)[:limit]
    cases = tuple(Case(benchmark=name, target="") for name in blocks[0].cases)
    budget_s = sum(block.conditions.duration_s for block in window.blocks[:limit])
    first_s = blocks[0].conditions.duration_s
    planned = plan_analyses(first_s, left_s=budget_s - first_s, max_blocks=limit)
    gate = SequentialGate(cases, policy, planned_blocks=planned)
    used, seconds = _look_through(gate, blocks, cases, budget_s)
    verdicts = gate.verdicts()
    flagged = flagged_cases(verdicts)
    confirmations, confirming = _confirmed(injected(window.following, case, effect), flagged, cases, policy)
    verdicts = apply_confirmations(verdicts, confirmations)
    return Decision(
        outcome=conclude(verdicts, policy, voiding=gate.voiding).outcome.value,
        flagged=flagged,
        red=flagged_cases(verdicts),
        open=tuple(v.case_id for v in verdicts if v.outcome is Outcome.INCONCLUSIVE),
        blocks=used,
        confirmation_blocks=confirming,
        seconds=seconds,
    )


def _look_through(
    gate: SequentialGate, blocks: Sequence[Block], cases: Sequence[Case], budget_s: float
) -> tuple[int, float]:
    """Take the looks that a live gate takes; gives the blocks it needed and their seconds."""
    taken, elapsed_s = 0, 0.0
    for block in blocks:
        block_s = cost_s(block, gate.answered())
        if taken and elapsed_s + block_s > budget_s + _ROUNDING_S:
            break
        taken, elapsed_s = taken + 1, elapsed_s + block_s
        if gate.is_due(taken):
            limit = Config().max_blocks
            gate.plan(plan_analyses(block_s, left_s=budget_s - elapsed_s, max_blocks=limit, finished=taken))
            gate.analyse(_paired(blocks[:taken], cases), blocks=taken, final=False)
            if gate.answered() >= {case.id for case in cases}:
                return taken, elapsed_s
        if elapsed_s >= budget_s * (1 - CONFIRMATION_SHARE) and flagged_cases(gate.verdicts()):
            break
    gate.analyse(_paired(blocks[:taken], cases), blocks=taken, final=True)
    return taken, elapsed_s


def cost_s(block: Block, left: Collection[str]) -> float:
    """Seconds of a block without the cases that a gate has left, where it is known what they took."""
    return block.conditions.duration_s - sum(block.cases[case_id].wall_s or 0.0 for case_id in left)


def _confirmed(
    following: Sequence[Block], flagged: Sequence[str], cases: Sequence[Case], policy: Policy
) -> tuple[dict[str, Confirmation], int]:
    """Confirmations of the flagged cases, from blocks after the window; a recording cannot relocate its arms."""
    chosen = [case for case in cases if case.id in flagged]
    found: dict[str, Confirmation] = {}
    used = 0
    for look in CONFIRMATION_ANALYSES:
        left = [case for case in chosen if case.id not in found or not found[case.id].confirmed]
        if left and len(following) >= look:
            found.update(confirm(_paired(following[:look], left), left, policy))
            used = look
    return found, used


def _paired(blocks: Sequence[Block], cases: Sequence[Case]) -> PairedData:
    names = tuple(case.id for case in cases)
    return PairedData(
        case_ids=names,
        samples=tuple(
            CaseSamples(
                case_id=name,
                block=block.conditions.block,
                baseline_s=block.cases[name].baseline_s,
                candidate_s=block.cases[name].candidate_s,
            )
            for block in blocks
            for name in names
        ),
        conditions=tuple(block.conditions for block in blocks),
    )
