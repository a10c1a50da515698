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

import json
import math
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import msgspec
from msgspec.structs import replace

from perfguard.errors import ConfigError
from perfguard.records.allowance import ALLOW_SCHEMA, LARGEST_RATIO, LONGEST_DAYS, Allowance, AllowList
from perfguard.store.files import write_text
from perfguard.toml_files import read_toml, require_known
from perfguard.units import format_ratio, printable

_HEAD = "# Slowdowns that are accepted for a while. Written by `perfguard allow`; may be edited by hand.\n"


def allow_file(baselines: Path) -> Path:
    """Where the allow-list lies."""
    return baselines / "allow.toml"


def load_allowances(path: Path, *, today: date) -> tuple[Allowance, ...]:
    """The entries of an allow-list in the order of the file, expired ones too; none where there is no file.

    No entry may end more than a year after `today`, a UTC date.

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
    require_known(table, AllowList.__struct_fields__, str(path), cutoff=0.5)
    entries = table.get("allow", [])
    for number, entry in enumerate(entries if isinstance(entries, list) else (), start=1):
        if isinstance(entry, dict):
            require_known(entry, Allowance.__struct_fields__, f"{path}: entry {number}", cutoff=0.5)
    try:
        found = msgspec.convert(table, AllowList, strict=True)
    except (msgspec.ValidationError, OverflowError) as error:
        raise ConfigError(f"{path} is not valid: {error}") from error
    cleaned = tuple(replace(entry, case=entry.case.strip(), reason=one_line(entry.reason)) for entry in found.allow)
    for number, entry in enumerate(cleaned, start=1):
        if problem := impossible(entry, today):
            raise ConfigError(f"{path}: entry {number} ({printable(entry.case)!r}): {problem}")
    return cleaned


def save_allowances(path: Path, allowances: Sequence[Allowance]) -> None:
    """Replace the file in one step, or raise StoreError; sorted entries: a further one adds lines and moves none."""
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


def _entry_text(entry: Allowance) -> str:
    return (
        f"[[allow]]\ncase = {_toml_string(entry.case)}\nmax_ratio = {entry.max_ratio!r}\n"
        f"until = {entry.until.isoformat()}\nreason = {_toml_string(entry.reason)}\n"
    )


def _toml_string(text: str) -> str:
    # A JSON string is a TOML basic string, but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
