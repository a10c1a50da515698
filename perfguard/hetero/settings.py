"""From a TOML file or a preset to the settings of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from perfguard.errors import UsageError, did_you_mean
from perfguard.hetero.planning import is_file
from perfguard.hetero.shapes import SHAPES
from perfguard.records.training import DataConfig, Device, GroupConfig, Kind, ModelConfig, TrainingConfig
from perfguard.toml_files import file_text, from_table, parse_toml, require_known

PRESETS = ("covtype", "w8a", "delicious", "real-sim", "digits")
"""Names of the packaged settings: the four shapes of the paper, and a small real set."""


def load_preset(name: str) -> TrainingConfig:
    """Packaged settings.

    Raises:
        UsageError: There are none of this name.
    """
    if name not in PRESETS:
        raise UsageError(f"--preset {name!r} is unknown; {did_you_mean(name, PRESETS)}choose from {', '.join(PRESETS)}")
    text = resources.files("perfguard.hetero").joinpath("presets").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return parse(text, f"preset {name}")


def load_file(path: Path) -> TrainingConfig:
    """The settings in a file; paths in it are relative to it.

    Raises:
        ConfigError: It cannot be read, or holds something else.
    """
    config = parse(file_text(path), str(path))
    source = path.parent / config.data.source
    if not is_file(config.data.source):
        return config
    return replace(config, data=replace(config.data, source=str(source.resolve())))


def parse(text: str, where: str) -> TrainingConfig:
    """Settings in TOML.

    Raises:
        ConfigError: They are not TOML, or a key or value makes no sense.
    """
    table = parse_toml(text, where)
    require_known(table, TrainingConfig.__struct_fields__, where)
    for key, kind in (("data", DataConfig), ("model", ModelConfig)):
        if isinstance(table.get(key), dict):
            require_known(table[key], kind.__struct_fields__, f"{where}: {key}")
    for name, group in _groups_of(table):
        require_known(group, GroupConfig.__struct_fields__, f"{where}: groups.{name}")
        from_table(group, GroupConfig, f"{where}: groups.{name}")  # an error in the whole would not name the group
    return from_table(table, TrainingConfig, where)


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
    return from_table(table, TrainingConfig, where)


def _groups_of(table: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    groups = table.get("groups")
    return [pair for pair in groups.items() if isinstance(pair[1], dict)] if isinstance(groups, dict) else []


def paper_batches(config: TrainingConfig) -> TrainingConfig:
    """The settings with the paper's layers and the authors' batches: one example an update on the CPU, 8,192 on a GPU.

    Raises:
        KeyError: The data is none of the paper's.
    """
    groups = {}
    for name, group in config.groups.items():
        if group.kind is Kind.HOGWILD:
            groups[name] = replace(group, batch=1, minimum=1, maximum=64, updates=1)
        else:
            groups[name] = replace(group, batch=8192, minimum=512, maximum=8192, updates=1)
    model = replace(config.model, layers=SHAPES[config.data.source].paper_layers)
    return replace(config, groups=groups, model=model, epochs=min(config.epochs, 3))


def with_device(config: TrainingConfig, text: str) -> TrainingConfig:
    """The settings with `cpu`, `cuda` or `emulated:30` as the device of all replica groups.

    Raises:
        UsageError: It is none of these.
    """
    name, _, factor = text.partition(":")
    try:
        device, speed = Device(name), float(factor) if factor else 1.0
        if bool(factor) is not (device is Device.EMULATED) or not math.isfinite(speed):
            raise ValueError(text)
    except ValueError:
        raise UsageError(
            f"--device {text!r}: write auto, cpu, cuda, or emulated:30 (30 times as fast as one CPU)"
        ) from None
    groups = {
        key: replace(group, device=device, speed=speed) if group.kind is Kind.REPLICA else group
        for key, group in config.groups.items()
    }
    return replace(config, groups=groups)
