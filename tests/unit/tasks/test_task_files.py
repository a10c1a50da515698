"""Task files: what they may hold, and what is said of those that cannot be used."""

from __future__ import annotations

import pytest

from perfguard.errors import ConfigError, UsageError
from perfguard.records.tasks import DataPart, Metric, QualityKind, Scenario, Size
from perfguard.tasks.task_files import (
    builtin_names,
    duration_of,
    load_task,
    parse_task,
    with_random_weights,
    with_target,
)
from tests.task_records import OWN


@pytest.mark.parametrize("name", builtin_names())
def test_packaged_tasks_are_named_as_their_files(name):
    assert load_task(name).name == name


def test_a_task_of_ones_own_has_defaults():
    task = parse_task(OWN, "own.toml")
    assert (task.quality.metric, task.quality.kind) == (Metric.TOP1, QualityKind.LABELLED)
    assert task.quality.least == pytest.approx(0.45)
    assert task.scenarios == (Scenario.SINGLE_STREAM,)
    assert task.data.parts == {DataPart.FULL: 100}


def test_durations_are_those_of_mlperf_mobile_unless_the_task_has_its_own():
    task = parse_task(OWN + "[durations.rapid]\nmin_queries = 100\nmin_s = 1.0\nmax_s = 2.0\n", "own.toml")
    normal, rapid = (duration_of(task, Scenario.SINGLE_STREAM, size) for size in (Size.NORMAL, Size.RAPID))
    assert (normal.min_queries, normal.min_s, normal.max_s) == (1024, 60.0, 600.0)
    assert (rapid.min_queries, rapid.min_s, rapid.max_s) == (100, 1.0, 2.0)
    assert duration_of(task, Scenario.OFFLINE, Size.NORMAL).min_queries == 24_576


def test_another_target_is_a_share_of_the_same_reference():
    task = parse_task(OWN, "own.toml")
    assert with_target(task, 1.0).quality.least == pytest.approx(0.9)
    assert with_target(task, None) == task


def test_a_task_without_files_runs_on_random_weights_and_data_at_hand():
    task = with_random_weights(load_task("mobilenet-edgetpu"))
    assert (task.model.weights, task.data.source, task.data.parts[DataPart.FULL]) == ("seeded", "photos:224", 64)
    assert (task.quality.kind, task.quality.least) == (QualityKind.SEEDED_WEIGHTS, 0.98)
    with pytest.raises(UsageError, match="digits needs no files"):
        with_random_weights(load_task("digits"))


@pytest.mark.parametrize(
    ("name", "metric", "least"),
    [
        ("mobilenet-edgetpu", Metric.TOP1, 0.7467),
        ("ssd-mobiledet", Metric.MAP, 0.2708),
        ("deeplab-mobilenetv2", Metric.MIOU, 0.5316),
        ("mobilebert", Metric.F1, 0.8314),
    ],
)
def test_targets_of_mlperf_mobile(name, metric, least):
    task = load_task(name)
    assert (task.quality.metric, task.quality.kind) == (metric, QualityKind.LABELLED)
    assert task.quality.least == pytest.approx(least, abs=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "own"', 'name = "Own task"', "lower-case"),
        ('name = "own"', 'nam = "own"', "nam"),
        ('architecture = "nets:make"', 'arch = "nets:make"', "arch"),
        ("fraction = 0.5", "fraction = 1.5", "fraction = 1.5"),
        ("reference = 0.9", "reference = 90.0", "reference = 90: give what FP32 reaches, above 0 up to 1"),
        ("[data]", '[data]\nsha256 = "abc"', "sha256 = 'abc': give 64 hexadecimal digits"),
        ("fraction = 0.5", "fraction = 0", "fraction = 0"),
        ("reference = 0.9", "reference = -1", "reference = -1"),
        ("full = 100", "full = 0", "full = 0"),
        ("full = 100", "lite = 100", "no 'full'"),
        ('metric = "top-1"', 'metric = "best"', "best"),
        ("[model]", 'scenarios = ["server"]\n[model]', "server_qps"),
        ("[model]", "scenarios = []\n[model]", "scenarios is empty"),
        ("[model]", "training_limit_s = 0\n[model]", "training_limit_s = 0"),
        ("[model]", "[model", "not TOML"),
    ],
)
def test_what_makes_no_sense_is_named(old, new, says):
    with pytest.raises(ConfigError, match=r"own\.toml") as failed:
        parse_task(OWN.replace(old, new), "own.toml")
    assert says in str(failed.value)


def test_an_unknown_task_gets_the_nearest_name():
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        load_task("digit")


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_task(str(tmp_path / "absent.toml"))
