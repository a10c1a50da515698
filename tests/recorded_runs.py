"""Recorded runs of an imagined machine, for whatever reads runs: `python -m tests.recorded_runs` writes them anew.

`paired`: a gate of seven cases in two arms: a regression that is confirmed, counted and named by its ops; an
improvement; unchanged ones; advisory ones that are noisy, fail, or lack their baseline. `rounds`: three rounds of one
arm. Times are drawn with a fixed seed; looks and verdicts are those of perfguard's own judge.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from perfguard.codec import to_json
from perfguard.gate.paired.judging import PairedJudge
from perfguard.gate.paired.results import verdict_event
from perfguard.gate.rules.confirmation import flagged_cases
from perfguard.gate.rules.policy import exit_code
from perfguard.recordings import encode_event
from perfguard.records import events as happened
from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import (
    Cache,
    CoreClass,
    Cpu,
    CpuSelection,
    EffectiveIsa,
    Fingerprint,
    FrequencyDomain,
    Isa,
    IsaSource,
    Limits,
    LogicalCpu,
    NumaNode,
    QuotaState,
    State,
    Topology,
)
from perfguard.records.plan import MeasureSettings
from perfguard.records.run import Arm, Stage
from perfguard.records.run_data import RunData
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Policy
from tests.changed_values import replace
from tests.example_attribution import attribution_of

DATA = Path(__file__).parent / "data" / "runs"
BOTH = (Arm.BASELINE, Arm.CANDIDATE)
SAMPLES, WARMUPS, BLOCKS, CONFIRMING = 4, 1, 8, 6
MACHINE = "example-4c-0123456789"
STARTED = 1_790_000_000.0
SHOWN_DELTAS = 4

SLOWER = "step.resnet[batch=8,dtype=bf16]"
FASTER = "kernel.softmax[rows=4096,dtype=fp32]"
SAME = "kernel.linear[m=512,dtype=bf16]"
ALSO_SAME = "kernel.optimizer[layers=4,algorithm=adam,mode=fused]"
NOISY = "kernel.reorder[layout=nhwc]"
FAILING = "step.lstm[hidden=256]"
NEW = "kernel.attention[heads=8]"
ADVISORY = (NOISY, FAILING, NEW)


@dataclass(frozen=True)
class Speed:
    """How long a case takes, and how much slower the candidate is."""

    base_s: float
    effect: float = 0.0
    block_sd: float = 0.002
    slice_sd: float = 0.004


SPEEDS = {
    SLOWER: Speed(0.041, effect=0.062),
    FASTER: Speed(0.0019, effect=-0.03),
    SAME: Speed(0.00042),
    ALSO_SAME: Speed(0.0011),
    NOISY: Speed(0.0031, block_sd=0.03, slice_sd=0.02),
}
CASE_IDS = (SLOWER, FASTER, SAME, ALSO_SAME, NOISY, FAILING, NEW)


@dataclass
class Recording:
    """A run's folder in the making, with a clock of its own."""

    folder: Path
    now_s: float = 50_000.0
    lines: list[bytes] = field(default_factory=list)
    data: RunData = field(default_factory=RunData)
    random: random.Random = field(default_factory=lambda: random.Random(20))

    def emit(self, event: happened.Event, *, after_s: float = 0.001) -> None:
        self.now_s += after_s
        t_mono = round(self.now_s, 6)
        t_wall = round(STARTED + self.now_s - 50_000.0, 6)
        self.lines.append(encode_event(event, seq=len(self.lines), t_wall=t_wall, t_mono=t_mono))
        self.data.add(event)

    def write(self, **documents: object) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "events.jsonl").write_bytes(b"".join(self.lines))
        for name, value in documents.items():
            (self.folder / f"{name.replace('_', '-')}.json").write_text(to_json(value, indent=1) + "\n")
        return self.folder

    def block(self, index: int, cases: tuple[str, ...], arms: tuple[Arm, ...]) -> None:
        """One block: set-up, samples in turns, a control workload behind each case."""
        began = self.now_s
        self.emit(happened.BlockStarted(block=index, hash_seed=index + 1, data_seed=index + 101, case_ids=cases))
        self.now_s += 1.2
        for case_id in cases:
            self.time_case(index, case_id, arms)
            self.emit(happened.ControlTimed(block=index, value_s=self.draw(0.0021, 0.004)), after_s=0.003)
        self.emit(
            happened.BlockFinished(
                block=index,
                started_at=STARTED + began - 50_000.0,
                duration_s=round(self.now_s - began, 6),
                steal_ratio=round(abs(self.random.gauss(0.0, 0.002)), 6),
                involuntary_switches=self.random.randrange(4),
            )
        )

    def time_case(self, block: int, case_id: str, arms: tuple[Arm, ...]) -> None:
        speed = SPEEDS[case_id]
        effects = {Arm.BASELINE: 1.0, Arm.CANDIDATE: (1 + speed.effect) * (1 + self.random.gauss(0.0, speed.block_sd))}
        order = tuple(self.random.sample(arms, len(arms)))
        for position in range(WARMUPS + SAMPLES):
            for arm in order:
                typical = replace(speed, base_s=speed.base_s * effects[arm])
                self.time_slice(block, case_id, arm, position, typical)
        checks = {"loss": 2.302585}
        self.emit(
            happened.CaseFinished(
                block=block,
                case_id=case_id,
                baseline_digest=2.302585 if Arm.BASELINE in arms else None,
                candidate_digest=2.302585,
                baseline_checks=checks if Arm.BASELINE in arms else {},
                candidate_checks=checks,
            )
        )

    def time_slice(self, block: int, case_id: str, arm: Arm, position: int, speed: Speed) -> None:
        is_warmup = position < WARMUPS
        value_s = self.draw(speed.base_s * (1.2 if is_warmup else 1.0), speed.slice_sd)
        iterations = max(1, round(0.02 / speed.base_s))
        self.emit(
            happened.SampleTimed(
                block=block,
                case_id=case_id,
                arm=arm,
                index=position if is_warmup else position - WARMUPS,
                warmup=is_warmup,
                value_s=value_s,
                cpu_s=value_s,
                minor_faults=0,
                involuntary_switches=0,
                iterations=iterations,
            ),
            after_s=value_s * iterations,
        )

    def draw(self, typical_s: float, sd: float) -> float:
        return round(typical_s * (1 + abs(self.random.gauss(0.0, sd))), 9)


