"""The coordinator of heterogeneous training, whatever its workers do: they answer in any order, late, or never."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perfguard.hetero.coordinator import Coordinator
from perfguard.hetero.happenings import EpochEnded
from perfguard.hetero.messages import ExecuteWork, Report, ScheduleWork, Stop, Task, WorkerLost
from perfguard.hetero.plan import Goal, Member, Patience, TrainingPlan
from perfguard.hetero.policies import AdaptiveBatches, AdditiveBatches, BatchLimits, FixedBatches
from perfguard.records.training import Ending, Tail

LIMITS = {"cpu": BatchLimits(initial=2, minimum=1, maximum=8), "gpu": BatchLimits(initial=16, minimum=4, maximum=32)}
PATIENCE_S = 10.0
POLICIES = (FixedBatches, AdaptiveBatches, lambda limits: AdditiveBatches(limits, step=2, period=5))


class Coordinated(RuleBasedStateMachine):
    """Workers that do what they like, and a count of everything that was handed out and answered."""

    @initialize(
        examples=st.integers(4, 60),
        cpus=st.integers(1, 3),
        epochs=st.integers(1, 3),
        policy=st.sampled_from(POLICIES),
        mortals=st.integers(0, 4),
    )
    def begin(self, examples, cpus, epochs, policy, mortals):
        self.mortals = mortals  # Workers that may be lost
        names = [*(f"cpu-{number}" for number in range(cpus)), "gpu-0"]
        plan = TrainingPlan(
            examples=examples,
            members=[Member(name=name, group=name[:3]) for name in names],
            limits=LIMITS,
            loss_batch=10,
            goal=Goal(epochs=epochs),
            learning_rate=0.1,
            tail=Tail.SHORT,
            patience=Patience(floor_s=PATIENCE_S, factor=0.0),
        )
        self.coordinator, self.now_s = Coordinator(plan, policy(LIMITS)), 0.0
        self.held, self.since_s, self.lost = {}, {}, set()
        self.answered, self.updates, self.epochs = Counter(), Counter(), []
        for name in names:
            self.apply(self.coordinator.receive(ScheduleWork(worker=name), self.now_s))

    def apply(self, reaction):
        for worker, order in reaction.orders:
            assert worker not in self.lost
            if isinstance(order, Stop):
                continue
            assert worker not in self.held  # one range at a time
            self.held[worker], self.since_s[worker] = order, self.now_s
            if isinstance(order, ExecuteWork):
                group = LIMITS[worker[:3]]
                assert order.range.size <= group.maximum
        for happening in reaction.happenings:
            if isinstance(happening, EpochEnded):
                self.epochs.append(happening)
                counted = {Task.LOSS: len(self.epochs), Task.TRAIN: len(self.epochs) - 1}
                for task, times in counted.items():
                    numbers = {key[1]: count for key, count in self.answered.items() if key[0] is task}
                    assert numbers == (dict.fromkeys(range(self.coordinator.plan.examples), times) if times else {})

    def answer(self, worker):
        order = self.held.pop(worker)
        part, is_late = order.range, self.now_s - self.since_s[worker] > PATIENCE_S
        updates = int(part.task is Task.TRAIN)
        self.updates[worker[:3]] += updates if self.coordinator.ending is None else 0
        if not is_late and self.coordinator.ending is None:
            self.answered.update((part.task, number) for number in range(part.start, part.stop))
        report = Report(worker=worker, ticket=part.ticket, loss=float(part.size), updates=updates)
        self.apply(self.coordinator.receive(report, self.now_s))

    @property
    def is_running(self):
        return self.coordinator.ending is None

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def one_answers(self, data):
        self.apply(self.coordinator.tick(self.now_s))
        if self.held:
            self.answer(data.draw(st.sampled_from(sorted(self.held))))

    @precondition(lambda self: self.is_running and len(self.lost) < min(self.mortals, len(self.coordinator.counters)))
    @rule(data=st.data())
    def one_is_lost(self, data):
        worker = data.draw(st.sampled_from(sorted(set(self.coordinator.counters) - self.lost)))
        self.lost.add(worker)
        self.held.pop(worker, None)
        self.apply(self.coordinator.receive(WorkerLost(worker=worker, reason="killed"), self.now_s))

    @rule(seconds=st.sampled_from([0.5, 11.0]))
    def time_goes_by(self, seconds):
        self.now_s += seconds
        self.apply(self.coordinator.tick(self.now_s))

    @invariant()
    def somebody_works_until_the_end(self):
        if self.is_running:
            assert self.held

    @invariant()
    def counters_are_conserved(self):
        counters = self.coordinator.counters
        assert sum(each.updates for each in counters.values()) == sum(self.coordinator.updates.values())
        assert self.coordinator.updates == {group: self.updates[group] for group in LIMITS}

    def teardown(self):
        """Whoever is left answers, and that ends the run."""
        if not hasattr(self, "coordinator"):
            return
        for _ in range(10_000):
            if not self.is_running:
                break
            self.apply(self.coordinator.tick(self.now_s))
            self.answer(min(self.held, key=lambda worker: self.held[worker].range.ticket))
        assert self.coordinator.ending in (Ending.EPOCHS, Ending.NO_WORKERS)
        if self.coordinator.ending is Ending.EPOCHS:
            assert len(self.epochs) == self.coordinator.plan.goal.epochs + 1
            assert all(ended.loss == 1.0 for ended in self.epochs)


TestCoordinated = Coordinated.TestCase
TestCoordinated.settings = settings(settings.default, max_examples=100, stateful_step_count=60)
