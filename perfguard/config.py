"""Configuration: built-in values, the user's file, the project's file, `PERFGUARD_*`, options; later ones win.

The project's file is `perfguard.toml`, else `[tool.perfguard]` in `pyproject.toml`, of the nearest directory upwards
that has one. Files are decoded once, strictly; where each value came from is kept for `perfguard config show`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from perfguard.errors import ConfigError
from perfguard.records.plan import EnvProfile
from perfguard.records.run import Signal
from perfguard.records.spec import SuiteSpec

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - Python 3.10 only
    import tomli as tomllib

_LONGEST_S = 30 * 86400.0
_BUDGET = "positive and at most 2592000 seconds (30 days)"

FAIL_ON_CHOICES = ("regression", "failed", "inconclusive", "missing", "different")
"""What may make a gate's exit code non-zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteConfig:
    """A suite of the user's own: `[suites.NAME]`."""

    gating: tuple[str, ...]
    """Case ids, benchmark names, globs or `tag:NAME` that decide the gate."""
    advisory: tuple[str, ...] = ()
    """Likewise, measured and reported only."""
    doc: str = ""
    """One line for `perfguard list`."""
    budget_s: float = 600.0
    """Default budget of a paired gate, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, with the built-in values as defaults."""

    suite: str = "quick"
    """Suite that `run`, `compare` and `gate` measure."""
    benchmarks: tuple[str, ...] = ()
    """Files with your own benchmarks, as globs relative to the project."""
    asv: str | None = None
    """Configuration file of an asv suite whose `time_*` benchmarks become cases, for instance `asv.conf.json`."""
    pytest: tuple[str, ...] = ()
    """Files with tests that use pytest-benchmark's `benchmark` fixture, as globs; the tests become cases."""
    timer: tuple[str, ...] = ()
    """Files with `torch.utils.benchmark.Timer` statements, as globs; the statements become cases."""
    suites: dict[str, SuiteConfig] = field(default_factory=dict)
    """Suites of your own, by name."""
    baselines: str = "baselines"
    """Directory of the stored baselines, relative to the project."""
    python: str | None = None
    """Interpreter of the environment under test; default: perfguard's own."""
    setup: str | None = None
    """Command that installs a git arm's tree into a venv of its own, for instance `pip install .`."""
    confine: bool = False
    """Measured code may change files in throwaway folders of its own only; needs a kernel with Landlock."""
    pass_env: tuple[str, ...] = ()
    """Further environment variables that your benchmarks need."""
    cpus: str | None = None
    """CPUs to measure on, as a list such as `2-5,8`; default: one NUMA node without one core, which is left to the
    system."""
    threads: int | None = None
    """How many of these CPUs to use, with one thread each."""
    numa: str | None = None
    """NUMA node to measure on, or `none` to leave memory unbound."""
    env_profile: EnvProfile = EnvProfile.STABLE
    """`stable` pins allocator and threading; `production` leaves your environment as it is."""
    budget_s: float | None = None
    """Wall-clock budget of the measurement, seconds; default: the suite's."""
    sample_s: float = 0.02
    """Wanted length of a sample, seconds."""
    samples: int = 12
    """Samples of each arm, case and block."""
    warmups: int = 1
    """Warm-up samples before them."""
    max_blocks: int = 60
    """Upper bound on blocks."""
    seed: int | None = None
    """Seed of everything random; default: drawn for each run and recorded."""
    margin: float = 0.005
    """Smallest slowdown worth a flag, as a ratio."""
    alpha: float = 0.008
    """Error rate of the times of one gate, over all its cases."""
    equivalence: float = 0.02
    """`unchanged` needs the whole interval inside plus or minus this ratio."""
    stored_equivalence: float = 0.05
    """The same against a stored baseline, which can exclude only larger changes."""
    max_block_sd: float = 0.05
    """Noisier cases are made advisory, unless an effect is shown in spite of the noise."""
    gating_signals: tuple[str, ...] = ("cpu",)
    """Signals beside wall time that may fail a gate; all are measured and reported."""
    rounds: int = 12
    """Rounds that `baseline update` measures and a gate against a stored baseline repeats."""
    spread_s: float = 120.0
    """Minimum time over which `baseline update` spreads its rounds, seconds."""
    anchor: str | None = None
    """Revision that `--anchor` compares with, as `git:REV`; default: the commit of this machine's stored anchor."""
    anchor_margin: float = 0.05
    """Smallest slowdown since the anchor that is worth a flag, as a ratio."""
    fail_on: tuple[str, ...] = FAIL_ON_CHOICES
    """Gate outcomes that give a non-zero exit code."""
    keys: dict[str, str] = field(default_factory=dict)
    """Other keys for `perfguard tui`, by action: `pause = "p"`; `?` there lists all."""


