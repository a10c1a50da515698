"""`compare`, and `gate` without a stored baseline: two arms, interleaved blocks, a verdict."""

from __future__ import annotations

from perfguard.config import Config
from perfguard.gate.compare import compare_paired
from perfguard.gate.policy import judge
from perfguard.model.plan import ArmSpec
from perfguard.model.result import RunResult
from perfguard.model.run import Arm
from perfguard.model.verdict import GateResult, Policy
from perfguard.pipeline.results import finish
from perfguard.pipeline.session import Request, Session, calibrate, measure, open_session, start_arms
from perfguard.stats.voiding import void_blocks


def compare_arms(request: Request, baseline: ArmSpec, candidate: ArmSpec, *, notes: tuple[str, ...] = ()) -> RunResult:
    """Measure two arms in interleaved blocks and judge every case.

    What was measured before an interruption is judged too; the result then says `interrupted`.

    Raises:
        PerfguardError: The run could not be made; nothing that was measured is lost.
    """
    with open_session(request, mode="paired") as session:
        for note in notes:
            session.note(note)
        starter, arms = start_arms(session, {Arm.BASELINE: baseline, Arm.CANDIDATE: candidate})
        plans = calibrate(session, starter, arms)
        if plans and not session.interrupts.asked:
            measure(session, starter, plans, arms=(Arm.BASELINE, Arm.CANDIDATE))
        return finish(session, judge_paired(session))


def judge_paired(session: Session) -> GateResult:
    """Verdicts on what the session has measured so far."""
    policy = policy_of(session.request.loaded.config)
    data = session.data.paired()
    voiding = void_blocks(data.conditions, policy.max_void_fraction)
    comparisons = compare_paired(data, session.request.cases, policy, voiding=voiding)
    return judge(comparisons, policy, voiding=voiding)


def policy_of(config: Config) -> Policy:
    """The gate's rule from the configuration."""
    return Policy(
        margin_ratio=config.margin,
        alpha=config.alpha,
        equivalence_ratio=max(config.equivalence, config.margin),  # who tolerates more asks for no finer proof
        max_block_sd_ratio=config.max_block_sd,
    )
