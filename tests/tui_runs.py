"""Runs to be watched in tests of the application: views made by hand, and a watch that gives them one by one."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfguard.records.events import Noted
from perfguard.records.facts import fact, recorded_text
from perfguard.records.fleet import (
    Engine,
    Fitness,
    FleetNow,
    FleetStatus,
    GateWork,
    Host,
    Shard,
    ShardState,
    Submission,
)
from perfguard.records.history import History, HistoryPoint
from perfguard.records.run import Arm, Stage
from perfguard.records.steps.ops import (
    Attribution,
    ChangeClass,
    Culprit,
    OpCountChange,
    OpDelta,
    OpKey,
    StepBalance,
    StepPhase,
)
from perfguard.watch.sources.event_sources import ReplaySource
from perfguard.watch.view.run_view import (
    ArmView,
    CaseSeries,
    CaseState,
    CaseView,
    Level,
    LogLine,
    Progress,
    RunState,
    RunView,
)
from tests.changed_values import replace

STARTED_AT = 1_790_000_000.0
NO_EFFECT = {"log_ratio": None, "lower": None, "upper": None}
NOT_MEASURED = {"blocks": 0, "samples": 0, "baseline_s": None, "candidate_s": None, "noise_ratio": None}


def a_case(case_id: str = "step.resnet[batch=8,dtype=bf16]", **fields) -> CaseView:
    """A case that is slower, answered, and gates."""
    known = {
        "is_gating": True,
        "state": CaseState.ANSWERED,
        "blocks": 8,
        "samples": 96,
        "baseline_s": 12.4e-3,
        "candidate_s": 13.1e-3,
        "log_ratio": 0.055,
        "lower": 0.041,
        "upper": 0.069,
        "noise_ratio": 0.012,
        "outcome": "regressed",
        "reasons": (recorded_text("5.7 % slower in 8 paired blocks"),),
    }
    return CaseView(case_id=case_id, **{**known, **fields})


def an_open_case(case_id: str, **fields) -> CaseView:
    """A case without an answer."""
    known = {
        "state": CaseState.OPEN,
        "log_ratio": 0.001,
        "lower": -0.012,
        "upper": 0.014,
        "outcome": None,
        "reasons": (),
    }
    return a_case(case_id, **{**known, **fields})


def a_delta(op: str, *, module: str = "ResNet.layer1.conv1", delta_s: float = 1e-4, **fields) -> OpDelta:
    """An op that became slower, in the backward phase."""
    key = OpKey(
        phase=fields.pop("phase", StepPhase.BACKWARD),
        module=module,
        op=op,
        shapes=fields.pop("shapes", "[8,64,56,56] [64,64,3,3]"),
        dtypes=fields.pop("dtypes", "bf16 bf16"),
        layouts=fields.pop("layouts", "channels_last contiguous"),
    )
    known = {
        "change": ChangeClass.SLOWER,
        "baseline_s": 5e-4,
        "candidate_s": 5e-4 + delta_s,
        "delta_s": delta_s,
        "lower_s": delta_s * 0.8,
        "upper_s": delta_s * 1.2,
        "q": 0.001,
        "baseline_calls": 4.0,
        "candidate_calls": 4.0,
        "source": "train.py:88",
    }
    return OpDelta(key=key, **{**known, **fields})


def an_attribution(case_id: str, deltas: Sequence[OpDelta]) -> Attribution:
    """The first op is to blame for most of it."""
    delta_s = sum(delta.delta_s for delta in deltas)
    first = deltas[0]
    culprit = Culprit(
        fact=fact(
            "implementation.changed",
            place="train.py:88",
            primitive="convolution_backward",
            lost="brg_conv:avx512_core",
            gained="ref:any",
        ),
        change=ChangeClass.OTHER_IMPLEMENTATION,
        phase=first.key.phase,
        delta_s=first.delta_s,
        lower_s=first.lower_s,
        upper_s=first.upper_s,
        share=first.delta_s / delta_s if delta_s else 1.0,
        ops=(first.key,),
    )
    balance = StepBalance(
        baseline_s=12.4e-3,
        candidate_s=12.4e-3 + delta_s,
        delta_s=delta_s,
        lower_s=delta_s * 0.8,
        upper_s=delta_s * 1.2,
        ops_s=delta_s * 0.96,
        python_s=delta_s * 0.02,
        idle_s=0.0,
        unexplained_s=delta_s * 0.02,
        overhead_ratio=0.05,
    )
    return Attribution(
        case_id=case_id,
        balance=balance,
        culprits=(culprit,),
        deltas=tuple(deltas[:3]),
        op_count_changes=(),
        processes=3,
        steps=24,
    )


OP_COUNTS = (
    OpCountChange(
        phase=StepPhase.BACKWARD,
        module="ResNet.layer1.*.conv1",
        rule="implementation",
        before=4,
        after=4,
        fact=fact(
            "implementation.changed",
            op="ResNet.layer1.*.conv1",
            primitive="convolution",
            lost="brg_conv:avx512_core",
            gained="ref:any",
            calls=4,
            phases=("backward",),
        ),
    ),
    OpCountChange(
        phase=StepPhase.BACKWARD,
        module="ResNet.layer1.*.conv1",
        rule="reorders",
        before=0,
        after=2,
        fact=fact("reorders.added", op="ResNet.layer1.*.conv1", number=2, phases=("backward",)),
    ),
)


def some_deltas(number: int = 40) -> tuple[OpDelta, ...]:
    """The culprit first, with another implementation; then ops that hardly changed, all over a network."""
    draw = random.Random(7)
    culprit = a_delta(
        "aten::convolution_backward",
        delta_s=7e-4,
        change=ChangeClass.OTHER_IMPLEMENTATION,
        detail="brg_conv:avx512_core → ref:any",
    )
    rest = []
    for index in range(number - 1):
        phase = list(StepPhase)[1 + index % 4]
        module = (
            f"ResNet.layer{1 + index % 4}.{index // 16}.conv{index // 4 % 3}"
            if phase is not StepPhase.OPTIMIZER
            else "Adam"
        )
        delta_s = draw.gauss(0, 6e-6)
        rest.append(
            a_delta(
                f"aten::{['convolution', 'batch_norm', 'relu', 'add_'][index % 4]}",
                module="Adam" if phase is StepPhase.OPTIMIZER else module,
                phase=phase,
                shapes=f"[8,{64 + index},56,56]",
                delta_s=delta_s,
                lower_s=delta_s - 2e-5,
                upper_s=delta_s + 2e-5,
                change=ChangeClass.UNCHANGED,
                q=0.8,
            )
        )
    return (culprit, *rest)


def a_series(case_id: str, effect: float = 0.055, *, blocks: int = 8, seed: int = 1) -> CaseSeries:
    """Twelve samples an arm and block, with some noise."""
    draw = random.Random(seed)
    baseline = tuple(12.4e-3 * math.exp(draw.gauss(0, 0.01)) for _ in range(12 * blocks))
    candidate = tuple(12.4e-3 * math.exp(effect + draw.gauss(0, 0.01)) for _ in range(12 * blocks))
    ratios = tuple(effect + draw.gauss(0, 0.012) for _ in range(blocks))
    return CaseSeries(
        case_id=case_id,
        baseline_s=baseline,
        candidate_s=candidate,
        block_log_ratios=ratios,
        blocks=tuple(range(blocks)),
    )


RED = "step.resnet[batch=8,dtype=bf16]"


def a_run(**fields) -> RunView:
    """A gate in its ninth block: one case red, one faster, others open; advisory ones among them."""
    deltas = some_deltas()
    red = a_case(RED, op_counts=OP_COUNTS, attribution=an_attribution(RED, deltas))
    cases = (
        an_open_case("kernel.softmax[rows=4096,dtype=fp32]"),
        a_case("kernel.linear[m=512,dtype=bf16]", outcome="unchanged", log_ratio=0.002, lower=-0.006, upper=0.01),
        red,
        a_case("kernel.gelu[n=65536]", outcome="improved", log_ratio=-0.08, lower=-0.1, upper=-0.06),
        an_open_case("step.lstm[hidden=256]", is_gating=False, state=CaseState.MEASURING),
        a_case("kernel.sdpa[heads=8]", outcome="different", reasons=(recorded_text("loss differs"),), **NO_EFFECT),
        an_open_case("kernel.embedding[rows=10000]", state=CaseState.WAITING, **NO_EFFECT, **NOT_MEASURED),
    )
    known = {
        "run_id": "20260921T142640-example",
        "state": RunState.MEASURING,
        "mode": "paired",
        "suite": "example",
        "command": ("perfguard", "gate", "--suite", "example"),
        "started_at": STARTED_AT,
        "arms": (an_arm(Arm.BASELINE, "git:HEAD"), an_arm(Arm.CANDIDATE, "dir:.")),
        "is_identical": False,
        "progress": Progress(
            stage=Stage.MAIN,
            block=8,
            blocks_finished=8,
            blocks_planned=12,
            case_id="step.lstm[hidden=256]",
            sample_index=7,
            elapsed_s=81.0,
            budget_s=120.0,
            left_s=39.0,
        ),
        "cases": cases,
        "notes": (fact("arms.files_differ", files=("train.py",), more=0),),
        "log": (
            a_line(0, 0.0, "gate of example began"),
            a_line(1, 2.0, "imported files that differ: train.py"),
            a_line(90, 30.0, "block 3 voided: canary 12.0 % slower", level="warning"),
            a_line(400, 80.0, f"{RED} regressed"),
        ),
        "steal_ratio": 0.0004,
        "control_ratio": 0.003,
    }
    return RunView(**{**known, **fields})


def a_line(seq: int, after_s: float, text: str, *, level: Level = "info") -> LogLine:
    """A note in the log."""
    return LogLine(seq=seq, t_wall=STARTED_AT + after_s, level=level, what=Noted(fact=recorded_text(text)))


def an_arm(arm: Arm, text: str) -> ArmView:
    """A side of the run."""
    return ArmView(arm=arm, text=text)


def a_history(runs: int = 12) -> History:
    """Two cases over runs, with another host from the fifth and other software from the ninth run on."""
    draw = random.Random(3)
    points = [
        HistoryPoint(
            run_id=f"run-{index}",
            t_wall=STARTED_AT + 86400.0 * index,
            case_id=case_id,
            median_s=12.4e-3 * (1.0 + 0.3 * (index >= 4)) * math.exp(draw.gauss(0, 0.01)),
            spread_ratio=0.02,
            source_id=f"tree-{index}",
            machine_id="a" if index < 4 else "b",
            stack_id="torch-2.7" if index < 8 else "torch-2.8",
            outcome="regressed" if index == runs - 1 and case_id == RED else None,
        )
        for index in range(runs)
        for case_id in (RED, "kernel.linear[m=512,dtype=bf16]")
    ]
    return History(
        points=tuple(points),
        baselines_s={RED: 16.0e-3},
        machine_id="b",
        problems={"run-x": recorded_text("no start of a run in its events")},
    )


@dataclass
class FakeWatch:
    """Gives its views one after the other, then nothing new."""

    views: list[RunView]
    curves: Mapping[str, CaseSeries] = field(default_factory=dict)
    ops: Mapping[str, tuple[OpDelta, ...]] = field(default_factory=dict)
    is_between_samples: bool = True
    is_behind: bool = False
    replay: ReplaySource | None = None
    polls: int = 0

    def poll(self) -> RunView | None:
        self.polls += 1
        return self.views.pop(0) if self.views else None

    def series(self, case_id: str) -> CaseSeries:
        return self.curves.get(case_id, CaseSeries(case_id=case_id))

    def deltas(self, case_id: str) -> tuple[OpDelta, ...]:
        return self.ops.get(case_id, ())

    def host(self) -> None:
        return None

    def selection(self) -> None:
        return None


def a_watch(*views: RunView) -> FakeWatch:
    """A watch of `a_run`, with curves for all its cases and ops for the red one."""
    shown = list(views) or [a_run()]
    curves = {
        case.case_id: a_series(case.case_id, case.log_ratio or 0.0, seed=index)
        for index, case in enumerate(shown[0].cases)
        if case.log_ratio is not None
    }
    return FakeWatch(views=shown, curves=curves, ops={RED: some_deltas()})


def with_case(view: RunView, case: CaseView) -> RunView:
    """The run with one case replaced."""
    return replace(view, cases=tuple(case if case.case_id == old.case_id else old for old in view.cases))


def a_fleet() -> FleetNow:
    """Two hosts, one of them unfit, and a submission of which one shard is done."""
    seen_at = time.time() - 5 * 3600 - 30
    drifted = fact("fleet.canary_drifted", host="bench-1", drift_log_ratio=0.05)
    hosts = (
        Host(name="bench-1", machine_id="intel-icelake-bm-2s64c-1a2b3c4d", classes=("lab",), version="0.1.0",
             seen_at=seen_at, fitness=Fitness.UNFIT, reason=drifted),
        Host(name="bench-2", machine_id="amd-zen3-bm-1s32c-5e6f7a8b", classes=("lab",), version="0.1.0",
             seen_at=seen_at, shard_id=2),
    )  # fmt: skip
    work = GateWork(project="team/nets", repository="https://git.example.org/team/nets", folder="", baseline="a1" * 20,
                candidate="b2" * 20, suite="full", budget_s=600.0)  # fmt: skip
    shards = tuple(
        Shard(id=number, submission_id=12, machine_class="lab", patterns=(), state=state, attempt=1, host="bench-2",
              lease_until=None, changed_at=seen_at, exit_code=code)
        for number, state, code in ((1, ShardState.DONE, 1), (2, ShardState.RUNNING, None))
    )  # fmt: skip
    submission = Submission(id=12, work=work, engine=Engine.QUEUE, author="A. Developer", submitted_at=seen_at)
    return FleetNow(hosts=hosts, status=FleetStatus(submissions=(submission,), shards=shards))
