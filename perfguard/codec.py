"""Between the model's frozen values and JSON, strictly: a wrong type is an error, nothing is coerced.

Unknown fields are passed over, so that files of a later version with more fields can still be read; layouts that do not
fit carry another schema number.
"""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from enum import Enum
from typing import Any, TypeVar

import msgspec

from perfguard.errors import StoreError

T = TypeVar("T")

_learning = threading.Lock()
_learned: set[Any] = set()


def to_builtins(value: Any) -> Any:
    """Dictionaries, lists and scalars; tuples become lists, enums their values, nan and inf become None."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, int, float)):  # nearly all that events hold
        return None if isinstance(value, float) and not math.isfinite(value) else value
    if isinstance(value, dict):
        return {str(to_builtins(key)): to_builtins(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_builtins(item) for item in value]
    if not is_record(type(value)):
        return value
    return {name: to_builtins(getattr(value, name)) for name in field_names(type(value))}


def is_record(kind: Any) -> bool:
    """Whether a type is a struct or a dataclass."""
    return isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind))


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Names of the fields of a struct or a dataclass, in order."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(kind))


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON text with sorted keys."""
    return json.dumps(to_builtins(value), sort_keys=True, indent=indent, ensure_ascii=False)


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """A decoder of JSON that gives values of a type.

    msgspec 0.22 looks at a type when it first meets it, and crashes the process where two threads do that at once.
    """
    with _learning:
        made = msgspec.json.Decoder(kind)
        _learned.add(kind)
    return made


def from_builtins(data: Any, kind: type[T], *, source: str) -> T:
    """Decode plain data into a model type.

    Raises:
        StoreError: It does not fit; the message names the source and the first misfit.
    """
    if kind not in _learned:
        json_decoder(kind)
    try:
        return msgspec.convert(data, kind, strict=True)
    except (msgspec.ValidationError, UnicodeError) as error:  # JSON takes half a surrogate pair for text
        raise StoreError(f"{source} is not valid: {error}") from error
