"""Which cases a command measures: the built-in catalogue, the user's benchmarks and suites, and a selection."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from perfguard.benchmarks.catalog import BENCHMARKS, SUITES
from perfguard.benchmarks.selection import select, suite_cases
from perfguard.config import LoadedConfig, suite_specs
from perfguard.errors import ConfigError
from perfguard.records.facts import Fact
from perfguard.records.spec import BenchmarkSpec, Case, Catalog
from perfguard.runner.arms.resolve import find_interpreter
from perfguard.runner.suites.discovery import Suites, adopt, clashing, discover


def load_catalog(loaded: LoadedConfig) -> Catalog:
    """Built-in and user benchmarks and suites; a user's suite replaces a built-in one of the same name.

    Raises:
        ConfigError: A user's file cannot be imported, or a benchmark takes a built-in name.
    """
    config = loaded.config
    own, notes = _own_benchmarks(loaded)
    taken = {spec.name for spec in BENCHMARKS}
    for spec in own:
        if spec.name in taken:
            raise ConfigError(f"{spec.target}: the name {spec.name!r} is built in; choose another")
    named = {suite.name: suite for suite in (*SUITES, *suite_specs(config))}
    return Catalog(benchmarks=(*BENCHMARKS, *own), suites=tuple(named.values()), notes=notes)


def _own_benchmarks(loaded: LoadedConfig) -> tuple[tuple[BenchmarkSpec, ...], tuple[Fact, ...]]:
    """Benchmarks that the user's files declare or other tools' suites hold, and what is to be said of them."""
    config = loaded.config
    suites = Suites(asv=config.asv, pytest=config.pytest, timer=config.timer)
    if not config.benchmarks and not suites:
        return (), ()
    interpreter = _interpreter(loaded)
    declared = discover(loaded.rules, config.benchmarks, interpreter, confined=config.confine)
    adopted = adopt(loaded.rules, suites, interpreter, confined=config.confine)
    own = (*declared, *adopted.benchmarks)
    clash = clashing(own)
    if clash is not None:
        raise ConfigError(
            f"two cases are called {clash!r}; name one of them otherwise, or leave one of their files out"
        )
    return own, adopted.notes


def _interpreter(loaded: LoadedConfig) -> str:
    asked = loaded.config.python
    if asked is None:
        return sys.executable
    found = find_interpreter(asked, loaded.project)
    if found is None:
        origin = loaded.origins.get("python", "built-in")
        raise ConfigError(f"{origin}: there is no interpreter {asked!r}; give the path of a python executable")
    return found


def selected_cases(catalog: Catalog, *, suite: str, patterns: Sequence[str]) -> tuple[Case, ...]:
    """The cases of `patterns` where some are given, else of the suite.

    Raises:
        UsageError: Unknown suite.
        NothingSelectedError: A pattern matches nothing.
    """
    return select(catalog, patterns) if patterns else suite_cases(catalog, suite)


def budget_of(catalog: Catalog, loaded: LoadedConfig, suite: str) -> float:
    """Wall-clock budget: the configured one, else the suite's."""
    if loaded.config.budget_s is not None:
        return loaded.config.budget_s
    return next((s.budget_s for s in catalog.suites if s.name == suite), 600.0)
