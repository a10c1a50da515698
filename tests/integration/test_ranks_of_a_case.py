"""A training step in several processes, each on a core of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import psutil
import pytest
import torch

from perfguard.benchmarks import steps
from perfguard.errors import UsageError
from perfguard.records.plan import CasePlan
from perfguard.records.protocol import StepKind
from perfguard.records.ranks import SOCKETS_VARIABLE, Parallel, Ranks
from perfguard.records.run import Arm
from perfguard.runner.process.arm_worker import ArmWorker, CaseRefused
from perfguard.runner.process.launching import START_SCRIPT, build_bundle
from perfguard.runner.process.worker_process import WorkerFailure
from perfguard.worker.cases import MissingTargetError, load_module, seed_everything
from perfguard.worker.ranks import group as ranks_group
from perfguard.worker.ranks.group import RankError, RankGroup
from tests.changed_values import replace
from tests.real_workers import catalogue_case, greeted, measure, starter_in
from tests.tiny_projects import wait_for
from tests.worker_rigs import IMPATIENT, SETTINGS, failures

pytestmark = [
    pytest.mark.two_cpus,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two CPUs"),
]

CPUS = tuple(sorted(os.sched_getaffinity(0))[:2])
SHAPE = {"layers": 1, "hidden": 64, "sequence": 8, "batch": 4, "dtype": "fp32", "mode": "eager"}
CASE = {"id": "step.bert[tiny]", "target": "perfguard.benchmarks.steps:bert", "parameters": SHAPE, "phase": "step"}
SEED, STEPS = 5, 4
TWO = {**SHAPE, "ranks": 2}


@pytest.fixture
def group_of(tmp_path, monkeypatch):
    """Makes groups that this process drives, as a worker would."""
    build_bundle(tmp_path, tree=None)
    monkeypatch.setattr(ranks_group, "_START_SCRIPT", tmp_path / START_SCRIPT)
    monkeypatch.setenv(SOCKETS_VARIABLE, json.dumps([[[cpu] for cpu in CPUS]]))
    groups = []

    def make(ranks, case=CASE):
        groups.append(RankGroup(case, ranks))
        return groups[-1]

    yield make
    for group in groups:
        group.close()


MODULE = """
import torch
from torch import nn

from perfguard.benchmarks.optimizers import optimizer_of
from perfguard.benchmarks.steps import training_step


def examples():
    return torch.randn(6, 5), torch.randn(6, 3)


def network():
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def step_on(model, inputs, targets):
    updater = optimizer_of("adamw", model.parameters(), lr=0.01)
    return training_step(
        model, updater, lambda net: nn.functional.mse_loss(net(inputs), targets), dtype="fp32", mode="eager"
    )


def tiny():
    inputs, targets = examples()
    return step_on(network(), inputs, targets)
"""
TINY = {"id": "tiny", "target": "tiny_step.py:tiny", "parameters": {}, "phase": "step"}


@pytest.fixture
def tiny_step(tmp_path, monkeypatch):
    """The module `tiny_step`, in the working directory, where ranks find it, too."""
    (tmp_path / "tiny_step.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield load_module("tiny_step.py")
    del sys.modules["tiny_step"]


def test_ranks_with_an_exchange_train_like_one_process_on_all_their_examples(group_of, tiny_step):
    group = group_of(Ranks(ranks=2), TINY)
    calls = [group.set_up(SEED) for _ in range(2)]
    first, second = ([call() for _ in range(STEPS)] for call in calls)
    batches, models = [], []
    for rank in range(2):
        seed_everything(SEED + rank, TINY["id"])
        batches.append(tiny_step.examples())
        models.append(tiny_step.network())
    step = tiny_step.step_on(models[0], *map(torch.cat, zip(*batches, strict=True)))
    assert first == second == pytest.approx([float(step()) for _ in range(STEPS)], rel=1e-5)
    assert calls[0].check() == pytest.approx({"loss": first[-1], **step.check()}, rel=1e-5)


@pytest.mark.long
def test_plain_ranks_have_seeds_of_their_own_and_rank_0_trains_as_if_it_were_alone(group_of):
    plain = group_of(Ranks(ranks=2, parallel=Parallel.PLAIN)).set_up(SEED)
    seed_everything(SEED, CASE["id"])
    alone = steps.bert(**SHAPE)
    assert [plain() for _ in range(STEPS)] == pytest.approx([float(alone()) for _ in range(STEPS)], rel=1e-5)


def members():
    """The ranks that this process has started, in their order; earlier tests may have left helpers of Python's."""
    children = [
        process for process in psutil.Process().children() if "perfguard.worker.ranks.rank" in process.cmdline()
    ]
    return sorted(children, key=lambda process: process.pid)


def test_each_rank_has_cores_and_threads_of_its_own_and_uses_none_while_it_waits(group_of):
    call = group_of(Ranks(ranks=2)).set_up(SEED)
    call()
    ranks = members()
    assert [tuple(rank.cpu_affinity()) for rank in ranks] == [(cpu,) for cpu in CPUS]
    assert {rank.environ()["OMP_NUM_THREADS"] for rank in ranks} == {"1"}
    listening = [at.laddr.ip for rank in ranks for at in rank.net_connections() if at.status == psutil.CONN_LISTEN]
    assert set(listening) == {"127.0.0.1"}
    used = [sum(rank.cpu_times()[:2]) for rank in ranks]
    time.sleep(1)
    assert all(sum(rank.cpu_times()[:2]) - before < 0.2 for rank, before in zip(ranks, used, strict=True))


