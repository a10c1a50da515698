"""From a TOML file or a preset to the settings of a run, and to its workers' places on the CPUs."""

from __future__ import annotations

import dataclasses
import difflib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from perfguard.config import require_known
from perfguard.errors import ConfigError, UsageError
from perfguard.hetero.algorithms import kinds_of, limits_of
from perfguard.hetero.coordinator import Goal, Member, Patience, Plan
from perfguard.records.training import DataConfig, Device, GroupConfig, Kind, ModelConfig, TrainingConfig, WorkerPlace

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - Python 3.10 only
    import tomli as tomllib

PRESETS = ("covtype", "w8a", "delicious", "real-sim", "digits")
"""Names of the packaged settings: the four shapes of the paper, and a small real set."""


def load_preset(name: str) -> TrainingConfig:
    """Packaged settings.

    Raises:
        UsageError: There are none of this name.
    """
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"--preset {name!r} is unknown; {hint}choose from {', '.join(PRESETS)}")
    text = resources.files("perfguard.hetero").joinpath("presets").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return parse(text, f"preset {name}")


def load_file(path: Path) -> TrainingConfig:
    """The settings in a file; paths in it are relative to it.

    Raises:
        ConfigError: It cannot be read, or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    config = parse(text, str(path))
    source = path.parent / config.data.source
    if not is_file(config.data.source):
        return config
    return replace(config, data=replace(config.data, source=str(source.resolve())))


def is_file(source: str) -> bool:
    """Whether data comes from a file: its name has a dot or a slash."""
    return not source.startswith("sklearn:") and ("/" in source or "." in source)


def parse(text: str, where: str) -> TrainingConfig:
    """Settings in TOML.

    Raises:
        ConfigError: They are not TOML, or a key or value makes no sense.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}") from error
    require_known(table, TrainingConfig, where)
    for key, kind in (("data", DataConfig), ("model", ModelConfig)):
        if isinstance(table.get(key), dict):
            require_known(table[key], kind, f"{where}: {key}")
    for name, group in _groups_of(table):
        require_known(group, GroupConfig, f"{where}: groups.{name}")
    return _converted(table, where)


def with_overrides(config: TrainingConfig, overrides: Mapping[str, Any], where: str) -> TrainingConfig:
    """The settings with others, such as `{"epochs": 3, "data.examples": 1000}`; a value of None changes nothing."""
    table = msgspec.to_builtins(config)
    for name, value in overrides.items():
        if value is not None:
            *parents, last = name.split(".")
            place = table
            for parent in parents:
                place = place[parent]
            place[last] = value
    return _converted(table, where)


def _groups_of(table: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    groups = table.get("groups")
    return [pair for pair in groups.items() if isinstance(pair[1], dict)] if isinstance(groups, dict) else []


def _converted(table: Mapping[str, Any], where: str) -> TrainingConfig:
    try:
        return msgspec.convert(table, TrainingConfig, strict=True)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{where}: {error}") from error


def places(config: TrainingConfig, cpus: Sequence[int]) -> tuple[WorkerPlace, ...]:
    """The workers of the groups that the algorithm uses, each on CPUs of its own where there are enough.

    Groups with a number of workers choose first, in their order; the others share what is left. Where CPUs are too
    few they are used again from the first one on.

    Raises:
        UsageError: The algorithm uses none of the groups.
    """
    used = {name: group for name, group in config.groups.items() if group.kind in kinds_of(config.algorithm)}
    if not used:
        wanted = " or ".join(sorted(kind.value for kind in kinds_of(config.algorithm)))
        raise UsageError(f"algorithm {config.algorithm!r} needs a group of kind {wanted}; there is none")
    counts = {name: group.workers or (0 if group.kind is Kind.HOGWILD else 1) for name, group in used.items()}
    left = len(cpus) - sum(counts[name] * group.threads for name, group in used.items() if not group.is_remote)
    for name, count in counts.items():
        if not count:
            counts[name] = max(1, left // used[name].threads // sum(not other for other in counts.values()))
            left -= counts[name] * used[name].threads
    found, first = [], 0
    for name, group in used.items():
        if group.is_remote:
            found += [WorkerPlace(name=f"{name}-{number}", group=name, cpus=()) for number in range(counts[name])]
            continue
        for number in range(counts[name]):
            own = {cpus[(first + offset) % len(cpus)] for offset in range(group.threads)}
            found.append(WorkerPlace(name=f"{name}-{number}", group=name, cpus=tuple(sorted(own))))
            first += group.threads
    return tuple(found)


def plan_of(
    config: TrainingConfig, workers: Sequence[WorkerPlace], examples: int, devices: Mapping[str, Device]
) -> Plan:
    """What a coordinator is to do.

    As in the authors' code, a GPU computes the losses alone; without one all workers do.

    Raises:
        UsageError: Batches, data and workers do not fit.
    """
    groups = {name: config.groups[name] for name in dict.fromkeys(place.group for place in workers)}
    has_gpu = Device.CUDA in devices.values()
    return Plan(
        examples=examples,
        members=[
            Member(name=place.name, group=place.group, makes_losses=not has_gpu or devices[place.group] is Device.CUDA)
            for place in workers
        ],
        limits={name: limits_of(group) for name, group in groups.items()},
        loss_batch=config.loss_batch,
        goal=Goal(
            epochs=config.epochs,
            target_loss=config.target_loss,
            time_s=math.inf if config.time_s is None else config.time_s,
        ),
        learning_rate=config.learning_rate,
        reference_batch=config.reference_batch,
        pieces={name: group.updates for name, group in groups.items()},
        tail=config.tail,
        patience=Patience(floor_s=config.patience_s),
    )


def paper_batches(config: TrainingConfig) -> TrainingConfig:
    """The settings with the batches of the authors' code: one example an update on the CPU, up to 8,192 on the GPU."""
    groups = {}
    for name, group in config.groups.items():
        if group.kind is Kind.HOGWILD:
            groups[name] = replace(group, batch=1, minimum=1, maximum=64, updates=1)
        else:
            groups[name] = replace(group, batch=8192, minimum=512, maximum=8192, updates=1)
    return replace(config, groups=groups, model=replace(config.model, layers=6), epochs=min(config.epochs, 3))


def with_device(config: TrainingConfig, text: str) -> TrainingConfig:
    """The settings with `cpu`, `cuda` or `emulated:30` as the device of all replica groups.

    Raises:
        UsageError: It is none of these.
    """
    name, _, factor = text.partition(":")
    try:
        device, speed = Device(name), float(factor) if factor else 1.0
    except ValueError:
        raise UsageError(
            f"--device {text!r}: write auto, cpu, cuda, or emulated:30 (30 times as fast as one CPU)"
        ) from None
    groups = {
        key: dataclasses.replace(group, device=device, speed=speed) if group.kind is Kind.REPLICA else group
        for key, group in config.groups.items()
    }
    return replace(config, groups=groups)
