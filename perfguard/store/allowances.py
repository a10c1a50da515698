"""The allow-list: `baselines/allow.toml`, in git, written by `perfguard allow` or by hand.

```toml
schema = 1

[[allow]]
case = "kernel.linear*"
max_ratio = 0.03
until = 2027-01-31
reason = "new padding code, see #12"
```
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec

from perfguard.config import read_toml
from perfguard.errors import ConfigError
from perfguard.records.allowance import ALLOW_SCHEMA, LARGEST_RATIO, LONGEST_DAYS, Allowance, AllowList
from perfguard.store.files import write_text
from perfguard.units import format_ratio, printable

_HEAD = """\
# Slowdowns that are accepted for a while. Written by `perfguard allow`; may be edited by hand.
"""


def allow_file(baselines: Path) -> Path:
    """Where the allow-list lies."""
    return baselines / "allow.toml"


def load_allowances(path: Path, *, today: date) -> tuple[Allowance, ...]:
    """The entries of an allow-list in the order of the file, expired ones too; none where there is no file.

    Args:
        path: The file.
        today: UTC date; no entry may end more than a year after it.

    Raises:
        ConfigError: The file is corrupt, of another schema, or holds something unknown or impossible.
    """
    if not path.exists():
        return ()
    if path.is_fifo():  # reading it would wait for ever
        raise ConfigError(f"{path} cannot be read: it is a pipe, not a file; remove it, or restore it from git")
    table = read_toml(path)
    if table.get("schema") != ALLOW_SCHEMA or isinstance(table.get("schema"), bool):
        raise ConfigError(
            f"{path} has schema {table.get('schema')!r}, this perfguard reads {ALLOW_SCHEMA}; it is no allow-list, or "
            "one of a later perfguard"
        )
    _require_known(table, AllowList, str(path))
    entries = table.get("allow", [])
    for number, entry in enumerate(entries if isinstance(entries, list) else (), start=1):
        if isinstance(entry, dict):
            _require_known(entry, Allowance, f"{path}: entry {number}")
    try:
        found = msgspec.convert(table, AllowList, strict=True)
    except (msgspec.ValidationError, OverflowError) as error:
        raise ConfigError(f"{path} is not valid: {error}") from error
    return tuple(_checked(entry, number, path, today) for number, entry in enumerate(found.allow, start=1))


def save_allowances(path: Path, allowances: Sequence[Allowance]) -> None:
    """Replace the file in one step; entries are sorted, so that a further one adds lines and moves none.

    Raises:
        StoreError: It cannot be written.
    """
    write_text(path, allowances_text(allowances))


def allowances_text(allowances: Sequence[Allowance]) -> str:
    """The file's text."""
    entries = sorted(allowances, key=lambda entry: (entry.case, entry.max_ratio, entry.until))
    return "\n".join([f"{_HEAD}schema = {ALLOW_SCHEMA}\n", *map(_entry_text, entries)])


def one_line(text: str) -> str:
    """Text without control characters and line breaks; runs of space become one."""
    return " ".join(printable(text).split())


def impossible(allowance: Allowance, today: date) -> str | None:
    """What no entry may hold, as the end of a sentence; None where it is fine. An end in the past is fine."""
    if not (math.isfinite(allowance.max_ratio) and 0 < allowance.max_ratio <= LARGEST_RATIO):
        return (
            f"max_ratio = {allowance.max_ratio:g} must be above 0 and at most {LARGEST_RATIO:g}, "
            f"which is {format_ratio(LARGEST_RATIO)}"
        )
    # A day more: the file may have been written where it is tomorrow already.
    if allowance.until > today + timedelta(days=LONGEST_DAYS + 1):
        return f"until = {allowance.until.isoformat()} is more than a year ahead; allow it for a shorter time"
    if not allowance.case:
        return "case must not be empty"
    if not allowance.reason:
        return "reason must say why the slowdown is accepted"
    return None


def _checked(entry: Allowance, number: int, path: Path, today: date) -> Allowance:
    cleaned = dataclasses.replace(entry, case=entry.case.strip(), reason=one_line(entry.reason))
    problem = impossible(cleaned, today)
    if problem is not None:
        raise ConfigError(f"{path}: entry {number} ({printable(cleaned.case)!r}): {problem}")
    return cleaned


def _entry_text(entry: Allowance) -> str:
    lines = (
        "[[allow]]",
        f"case = {_toml_string(entry.case)}",
        f"max_ratio = {entry.max_ratio!r}",
        f"until = {entry.until.isoformat()}",
        f"reason = {_toml_string(entry.reason)}",
    )
    return "\n".join(lines) + "\n"


def _toml_string(text: str) -> str:
    # A JSON string is a TOML basic string, but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _require_known(table: dict[str, Any], kind: type[Any], where: str) -> None:
    names = [spec.name for spec in dataclasses.fields(kind)]
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
            raise ConfigError(f"{where}: unknown key {key!r}; {hint}")
