"""TOML that people write: tables as typed values, with an error that says where, and the nearest name."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from perfguard.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - Python 3.10 only
    import tomli as tomllib

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file. Raises ConfigError: it cannot be read, or is no TOML."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return table


def file_text(path: Path) -> str:
    """The text of a user's file. Raises ConfigError: it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The table in TOML. Raises ConfigError: it is something else."""
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not TOML: {error}") from error
    return table


def from_table(table: Any, kind: type[T], where: str) -> T:
    """A table as a dataclass, strictly. Raises ConfigError: a value has another type, or makes no sense."""
    try:
        return msgspec.convert(table, kind, strict=True)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{where}: {error}{_choices(str(error), kind)}") from error


_NO_CHOICE = re.compile(r"Invalid enum value .* - at (?:`key` in )?`\$\.(?P<path>[^`]*)`")


def _choices(message: str, kind: type[Any]) -> str:
    """What may be written where msgspec says that a value is none of an enumeration's."""
    if (found := _NO_CHOICE.match(message)) is None:
        return ""
    at: Any = kind
    for name in re.findall(r"\[[^]]*]|[^.[]+", found["path"]):
        inner = [each for each in get_args(at) if each not in (None, type(None), Ellipsis)]
        at = inner[-1] if name.startswith("[") else get_type_hints(inner[0] if inner else at)[name]
    choices = [each for each in (at, *get_args(at)) if isinstance(each, type) and issubclass(each, Enum)]
    return f"; choose from {', '.join(str(each.value) for each in choices[0])}" if choices else ""


def require_known(keys: Iterable[str], names: Sequence[str], where: str, *, cutoff: float = 0.6) -> None:
    """Refuse keys that are none of these names.

    Raises:
        ConfigError: One is none; with `where`, and the nearest match at this cutoff of `difflib`.
    """
    for key in keys:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=cutoff)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(names)}"
            raise ConfigError(f"{where}: unknown key {key!r}; {hint}")
