"""Settings of heterogeneous training: presets, files, options, and where workers run."""

from __future__ import annotations

import pytest

from perfguard.errors import ConfigError, UsageError
from perfguard.hetero.algorithms import ALGORITHMS, limits_of, make_policy, require_algorithm
from perfguard.hetero.planning import places
from perfguard.hetero.policies import AdaptiveBatches, AdditiveBatches, FixedBatches
from perfguard.hetero.settings import PRESETS, load_file, load_preset, parse, with_device, with_overrides
from perfguard.records.training import Device, Kind
from tests.changed_values import replace

SMALL = """
learning_rate = 0.1
[data]
source = "rows.libsvm"
[groups.cpu]
kind = "hogwild"
batch = 4
[groups.large]
kind = "replica"
batch = 64
maximum = 128
"""


@pytest.fixture
def config():
    return parse(SMALL, "small")


def test_every_preset_is_valid_for_every_algorithm():
    for name in PRESETS:
        for algorithm in ALGORITHMS:
            chosen = replace(load_preset(name), algorithm=algorithm)
            assert {each.group for each in places(chosen, (0, 1))}
            make_policy(chosen, {key: limits_of(group) for key, group in chosen.groups.items()})


def test_a_file_is_found_beside_its_settings(tmp_path):
    (tmp_path / "train.toml").write_text(SMALL)
    assert load_file(tmp_path / "train.toml").data.source == str(tmp_path / "rows.libsvm")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("learning_rate", "learnign_rate", "did you mean 'learning_rate'"),
        ("source =", "sauce =", r"data: unknown key 'sauce'"),
        ("maximum", "maximun", r"groups.large: unknown key 'maximun'; did you mean 'maximum'"),
        ("0.1", '"fast"', "learning_rate"),
        ("0.1", "-1", r"learning_rate = -1: give a number above 0"),
        ('"hogwild"', '"hogwind"', "hogwind.*; choose from hogwild, replica, stream, ddp"),
        ("batch = 64", "batch = 0", "batch = 0: give 1 or more"),
        ("batch = 64", "batch = 64\nspeed = 30", "set device = 'emulated' as well"),
        ("batch = 4", 'batch = 4\ndevice = "cuda"', "use kind = 'replica'"),
        ("[groups.cpu]", "[groups.cpu", "is not TOML"),
        ("[groups.cpu]", f"many = 1{'0' * 5000}\n[groups.cpu]", "is not TOML"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_place(old, new, message):
    with pytest.raises(ConfigError, match=message) as refused:
        parse(SMALL.replace(old, new, 1), "small.toml")
    assert str(refused.value).startswith("small.toml")


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent.toml cannot be read: No such file"):
        load_file(tmp_path / "absent.toml")


@pytest.mark.parametrize(("name", "near"), [("covtpe", "covtype"), ("realsim", "real-sim")])
def test_an_unknown_preset_has_a_nearest_one(name, near):
    with pytest.raises(UsageError, match=f"did you mean '{near}'"):
        load_preset(name)


def test_an_unknown_algorithm_has_a_nearest_one():
    with pytest.raises(UsageError, match="did you mean 'adaptive'"):
        require_algorithm("adaptiv")


def test_options_change_settings_and_none_changes_nothing(config):
    changed = with_overrides(config, {"epochs": 3, "data.examples": 10, "seed": None}, "options")
    assert (changed.epochs, changed.data.examples, changed.seed) == (3, 10, config.seed)
    with pytest.raises(ConfigError, match=r"options: .*epochs = 0"):
        with_overrides(config, {"epochs": 0}, "options")


@pytest.mark.parametrize(
    ("text", "device", "speed"),
    [("cpu", Device.CPU, 1.0), ("cuda", Device.CUDA, 1.0), ("emulated:30", Device.EMULATED, 30.0)],
)
def test_a_device_is_of_the_replicas_alone(config, text, device, speed):
    changed = with_device(config, text).groups
    assert (changed["large"].device, changed["large"].speed) == (device, speed)
    assert changed["cpu"] == config.groups["cpu"]


@pytest.mark.parametrize("text", ["gpu", "emulated", "emulated:fast", "emulated:inf", "cuda:1", ""])
def test_an_unknown_device_is_refused(config, text):
    with pytest.raises(UsageError, match="write auto, cpu, cuda, or emulated:30"):
        with_device(config, text)


def names_and_cpus(config, cpus, **changes):
    return [(each.name, each.cpus) for each in places(replace(config, **changes), cpus)]


def test_workers_have_cpus_of_their_own(config):
    assert names_and_cpus(config, (0, 1, 2, 3)) == [
        ("cpu-0", (0,)),
        ("cpu-1", (1,)),
        ("cpu-2", (2,)),
        ("large-0", (3,)),
    ]


def test_an_algorithm_without_replicas_gives_all_cpus_to_the_others(config):
    assert names_and_cpus(config, (4, 6), algorithm="cpu") == [("cpu-0", (4,)), ("cpu-1", (6,))]


def test_too_few_cpus_are_shared(config):
    assert names_and_cpus(config, (3,)) == [("cpu-0", (3,)), ("large-0", (3,))]


def test_an_algorithm_without_its_groups_is_refused(config):
    only = {"large": config.groups["large"]}
    with pytest.raises(UsageError, match="'cpu' needs a group of kind hogwild"):
        places(replace(config, algorithm="cpu", groups=only), (0,))


def test_each_algorithm_has_its_policy(config):
    limits = {name: limits_of(group) for name, group in config.groups.items()}
    made = {name: make_policy(replace(config, algorithm=name, beta=0.5), limits) for name in ALGORITHMS}
    assert {name: type(policy) for name, policy in made.items()} == {
        "pytorch": FixedBatches,
        "ddp": FixedBatches,
        "cpu": FixedBatches,
        "large": FixedBatches,
        "hogbatch": FixedBatches,
        "adaptive": AdaptiveBatches,
        "additive": AdditiveBatches,
    }
    assert (made["adaptive"].discounted, made["adaptive"].beta) == (frozenset({"cpu"}), 0.5)
    assert ALGORITHMS["large"].kinds == {Kind.REPLICA}


class _Point:
    name, value = "mine", "mine:make"

    def __init__(self, make):
        self.make = make

    def load(self):
        return self.make


def test_a_policy_of_an_entry_point_is_used(config, monkeypatch):
    made = FixedBatches(limits={})
    points = [_Point(lambda *_: made)]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: points)
    assert make_policy(replace(config, algorithm="mine"), {}) is made
    points[:] = [_Point(lambda *_: 1 / 0)]
    with pytest.raises(UsageError, match=r"policy 'mine' \(mine:make\) failed: ZeroDivisionError"):
        make_policy(replace(config, algorithm="mine"), {})