def record_paired(folder: Path) -> Path:
    """A gate of two arms, from its start to its verdict."""
    recording = Recording(folder)
    judge = PairedJudge(
        cases=tuple(
            Case(benchmark=case_id, target="", gating=Gating.ADVISORY if case_id in ADVISORY else Gating.GATING)
            for case_id in CASE_IDS
        ),
        policy=Policy(),
    )
    _begin(recording, "paired", CASE_IDS, ("perfguard", "gate", "--suite", "example"), budget_s=120.0)
    _calibrate(recording)
    _measure(recording, judge)
    _confirm(recording, judge)
    attribution = attribution_of(SLOWER)
    recording.emit(happened.StepsCounted(case_id=SLOWER, changes=attribution.op_count_changes))
    shown = replace(attribution, deltas=attribution.deltas[:SHOWN_DELTAS])
    recording.emit(happened.OpsCompared(attribution=shown, file="ops-1.json"), after_s=20.0)
    _judge(recording, judge)
    return recording.write(ops_1=attribution, fingerprint=_fingerprint(), plan=_plan(max_blocks=60))


def record_rounds(folder: Path) -> Path:
    """Three rounds of one arm, compared with nothing."""
    recording = Recording(folder)
    cases = (SLOWER, SAME, NOISY)
    _begin(recording, "rounds", cases, ("perfguard", "run", "--suite", "example"), budget_s=60.0)
    recording.emit(_arm(Arm.CANDIDATE, "dir:.", "tree-2222222222"), after_s=2.0)
    for index in range(3):
        recording.block(index, cases, (Arm.CANDIDATE,))
    recording.emit(happened.RunFinished(outcome="measured", exit_code=0, reasons=(fact("run.measured", cases=3),)))
    return recording.write(fingerprint=_fingerprint(), plan=_plan(max_blocks=3))


