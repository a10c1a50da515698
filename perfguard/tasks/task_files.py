"""From a task file, packaged or the user's, to a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from perfguard.codec import field_names
from perfguard.errors import UsageError, did_you_mean
from perfguard.records.tasks import (
    DataPart,
    DataSource,
    Duration,
    ModelSource,
    QualityKind,
    QualityTarget,
    Scenario,
    Size,
    TaskConfig,
)
from perfguard.toml_files import file_text, from_table, parse_toml, require_known

_STREAM = {
    Size.NORMAL: Duration(min_queries=1024, min_s=60.0, max_s=600.0),
    Size.QUICK: Duration(min_queries=128, min_s=10.0, max_s=60.0),
    Size.RAPID: Duration(min_queries=64, min_s=6.0, max_s=60.0),
}
_OFFLINE = {
    Size.NORMAL: Duration(min_queries=24_576, min_s=0.0, max_s=600.0),
    Size.QUICK: Duration(min_queries=2_457, min_s=0.0, max_s=60.0),
    Size.RAPID: Duration(min_queries=64, min_s=0.0, max_s=60.0),
}
"""MLPerf Mobile's, by run size. Source: the app's run configurations (mlcommons/mobile_app_open)."""
_PAUSES_S = {Size.NORMAL: 30.0, Size.QUICK: 5.0, Size.RAPID: 1.0}
_STAND_INS = {DataPart.FULL: 64, DataPart.LITE: 32, DataPart.TINY: 16}
"""Examples at most of a run with random weights, whose answers say nothing."""


def builtin_names() -> tuple[str, ...]:
    """Names of the packaged tasks."""
    folder = resources.files("perfguard.tasks").joinpath("builtin")
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


def load_task(name: str) -> TaskConfig:
    """A packaged task by name, or one in a file, whose name has a `.` or a `/`.

    Raises:
        UsageError: There is none of this name.
        ConfigError: The file cannot be read, or holds something else.
    """
    if "." in name or "/" in name:
        path = Path(name)
        return parse_task(file_text(path), str(path))
    names = builtin_names()
    if name not in names:
        hint = did_you_mean(name, names)
        raise UsageError(f"task {name!r} is unknown; {hint}choose from {', '.join(names)}, or give a task file")
    text = resources.files("perfguard.tasks").joinpath("builtin").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return parse_task(text, f"task {name}")


def parse_task(text: str, where: str) -> TaskConfig:
    """A task in TOML.

    Raises:
        ConfigError: It is not TOML, or a key or value makes no sense.
    """
    table = parse_toml(text, where)
    require_known(table, field_names(TaskConfig), where)
    for key, kind in (("model", ModelSource), ("data", DataSource), ("quality", QualityTarget)):
        if isinstance(table.get(key), dict):
            require_known(table[key], field_names(kind), f"{where}: {key}")
    for size, duration in _durations(table):
        require_known(duration, field_names(Duration), f"{where}: durations.{size}")
    return from_table(table, TaskConfig, where)


def duration_of(task: TaskConfig, scenario: Scenario, size: Size) -> Duration:
    """How long a scenario is measured."""
    if scenario is Scenario.OFFLINE:
        return _OFFLINE[size]
    return task.durations.get(size, _STREAM[size])


def pause_s(size: Size) -> float:
    """Longest pause between two measurements of speed, seconds; all of it where nothing tells how warm the CPU is."""
    return _PAUSES_S[size]


def with_target(task: TaskConfig, fraction: float | None) -> TaskConfig:
    """The task with another fraction of FP32's quality as its target; None changes nothing."""
    if fraction is None:
        return task
    return replace(task, quality=replace(task.quality, fraction=fraction))


def with_random_weights(task: TaskConfig) -> TaskConfig:
    """The task with seeded weights and examples that are at hand: it measures speed alone.

    Raises:
        UsageError: It has no examples to stand in, as what it needs is at hand.
    """
    if task.data.stand_in is None:
        raise UsageError(f"--seeded: task {task.name} needs no files of yours; leave it out")
    parts = {part: min(count, _STAND_INS[part]) for part, count in task.data.parts.items()}
    return replace(
        task,
        model=replace(task.model, weights="seeded", sha256=None),
        data=replace(task.data, source=task.data.stand_in, parts=parts, sha256=None, stand_in=None),
        quality=replace(task.quality, kind=QualityKind.SEEDED_WEIGHTS, reference=1.0),
    )


def _durations(table: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = table.get("durations")
    return [pair for pair in found.items() if isinstance(pair[1], dict)] if isinstance(found, dict) else []
