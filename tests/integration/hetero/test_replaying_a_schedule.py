"""A recorded schedule gives the same orders again, and, carried out one by one, the same model."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from perfguard.hetero.child.data import open_examples, prepare  # noqa: E402
from perfguard.hetero.child.models import build_model, loss_sum  # noqa: E402
from perfguard.hetero.child.workers import Hogwild, LocalModel, Replica  # noqa: E402
from perfguard.hetero.coordinator import Coordinator  # noqa: E402
from perfguard.hetero.happenings import EpochEnded  # noqa: E402
from perfguard.hetero.messages import ExecuteWork, Report, ScheduleWork, WorkerLost  # noqa: E402
from perfguard.hetero.plan import Goal, Member, TrainingPlan  # noqa: E402
from perfguard.hetero.policies import AdaptiveBatches, BatchLimits  # noqa: E402
from perfguard.hetero.replay import Heard, replay, retrain  # noqa: E402
from perfguard.records.training import DataConfig, Merge, ModelConfig  # noqa: E402

LIMITS = {"cpu": BatchLimits(initial=8, minimum=4, maximum=32), "large": BatchLimits(initial=32, minimum=8, maximum=64)}
MEMBERS = [Member(name="cpu-0", group="cpu"), Member(name="cpu-1", group="cpu"), Member(name="large-0", group="large")]


def coordinator():
    plan = TrainingPlan(
        examples=200, members=MEMBERS, limits=LIMITS, loss_batch=64, goal=Goal(epochs=3), learning_rate=0.1,
        pieces={"cpu": 4},
    )  # fmt: skip
    return Coordinator(plan, AdaptiveBatches(LIMITS))


def recorded():
    """A schedule of workers of different speed, one of which dies; and the orders of its run."""
    known, now_s, held, schedule, orders = coordinator(), 0.0, {}, [], []

    def hear(message):
        schedule.append(Heard(at_s=now_s, message=message))
        reaction = known.tick(now_s) if message is None else known.receive(message, now_s)
        orders.append(reaction)
        for worker, order in reaction.orders:
            if hasattr(order, "range"):
                takes_s = order.range.size * {"cpu-0": 1.0, "cpu-1": 1.3, "large-0": 0.2}[worker]
                held[worker] = (now_s + takes_s, order)

    for member in MEMBERS:
        hear(ScheduleWork(worker=member.name))
    while known.ending is None:
        worker = min(held, key=lambda name: held[name][0])
        now_s, order = held.pop(worker)
        if worker == "cpu-1" and known.epoch == 1:
            hear(WorkerLost(worker=worker, reason="killed"))
            continue
        updates = order.updates if isinstance(order, ExecuteWork) else 0
        hear(Report(worker=worker, ticket=order.range.ticket, loss=1.0, updates=updates))
        hear(None)
    return schedule, orders


def trained_again(schedule, examples, first):
    model, sums = copy.deepcopy(first), loss_sum(examples.shape)
    shared = LocalModel(list(model.parameters()), Merge.DELTA, torch.device("cpu"))
    workers = {
        "cpu": Hogwild(model, examples, sums),
        "large": Replica(shared, copy.deepcopy(model), examples, sums, device=torch.device("cpu")),
    }

    def work(name, order):
        worker = workers[name.partition("-")[0]]
        if isinstance(order, ExecuteWork):
            return worker.train(order.range, order.updates, order.learning_rate).loss
        return worker.evaluate(order.range).loss

    happened = retrain(coordinator(), schedule, work)
    return [each.loss for each in happened if isinstance(each, EpochEnded)], model


def test_a_recording_gives_the_same_orders():
    schedule, orders = recorded()
    assert replay(coordinator(), schedule) == orders


def test_a_recording_trains_the_same_model_each_time(tmp_path):
    schedule, _ = recorded()
    examples = open_examples(prepare(DataConfig(source="covtype", examples=200), tmp_path))
    torch.manual_seed(0)
    first = build_model(ModelConfig(width=16), examples.shape)
    losses, model = trained_again(schedule, examples, first)
    again, other = trained_again(schedule, examples, first)
    assert losses == again
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))
