"""Workers as processes: they train one model together, and one that dies or hangs is noticed and made up for."""

from __future__ import annotations

import os
import signal
import time

import pytest

torch = pytest.importorskip("torch")

from perfguard.hetero.child.processes import Processes  # noqa: E402
from perfguard.hetero.child.training import Follower, train  # noqa: E402
from perfguard.hetero.happenings import RangeReturned, WorkerGone  # noqa: E402
from perfguard.hetero.messages import Evaluate, Range, Report, ScheduleWork, Task, WorkerLost  # noqa: E402
from perfguard.hetero.planning import places  # noqa: E402
from perfguard.hetero.settings import parse, with_overrides  # noqa: E402
from perfguard.records.training import Ending, TrainingJob, WorkerPlace  # noqa: E402

SETTINGS = """
learning_rate = 0.1
epochs = 3
patience_s = 2.0
[data]
source = "covtype"
examples = 4000
[model]
width = 32
[groups.cpu]
kind = "hogwild"
batch = 64
updates = 4
workers = 2
[groups.large]
kind = "replica"
batch = 256
"""
CPUS = sorted(os.sched_getaffinity(0))


def echo(place, channel, given):
    """A worker whose answer to an order depends on the first example of its range."""
    channel.send(ScheduleWork(worker=place.name))
    while isinstance(order := channel.receive(), Evaluate):
        if order.range.start == given["dies at"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if order.range.start == given["ends at"]:
            os._exit(7)
        channel.send(Report(worker=place.name, ticket=order.range.ticket, loss=1.0))


def evaluate(ticket, start):
    return Evaluate(range=Range(ticket=ticket, task=Task.LOSS, start=start, stop=start + 1))


def heard(transport, count):
    found, until = [], time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        found += transport.receive(1.0)
    return found


def test_messages_go_both_ways_and_ends_are_noticed():
    workers = [WorkerPlace(name=f"w{number}", group="w", cpus=(CPUS[0],)) for number in range(2)]
    transport = Processes(workers, echo, {"dies at": 5, "ends at": 6})
    try:
        assert {each.worker for each in heard(transport, 2)} == {"w0", "w1"}
        transport.send("w0", evaluate(1, 0))
        assert heard(transport, 1) == [Report(worker="w0", ticket=1, loss=1.0)]
        transport.send("w0", evaluate(2, 5))
        assert heard(transport, 1) == [WorkerLost(worker="w0", reason="its process was ended by SIGKILL")]
        transport.send("w0", evaluate(3, 0))  # to one that is gone: nothing happens
        transport.send("w1", evaluate(4, 6))
        assert heard(transport, 1) == [WorkerLost(worker="w1", reason="its process ended with exit code 7")]
        assert transport.receive(0.01) == []
    finally:
        transport.close()


class Run:
    """A follower that keeps what it was called with, and may do something at the end of an epoch."""

    def __init__(self, tmp_path, *, settings=SETTINGS, at_epoch=lambda _: None, **changes):
        config = with_overrides(parse(settings, "test"), changes, "test")
        self.epochs, self.happened, self.started = [], [], None
        self.at_epoch = at_epoch
        job = TrainingJob(
            config=config,
            workers=places(config, CPUS),
            data_folder=str(tmp_path / "data"),
            checkpoint=str(tmp_path / "checkpoint.pt"),
            resumes=(tmp_path / "checkpoint.pt").exists(),
        )
        follower = Follower(
            started=lambda on: setattr(self, "started", on),
            epoch=self._epoch,
            used=lambda *_: None,
            happened=self.happened.append,
            wants_stop=lambda: False,
        )
        self.outcome = train(job, follower)

    def _epoch(self, epoch):
        self.epochs.append(epoch)
        self.at_epoch(epoch)

    def of(self, kind):
        return [each for each in self.happened if isinstance(each, kind)]


@pytest.mark.two_cpus
def test_processes_that_race_on_one_model_learn(tmp_path):
    run = Run(tmp_path, algorithm="hogbatch", epochs=6)
    assert run.outcome.ending is Ending.EPOCHS
    losses = [epoch.loss for epoch in run.epochs]
    assert losses[-1] < 0.75 * losses[0]
    assert sum(each.trained for each in run.outcome.counters.values()) == 6 * 4000
    assert run.epochs[-1].updates["cpu"] == sum(
        each.updates for name, each in run.outcome.counters.items() if name.startswith("cpu")
    )


def signalled(number, name):
    """At the end of the first epoch, send a signal to the process of a worker."""

    def at_epoch(epoch):
        if epoch.epoch == 1:
            (pid,) = [each.pid for each in torch.multiprocessing.active_children() if each.name == name]
            os.kill(pid, number)

    return at_epoch


@pytest.fixture
def named_workers(monkeypatch):
    """Processes that go by the names of their workers."""
    context = torch.multiprocessing.get_context("spawn")
    made = context.Process

    def process(*, target, args, daemon):
        return made(target=target, args=args, daemon=daemon, name=args[2].name)

    monkeypatch.setattr(type(context), "Process", staticmethod(process))


def test_a_worker_that_is_killed_is_lost_and_the_others_train_all_examples(tmp_path, named_workers):
    run = Run(tmp_path, algorithm="cpu", at_epoch=signalled(signal.SIGKILL, "cpu-1"))
    assert run.outcome.ending is Ending.EPOCHS
    (gone,) = run.of(WorkerGone)
    assert (gone.worker, gone.reason) == ("cpu-1", "its process was ended by SIGKILL")
    trained = sum(each.trained for each in run.outcome.counters.values())
    assert trained == 3 * 4000
    assert len(run.epochs) == 4


def test_a_worker_that_hangs_is_late_and_the_others_train_its_examples(tmp_path, named_workers):
    run = Run(tmp_path, algorithm="cpu", at_epoch=signalled(signal.SIGSTOP, "cpu-0"))
    assert run.outcome.ending is Ending.EPOCHS
    (late,) = run.of(RangeReturned)
    assert (late.worker, late.is_late) == ("cpu-0", True)
    assert [(gone.worker, gone.reason) for gone in run.of(WorkerGone)] == [
        ("cpu-0", "did not stop when it was asked to")
    ]
    assert sum(each.trained for each in run.outcome.counters.values()) == 3 * 4000


def test_a_run_without_workers_left_ends(tmp_path, named_workers):
    run = Run(tmp_path, algorithm="large", at_epoch=signalled(signal.SIGKILL, "large-0"))
    assert run.outcome.ending is Ending.NO_WORKERS
    assert len(run.epochs) == 2


@pytest.mark.long
def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    first = Run(tmp_path, algorithm="cpu", epochs=2)
    second = Run(tmp_path, algorithm="cpu", epochs=4)
    assert second.started.resumed_epoch == 2
    assert [epoch.epoch for epoch in second.epochs] == [3, 4]
    assert second.epochs[0].loss < first.epochs[1].loss
    assert sum(each.trained for each in second.outcome.counters.values()) == 4 * 4000
    assert second.epochs[0].at_s > first.epochs[-1].at_s


def test_a_learning_rate_that_is_too_high_ends_the_run(tmp_path):
    run = Run(tmp_path, algorithm="cpu", learning_rate=1e6)
    assert run.outcome.ending is Ending.DIVERGED


def test_one_example_is_enough(tmp_path):
    one = SETTINGS.replace("examples = 4000", "examples = 1").replace("batch = 64", "batch = 1")
    run = Run(tmp_path, settings=one, algorithm="cpu")
    assert run.outcome.ending is Ending.EPOCHS
    assert sum(each.trained for each in run.outcome.counters.values()) == 3


@pytest.mark.two_cpus
@pytest.mark.parametrize("algorithm", ["pytorch", "ddp"])
def test_a_baseline_trains_the_same_data(tmp_path, algorithm):
    groups = """
[groups.pytorch]
kind = "stream"
batch = 256
updates = 8
[groups.ddp]
kind = "ddp"
batch = 256
updates = 8
threads = 2
"""
    run = Run(tmp_path, settings=SETTINGS + groups, algorithm=algorithm)
    assert run.outcome.ending is Ending.EPOCHS
    assert run.epochs[-1].loss < 0.9 * run.epochs[0].loss
    (counters,) = run.outcome.counters.values()
    assert counters.trained == 3 * 4000
    assert counters.updates == 3 * 125


@pytest.mark.long
def test_ranks_of_ddp_train_like_one_process(tmp_path):
    """Mean gradients of equal parts are the gradient of the whole batch."""
    groups = (
        SETTINGS.replace("examples = 4000", "examples = 2048")
        + """
[groups.pytorch]
kind = "stream"
batch = 256
updates = 4
[groups.ddp]
kind = "ddp"
batch = 256
updates = 4
threads = 2
"""
    )
    losses = [
        [epoch.loss for epoch in Run(tmp_path / name, settings=groups, algorithm=name).epochs]
        for name in ("pytorch", "ddp")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
