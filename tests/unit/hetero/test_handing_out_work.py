"""The coordinator as a state machine: messages and times in, orders and happenings out."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from perfguard.errors import UsageError
from perfguard.hetero.coordinator import Coordinator
from perfguard.hetero.happenings import BatchChanged, EpochEnded, RangeReturned, RunEnded, WorkerGone
from perfguard.hetero.messages import Evaluate, ExecuteWork, Report, ScheduleWork, Stop, WorkerLost
from perfguard.hetero.plan import Goal, Member, Patience, TrainingPlan
from perfguard.hetero.policies import AdaptiveBatches, BatchLimits, FixedBatches
from perfguard.records.training import Ending, Tail

LIMITS = {"cpu": BatchLimits(initial=3, minimum=1, maximum=8), "large": BatchLimits(initial=8, minimum=4, maximum=16)}
BOTH = (Member(name="cpu-0", group="cpu"), Member(name="large-0", group="large"))
ONE = (Member(name="cpu-0", group="cpu"),)
ONE_EPOCH = Goal(epochs=1)


class Run:
    """Workers by hand: each order waits until it is answered."""

    def __init__(self, members=BOTH, *, examples=20, goal=ONE_EPOCH, policy=None, **more):
        plan = TrainingPlan(
            examples=examples, members=members, limits=LIMITS, loss_batch=10, goal=goal, learning_rate=0.1, **more
        )
        self.coordinator = Coordinator(plan, policy or FixedBatches(LIMITS))
        self.now_s, self.held, self.handed, self.happenings = 0.0, {}, [], []

    def apply(self, reaction):
        self.happenings += reaction.happenings
        for worker, order in reaction.orders:
            self.held[worker] = order
            if not isinstance(order, Stop):
                self.handed.append((worker, order))
        return self

    def begin(self):
        for member in self.coordinator.plan.members:
            self.apply(self.coordinator.receive(ScheduleWork(worker=member.name), self.now_s))
        return self

    def answer(self, worker, *, loss=1.0, after_s=1.0):
        self.now_s += after_s
        part = self.held.pop(worker).range
        is_training = part.task.value == "train"
        report = Report(
            worker=worker, ticket=part.ticket, loss=loss * part.size, updates=int(is_training), busy_s=after_s
        )
        return self.apply(self.coordinator.receive(report, self.now_s))

    def lose(self, worker):
        return self.apply(self.coordinator.receive(WorkerLost(worker=worker, reason="killed"), self.now_s))

    def tick(self, after_s):
        self.now_s += after_s
        return self.apply(self.coordinator.tick(self.now_s))

    def to_the_end(self, **how):
        while self.coordinator.ending is None:
            self.answer(next(worker for worker, order in self.held.items() if not isinstance(order, Stop)), **how)
        return self

    def of(self, kind):
        return [each for each in self.happenings if isinstance(each, kind)]

    def examples(self, kind):
        return Counter(
            number
            for _, order in self.handed
            if isinstance(order, kind)
            for number in range(order.range.start, order.range.stop)
        )


def test_the_loss_is_known_before_the_first_update_and_after_each_epoch():
    run = Run(goal=Goal(epochs=2)).begin().to_the_end(loss=0.5)
    assert [ended.epoch for ended in run.of(EpochEnded)] == [0, 1, 2]
    assert [ended.loss for ended in run.of(EpochEnded)] == [0.5] * 3
    assert run.of(RunEnded)[0].ending is Ending.EPOCHS
    assert all(isinstance(order, Stop) for order in run.held.values())


def test_every_example_is_handed_out_once_an_epoch_in_each_phase():
    run = Run(goal=Goal(epochs=2)).begin().to_the_end()
    assert run.examples(ExecuteWork) == dict.fromkeys(range(20), 2)
    assert run.examples(Evaluate) == dict.fromkeys(range(20), 3)


def test_ranges_are_as_long_as_the_groups_batch_and_the_last_one_is_what_is_left():
    run = Run(ONE, examples=8).begin().to_the_end()
    trained = [(order.range.start, order.range.stop) for _, order in run.handed if isinstance(order, ExecuteWork)]
    assert trained == [(0, 3), (3, 6), (6, 8)]


def test_the_last_range_may_overlap_instead():
    run = Run(ONE, examples=8, tail=Tail.OVERLAP).begin().to_the_end()
    trained = [(order.range.start, order.range.stop) for _, order in run.handed if isinstance(order, ExecuteWork)]
    assert trained == [(0, 3), (3, 6), (5, 8)]


def test_phases_are_timed_apart():
    run = Run(ONE, examples=6).begin().to_the_end(after_s=2.0)
    before, after = run.of(EpochEnded)
    assert (before.train_s, before.loss_s) == (0.0, 2.0)
    assert (after.train_s, after.loss_s, after.at_s) == (4.0, 2.0, 8.0)


def test_updates_are_counted_by_group_and_worker():
    run = Run().begin().to_the_end()
    (_, ended) = run.of(EpochEnded)
    counters = run.coordinator.counters
    assert ended.updates == {"cpu": counters["cpu-0"].updates, "large": counters["large-0"].updates}
    assert sum(each.trained for each in counters.values()) == 20
    assert sum(each.evaluated for each in counters.values()) == 40


def test_the_learning_rate_follows_the_batch_where_that_is_wanted():
    run = Run(reference_batch=4).begin().to_the_end()
    rates = {order.range.size: order.learning_rate for _, order in run.handed if isinstance(order, ExecuteWork)}
    assert rates[8] == pytest.approx(0.2)
    assert rates[3] == pytest.approx(0.075)


def test_a_target_ends_the_run():
    run = Run(goal=Goal(epochs=100, target_loss=0.7)).begin()
    while run.coordinator.epoch < 3:
        run.answer(next(iter(run.held)), loss=1.0)
    run.to_the_end(loss=0.6)
    assert run.of(RunEnded)[0].ending is Ending.TARGET
    assert run.of(EpochEnded)[-1].epoch == 3


def test_the_time_ends_the_run_at_the_next_tick():
    run = Run(goal=Goal(epochs=100, time_s=5.0)).begin().tick(5.0)
    assert run.of(RunEnded)[0].ending is Ending.TIME
    assert set(run.held.values()) == {Stop()}


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_run(loss):
    run = Run().begin()
    run.answer("cpu-0", loss=loss)
    assert run.of(RunEnded)[0].ending is Ending.DIVERGED


def test_a_lost_workers_range_goes_to_another_one_and_the_run_says_so():
    run = Run().begin().lose("large-0").to_the_end()
    (returned,), (gone,) = run.of(RangeReturned), run.of(WorkerGone)
    assert (returned.worker, returned.reason, returned.is_late) == ("large-0", "killed", False)
    assert (gone.worker, gone.reason) == ("large-0", "killed")
    assert run.of(RunEnded)[0].ending is Ending.EPOCHS
    assert run.coordinator.counters["cpu-0"].trained == 20


def test_a_returned_range_is_cut_to_the_batch_of_who_gets_it():
    run = Run(examples=8)
    run.begin().answer("cpu-0")  # the loss before the first update is one range of each
    while not isinstance(run.held["large-0"], ExecuteWork):
        run.answer(next(iter(run.held)))
    run.lose("large-0").to_the_end()
    sizes = [order.range.size for worker, order in run.handed if isinstance(order, ExecuteWork) and worker == "cpu-0"]
    assert max(sizes) <= 3


def test_a_late_worker_is_not_waited_for_and_works_on_once_it_answers():
    run = Run(patience=Patience(floor_s=10.0), goal=Goal(epochs=3)).begin()
    late = run.held["large-0"]
    run.tick(11.0)
    (returned, *_) = run.of(RangeReturned)
    assert returned.is_late
    while run.coordinator.epoch < 1:
        run.answer("cpu-0", after_s=0.1)
    run.held["large-0"] = late
    run.answer("large-0", after_s=0.1)
    assert "large-0" in run.held
    run.to_the_end(after_s=0.1)
    assert run.of(RunEnded)[0].ending is Ending.EPOCHS
    assert run.of(EpochEnded)[0].loss == 1.0  # the late answer was not added


def test_a_worker_that_always_takes_longer_than_its_patience_is_waited_for_from_its_second_range_on():
    run = Run(members=ONE, patience=Patience(floor_s=1.0)).begin()
    while run.coordinator.ending is None:
        run.tick(1.5)
        run.answer("cpu-0", after_s=0.0)
    assert run.of(RunEnded)[0].ending is Ending.EPOCHS
    assert len(run.of(RangeReturned)) == 2  # the first range of each phase


def test_a_run_whose_last_workers_stay_silent_ends():
    run = Run(patience=Patience(floor_s=1.0)).begin()
    run.tick(1.5)
    assert run.coordinator.ending is None
    run.tick(2.5)
    assert {gone.worker for gone in run.of(WorkerGone)} == {"cpu-0", "large-0"}
    assert run.of(RunEnded)[0].ending is Ending.NO_WORKERS


def test_a_group_without_workers_is_out_of_the_balance():
    policy = AdaptiveBatches(LIMITS)
    run = Run(policy=policy, goal=Goal(epochs=5)).begin()
    while run.coordinator.epoch < 1:
        run.answer(next(iter(run.held)))
    run.lose("large-0")
    batch = policy.batches["cpu"]
    run.to_the_end()
    assert policy.batches["cpu"] == batch


def test_without_workers_the_run_ends():
    run = Run().begin().lose("cpu-0").lose("large-0")
    assert run.of(RunEnded)[0].ending is Ending.NO_WORKERS


def test_without_anybody_to_compute_losses_the_run_ends():
    members = (Member(name="cpu-0", group="cpu", makes_losses=False), Member(name="large-0", group="large"))
    run = Run(members).begin().lose("large-0")
    assert run.of(RunEnded)[0].ending is Ending.NO_WORKERS


def test_answers_to_nothing_that_was_asked_change_nothing():
    run = Run().begin()
    handed = len(run.handed)
    run.apply(run.coordinator.receive(Report(worker="cpu-0", ticket=99, loss=1.0, updates=5), 1.0))
    assert (len(run.handed), run.coordinator.updates) == (handed, {"cpu": 0, "large": 0})


def test_a_message_of_a_stranger_is_an_error():
    with pytest.raises(UsageError, match="'tpu-0'"):
        Run().coordinator.receive(ScheduleWork(worker="tpu-0"), 0.0)


def test_each_change_of_a_batch_is_told():
    run = Run().begin().to_the_end()
    assert {(each.group, each.batch) for each in run.of(BatchChanged)} == {("cpu", 3), ("large", 8)}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"examples": 0}, "no example"),
        ({"examples": 3}, "larger than the data"),
        ({"members": ()}, "batches are needed"),
        ({"members": (Member(name="a", group="other"),)}, "other"),
        ({"members": (Member(name="a", group="cpu", makes_losses=False),)}, "computes losses"),
    ],
)
def test_plans_that_cannot_be_run_are_refused(wrong, said):
    with pytest.raises(UsageError, match=said):
        Run(**wrong)


def test_a_range_is_split_into_updates_of_equal_size_also_where_it_is_the_short_last_one():
    run = Run(members=ONE, examples=8, pieces={"cpu": 3}, reference_batch=1).begin().to_the_end()
    orders = [order for _, order in run.handed if isinstance(order, ExecuteWork)]
    assert [(order.range.size, order.updates) for order in orders] == [(3, 3), (3, 3), (2, 2)]
    assert {order.learning_rate for order in orders} == {0.1}
