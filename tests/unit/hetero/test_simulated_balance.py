"""A configuration by the simulator: what it predicts, for measured speeds and for the paper's computers."""

from __future__ import annotations

import pytest

from perfguard.hetero.computers import COMPUTERS
from perfguard.hetero.planning import places
from perfguard.hetero.settings import load_preset, paper_batches
from perfguard.hetero.shapes import SHAPES, parameters_of
from perfguard.hetero.simulated import live, simulated
from perfguard.hetero.simulator import Speed
from perfguard.records.training import (
    Counters,
    Ending,
    GroupPace,
    ModelConfig,
    TrainingEpoch,
    TrainingOutcome,
    Utilisation,
)
from tests.changed_values import replace

ORDER = ("hogbatch", "adaptive")


def paper(computer, shape, algorithm):
    chosen, size = COMPUTERS[computer], SHAPES[shape]
    config = replace(paper_batches(load_preset(shape)), algorithm=algorithm, epochs=1)
    groups = {
        name: replace(group, workers=chosen.threads if name == "cpu" else group.workers)
        for name, group in config.groups.items()
    }
    config = replace(config, groups=groups)
    speeds = chosen.speeds(parameters_of(config.model, size.features, size.classes))
    return simulated(config, places(config, range(64)), size.examples, speeds, has_gpu=True)


@pytest.mark.parametrize("computer", list(COMPUTERS))
@pytest.mark.parametrize("shape", ["w8a", "delicious"])
def test_the_papers_computers_have_its_orders(computer, shape):
    hogbatch, adaptive = (paper(computer, shape, name) for name in ORDER)
    assert hogbatch.shares["cpu"] > 0.9
    assert adaptive.shares["cpu"] < hogbatch.shares["cpu"]
    assert adaptive.busy["large"] <= hogbatch.busy["large"]


def test_a_faster_device_makes_more_of_the_updates():
    shares = [paper(computer, "w8a", "hogbatch").shares["large"] for computer in ("uc-merced", "aws-p3")]
    assert shares == sorted(shares)
    assert shares[0] < shares[1]


def test_a_balance_follows_from_speeds_by_hand():
    preset = load_preset("covtype")
    groups = {**preset.groups, "large": replace(preset.groups["large"], batch=1024)}
    config = replace(preset, algorithm="hogbatch", epochs=2, loss_batch=512, groups=groups)
    speeds = {"cpu": Speed(example_s=1e-3), "large": Speed(example_s=0.5e-3, loss_example_s=1e-3)}
    found = simulated(config, places(config, (0, 1)), 512 * 30, speeds)
    # Both take 0.512 s for a request: 512 examples in 8 updates, or 1,024 in one.
    assert found.shares["cpu"] == pytest.approx(8 / 9, abs=0.01)
    assert found.epoch_s == pytest.approx(10 * 0.512)
    assert found.batches == {"cpu": 512, "large": 1024}


def test_a_live_run_is_summed_up_in_the_same_way():
    config = replace(load_preset("covtype"), algorithm="hogbatch")
    epoch = TrainingEpoch(
        epoch=2, at_s=10.0, trained_s=8.0, loss_s=1.0, loss=0.5, updates={"cpu": 30, "large": 10},
        batches={"cpu": 512, "large": 1024},
    )  # fmt: skip
    counters = {"cpu-0": Counters(training_s=7.2, busy_s=9.0), "large-0": Counters(training_s=4.0)}
    outcome = TrainingOutcome(
        ending=Ending.TIME, at_s=10.0, counters=counters, utilisation=Utilisation(bin_s=1.0, groups={})
    )
    found = live([epoch], outcome, places(config, (0, 1)))
    assert found is not None
    assert (found.shares, found.epoch_s) == ({"cpu": 0.75, "large": 0.25}, 4.0)
    assert found.busy == {"cpu": 0.9, "large": 0.5}
    assert live([], outcome, places(config, (0, 1))) is None
    cut = live([epoch], replace(outcome, trained_s=16.0), places(config, (0, 1)))
    assert cut is not None
    assert cut.busy == {"cpu": 0.45, "large": 0.25}  # of all the time in which the workers trained


def test_a_speed_is_what_a_run_measured():
    pace = GroupPace(update_s=1.0, example_s=2.0, loss_example_s=3.0, transfer_s=4.0, latency_s=5.0)
    assert Speed.of(pace) == Speed(update_s=1.0, example_s=2.0, loss_example_s=3.0, transfer_s=4.0, latency_s=5.0)


def test_parameters_are_those_of_the_network():
    assert parameters_of(ModelConfig(layers=2, width=512), 54, 7) == 294_407  # as torch counts them
    assert parameters_of(ModelConfig(layers=0), 10, 3) == 33
