"""From what a run measured to what it says: every ruling in its order, the same live and from a recording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from msgspec.structs import replace

from perfguard.config import Config
from perfguard.gate.paired.allow_list import tags_of, utc_today
from perfguard.gate.rules.compare import SequentialGate, without_estimate
from perfguard.gate.rules.confirmation import apply_confirmations, confirm, confirm_signals, flagged_cases
from perfguard.gate.rules.measuring_guards import guard_clocks, guard_intrusion
from perfguard.gate.rules.policy import conclude
from perfguard.gate.rules.rulings import (
    allowance_notes,
    apply_allowances,
    different_results,
    guard_numerics,
    report_modes,
)
from perfguard.gate.rules.signals import SignalPolicy, judge_signals, missing_signals
from perfguard.records.allowance import Allowance
from perfguard.records.events import AnalysesPlanned, ArmsCompared, CaseUntouched, Event, InterimAnalysis
from perfguard.records.facts import fact
from perfguard.records.run import Signal, Stage
from perfguard.records.run_data import RunData
from perfguard.records.spec import Case
from perfguard.records.verdict import GateOutcome, GateResult, Margins, Outcome, Policy, Verdict


@dataclass(slots=True)
class PairedJudge:
    """Judges one paired stage of a run as its events come in."""

    cases: tuple[Case, ...]  # Cases of the stage, in the order of the suite
    policy: Policy
    stage: Stage = Stage.MAIN  # Whose blocks it judges
    confirmation: Stage = Stage.CONFIRMATION  # Whose blocks confirm its flags
    identical: bool = False
    """Whether the arms are the same by their hashes; the gate then passes whatever the times say."""
    signals: SignalPolicy = field(default_factory=SignalPolicy)  # The rule for signals beside wall time
    untouched: Mapping[str, CaseUntouched] = field(default_factory=dict)
    """Cases by id that the change does not reach, by proof: they pass, and are not measured."""
    allowances: tuple[Allowance, ...] = ()
    """Slowdowns that the project accepts; identical arms need none, and a false alarm among them must be seen."""
    today: date = field(default_factory=utc_today)  # UTC date, which decides what has expired
    gate: SequentialGate | None = field(default=None, init=False)  # Known once the analyses are planned
    is_closed: bool = field(default=False, init=False)

    @property
    def measured(self) -> tuple[Case, ...]:
        """The cases that the change may reach."""
        return tuple(case for case in self.cases if case.id not in self.untouched)

    def plan(self, blocks: int) -> SequentialGate:
        """Spread the analyses over so many blocks."""
        self.gate = SequentialGate(self.measured, self.policy, planned_blocks=blocks)
        return self.gate

    def analyse(self, data: RunData, *, final: bool) -> dict[str, Outcome]:
        """Take a look at what was measured so far; gives the cases that got their answer."""
        blocks = data.blocks_of(self.stage)
        gate = self.gate or self.plan(blocks)
        self.is_closed = self.is_closed or final
        return gate.analyse(data.paired(self.stage), blocks=blocks, final=final)

    def verdicts(self, data: RunData) -> tuple[Verdict, ...]:
        """Verdicts on the stage, after everything that may change them."""
        if self._was_not_measured(data):
            return tuple(
                Verdict(
                    case_id=case.id,
                    outcome=Outcome.SAME_CODE,
                    gating=case.gating,
                    reasons=(fact("verdict.not_measured"),),
                    comparison=without_estimate(case, self.policy),
                )
                for case in self.cases
            )
        if not self.is_closed:
            self.analyse(data, final=True)
        timed = report_modes(self._confirmed(data), data.paired(self.stage), self.policy, voided=self._voided)
        verdicts = self._with_confirmed_signals(data, timed)
        checks = data.checks(self.stage)
        verdicts = guard_intrusion(guard_numerics(verdicts, checks), data.intrusions(self.stage))
        if self.identical:
            return verdicts
        verdicts = guard_clocks(verdicts, data.clocks(self.stage))
        verdicts = guard_clocks(verdicts, data.cpu_clocks(self.stage), of_cpu=True)
        return self._with_untouched(self._allowed(data, verdicts))

    def _with_untouched(self, verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
        """All verdicts, in the order of the suite."""
        known = {verdict.case_id: verdict for verdict in verdicts}
        return tuple(
            known[case.id] if case.id in known else _untouched(case, self.untouched[case.id], self.policy)
            for case in self.cases
            if case.id in known or case.id in self.untouched
        )

    def _allowed(self, data: RunData, verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
        return apply_allowances(
            verdicts,
            self.allowances,
            self.today,
            self.policy,
            tags=tags_of(self.cases),
            different=different_results(data.checks(self.stage)),
        )

    def flagged(self, data: RunData) -> frozenset[str]:
        """Cases that would make the gate red, by their times or by another signal; each needs a confirmation."""
        return frozenset(flagged_cases(self._with_signals(data, self._timed())))

    def confirmed(self, data: RunData) -> frozenset[str]:
        """Those of them that relocated arms have confirmed so far."""
        return frozenset(flagged_cases(self._with_confirmed_signals(data, self._confirmed(data))))

    @property
    def _voided(self) -> frozenset[int]:
        return self.gate.voiding.blocks if self.gate and self.gate.voiding else frozenset()

    def _with_signals(self, data: RunData, timed: Sequence[Verdict]) -> tuple[Verdict, ...]:
        return judge_signals(data.signals(self.stage), timed, self.signals, voided=self._voided)

    def _with_confirmed_signals(self, data: RunData, timed: Sequence[Verdict]) -> tuple[Verdict, ...]:
        judged = self._with_signals(data, timed)
        return confirm_signals(timed, judged, data.signals(self.confirmation), self.policy)

    def _timed(self) -> tuple[Verdict, ...]:
        """Verdicts on the times, before any confirmation."""
        return self.gate.verdicts() if self.gate else ()

    def _confirmed(self, data: RunData) -> tuple[Verdict, ...]:
        """Verdicts on the times, flags confirmed."""
        timed, confirmations = self._timed(), {}
        cases = [case for case in self.measured if case.id in flagged_cases(timed)]
        if cases and data.blocks_of(self.confirmation):
            confirmations = confirm(data.paired(self.confirmation), cases, self.policy)
        return apply_confirmations(timed, confirmations)

    def _was_not_measured(self, data: RunData) -> bool:
        """Whether the arms are the same, so that nothing had to be measured."""
        return self.identical and not data.blocks_of(self.stage) and not data.failures

    def conclude(self, data: RunData) -> GateResult:
        """What the verdicts mean for the gate."""
        verdicts = self.verdicts(data)
        if self._was_not_measured(data):
            return GateResult(
                outcome=GateOutcome.PASS,
                reasons=(fact("arms.identical"),),
                verdicts=verdicts,
                policy=self.policy,
                blocks_total=0,
                blocks_voided=0,
                identical=True,
            )
        voiding = self.gate.voiding if self.gate else None
        allowed = allowance_notes(self.allowances, verdicts, self.today, tags=tags_of(self.cases))
        result = conclude(verdicts, self.policy, voiding=voiding, notes=allowed)
        result = replace(result, missing_signals=missing_signals(data.missing_signals))
        return _passed_by_construction(result) if self.identical else result


def _untouched(case: Case, proof: CaseUntouched, policy: Policy) -> Verdict:
    return Verdict(
        case_id=case.id,
        outcome=Outcome.UNTOUCHED,
        gating=case.gating,
        reasons=(fact("verdict.untouched", functions=proof.functions, files=proof.files),),
        comparison=without_estimate(case, policy),
    )


def _passed_by_construction(result: GateResult) -> GateResult:
    """The result of a gate whose arms are identical: a pass, which keeps what the times alone would have said.

    A failure stays one: it says nothing of the difference between the arms, but the gate did not do its work.
    """
    result = replace(result, identical=True, measured_outcome=result.outcome)
    if result.outcome in (GateOutcome.FAILED, GateOutcome.INVALID):
        return result
    return replace(
        result,
        outcome=GateOutcome.PASS,
        verdicts=tuple(
            replace(verdict, outcome=Outcome.SAME_CODE, timed_outcome=verdict.outcome) for verdict in result.verdicts
        ),
        reasons=(fact("arms.identical", measured_outcome=result.outcome.value),),
    )


def replay(events: Iterable[Event], judge: PairedJudge, *, margin_ratio: float | None = None) -> RunData:
    """Feed a recorded run to a judge, which then analyses where the live run looked; gives the run's data.

    The margins are the recorded ones unless another is given.
    """
    data = RunData()
    judge.untouched = data.untouched
    for event in events:
        data.add(event)
        match event:
            case ArmsCompared():
                judge.identical = event.identical
            case AnalysesPlanned():
                policy = judge.policy
                recorded = policy.margin_ratio if event.margin_ratio is None else event.margin_ratio
                judge.policy = replace(
                    policy,
                    margins=event.margins,
                    margin_ratio=recorded if margin_ratio is None else margin_ratio,
                    equivalence_ratio=event.equivalence_ratio or policy.equivalence_ratio,
                )
                judge.plan(event.blocks)
            case InterimAnalysis():
                if event.planned is not None and judge.gate is not None:
                    judge.gate.plan(event.planned)
                judge.analyse(data, final=event.final)
    return data


def policy_of(config: Config, margins: Margins | None = None) -> Policy:
    """The gate's rule from the configuration, with the margins of the machine where they are known."""
    found = margins or Margins(ratio=config.wide_margin)
    return Policy(
        margin_ratio=found.ratio,
        margins=found.cases,
        alpha=config.alpha,
        equivalence_ratio=max(config.equivalence, found.ratio),  # who tolerates more asks for no finer proof
        max_block_sd_ratio=config.max_block_sd,
    )


def signal_policy_of(config: Config) -> SignalPolicy:
    """The rule for signals from the configuration."""
    return SignalPolicy(gating=tuple(Signal(name) for name in config.gating_signals))