_OLD_KEYS = {"slices": "samples", "slice_s": "sample_s"}
"""Keys by their older names, which files and variables may still use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration and where each of its values came from."""

    config: Config
    """The values."""
    origins: Mapping[str, str]
    """Key to origin; keys that are not here have their built-in value."""
    project: Path
    """Directory of the project's file; without one the repository, without either the working directory."""
    policy: Path | None = None
    """Directory that benchmarks, baselines and the allow-list are read from, where it is not the project: a gate that
    does not trust the working tree reads them as the base revision has them."""

    @property
    def rules(self) -> Path:
        """Where benchmarks, baselines and the allow-list are."""
        return self.policy or self.project


def load_config(start: Path, environment: Mapping[str, str], options: Mapping[str, Any] | None = None) -> LoadedConfig:
    """Read all layers.

    Args:
        start: Directory from which the project's file is looked for, upwards.
        environment: For `PERFGUARD_*` and `XDG_CONFIG_HOME`.
        options: Values from the command line by key; None stands for not given.

    Raises:
        ConfigError: A file cannot be read or parsed, or a key or value is wrong; with origin and nearest match.
    """
    project, project_layer = _project_layer(start.resolve())
    layers = [
        _user_layer(environment),
        project_layer,
        _environment_layer(environment),
        {key: (value, "command line") for key, value in (options or {}).items() if value is not None},
    ]
    merged: dict[str, tuple[Any, str]] = {}
    for layer in layers:
        merged.update(layer)
    values = {key: _checked(key, value, origin) for key, (value, origin) in merged.items()}
    config = _build(values, {key: origin for key, (_, origin) in merged.items()})
    return LoadedConfig(config=config, origins={key: origin for key, (_, origin) in merged.items()}, project=project)


def suite_specs(config: Config) -> tuple[SuiteSpec, ...]:
    """The user's suites as the model knows them."""
    return tuple(
        SuiteSpec(name=name, doc=s.doc, gating=s.gating, advisory=s.advisory, budget_s=s.budget_s)
        for name, s in config.suites.items()
    )


def _project_layer(start: Path) -> tuple[Path, dict[str, tuple[Any, str]]]:
    """The project's directory and the settings of its file."""
    for directory in (start, *start.parents):
        own = directory / "perfguard.toml"
        if os.path.lexists(own) and not own.is_file():
            raise ConfigError(f"{own} is not a file that can be read; remove it, or put the settings there")
        if own.is_file():
            return directory, _layer(read_toml(own), str(own))
        shared = directory / "pyproject.toml"
        if shared.is_file():
            tools = read_toml(shared).get("tool", {})
            if not isinstance(tools, dict):
                raise ConfigError(f"{shared}: tool must be a table")
            if tools.get("perfguard") is not None:
                return directory, _layer(tools["perfguard"], f"{shared} [tool.perfguard]")
        if (directory / ".git").exists():
            return directory, {}
    return start, {}


