"""Between the model's frozen values and JSON, strictly: a wrong type is an error, nothing is coerced.

Unknown fields are passed over, so that files of a later version with more fields can still be read; layouts that do not
fit carry another schema number.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
from collections.abc import Callable, Hashable
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from perfguard.errors import StoreError
from perfguard.records.calibration import CaseSample
from perfguard.records.events import (
    EVENT_NAMES,
    ControlTimed,
    Event,
    Noted,
    OpsCompared,
    RunFinished,
    RunStarted,
    SampleTimed,
    VerdictReached,
    event_type,
    failure_of_schema_1,
)
from perfguard.records.facts import Fact, Severity, recorded_text
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.plan import FOR_BISECTION, FOR_CALIBRATION
from perfguard.records.record import BaselineInfo
from perfguard.records.result import RunResult
from perfguard.records.run import CaseFailed
from perfguard.records.steps.findings import Finding, finding_of_schema_1
from perfguard.records.steps.ops import Attribution, Culprit, OpCountChange
from perfguard.records.steps.profile import ProfiledCase, ProfileReport
from perfguard.records.verdict import GateResult, SignalFinding, Verdict

T = TypeVar("T")
_NAME_OF_EVENT = {kind: name for name, kind in EVENT_NAMES.items()}


@functools.cache
def _hints_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


OF_NUMBERS = (SampleTimed, ControlTimed)
"""Events that hold no facts; by far the most of a recording."""
_WITH_UNKNOWN = frozenset({"Interval", "Estimate", "OpDelta", "StepBalance", "Culprit"})
"""Types whose numbers may be nan or infinite, which JSON has no number for."""

_RENAMED: dict[tuple[type, str], str] = {
    (Noted, "text"): "fact",
    (VerdictReached, "reason"): "reasons",
    (RunFinished, "reason"): "reasons",
    (Verdict, "reason"): "reasons",
    (GateResult, "reason"): "reasons",
    (RunResult, "reason"): "reasons",
    (SignalFinding, "reason"): "fact",
    (OpCountChange, "sentence"): "fact",
    (Culprit, "sentence"): "fact",
    (RunResult, "census_changes"): "op_count_changes",
    (RunResult, "stored_census_changes"): "stored_op_count_changes",
    (Attribution, "census_changes"): "op_count_changes",
    (ProfiledCase, "census"): "op_counts",
    (CaseSample, "slices"): "samples",
    (CaseSample, "slice_variance"): "sample_variance",
    (BaselineInfo, "slices"): "samples",
    (BaselineInfo, "slice_s"): "sample_s",
}
"""Older names of fields, by type and old name."""

SCHEMAS = ("result", "profile", "events", "fingerprint")
"""What `schema_of` knows."""


def to_builtins(value: Any) -> Any:
    """Dictionaries, lists and scalars; tuples become lists, enums their values, nan and inf become None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_builtins(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(to_builtins(key)): to_builtins(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_builtins(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124 - nan
        return None
    return value


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON text with sorted keys."""
    return json.dumps(to_builtins(value), sort_keys=True, indent=indent, ensure_ascii=False)


def from_builtins(data: Any, kind: type[T], *, source: str) -> T:
    """Decode plain data into a model type.

    Raises:
        StoreError: It does not fit; the message names the source and the first misfit.
    """
    try:
        return msgspec.convert(data, kind, strict=True)
    except (
        msgspec.ValidationError,
        UnicodeError,
    ) as error:  # half a surrogate pair is text to JSON, and to nothing else
        raise StoreError(f"{source} is not valid: {error}") from error


def with_nan(data: Any, kind: Any) -> Any:
    """Plain data of a model type in which null stands as nan where only a number fits.

    `to_builtins` writes nan and inf as null; which of them it was is lost.
    """
    if kind is float:
        return math.nan if data is None else data
    arguments = [argument for argument in get_args(kind) if argument not in (Ellipsis, NoneType)]
    if get_origin(kind) in (Union, UnionType):
        return with_nan(data, arguments[0]) if data is not None and len(arguments) == 1 else data
    if isinstance(data, list) and len(arguments) == 1:
        return [with_nan(item, arguments[0]) for item in data]
    if isinstance(data, dict) and dataclasses.is_dataclass(kind):
        hints = _hints_of(cast("Hashable", kind))
        return {key: with_nan(item, hints.get(key)) for key, item in data.items()}
    if isinstance(data, dict) and len(arguments) == 2:
        return {key: with_nan(item, arguments[1]) for key, item in data.items()}
    return data


def upgraded(data: Any, kind: Any) -> Any:
    """Plain data of an older schema in the shape of `kind`: sentences become facts, renamed fields get their new names.

    What needs no change is returned as it is.
    """
    arguments = [argument for argument in get_args(kind) if argument not in (Ellipsis, NoneType)]
    if get_origin(kind) in (Union, UnionType):
        return upgraded(data, arguments[0]) if data is not None and len(arguments) == 1 else data
    if isinstance(data, str):
        return _upgraded_text(data, kind)
    if isinstance(data, list) and len(arguments) == 1:
        return [upgraded(item, arguments[0]) for item in data]
    if isinstance(data, dict) and isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints_of(cast("Hashable", kind))
        renamed = {_RENAMED.get((kind, key), key): item for key, item in _UPGRADES.get(kind, dict)(data).items()}
        return {key: upgraded(item, hints[key]) if key in hints else item for key, item in renamed.items()}
    if isinstance(data, dict) and len(arguments) == 2:
        return {key: upgraded(item, arguments[1]) for key, item in data.items()}
    return data


def _upgraded_text(text: str, kind: Any) -> Any:
    if kind is Fact:
        return to_builtins(recorded_text(text))
    if get_origin(kind) is tuple and get_args(kind)[0] is Fact:
        return [to_builtins(recorded_text(text))] if text else []
    return text


def _noted(data: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(data.get("text"), str):
        return data
    severity = Severity.NOTABLE if data.get("level") == "warning" else Severity.INFO
    found = dataclasses.replace(recorded_text(data["text"]), severity=severity)
    return {**data, "text": to_builtins(found)}


def _run_started(data: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 had the command line alone, which what the gates did followed from."""
    command = data.get("command")
    if "gate" in data or not isinstance(command, list):
        return data
    gate = {"calibrate": FOR_CALIBRATION, "bisect": FOR_BISECTION}.get(*command[1:2] or [""])
    is_injected = any(str(argument).startswith("--inject") for argument in command)
    return {**data, "is_injected": is_injected, **({"gate": to_builtins(gate)} if gate else {})}


_UPGRADES: dict[type, Callable[[dict[str, Any]], dict[str, Any]]] = {
    Noted: _noted,
    RunStarted: _run_started,
    Finding: finding_of_schema_1,
    CaseFailed: failure_of_schema_1,
}
"""What of schema 1 takes more than a new name, by type."""


def encode_event(event: Event, *, seq: int, t_wall: float, t_mono: float) -> bytes:
    """One line of `events.jsonl`."""
    body = {"event": _NAME_OF_EVENT[type(event)], "seq": seq, "t_mono": t_mono, "t_wall": t_wall}
    body.update(to_builtins(event))
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def decode_event(line: bytes, *, source: str) -> Event:
    """The event in a line of `events.jsonl`.

    Raises:
        StoreError: Not JSON, an unknown event, or fields that do not fit.
    """
    try:
        body = json.loads(line)
    except ValueError as error:
        raise StoreError(f"{source}: not a JSON line: {error}") from error
    except RecursionError:
        raise StoreError(f"{source}: not an event of schema 2 or older: nested too deeply") from None
    name = body.pop("event", None) if isinstance(body, dict) else None
    kind = event_type(name) if isinstance(name, str) else None
    if kind is None:
        raise StoreError(f"{source}: not an event of schema 2 or older: {line[:80]!r}")
    for key in ("seq", "t_mono", "t_wall"):
        body.pop(key, None)
    names = {f.name for f in dataclasses.fields(kind)}
    if kind not in OF_NUMBERS:
        body = upgraded(body, kind)
    known = {key: value for key, value in body.items() if key in names}
    # JSON has no number for what is unknown, and the unknown ends of an op's interval are no reason to refuse a run.
    return from_builtins(with_nan(known, kind) if kind is OpsCompared else known, kind, source=source)


def schema_of(name: str) -> dict[str, Any]:
    """JSON schema of `result`, `profile`, `events` (one line) or `fingerprint`.

    Raises:
        KeyError: Another name.
    """
    titles = {
        "result": (RunResult, "Result of a perfguard command, version 2"),
        "profile": (ProfileReport, "What `perfguard profile` says of cases or a script, version 1"),
        "fingerprint": (Fingerprint, "Fingerprint of a machine and its software stack"),
    }
    if name in titles:
        kind, title = titles[name]
        schema = msgspec.json.schema(kind)
    else:
        kinds = {"events": EVENT_NAMES}[name]
        (variants, components) = msgspec.json.schema_components(list(kinds.values()), ref_template="#/$defs/{name}")
        envelope = {"seq": {"type": "integer"}, "t_mono": {"type": "number"}, "t_wall": {"type": "number"}}
        for event, kind_name in zip(kinds, variants, strict=True):
            definition = components[kind_name["$ref"].rpartition("/")[2]]
            definition["properties"] = {"event": {"const": event}, **envelope, **definition["properties"]}
            definition["required"] = ["event", *envelope, *definition.get("required", [])]
        title = "One line of events.jsonl, version 2"
        schema = {"oneOf": list(variants), "$defs": components}
    for definition in _WITH_UNKNOWN & schema["$defs"].keys():
        _allow_null(schema["$defs"][definition]["properties"])
    plain: dict[str, Any] = _with_plain_descriptions(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **plain}


def _allow_null(properties: dict[str, Any]) -> None:
    """Numbers may also be null: `to_builtins` writes that where one is unknown."""
    for field in properties.values():
        if field.get("type") == "number":
            field["type"] = ["number", "null"]


def _with_plain_descriptions(value: Any) -> Any:
    """Docstrings as text: Python 3.13 takes their indentation away when it compiles, older ones do not."""
    if isinstance(value, dict):
        return {
            key: inspect.cleandoc(item)
            if key == "description" and isinstance(item, str)
            else _with_plain_descriptions(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_with_plain_descriptions(item) for item in value]
    return value
