"""Configuration: built-in values, the user's file, the project's file, `PERFGUARD_*`, options; later ones win.

The project's file is `perfguard.toml`, else `[tool.perfguard]` in `pyproject.toml`, of the nearest directory upwards
that has one. Files are decoded once, strictly; where each value came from is kept for `perfguard config show`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, field

from perfguard.errors import ConfigError, did_you_mean
from perfguard.records.plan import EnvProfile
from perfguard.records.run import Signal
from perfguard.records.spec import SuiteSpec
from perfguard.records.verdict import NARROW_MARGIN, WIDE_MARGIN
from perfguard.toml_files import read_toml, require_known

_LONGEST_S = 30 * 86400.0
_BUDGET = "positive and at most 2592000 seconds (30 days)"

FAIL_ON_CHOICES = ("regression", "failed", "inconclusive", "missing", "different")
"""What may make a gate's exit code non-zero; all of them do by default. `missing` is a case without a comparable
baseline, `different` one whose arms do not compute the same thing."""


class SuiteConfig(Struct, frozen=True, kw_only=True):
    """A suite of the user's own: `[suites.NAME]`."""

    gating: tuple[str, ...]
    """Case ids, benchmark names, globs or `tag:NAME` that decide the gate."""
    advisory: tuple[str, ...] = ()
    """Likewise, measured and reported only."""
    doc: str = ""
    """One line for `perfguard list`."""
    budget_s: float = 600.0
    """Default budget of a paired gate, seconds."""


class Config(Struct, frozen=True, kw_only=True):
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
    confine: bool | Literal["strict"] = False
    """Measured code runs in a sandbox: bubblewrap's, or without that Landlock's, which holds less; `strict` refuses
    Landlock."""
    confined_reads: tuple[str, ...] = ()
    """Further files and folders that confined code may read; homes, `/tmp`, `/var/tmp` and the repository are
    hidden."""
    confined_network: bool | Literal["setup"] = False
    """Confined code may use the network; `setup`: the set-up command alone, such as `pip install .`."""
    pass_env: tuple[str, ...] = ()
    """Further environment variables that your benchmarks need."""
    cpus: str | None = None
    """CPUs to measure on, as a list such as `2-5,8`; default: one NUMA node without one core, which is left to the
    system."""
    threads: int | None = None
    """How many of these CPUs to use, with one thread each."""
    numa: str | None = None
    """NUMA node to measure on, or `none` to leave memory unbound."""
    wait: bool = False
    """Wait while another perfguard measures on this host, instead of ending."""
    env_profile: EnvProfile = EnvProfile.STABLE
    """`stable` pins allocator and threading; `production` leaves your environment as it is."""
    budget_s: float | None = None
    """Wall-clock budget of the measurement, seconds; default: the suite's."""
    sample_s: float = 0.02
    """Wanted length of a sample, seconds."""
    samples: int = 12
    """Samples of each arm and case in a block, on average: short cases have up to 2.5 times as many, long ones down to
    half."""
    warmups: int = 1
    """Warm-up samples before them."""
    max_blocks: int = 200
    """Upper bound on blocks."""
    seed: int | None = None
    """Seed of everything random; default: drawn for each run and recorded."""
    margin: float | None = None
    """Smallest slowdown worth a flag, as a ratio; default: 0.005, or 0.0025 where the calibration of this machine and
    suite allows it."""
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
    """Revision that `--anchor` compares with, such as `v1.0`; default: the commit of this machine's stored anchor."""
    anchor_margin: float = 0.05
    """Smallest slowdown since the anchor that is worth a flag, as a ratio."""
    fail_on: tuple[str, ...] = FAIL_ON_CHOICES
    """Gate outcomes that give a non-zero exit code."""
    database: str | None = None
    """History of the recorded runs: a PostgreSQL URL, the path of a SQLite file, or `off`; default: a SQLite file in
    your data folder."""
    project: str | None = None
    """Name of the project in the history; default: `owner/name` of git's remote `origin`, else the folder's path."""
    keep_samples_days: int = 90
    """Days for which the history keeps the single samples of a run; its values are kept forever."""
    keys: dict[str, str] = field(default_factory=dict)
    """Other keys for `perfguard tui`, by action: `pause = "p"`; `?` there lists all."""

    @property
    def wide_margin(self) -> float:
        """The margin on a machine whose calibration does not allow a narrow one."""
        return WIDE_MARGIN if self.margin is None else self.margin

    @property
    def narrow_margin(self) -> float:
        """The margin where the calibration allows a narrow one."""
        return NARROW_MARGIN if self.margin is None else self.margin


_OLD_KEYS = {"slices": "samples", "slice_s": "sample_s"}
"""Keys by their older names, which files and variables may still use."""


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """A configuration and where each of its values came from."""

    config: Config
    origins: Mapping[str, str]  # By key; keys that are not here have their built-in value
    project: Path  # Directory of the project's file; without one the repository, else the working directory
    policy: Path | None = None
    """Directory that benchmarks, baselines and the allow-list are read from, where it is not the project: a gate that
    does not trust the working tree reads them as the base revision has them."""

    @property
    def rules(self) -> Path:
        """Where benchmarks, baselines and the allow-list are."""
        return self.policy or self.project


def load_config(start: Path, environment: Mapping[str, str], options: Mapping[str, Any] | None = None) -> LoadedConfig:
    """Read all layers: the project's file from `start` upwards, `PERFGUARD_*`, and options that are not None.

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
        merged |= layer
    origins = {key: origin for key, (_, origin) in merged.items()}
    for key, origin in origins.items():
        require_known([key], Config.__struct_fields__, origin)
    config = _build({key: value for key, (value, _) in merged.items()}, origins)
    return LoadedConfig(config=config, origins=origins, project=project)


def suite_specs(config: Config) -> tuple[SuiteSpec, ...]:
    """The user's suites as the model knows them."""
    return tuple(
        SuiteSpec(name=name, doc=s.doc, gating=s.gating, advisory=s.advisory, budget_s=s.budget_s)
        for name, s in config.suites.items()
    )


