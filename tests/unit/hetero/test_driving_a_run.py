"""A run with a fake clock and fake workers: what is reported, and when it ends."""

from __future__ import annotations

import pytest
from msgspec import structs

from perfguard.errors import InterruptedRunError
from perfguard.hetero.coordinator import Coordinator, Snapshot
from perfguard.hetero.driving import BusyTime, Drive, Listener, Paces, wait_until_ready
from perfguard.hetero.happenings import EpochEnded
from perfguard.hetero.messages import ExecuteWork, Range, Report, ScheduleWork, Stop, Task, WorkerLost
from perfguard.hetero.plan import Goal, Member, TrainingPlan
from perfguard.hetero.policies import AdaptiveBatches, AdditiveBatches, BatchLimits, FixedBatches
from perfguard.hetero.replay import replay
from perfguard.records.training import Counters, Ending

LIMITS = {"a": BatchLimits(initial=4, minimum=2, maximum=8), "b": BatchLimits(initial=10, minimum=5, maximum=20)}
MEMBERS = [Member(name="a-0", group="a"), Member(name="b-0", group="b")]


class Workers:
    """A transport whose workers answer after as many seconds of a made-up clock as they take for an example."""

    def __init__(self, seconds):
        self.seconds, self.now_s, self.pending, self.orders, self.lost = seconds, 0.0, [], [], []

    def clock(self):
        return self.now_s

    def send(self, worker, order):
        self.orders.append((worker, order))
        if not isinstance(order, Stop):
            self.pending.append((self.now_s + self.seconds[worker] * order.range.size, worker, order))

    def receive(self, timeout_s):
        self.pending.sort(key=lambda each: each[0])
        if not self.pending or self.pending[0][0] > self.now_s + timeout_s:
            self.now_s += timeout_s
            return []
        self.now_s, worker, order = self.pending.pop(0)
        took_s = self.seconds[worker] * order.range.size
        updates = order.updates if isinstance(order, ExecuteWork) else 0
        ticket = order.range.ticket
        return [Report(worker=worker, ticket=ticket, loss=order.range.size * 0.5, updates=updates, busy_s=took_s)]


def drive(*, goal, policy=FixedBatches, wants_stop=lambda: False, start=None, seconds=None):
    workers = Workers(seconds or {"a-0": 0.1, "b-0": 0.02})
    plan = TrainingPlan(examples=60, members=MEMBERS, limits=LIMITS, loss_batch=30, goal=goal, learning_rate=1.0)
    coordinator = Coordinator(plan, policy(LIMITS), start=start)
    happened, used = [], []
    listener = Listener(
        happened=happened.append, used=lambda at_s, groups: used.append((at_s, groups)), wants_stop=wants_stop
    )
    run = Drive(coordinator, workers, workers.clock, listener)
    ending = run.run([ScheduleWork(worker=member.name) for member in MEMBERS])
    return run, workers, happened, used, ending


def test_a_run_ends_with_its_epochs_and_tells_of_each():
    run, workers, happened, _, ending = drive(goal=Goal(epochs=3))
    assert ending is Ending.EPOCHS
    assert [each.epoch for each in happened if isinstance(each, EpochEnded)] == [0, 1, 2, 3]
    assert [order for _, order in workers.orders[-2:]] == [Stop(), Stop()]
    assert sum(each.trained for each in run.coordinator.counters.values()) == 180


def test_seconds_of_training_leave_out_the_losses():
    _, _, happened, _, _ = drive(goal=Goal(epochs=3))
    last = [each for each in happened if isinstance(each, EpochEnded)][-1]
    epochs = [each for each in happened if isinstance(each, EpochEnded)]
    assert last.trained_s == pytest.approx(sum(each.train_s for each in epochs))
    assert last.at_s == pytest.approx(last.trained_s + sum(each.loss_s for each in epochs))


def test_what_groups_do_is_told_once_a_second_and_at_the_end_of_epochs():
    _, _, happened, used, _ = drive(goal=Goal(epochs=3))
    ends = {each.at_s for each in happened if isinstance(each, EpochEnded)}
    assert ends <= {at_s for at_s, _ in used}
    assert all(0 <= group.busy_ratio <= 1 for _, groups in used for group in groups.values())
    assert used[-1][1]["a"].examples + used[-1][1]["b"].examples == 180
    assert used[-1][1]["b"].batch == 10


def test_a_wish_to_end_is_followed():
    asked = iter([False, False, True])
    assert drive(goal=Goal(epochs=1000), wants_stop=lambda: next(asked, True))[-1] is Ending.ASKED


def test_changes_of_batches_are_kept():
    run, *_ = drive(goal=Goal(epochs=10), policy=AdaptiveBatches, seconds={"a-0": 0.1, "b-0": 0.001})
    changes = [(group, batch) for _, group, batch in run.schedule]
    assert {("a", 4), ("b", 10)} == set(changes[:2])
    assert {("a", 2), ("b", 20)} <= set(changes)


@pytest.mark.parametrize("policy", [FixedBatches, AdaptiveBatches, AdditiveBatches])
def test_a_run_goes_on_from_a_snapshot_with_its_counters(policy):
    first, _, happened, _, _ = drive(goal=Goal(epochs=2), policy=policy)
    snapshot = first.coordinator.snapshot(happened[-2].at_s)
    second, _, happened, _, ending = drive(goal=Goal(epochs=5), policy=policy, start=snapshot)
    assert ending is Ending.EPOCHS
    assert [each.epoch for each in happened if isinstance(each, EpochEnded)] == [3, 4, 5]
    assert sum(each.trained for each in second.coordinator.counters.values()) == 300
    for name, count in snapshot.counters.items():
        assert second.coordinator.counters[name].updates > count.updates
    if policy is not FixedBatches:
        assert {group: LIMITS[group].clamp(batch) for group, batch in snapshot.batches.items()} == snapshot.batches


