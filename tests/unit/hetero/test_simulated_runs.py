"""Policies on simulated machines: balance and utilisation follow the paper's orderings."""

from __future__ import annotations

import pytest

from perfguard.hetero.coordinator import Coordinator
from perfguard.hetero.happenings import EpochEnded, RunEnded
from perfguard.hetero.plan import Goal, Member, TrainingPlan
from perfguard.hetero.policies import AdaptiveBatches, BatchLimits, FixedBatches
from perfguard.hetero.simulator import Speed, simulate
from perfguard.records.training import Ending

EXAMPLES = 20_000
SPEEDS = {
    **{f"cpu-{number}": Speed(example_s=1e-3, update_s=1e-4) for number in range(4)},
    "gpu-0": Speed(example_s=2e-6, update_s=4e-3, transfer_s=4e-3),
}
MEMBERS = [Member(name=name, group=name[:3]) for name in SPEEDS]


def limits(*, least_gpu=512, most_cpu=64):
    return {
        "cpu": BatchLimits(initial=1, minimum=1, maximum=most_cpu),
        "gpu": BatchLimits(initial=8192, minimum=least_gpu, maximum=8192),
    }


def run(policy_kind, *, bounds=None, epochs=10):
    bounds = bounds or limits()
    plan = TrainingPlan(
        examples=EXAMPLES, members=MEMBERS, limits=bounds, loss_batch=2000, goal=Goal(epochs=epochs), learning_rate=0.1
    )
    coordinator = Coordinator(plan, policy_kind(bounds))
    return coordinator, simulate(coordinator, SPEEDS)


def cpu_share(coordinator):
    return coordinator.updates["cpu"] / sum(coordinator.updates.values())


def test_a_run_comes_to_its_end_with_all_examples_trained():
    coordinator, happened = run(FixedBatches)
    assert [each.ending for each in happened if isinstance(each, RunEnded)] == [Ending.EPOCHS]
    assert sum(each.trained for each in coordinator.counters.values()) == 10 * EXAMPLES
    assert len([each for each in happened if isinstance(each, EpochEnded)]) == 11


def test_hogbatch_leaves_nearly_all_updates_to_the_cpu_and_adaptive_balances_them():
    hogbatch, adaptive = run(FixedBatches)[0], run(AdaptiveBatches)[0]
    assert cpu_share(hogbatch) > 0.9
    assert abs(cpu_share(adaptive) - 0.5) < abs(cpu_share(hogbatch) - 0.5)


def test_balance_moves_toward_equal_shares_as_the_limits_widen():
    shares = [
        cpu_share(run(AdaptiveBatches, bounds=limits(least_gpu=least, most_cpu=most))[0])
        for least, most in ((4096, 2), (1024, 16), (64, 128))
    ]
    distances = [abs(share - 0.5) for share in shares]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < distances[0]


def test_the_same_run_happens_again():
    assert run(AdaptiveBatches)[1] == run(AdaptiveBatches)[1]


def test_no_worker_is_counted_for_longer_than_the_run_and_the_last_one_for_all_of_it():
    coordinator, happened = run(FixedBatches, epochs=2)
    end_s = happened[-1].at_s
    known_s = [each.busy_s + each.waiting_s + each.transfer_s for each in coordinator.counters.values()]
    assert max(known_s) == pytest.approx(end_s)
    assert min(known_s) > 0.5 * end_s