def has_settings(start: Path) -> bool:
    """Whether a project's file is in a folder, or above it in its repository."""
    project, layer = _project_layer(start.resolve())
    return bool(layer) or (project / "perfguard.toml").is_file()


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
    for key, kind in get_type_hints(Config).items():
        names = [f"PERFGUARD_{name.upper()}" for name in (key, *(old for old, new in _OLD_KEYS.items() if new == key))]
        name = next((name for name in names if environment.get(name)), None)
        if name is not None and get_origin(kind) is not dict:
            layer[key] = (_from_text(key, kind, environment[name]), name)
    return layer


def _from_text(key: str, kind: Any, text: str) -> Any:
    """A variable's text as TOML would give it; what does not fit stays text, which the strict decoding refuses."""
    if key == "fail_on":
        return outcomes_in(text)
    if get_origin(kind) is tuple:
        return [item.strip() for item in text.split(",") if item.strip()]
    if bool in (kind, *get_args(kind)):
        return {"1": True, "true": True, "0": False, "false": False}.get(text.lower(), text)
    for number in (int, float):
        if number in (kind, *get_args(kind)):
            with contextlib.suppress(ValueError):
                return number(text)
    return text


def outcomes_in(text: str) -> list[str]:
    """The outcomes in a comma-separated list; `never` alone stands for none."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    return [] if items == ["never"] else items


def _layer(table: Any, origin: str) -> dict[str, tuple[Any, str]]:
    if not isinstance(table, dict):
        raise ConfigError(f"{origin} must be a table of settings")
    names = {key: key.replace("-", "_") for key in table}
    return {_OLD_KEYS.get(name, name): (table[key], origin) for key, name in names.items()}


def _build(values: dict[str, Any], origins: Mapping[str, str]) -> Config:
    for key, value in values.items():
        if key == "keys" and isinstance(value, dict):
            for action, text in value.items():
                if not isinstance(text, str):
                    raise ConfigError(
                        f'{origins[key]}: keys.{action}: write one text with commas between several keys, such as "x,s"'
                    )
        # One key at a time, so that the message can name the place the wrong value came from.
        try:
            msgspec.convert({key: value}, Config, strict=True)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{origins[key]}: {key}: {error}") from error
        if key == "suites":
            for suite, table in value.items():
                require_known(table, SuiteConfig.__struct_fields__, f"{origins[key]}: suites.{suite}")
    config = msgspec.convert(values, Config, strict=True)
    _check_ranges(config, origins)
    return config


_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "sample_s": (lambda value: 0.001 <= value <= 60, "between 0.001 and 60 seconds"),
    "samples": (lambda value: 1 <= value <= 1000, "between 1 and 1000"),
    "warmups": (lambda value: 0 <= value <= 1000, "between 0 and 1000"),
    "max_blocks": (lambda value: value >= 1, "at least 1"),
    "rounds": (lambda value: 2 <= value <= 1000, "between 2 and 1000"),
    "spread_s": (lambda value: 0 <= value <= 86400, "between 0 and 86400 seconds"),
    "alpha": (lambda value: 0 < value < 0.5, "between 0 and 0.5"),
    "margin": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "anchor_margin": (lambda value: 0 < value < 1, "between 0 and 1"),
    "anchor": (lambda value: value not in ("", "git:"), "a revision"),
    "equivalence": (lambda value: 0 < value < 1, "between 0 and 1"),
    "stored_equivalence": (lambda value: 0 < value < 1, "between 0 and 1"),
    "max_block_sd": (lambda value: 0 < value < math.inf, "positive and finite"),
    "budget_s": (lambda value: 0 < value <= _LONGEST_S, _BUDGET),
    "threads": (lambda value: value >= 1, "at least 1"),
    "seed": (lambda value: 0 <= value < 2**63, "between 0 and 2**63 - 1"),
    "pass_env": (lambda names: all(name and "=" not in name for name in names), "names of variables, without values"),
}
"""What each value must satisfy, unless it is None, and the words for it."""


def _check_ranges(config: Config, origins: Mapping[str, str]) -> None:
    for key, (is_possible, what) in _RANGES.items():
        value = getattr(config, key)
        if value is not None and not is_possible(value):
            raise ConfigError(f"{origins.get(key, 'built-in')}: {key} = {value!r} must be {what}")
    where = origins.get("suites", "built-in")
    for name, suite in config.suites.items():
        if not 0 < suite.budget_s <= _LONGEST_S:
            raise ConfigError(f"{where}: suites.{name}.budget_s = {suite.budget_s!r} must be {_BUDGET}")
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise ConfigError(
                f"{where}: suite name {name!r} may hold only letters, digits, '_', '.' and '-': it names a folder"
            )
        if not suite.gating and not suite.advisory:
            raise ConfigError(f"{where}: suite {name!r} selects nothing; list cases in gating or advisory")
    for key, noun, choices in (
        ("fail_on", "outcome", FAIL_ON_CHOICES),
        ("gating_signals", "signal", [signal.value for signal in Signal]),
    ):
        for name in getattr(config, key):
            if name not in choices:
                hint = did_you_mean(name, choices)
                raise ConfigError(
                    f"{origins.get(key, 'built-in')}: {key}: unknown {noun} {name!r}; {hint}choose from "
                    f"{', '.join(choices)}"
                )
