"""What was aimed at, and what was measured of it: reached or not, or not measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.proof.gates_against_peers.intervals import Rate
from tests.proof.gates_against_peers.live_summary import ToolSummary
from tests.proof.gates_against_peers.replay_summary import RuleSummary, best_peer
from tests.proof.gates_against_peers.tables import percent, share


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One aim."""

    aim: str
    """As set beforehand."""
    measured: str
    """What came out."""
    reached: bool | None
    """None where too little was measured to say."""


def targets(replayed: Sequence[RuleSummary], live: Sequence[ToolSummary]) -> tuple[Target, ...]:
    """Every aim in turn."""
    own = next((s for s in replayed if s.name == "perfguard"), None)
    gates = [s for s in live if s.tool == "perfguard" and s.regime == "idle"]
    return (*(_of_replay(own) if own else ()), *(_against(replayed, own) if own else ()), *_of_live(gates))


def _of_replay(own: RuleSummary) -> list[Target]:
    aim = "at most 1 % of gates red on identical arms: 0 of 299 or more, replayed"
    found = [
        Target(aim=f"{aim}, {which}", measured=share(alarms), reached=_is_rare(alarms))
        for which, alarms in (
            ("drawn from the recorded blocks, arms exchanged at random", own.resampled),
            ("windows that share no block", own.false_alarms),
        )
    ]
    for effect, wanted in ((0.02, 0.95), (0.01, 0.80)):
        power = own.power.get(effect)
        if power is not None:
            found.append(
                Target(
                    aim=f"{wanted:.0%} power at {effect:.0%}, replayed",
                    measured=percent(power),
                    reached=power >= wanted,
                )
            )
    return found


def _is_rare(alarms: Rate) -> bool | None:
    """Whether at most 1 % is shown; None where there were too few gates to show it."""
    return alarms.upper <= 0.0101 if alarms.trials >= 299 or alarms.lower > 0.01 else None


def _against(replayed: Sequence[RuleSummary], own: RuleSummary) -> list[Target]:
    found = []
    for tuned, words in ((False, "red on at most 5 % of identical arms"), (True, "tuned to 1 % of these very gates")):
        best = best_peer(replayed, tuned=tuned, own_design=True)
        aim = f"smallest effect found with 80 % power at most a third of the best peer's ({words})"
        if best is None or best.effect_80 is None:
            measured = f"{_smallest(own)}; no peer finds anything with 80 % power and can be trusted"
            found.append(Target(aim=aim, measured=measured, reached=own.effect_80 is not None))
            continue
        reached = own.effect_80 is not None and own.effect_80 <= best.effect_80 / 3
        ratio = f", {best.effect_80 / own.effect_80:.1f} times as much" if own.effect_80 else ""
        measured = f"{_smallest(own)} against {best.effect_80:.2%} of {best.name}{ratio}"
        found.append(Target(aim=aim, measured=measured, reached=reached))
    return found


def _of_live(gates: Sequence[ToolSummary]) -> list[Target]:
    found = []
    for summary in gates:
        wanted = 30 if summary.gate_minutes < 5 else 8
        rate = summary.nothing
        found.append(
            Target(
                aim=f"none red of {wanted} or more live gates of {summary.gate_minutes:g} minutes without a change",
                measured=share(rate),
                reached=rate.count == 0 if rate.trials >= wanted or rate.count else None,
            )
        )
    return found


def _smallest(own: RuleSummary) -> str:
    return "never" if own.effect_80 is None else f"{own.effect_80:.2%}"