def _begin(
    recording: Recording, mode: str, case_ids: tuple[str, ...], command: tuple[str, ...], *, budget_s: float
) -> None:
    recording.emit(
        happened.RunStarted(
            run_id=f"20260921T142640-{mode}",
            schema=happened.EVENT_SCHEMA,
            mode=mode,
            suite="example",
            case_ids=case_ids,
            command=command,
            budget_s=budget_s,
            machine_id=MACHINE,
            advisory_ids=tuple(case_id for case_id in case_ids if case_id in ADVISORY),
        )
    )
    recording.emit(happened.Noted(fact=fact("run.started", version="1.0", seed=7)))


def _arm(arm: Arm, text: str, source_id: str) -> happened.ArmReady:
    return happened.ArmReady(
        arm=arm,
        text=text,
        interpreter="python3.12",
        source_id=source_id,
        python="3.12.4",
        torch="2.8.0+cpu",
        import_s=1.4,
        stack_id="torch-2.8.0-abcdef",
        missing_signals={"energy": "this machine has no energy counters"},
    )


def _calibrate(recording: Recording) -> None:
    recording.emit(_arm(Arm.BASELINE, "git:HEAD", "tree-1111111111"), after_s=2.0)
    recording.emit(_arm(Arm.CANDIDATE, "dir:.", "tree-2222222222"), after_s=2.0)
    recording.emit(happened.ArmsCompared(identical=False))
    for case_id, speed in SPEEDS.items():
        loops = max(1, round(0.02 / speed.base_s))
        recording.emit(happened.CaseCalibrated(case_id=case_id, inner_loops=loops, iteration_s=speed.base_s))
    raised = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x256 and 128x4)"
    reason = fact("case.raised", error=raised)
    recording.emit(
        happened.CaseFailed(case_id=FAILING, arm=Arm.CANDIDATE, missing=False, reason=reason, detail="train.py:41")
    )
    recording.emit(
        happened.CaseFailed(
            case_id=NEW,
            arm=Arm.BASELINE,
            missing=True,
            reason=fact("case.missing", error="no benchmark kernel.attention"),
            detail="",
        )
    )
    recording.emit(happened.StepsCounted(case_id=SAME, changes=()), after_s=3.0)


def _measure(recording: Recording, judge: PairedJudge) -> None:
    """The main stage: a look where one is due; answered cases are left."""
    for index in range(BLOCKS):
        answered = judge.gate.answered() if judge.gate else frozenset()
        open_cases = [case_id for case_id in SPEEDS if case_id not in answered]
        recording.block(index, tuple(recording.random.sample(open_cases, len(open_cases))), BOTH)
        if judge.gate is None:
            recording.emit(happened.AnalysesPlanned(blocks=BLOCKS))
            judge.plan(BLOCKS)
        is_last = index == BLOCKS - 1
        if is_last or (judge.gate is not None and judge.gate.is_due(index + 1)):
            _look(recording, judge, blocks=index + 1, final=is_last)


def _look(recording: Recording, judge: PairedJudge, *, blocks: int, final: bool) -> None:
    decided = judge.analyse(recording.data, final=final)
    recording.emit(
        happened.InterimAnalysis(
            blocks=blocks, final=final, decided={name: found.value for name, found in decided.items()}
        )
    )