def test_a_killed_rank_is_named_and_ends_the_others(group_of):
    call = group_of(Ranks(ranks=2)).set_up(SEED)
    members()[1].kill()
    with pytest.raises(RankError, match="rank 1 was killed by SIGKILL"):
        call()
    assert members() == []
    with pytest.raises(RankError):
        call()


def test_what_a_rank_cannot_do_is_said_of_it(group_of):
    broken = group_of(Ranks(ranks=2), {**CASE, "parameters": {**SHAPE, "mode": "fast"}})
    with pytest.raises(RankError, match=r"rank [01]: UsageError: unknown mode 'fast'"):
        broken.set_up(SEED)
    with pytest.raises(MissingTargetError):
        group_of(Ranks(ranks=2), {**CASE, "target": "perfguard.benchmarks.steps:nothing"})
    assert members() == []


def test_a_benchmark_that_exchanges_nothing_is_no_ddp(group_of):
    kernel = {"id": "kernel", "target": "perfguard.benchmarks.ops:gelu", "phase": "forward"}
    kernel["parameters"] = {"tokens": 8, "dtype": "fp32", "phase": "forward"}
    with pytest.raises(RankError, match="wraps no model"):
        group_of(Ranks(ranks=2), kernel).set_up(SEED)
    assert group_of(Ranks(ranks=2, parallel=Parallel.PLAIN), kernel).set_up(SEED)() != 0


SPARSE = {"batch": 4, "rows": 50}
FROZEN = {"image_size": 96, "classes": 7, "batch": 1, "memory_format": "channels_last"}


@pytest.mark.parametrize(
    ("name", "shape"), [("dlrm", SPARSE), pytest.param("retinanet_resnext50", FROZEN, marks=pytest.mark.long)]
)
def test_steps_with_sparse_gradients_or_frozen_weights_average_them_too(group_of, name, shape):
    target, parameters = f"perfguard.benchmarks.steps:{name}", {**shape, "dtype": "bf16", "mode": "eager"}
    call = group_of(Ranks(ranks=2), {"id": name, "target": target, "parameters": parameters, "phase": "step"}).set_up(1)
    losses = [call() for _ in range(STEPS)]
    assert losses[-1] < losses[0]
    assert call.check()["gradient_norm"] > 0


def test_more_ranks_than_cores_are_refused(group_of):
    with pytest.raises(UsageError, match="3 ranks"):
        group_of(Ranks(ranks=3))


@pytest.mark.long
def test_cases_with_ranks_are_timed_beside_a_case_without(tmp_path):
    once = replace(SETTINGS, max_blocks=1)
    starter = starter_in(tmp_path, once, cpus=CPUS)
    cases = [catalogue_case("step.bert", **parameters) for parameters in (TWO, SHAPE, {**TWO, "parallel": "plain"})]
    finished, events = measure(
        starter, [CasePlan(case=case, inner_loops=1, iteration_s=0.01) for case in cases], [Arm.CANDIDATE]
    )
    assert failures(events) == {}
    assert finished == 1


def is_living(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.long
def test_a_rank_that_hangs_ends_its_case_with_a_reason(tmp_path):
    patient = replace(IMPATIENT, setup_timeout_s=60)  # torch is imported three times
    starter, case = starter_in(tmp_path, patient, cpus=CPUS), catalogue_case("step.bert", **TWO)
    with greeted(starter, ArmWorker, {"import_torch": True}, calibrate=False) as (worker, _):
        worker.prepare(case, seed=1, check=False)
        worker.open(case, inner_loops=1, spin_s=0.0)
        rank_ids = worker.processes()[1:]
        os.kill(rank_ids[1], signal.SIGSTOP)
        with pytest.raises(WorkerFailure) as failure:
            worker.sample(block=0, case_id=case.id)
        assert failure.value.found.code == "case.timed_out"
    assert wait_for(lambda: not any(map(is_living, rank_ids)))


def test_ranks_die_with_their_worker_and_no_profiler_looks_at_them(tmp_path):
    starter, case = starter_in(tmp_path, SETTINGS, cpus=CPUS), catalogue_case("step.bert", **TWO)
    with greeted(starter, ArmWorker, {"import_torch": True, "profile": True}, calibrate=False) as (worker, _):
        worker.prepare(case, seed=1, check=True)
        attested = worker.attest((starter.arms[Arm.CANDIDATE].bundle,), ())
        assert "perfguard.benchmarks.steps" in {module["name"] for module in attested["modules"]}
        with pytest.raises(CaseRefused, match="ranks=1"):
            worker.profile(case, StepKind.BARE)
        worker_id, *rank_ids = worker.processes()
        assert len(rank_ids) == 2
        os.kill(worker_id, signal.SIGKILL)
        assert wait_for(lambda: not any(map(is_living, rank_ids)))