def test_a_snapshot_of_other_workers_gives_what_fits():
    start = Snapshot(
        epoch=4, at_s=9.0, trained_s=8.0, updates={"a": 7, "z": 1}, batches={"a": 99, "z": 1},
        counters={"a-0": Counters(updates=7), "z-0": Counters(updates=1)},
    )  # fmt: skip
    run, *_ = drive(goal=Goal(epochs=5), policy=AdaptiveBatches, start=start)
    assert set(run.coordinator.counters) == {"a-0", "b-0"}
    assert run.coordinator.updates["a"] > 7


def test_silent_workers_are_lost_before_training_begins():
    class Silent(Workers):
        def receive(self, timeout_s):
            self.now_s += timeout_s / 2 + 0.1
            return [ScheduleWork(worker="a-0")] if self.now_s < 6 else []

    transport = Silent({})
    heard = wait_until_ready(transport, ["a-0", "b-0"], timeout_s=10, clock=transport.clock)
    assert heard == [ScheduleWork(worker="a-0"), WorkerLost(worker="b-0", reason="was not ready after 10 s")]


def test_who_asks_for_it_ends_the_start_of_workers():
    transport = Workers({})
    with pytest.raises(InterruptedRunError, match="nothing was trained"):
        wait_until_ready(transport, ["a-0"], timeout_s=10, clock=transport.clock, wants_stop=lambda: True)


def test_busy_time_is_spread_over_the_bins_that_it_lies_in():
    busy = BusyTime(workers={"a": 1, "b": 2}, bin_s=1.0)
    busy.add("a", 0.5, 2.25)
    busy.add("b", 0.0, 1.0)
    found = busy.utilisation(3.0)
    assert found.groups["a"] == pytest.approx((0.5, 1.0, 0.25))
    assert found.groups["b"] == pytest.approx((0.5, 0.0, 0.0))


def test_bins_get_longer_as_a_run_does_and_keep_what_they_held():
    busy = BusyTime(workers={"a": 1}, bin_s=0.25)
    for second in range(1000):
        busy.add("a", second, second + 0.5)
    found = busy.utilisation(1000.0)
    assert len(found.groups["a"]) <= 240
    assert sum(found.groups["a"]) * found.bin_s == pytest.approx(500.0)


def test_paces_are_the_seconds_that_workers_take():
    class Paced(Workers):
        def receive(self, timeout_s):
            reports = super().receive(timeout_s)
            return [structs.replace(each, busy_s=each.busy_s * 0.9, transfer_s=each.busy_s * 0.1) for each in reports]

    workers = Paced({"a-0": 0.1, "b-0": 0.02})
    plan = TrainingPlan(
        examples=600, members=MEMBERS, limits=LIMITS, loss_batch=30, goal=Goal(epochs=3), learning_rate=1.0
    )
    coordinator = Coordinator(plan, AdaptiveBatches(LIMITS))
    listener = Listener(happened=lambda _: None, used=lambda *_: None)
    run = Drive(coordinator, workers, workers.clock, listener)
    run.run([ScheduleWork(worker=member.name) for member in MEMBERS])
    paces = run.paces.paces()
    assert paces["a"].example_s == pytest.approx(0.09, rel=1e-6)
    assert paces["b"].example_s == pytest.approx(0.018, rel=1e-6)
    assert paces["a"].update_s == pytest.approx(0.0, abs=1e-9)
    assert paces["a"].loss_example_s == pytest.approx(0.09)
    assert paces["a"].latency_s == pytest.approx(0.0, abs=1e-9)


def test_seconds_of_updates_and_of_examples_are_told_apart_where_batches_differ():
    paces = Paces()
    for size, updates in ((10, 1), (20, 4), (40, 2), (80, 8)):
        part = Range(ticket=1, task=Task.TRAIN, start=0, stop=size)
        report = Report(worker="a-0", ticket=1, loss=0.0, updates=updates, busy_s=0.5 * updates + 0.01 * size)
        paces.add("a", part, report, report.busy_s + 0.25)
    found = paces.paces()["a"]
    assert (found.update_s, found.example_s) == (pytest.approx(0.5), pytest.approx(0.01))
    assert found.latency_s == pytest.approx(0.25)
    alike = Paces()
    part = Range(ticket=1, task=Task.TRAIN, start=0, stop=20)
    alike.add("a", part, Report(worker="a-0", ticket=1, loss=0.0, updates=2, busy_s=1.0), 1.0)
    assert (alike.paces()["a"].update_s, alike.paces()["a"].example_s) == (0.0, pytest.approx(0.05))


def test_what_a_run_heard_gives_the_same_run_again():
    def made():
        plan = TrainingPlan(
            examples=60, members=MEMBERS, limits=LIMITS, loss_batch=30, goal=Goal(epochs=3), learning_rate=1.0
        )
        return Coordinator(plan, AdaptiveBatches(LIMITS))

    workers, happened, heard = Workers({"a-0": 0.1, "b-0": 0.02}), [], []
    listener = Listener(happened=happened.append, used=lambda *_: None)
    Drive(made(), workers, workers.clock, listener, record=heard).run(
        [ScheduleWork(worker=each.name) for each in MEMBERS]
    )
    again = replay(made(), heard)
    assert [each for reaction in again for each in reaction.happenings] == happened
    assert [order for reaction in again for order in reaction.orders] == workers.orders
