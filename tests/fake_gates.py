"""Gates that measure nothing and leave a run folder behind, for tests of calibrations and plans."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from perfguard.config import Config, LoadedConfig
from perfguard.gate.rules.compare import compare_paired
from perfguard.host.identity import stack_id
from perfguard.host.parsers.software import decode_software
from perfguard.host.probe import probe
from perfguard.records.events import (
    BlockFinished,
    BlockStarted,
    CaseCalibrated,
    CaseFinished,
    Event,
    RunStarted,
    SampleTimed,
)
from perfguard.records.facts import fact
from perfguard.records.plan import FOR_CALIBRATION, ArmSpec
from perfguard.records.result import ArmSummary, RunResult
from perfguard.records.run import Arm, CaseFailed
from perfguard.records.run_data import RunData
from perfguard.records.spec import Case
from perfguard.records.verdict import GateOutcome, Policy
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.measuring import ArmLayout
from perfguard.runner.run_folder import RunFolder
from perfguard.runner.session import Request, choose_cpus
from tests.changed_values import replace
from tests.compared_cases import judge

CASES = (
    Case(benchmark="tiny.sum", target="bench.py:sum", tags=("no-torch",)),
    Case(benchmark="tiny.sort", target="bench.py:sort", tags=("no-torch",)),
)
SAME = parse_arm("dir:.")


def request_in(project: Path) -> Request:
    """A calibration of the suite `tiny`."""
    loaded = LoadedConfig(config=Config(suite="tiny", seed=5), origins={}, project=project)
    return Request(
        command="calibrate",
        arguments=(),
        loaded=loaded,
        suite="tiny",
        cases=CASES,
        budget_s=60.0,
        inherited={},
        gate=FOR_CALIBRATION,
    )


class Gates:
    """Stands in for `compare_arms`: writes the events of identical arms, and remembers what it was asked for."""

    def __init__(
        self,
        project: Path,
        *,
        sd: float = 0.002,
        shift: float = 0.0,
        ends_with: Sequence[int] = (),
        fails: bool = False,
        blocks: int = 8,
    ) -> None:
        self.project, self.sd, self.shift, self.fails, self.blocks = project, sd, shift, fails, blocks
        self.ends_with = list(ends_with)
        self.asked: list[tuple[str, str, ArmLayout | None, int | None]] = []
        self.rng = np.random.default_rng(0)

    def __call__(
        self, request: Request, baseline: ArmSpec, candidate: ArmSpec, *, place: ArmLayout | None = None
    ) -> RunResult:
        self.asked.append((baseline.text, candidate.text, place, request.loaded.config.seed))
        folder = RunFolder.create(self.project)
        data = RunData()
        for event in self.events(request, folder.run_id):
            folder.emit(event)
            data.add(event)
        folder.close()
        result = result_of(request, folder, data)
        code = self.ends_with.pop(0) if self.ends_with else 0
        return replace(result, exit_code=code)

    def events(self, request: Request, run_id: str) -> Iterator[Event]:
        """Those of identical arms."""
        yield RunStarted(
            run_id=run_id,
            schema=1,
            mode="paired",
            suite=request.suite,
            case_ids=tuple(case.id for case in request.cases),
            command=(),
            budget_s=request.budget_s,
            machine_id=probe().machine_id,
        )
        for case in request.cases:
            yield CaseCalibrated(case_id=case.id, inner_loops=10, iteration_s=1e-3)
        for block in range(self.blocks):
            yield BlockStarted(block=block, hash_seed=1, data_seed=1, case_ids=())
            for case in request.cases:
                ratio = float(np.exp(self.shift + self.sd * self.rng.standard_normal()))
                yield from (
                    SampleTimed(
                        block=block,
                        case_id=case.id,
                        arm=arm,
                        index=index,
                        warmup=False,
                        value_s=1e-3 * (ratio if arm is Arm.CANDIDATE else 1.0) * (1 + 0.001 * index),
                        cpu_s=1e-3,
                        minor_faults=0,
                        involuntary_switches=0,
                    )
                    for index in range(4)
                    for arm in Arm
                )
                yield CaseFinished(block=block, case_id=case.id, baseline_digest=1.0, candidate_digest=1.0)
            yield BlockFinished(block=block, started_at=0.0, duration_s=2.0, steal_ratio=0.0, involuntary_switches=0)
        if self.fails:
            yield CaseFailed(
                case_id="tiny.sort",
                arm=Arm.CANDIDATE,
                missing=False,
                reason=fact("case.raised", error="no memory"),
                detail="",
            )


def result_of(request: Request, folder: RunFolder, data: RunData) -> RunResult:
    """A gate whose arms turned out identical, judged by its times."""
    gate = judge(compare_paired(data.paired(), request.cases, Policy()), Policy())
    cpus = choose_cpus(request.loaded, probe()).cpus
    return RunResult(
        command=request.command,
        run_id=folder.run_id,
        folder=str(folder.path),
        suite=request.suite,
        machine_id=probe().machine_id,
        machine="",
        cpus=cpus,
        arms={"candidate": arm()},
        gate=replace(gate, identical=True, measured_outcome=gate.outcome, outcome=GateOutcome.PASS),
        exit_code=0,
        verdict="pass",
        reasons=(),
        duration_s=20.0,
    )


def arm() -> ArmSummary:
    """A candidate without torch."""
    return ArmSummary(
        text="git:HEAD",
        source_id="s",
        interpreter="python",
        python=platform.python_version(),
        torch=None,
        stack_id=stack_id(decode_software({})),
    )
