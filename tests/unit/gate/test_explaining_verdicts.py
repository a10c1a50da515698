"""Op counts, attributions and advice of a run, from scripted workers that leave recorded traces and logs."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfguard.config import Config, LoadedConfig
from perfguard.gate.paired.explain import count_arms, explain
from perfguard.gate.stored.lookup import StoredOpCounts
from perfguard.host.probe import probe
from perfguard.profile.libraries.join import NO_LIBRARY
from perfguard.profile.runs.profiling import isa_of
from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import CpuSelection
from perfguard.records.plan import MeasureSettings
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.records.steps.ops import OpCounts
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.blocks.measure import plan_block
from perfguard.runner.run_folder import RunFolder
from perfguard.runner.session import Interrupts, Request, Session
from tests.changed_values import replace
from tests.stored_baselines import recorded_on
from tests.worker_replies import QueuedReplies, profiled, ready

DATA = Path(__file__).parents[2] / "data" / "profile"
TRACE, LOG = DATA / "joined_step.json.gz", (DATA / "joined_step.log").read_text()
WITHOUT_MATMUL = "".join(line for line in LOG.splitlines(keepends=True) if ",cpu,matmul," not in line)
CASE = Case(benchmark="step", target="bench.py:step")
BASELINE, CANDIDATE = Arm.BASELINE, Arm.CANDIDATE
CPUS = (0,)
ELSEWHERE = "intel-elsewhere-1"


class FakeWorker(QueuedReplies):
    """Leaves the recorded step as its trace, and the log of its arm."""

    def __init__(self, arm, log, environment):
        super().__init__()
        self.arm, self.log, self.environment = arm, log, environment

    def send(self, do, **fields):
        self.replies.append(self._reply(do, fields))

    def _reply(self, do, fields):
        if do == "hello":
            software = {"torch_version": "2.13.0", "environment": self.environment}
            return ready(CPUS, software=software, torch_threads=1)
        if do == "prepare":
            return {"reply": "prepared", "digest": 1.0, "affinity": list(CPUS), "compile_events": {}}
        if do == "program":
            return {"reply": "program", "program": {}, "affinity": list(CPUS)}
        if fields["trace"] is not None:
            shutil.copy(TRACE, fields["trace"])
        if fields["log"] is not None:
            Path(fields["log"]).write_text(self.log)
        return profiled(CPUS, fields["kind"], logs=["onednn", "mkl"] if fields["log"] else [])


@dataclass
class FakeStarter:
    """Starts such workers; what is not said of an arm is as recorded."""

    logs: dict[Arm, str] = field(default_factory=dict)
    environments: dict[Arm, dict[str, str]] = field(default_factory=dict)
    started: list[tuple[Arm, int]] = field(default_factory=list)
    """Arm and data seed of each worker."""

    @property
    def arms(self):
        return {arm: SimpleNamespace(spec=parse_arm("git:HEAD"), tree=None) for arm in Arm}

    def start(self, arm, block, settings):
        self.started.append((arm, block.data_seed))
        return FakeWorker(arm, self.logs.get(arm, LOG), self.environments.get(arm, {}))


@pytest.fixture
def session(tmp_path):
    loaded = LoadedConfig(config=Config(), origins={}, project=tmp_path)
    request = Request(
        command="gate", arguments=(), loaded=loaded, suite="quick", cases=(CASE,), budget_s=60.0, inherited={}, ops=True
    )
    selection = CpuSelection(
        cpus=CPUS,
        threads=1,
        housekeeping=(),
        numa_node=None,
        bind_memory_node=None,
        reason=fact("host.cpus_asked", cpus="0"),
    )
    made = Session(
        request=request,
        fingerprint=probe(),
        selection=selection,
        folder=RunFolder.create(tmp_path),
        interrupts=Interrupts(),
        settings=MeasureSettings(seed=1),
        started=time.monotonic(),
    )
    yield made
    made.folder.close()


def stored(isa_class=None, seed=7):
    """op counts without a row, so that whatever is counted is new."""
    counts = OpCounts(case_id=CASE.id, isa_class=isa_class or isa_of(probe()), torch="2.13.0", rows=())
    return StoredOpCounts(info=recorded_on(ELSEWHERE, seed=seed), op_counts={CASE.id: counts})


def left_onednn(changes):
    """Whether a change says that no library computes the matrix products any more."""
    return any(one.fact.code == "library.changed" and one.fact.values["gained"] == NO_LIBRARY for one in changes)


def test_arms_that_execute_the_same_count_the_same(session):
    count_arms(session, FakeStarter(), [CASE])
    assert session.data.op_count_changes == {CASE.id: ()}
    assert session.data.stored_op_count_changes == {}


def test_products_that_leave_onednn_are_a_change_of_the_op_counts(session):
    count_arms(session, FakeStarter(logs={CANDIDATE: WITHOUT_MATMUL}), [CASE])
    assert left_onednn(session.data.op_count_changes[CASE.id])


def test_identical_arms_are_not_counted(session):
    session.identical = True
    starter = FakeStarter()
    count_arms(session, starter, [CASE])
    assert starter.started == []


def test_what_another_machine_counted_is_compared_on_its_data_in_the_same_step(session):
    starter = FakeStarter()
    count_arms(session, starter, [CASE], stored(seed=7))
    seed = plan_block(1, index=0, seed=7).data_seed
    assert sorted(starter.started) == [(BASELINE, seed), (CANDIDATE, seed)]
    assert session.data.op_count_changes == {CASE.id: ()}
    assert session.data.stored_op_count_changes[CASE.id]
    (note,) = (note for note in session.notes if note.code == "ops.compared_with_machine")
    assert [note.values[name] for name in ("machine_id", "changed", "cases")] == [ELSEWHERE, 1, 1]


def test_of_identical_arms_the_candidate_is_compared_with_the_other_machine(session):
    session.identical = True
    starter = FakeStarter()
    count_arms(session, starter, [CASE], stored())
    assert [arm for arm, _ in starter.started] == [CANDIDATE]
    assert session.data.op_count_changes == {}
    assert session.data.stored_op_count_changes[CASE.id]


def test_the_users_own_seed_stays(session):
    loaded = replace(session.request.loaded, config=Config(seed=1))
    session.request = replace(session.request, loaded=loaded)
    starter = FakeStarter()
    count_arms(session, starter, [CASE], stored(seed=7))
    assert {seed for _, seed in starter.started} == {plan_block(1, index=0, seed=1).data_seed}


def test_op_counts_of_other_instruction_sets_says_nothing(session):
    count_arms(session, FakeStarter(), [CASE], stored(isa_class="sve_512"))
    assert session.data.stored_op_count_changes == {}
    assert not any(note.code == "ops.compared_with_machine" for note in session.notes)


def test_an_op_that_left_onednn_is_told_in_the_attribution(session):
    explain(session, FakeStarter(logs={CANDIDATE: WITHOUT_MATMUL}), (), [CASE])
    deltas = json.loads((session.folder.path / "ops-1.json").read_text(encoding="utf-8"))["deltas"]
    left = {delta["key"]["op"] for delta in deltas if delta["detail"].endswith("→ no library")}
    assert left == {"aten::addmm", "aten::mm"}
    changes = session.data.attributions[CASE.id].op_count_changes
    assert left_onednn(changes)


def test_advice_is_given_on_what_only_the_candidate_does(session):
    cap = {"ONEDNN_MAX_CPU_ISA": "SSE41"}
    explain(session, FakeStarter(environments={CANDIDATE: cap}), (), [CASE])
    assert [finding.id for finding in session.data.findings[CASE.id]] == ["capped-isa"]


@pytest.mark.parametrize("arms", [(BASELINE,), (BASELINE, CANDIDATE)])
def test_no_advice_is_given_on_what_the_baseline_does(session, arms):
    cap = {"ONEDNN_MAX_CPU_ISA": "SSE41"}
    explain(session, FakeStarter(environments=dict.fromkeys(arms, cap)), (), [CASE])
    assert CASE.id in session.data.attributions
    assert session.data.findings == {}
