"""perfguard's own rule on a recorded window: the looks, early answers and confirmation of a live gate.

Calls the library that a live gate calls; only the blocks come from a recording.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfguard.config import Config
from perfguard.gate.confirmation import CONFIRMATION_LOOKS, apply_confirmations, confirm, flagged_cases
from perfguard.gate.policy import conclude
from perfguard.gate.sequential import SequentialGate, plan_looks
from perfguard.model.run import CaseSlices, PairedData
from perfguard.model.spec import Case
from perfguard.model.verdict import Confirmation, Outcome, Policy
from perfguard.pipeline.judging import policy_of
from perfguard.pipeline.paired import CONFIRMATION_SHARE
from tests.proof.gates_against_peers.stream import Block, Window, injected

CONFIRMATION_BLOCKS = CONFIRMATION_LOOKS[-1]
"""Blocks that a window keeps ready behind its end."""


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


def decide(window: Window, *, case: str | None = None, effect: float = 0.0) -> Decision:
    """The rule's answer where `case` is slower by `effect`; None leaves the arms identical."""
    policy, limit = policy_of(Config()), Config().max_blocks
    blocks = injected(window.blocks, case, effect)
    blocks = blocks[:limit]
    cases = tuple(Case(benchmark=name, target="") for name in blocks[0].cases)
    block_s = statistics.median(block.conditions.duration_s for block in blocks)
    planned = plan_looks(block_s, left_s=block_s * (len(blocks) - 1), max_blocks=limit)
    gate = SequentialGate(cases, policy, planned_blocks=planned)
    used = _look_through(gate, blocks, cases)
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
    )


def _look_through(gate: SequentialGate, blocks: Sequence[Block], cases: Sequence[Case]) -> int:
    """Take the looks that a live gate takes; gives the blocks it needed."""
    until = reserve_from(len(blocks))
    for count in range(1, len(blocks) + 1):
        if gate.is_due(count):
            gate.look(_paired(blocks[:count], cases), blocks=count, final=False)
            if gate.answered() >= {case.id for case in cases}:
                return count
        if count >= until and flagged_cases(gate.verdicts()):
            blocks = blocks[:count]
            break
    gate.look(_paired(blocks, cases), blocks=len(blocks), final=True)
    return len(blocks)


def reserve_from(blocks: int) -> int:
    """The block from which on the rest of the time confirms flags, where there are any."""
    return math.ceil(blocks * (1 - CONFIRMATION_SHARE))


def _confirmed(
    following: Sequence[Block], flagged: Sequence[str], cases: Sequence[Case], policy: Policy
) -> tuple[dict[str, Confirmation], int]:
    """Confirmations of the flagged cases, from blocks after the window; a recording cannot relocate its arms."""
    chosen = [case for case in cases if case.id in flagged]
    found: dict[str, Confirmation] = {}
    used = 0
    for look in CONFIRMATION_LOOKS:
        left = [case for case in chosen if case.id not in found or not found[case.id].confirmed]
        if left and len(following) >= look:
            found.update(confirm(_paired(following[:look], left), left, policy))
            used = look
    return found, used


def _paired(blocks: Sequence[Block], cases: Sequence[Case]) -> PairedData:
    names = tuple(case.id for case in cases)
    return PairedData(
        case_ids=names,
        slices=tuple(
            CaseSlices(
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
