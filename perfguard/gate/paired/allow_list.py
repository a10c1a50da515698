"""The project's allow-list: read for gates, and changed by `perfguard allow`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfguard.benchmarks.selection import TAG_PREFIX, select
from perfguard.config import LoadedConfig
from perfguard.errors import PerfguardError, UsageError
from perfguard.records.allowance import LONGEST_DAYS, Allowance
from perfguard.records.spec import Case
from perfguard.runner.suites import load_catalog
from perfguard.store.allowances import allow_file, impossible, load_allowances, one_line, save_allowances


class Allowed(Struct, frozen=True, kw_only=True):
    """What `perfguard allow` did."""

    entry: Allowance
    cases: tuple[str, ...]  # Ids of the cases that it names now
    replaced: tuple[Allowance, ...]  # Former entries with the same pattern
    path: Path


def utc_today() -> date:
    """The date in UTC, which decides what has expired."""
    return datetime.now(timezone.utc).date()


def path_of(loaded: LoadedConfig) -> Path:
    """Where the project's allow-list lies."""
    return allow_file(loaded.rules / loaded.config.baselines)


def allowances_of(loaded: LoadedConfig) -> tuple[Allowance, ...]:
    """The project's allow-list, expired entries too.

    Raises:
        ConfigError: The file is corrupt.
    """
    return load_allowances(path_of(loaded), today=utc_today())


def allow(loaded: LoadedConfig, entry: Allowance) -> Allowed:
    """Add an entry; it replaces those with the same pattern.

    Raises:
        NothingSelectedError: The pattern names no case of the catalogue.
        UsageError: The entry is impossible, or ends in the past.
        ConfigError: The file is corrupt.
    """
    today = utc_today()
    entry = replace(entry, case=entry.case.strip(), reason=one_line(entry.reason))
    if entry.has_expired(today):
        raise UsageError(f"--until {entry.until.isoformat()} is in the past (today is {today.isoformat()}, UTC)")
    if entry.until > today + timedelta(days=LONGEST_DAYS):
        raise UsageError(
            f"--until {entry.until.isoformat()} is more than a year ahead; allow it for a shorter time, "
            "or record a new baseline"
        )
    if not entry.reason:
        raise UsageError("--reason must say why the slowdown is accepted")
    problem = impossible(entry, today)
    if problem is not None:
        raise UsageError(problem)
    cases = select(load_catalog(loaded), (entry.case,))
    before = allowances_of(loaded)
    replaced = tuple(other for other in before if other.case == entry.case)
    save_allowances(path_of(loaded), [*(other for other in before if other not in replaced), entry])
    return Allowed(entry=entry, cases=tuple(case.id for case in cases), replaced=replaced, path=path_of(loaded))


def disallow(loaded: LoadedConfig, pattern: str) -> tuple[Allowance, ...]:
    """Remove the entries with this very pattern; gives what was removed.

    Raises:
        UsageError: There is none; names the nearest.
        ConfigError: The file is corrupt.
    """
    before = allowances_of(loaded)
    removed = tuple(entry for entry in before if entry.case == pattern.strip())
    if not removed:
        near = difflib.get_close_matches(pattern, [entry.case for entry in before], n=1, cutoff=0.0)
        hint = f"the nearest is {near[0]!r}" if near else f"{path_of(loaded)} holds none"
        raise UsageError(f"no entry of the allow-list is for {pattern!r}; {hint}")
    save_allowances(path_of(loaded), [entry for entry in before if entry not in removed])
    return removed


def tags_of(cases: Sequence[Case]) -> dict[str, tuple[str, ...]]:
    """Tags by case id."""
    return {case.id: case.tags for case in cases}


def recorded_tags(loaded: LoadedConfig, allowances: Sequence[Allowance]) -> dict[str, tuple[str, ...]]:
    """Tags of the catalogue's cases by id, looked up only where an entry selects by tag; a recording holds none.

    A catalogue that cannot be loaded any more gives no tags: a recorded run can be judged all the same, by the other
    entries.
    """
    if not any(entry.case.startswith(TAG_PREFIX) for entry in allowances):
        return {}
    try:
        return tags_of(select(load_catalog(loaded), ("*",)))
    except PerfguardError:
        return {}