def _user_layer(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    home = environment.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    path = Path(home) / "perfguard" / "config.toml"
    return _layer(read_toml(path), str(path)) if path.is_file() else {}


def _environment_layer(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    layer: dict[str, tuple[Any, str]] = {}
    for spec in dataclasses.fields(Config):
        names = [spec.name, *(old for old, new in _OLD_KEYS.items() if new == spec.name)]
        name, text = next(
            ((name, text) for key in names if (text := environment.get(name := f"PERFGUARD_{key.upper()}"))), ("", "")
        )
        if not text or spec.name in ("suites", "keys"):
            continue
        layer[spec.name] = (_from_text(spec.name, text), name)
    return layer


def _from_text(key: str, text: str) -> Any:
    """A variable's text as the key's type would be written in TOML."""
    if key == "fail_on":
        return outcomes_in(text)
    if key in ("benchmarks", "pytest", "timer", "pass_env", "gating_signals"):
        return [item.strip() for item in text.split(",") if item.strip()]
    if key == "confine":
        return {"1": True, "true": True, "0": False, "false": False}.get(text.lower(), text)
    if key in ("threads", "samples", "warmups", "max_blocks", "seed", "rounds"):
        return _number_from(text, int)
    if key in (
        "budget_s",
        "sample_s",
        "margin",
        "alpha",
        "equivalence",
        "stored_equivalence",
        "max_block_sd",
        "spread_s",
        "anchor_margin",
    ):
        return _number_from(text, float)
    return text


def outcomes_in(text: str) -> list[str]:
    """The outcomes in a comma-separated list; `never` alone stands for none."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    return [] if items == ["never"] else items


def _number_from(text: str, kind: type[int | float]) -> Any:
    """The number, or the text as it is, which the strict decoding then refuses by name."""
    try:
        return kind(text)
    except ValueError:
        return text


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file.

    Raises:
        ConfigError: It cannot be read, or is no TOML.
    """
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return table


def _layer(table: Any, origin: str) -> dict[str, tuple[Any, str]]:
    if not isinstance(table, dict):
        raise ConfigError(f"{origin} must be a table of settings")
    names = {key: key.replace("-", "_") for key in table}
    return {_OLD_KEYS.get(name, name): (table[key], origin) for key, name in names.items()}


def _checked(key: str, value: Any, origin: str) -> Any:
    names = [f.name for f in dataclasses.fields(Config)]
    if key not in names:
        near = difflib.get_close_matches(key, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
        raise ConfigError(f"{origin}: unknown key {key!r}; {hint}")
    return value


def _build(values: dict[str, Any], origins: Mapping[str, str]) -> Config:
    for key, value in values.items():
        if key == "keys" and isinstance(value, dict):
            _check_remapped_keys(value, origins[key])
        # One key at a time, so that the message can name the place the wrong value came from.
        try:
            msgspec.convert({key: value}, Config, strict=True)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{origins[key]}: {key}: {error}") from error
        if key == "suites":
            _check_suite_keys(value, origins[key])
    config = msgspec.convert(values, Config, strict=True)
    _check_ranges(config, origins)
    return config


def _check_remapped_keys(keys: Mapping[str, Any], origin: str) -> None:
    for action, text in keys.items():
        if not isinstance(text, str):
            raise ConfigError(
                f'{origin}: keys.{action}: write one text with commas between several keys, such as "x,s"'
            )


def _check_suite_keys(suites: Mapping[str, Mapping[str, Any]], origin: str) -> None:
    names = [f.name for f in dataclasses.fields(SuiteConfig)]
    for suite, table in suites.items():
        for key in table:
            if key not in names:
                near = difflib.get_close_matches(key, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
                raise ConfigError(f"{origin}: suites.{suite}: unknown key {key!r}; {hint}")


def _check_ranges(config: Config, origins: Mapping[str, str]) -> None:
    def require(key: str, condition: bool, what: str) -> None:  # noqa: FBT001 - an assertion with a message
        if not condition:
            value = getattr(config, key)
            raise ConfigError(f"{origins.get(key, 'built-in')}: {key} = {value!r} must be {what}")

    require("sample_s", 0.001 <= config.sample_s <= 60, "between 0.001 and 60 seconds")
    require("samples", 1 <= config.samples <= 1000, "between 1 and 1000")
    require("warmups", 0 <= config.warmups <= 1000, "between 0 and 1000")
    require("max_blocks", config.max_blocks >= 1, "at least 1")
    require("rounds", 2 <= config.rounds <= 1000, "between 2 and 1000")
    require("spread_s", 0 <= config.spread_s <= 86400, "between 0 and 86400 seconds")
    require("alpha", 0 < config.alpha < 0.5, "between 0 and 0.5")
    require("margin", 0 <= config.margin < 1, "at least 0 and below 1")
    require("anchor_margin", 0 < config.anchor_margin < 1, "between 0 and 1")
    is_revision = config.anchor is None or (config.anchor.startswith("git:") and len(config.anchor) > len("git:"))
    require("anchor", is_revision, "a revision, written git:REV")
    require("equivalence", 0 < config.equivalence < 1, "between 0 and 1")
    require("stored_equivalence", 0 < config.stored_equivalence < 1, "between 0 and 1")
    require("max_block_sd", 0 < config.max_block_sd < math.inf, "positive and finite")
    require("budget_s", config.budget_s is None or 0 < config.budget_s <= _LONGEST_S, _BUDGET)
    require("threads", config.threads is None or config.threads >= 1, "at least 1")
    require("seed", config.seed is None or 0 <= config.seed < 2**63, "between 0 and 2**63 - 1")
    require("pass_env", all(name and "=" not in name for name in config.pass_env), "names of variables, without values")
    for name, suite in config.suites.items():
        if not 0 < suite.budget_s <= _LONGEST_S:
            origin = origins.get("suites", "built-in")
            raise ConfigError(f"{origin}: suites.{name}.budget_s = {suite.budget_s!r} must be {_BUDGET}")
    for name, suite in config.suites.items():
        where = origins.get("suites", "built-in")
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise ConfigError(
                f"{where}: suite name {name!r} may hold only letters, digits, '_', '.' and '-': it names a folder"
            )
        if not suite.gating and not suite.advisory:
            raise ConfigError(f"{where}: suite {name!r} selects nothing; list cases in gating or advisory")
    _check_names("fail_on", "outcome", config.fail_on, FAIL_ON_CHOICES, origins)
    _check_names("gating_signals", "signal", config.gating_signals, [signal.value for signal in Signal], origins)


def _check_names(key: str, noun: str, names: Sequence[str], choices: Sequence[str], origins: Mapping[str, str]) -> None:
    for name in names:
        if name not in choices:
            near = difflib.get_close_matches(name, choices, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"{origins.get(key, 'built-in')}: {key}: unknown {noun} {name!r}; {hint}choose from "
                f"{', '.join(choices)}"
            )
