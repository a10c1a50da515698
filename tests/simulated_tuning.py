"""What tests of tuning share: a target whose settings have known effects, measured with noise and counted."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perfguard.records.facts import fact
from perfguard.records.tuning import (
    Inapplicable,
    Purpose,
    Setting,
    Toggle,
    ToggleHint,
    Trial,
    TrialOutcome,
    TrialVerdict,
    TriedTrial,
    TuningNow,
)

Cost = Callable[[Mapping[str, str]], float]
"""Seconds of a step under a setting, by toggle; toggles of the reference are missing."""

HALF_WIDTH = 0.01  # Of every interval, log scale


def toggle(name: str, *values: str) -> Toggle:
    """A toggle whose reference is `off`, with `on` where no values are given."""
    return Toggle(name=name, reference="off", values=values or ("on",))


def setting(**values: str) -> Setting:
    """A setting, sorted as all are."""
    return tuple(sorted(values.items()))


@dataclass(kw_only=True)
class SimulatedTarget:
    """Compares two settings by their costs, and a clock that only trials move."""

    toggles: Sequence[Toggle]
    cost: Cost
    refused: Callable[[Mapping[str, str]], bool] = lambda _: False  # Settings with other results than the reference
    broken: Callable[[Mapping[str, str]], bool] = lambda _: False  # Settings that cannot be measured
    ignored: Callable[[Mapping[str, str]], bool] = lambda _: False  # Settings without effect
    hints: Sequence[ToggleHint] = ()
    noise: float = 0.0  # Standard deviation of a measured log-ratio
    trial_s: float = 1.0
    seed: int = 0
    inapplicable: Sequence[Inapplicable] = ()
    name: str = "step.simulated"
    machine_id: str = "simulated"
    benchmark: str = "simulated"
    environment: Mapping[str, str] = field(default_factory=dict)  # Variables of every setting but the reference
    now_s: float = 0.0
    asked: list[Trial] = field(default_factory=list)
    profiled: int = 0

    def profile(self) -> Sequence[ToggleHint]:
        self.profiled += 1
        return self.hints

    def measure(self, trial: Trial, budget_s: float) -> TrialOutcome:
        assert budget_s > 0
        self.asked.append(trial)
        self.now_s += self.trial_s
        before, after = dict(trial.before), dict(trial.after)
        if self.broken(after) or self.broken(before):
            return TrialOutcome(verdict=TrialVerdict.FAILED, duration_s=self.trial_s)
        if self.ignored(after):
            reasons = (fact("script.ignored", error="it has its own"),)
            return TrialOutcome(verdict=TrialVerdict.IGNORED, duration_s=self.trial_s, reasons=reasons)
        noise = random.Random(f"{self.seed} {trial}").gauss(0.0, self.noise)
        log_ratio = math.log(self.cost(after) / self.cost(before)) + noise
        lower, upper = log_ratio - HALF_WIDTH, log_ratio + HALF_WIDTH
        verdict = TrialVerdict.FASTER if upper < 0 else TrialVerdict.SLOWER if lower > 0 else TrialVerdict.OPEN
        if self.refused(after) != self.refused(before):
            verdict = TrialVerdict.DIFFERENT
        return TrialOutcome(
            verdict=verdict,
            log_ratio=log_ratio,
            lower=lower,
            upper=upper,
            blocks=5,
            run_id=f"run-{len(self.asked)}",
            duration_s=self.trial_s,
        )

    def candidate(self, setting: Setting) -> str:
        return "set:" + ",".join(f"{name}={value}" for name, value in setting)

    def tuned(self, setting: Setting) -> str:
        return f"{self.name}[{','.join(f'{name}={value}' for name, value in setting)}]"

    def variables(self, setting: Setting) -> Mapping[str, str]:
        return self.environment if setting else {}

    def command(self, setting: Setting) -> str:
        return f"perfguard compare --candidate {self.candidate(setting)}"


def product_of(**factors: float) -> Cost:
    """Independent toggles: each that is set at all multiplies the seconds; `name_value` is the factor of one value."""

    def cost(chosen: Mapping[str, str]) -> float:
        return math.prod(factors.get(f"{name}_{value}", factors.get(name, 1.0)) for name, value in chosen.items())

    return cost


def a_tuning() -> TuningNow:
    """Three trials: a gain, one that computes something else, and one that is open."""
    bf16, fused = (("dtype", "bf16"),), (("dtype", "bf16"), ("optimizer", "fused"))
    layout = (("dtype", "bf16"), ("memory_format", "channels_last"))
    tried = (
        (bf16, (), TrialOutcome(verdict=TrialVerdict.FASTER, log_ratio=-0.3, lower=-0.32, upper=-0.28, blocks=7,
                                before_s=0.02, after_s=0.0148, run_id="20260102T030405-a1b2c3", duration_s=27.0)),
        (fused, bf16, TrialOutcome(verdict=TrialVerdict.OPEN, log_ratio=-0.01, lower=-0.03, upper=0.01, blocks=12,
                                   before_s=0.0148, after_s=0.0147, duration_s=41.0)),
        (layout, bf16, TrialOutcome(verdict=TrialVerdict.DIFFERENT, blocks=1, duration_s=9.0,
                                    reasons=(fact("tune.not_measurable", error="loss differs"),))),
    )  # fmt: skip
    return TuningNow(
        target="step.resnet18[image_size=64,batch=4,dtype=fp32,memory_format=contiguous,mode=eager]",
        changed_at=time.time() - 5 * 3600 - 30,
        hints=(ToggleHint(code="advice.bf16_untried", share=0.59), ToggleHint(code="advice.layout_lost", share=None)),
        trials=tuple(
            TriedTrial(trial=Trial(purpose=Purpose.ADD, before=before, after=after), outcome=outcome, budget_s=60.0)
            for after, before, outcome in tried
        ),
    )