def _confirm(recording: Recording, judge: PairedJudge) -> None:
    flagged = tuple(flagged_cases(judge.gate.verdicts())) if judge.gate else ()
    recording.emit(happened.StageStarted(stage=Stage.CONFIRMATION, case_ids=flagged), after_s=2.0)
    for index in range(BLOCKS, BLOCKS + CONFIRMING):
        recording.block(index, flagged, BOTH)


def _judge(recording: Recording, judge: PairedJudge) -> None:
    result = judge.conclude(recording.data)
    for verdict in result.verdicts:
        recording.emit(verdict_event(verdict))
    code = int(exit_code(result))
    recording.emit(happened.RunFinished(outcome=result.outcome.value, exit_code=code, reasons=result.reasons))


def _fingerprint() -> Fingerprint:
    """Four cores of two threads in one package."""
    places = tuple(
        LogicalCpu(id=cpu, core=cpu % 4, package=0, die=0, core_class=CoreClass.PERFORMANCE) for cpu in range(8)
    )
    return Fingerprint(
        machine_id=MACHINE,
        stack_id="torch-2.8.0-abcdef",
        cpu=Cpu(
            architecture="x86_64", vendor="GenuineIntel", brand="Example CPU", microarchitecture="sapphirerapids",
            family=6, model=143, stepping=8, microcode="0x2b000639", hypervisor=False,
        ),
        isa=Isa(
            features=("amx_bf16", "avx2", "avx512f"), avx2=True, avx512=True, bf16=True, amx_bf16=True,
            aten=EffectiveIsa(level="AVX512", source=IsaSource.MEASURED),
            onednn=EffectiveIsa(level="avx512_core_amx", source=IsaSource.MEASURED),
        ),
        topology=Topology(
            packages=1,
            dies=1,
            cores=4,
            threads_online=8,
            smt=True,
            hybrid=False,
            cpus=places,
            online=tuple(range(8)),
            numa_nodes=(NumaNode(id=0, cpus=tuple(range(8)), memory_bytes=64 * 1024**3, distances=(10,)),),
        ),
        caches=(
            Cache(level=1, kind="data", size_bytes=48 * 1024, instances=4, shared_by=2),
            Cache(level=2, kind="unified", size_bytes=2 * 1024**2, instances=4, shared_by=2),
            Cache(level=3, kind="unified", size_bytes=32 * 1024**2, instances=1, shared_by=8),
        ),
        limits=Limits(cgroup_version=2, allowed_cpus=tuple(range(8)), quota=QuotaState.UNLIMITED),
        state=State(
            frequency=(
                FrequencyDomain(
                    cpus=tuple(range(8)), driver="intel_pstate", governor="powersave",
                    energy_preference="performance", min_hz=800_000_000, max_hz=3_800_000_000,
                    base_hz=2_000_000_000, limit_min_hz=800_000_000, limit_max_hz=3_800_000_000,
                ),
            ),
            driver="intel_pstate", governor="powersave", turbo=True, smt_control="on", thp="madvise", ksm=False,
            numa_balancing=False, aslr=2, kernel="6.12", clocksource="tsc", memory_bytes=64 * 1024**3, swap_bytes=0,
            steal_ratio=0.0, load_1min=0.3,
        ),
    )  # fmt: skip


def _plan(*, max_blocks: int) -> dict[str, object]:
    selection = CpuSelection(
        cpus=(1, 2, 3),
        threads=3,
        housekeeping=(0, 4),
        numa_node=0,
        bind_memory_node=None,
        core_classes=(CoreClass.PERFORMANCE,),
        reason=fact("host.cpus_asked", cpus="1-3"),
    )
    settings = MeasureSettings(samples=SAMPLES, warmups=WARMUPS, max_blocks=max_blocks, seed=7)
    return {"cases": [], "settings": settings, "cpus": selection}


if __name__ == "__main__":
    for made in (record_paired(DATA / "paired"), record_rounds(DATA / "rounds")):
        print(made)  # noqa: T201
