"""Recordings as bytes: lines of `events.jsonl`, older schemas in the shape of today's, and the published schemas."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import math
from collections.abc import Callable, Hashable
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from perfguard.codec import field_names, from_builtins, is_record, json_decoder, to_builtins
from perfguard.errors import StoreError
from perfguard.records import events as ev
from perfguard.records.calibration import CaseSample
from perfguard.records.events import EVENT_NAMES, Event, event_type, failure_of_schema_1
from perfguard.records.facts import Fact, Severity, recorded_text
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.plan import FOR_BISECTION, FOR_CALIBRATION
from perfguard.records.record import BaselineInfo
from perfguard.records.result import RunResult
from perfguard.records.run import CaseFailed
from perfguard.records.steps.findings import Finding, finding_of_schema_1
from perfguard.records.steps.ops import Attribution, Culprit, OpCountChange
from perfguard.records.steps.profile import ProfiledCase, ProfileReport
from perfguard.records.tasks import TaskConfig
from perfguard.records.verdict import GateResult, SignalFinding, Verdict

T = TypeVar("T")
_NAME_OF_EVENT = {kind: name for name, kind in EVENT_NAMES.items()}


@functools.cache
def _hints_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


OF_NUMBERS = (ev.SampleTimed, ev.ControlTimed)  # Events that hold no facts; by far the most of a recording
_BEGINNINGS = tuple((f'{{"event":"{_NAME_OF_EVENT[kind]}",'.encode(), kind) for kind in OF_NUMBERS)
"""Of lines as `encode_event` writes them, by type."""
_BEYOND_INTEGERS = 2**64
_WITH_UNKNOWN = frozenset({"Interval", "Estimate", "OpDelta", "StepBalance", "Culprit"})
"""Types whose numbers may be nan or infinite, which JSON has no number for."""

_RENAMED: dict[tuple[type, str], str] = {
    **{(kind, "reason"): "reasons" for kind in (ev.VerdictReached, ev.RunFinished, Verdict, GateResult, RunResult)},
    (ev.Noted, "text"): "fact",
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

_SCHEMAS: dict[str, tuple[Any, str]] = {
    "result": (RunResult, "Result of a perfguard command, version 2"),
    "profile": (ProfileReport, "What `perfguard profile` says of cases or a script, version 1"),
    "events": (Event, "One line of events.jsonl, version 2"),
    "fingerprint": (Fingerprint, "Fingerprint of a machine and its software stack"),
    "task": (TaskConfig, "A task file, in TOML"),
}
SCHEMAS = tuple(_SCHEMAS)  # Names that `schema_of` knows


def with_nan(data: Any, kind: Any) -> Any:
    """Plain data of a model type in which null stands as nan where only a number fits.

    `to_builtins` writes nan and inf as null; which of them it was is lost.
    """
    return _changed(data, kind, lambda part, of: math.nan if part is None and of is float else part)


def upgraded(data: Any, kind: Any) -> Any:
    """Plain data of an older schema in the shape of `kind`: sentences become facts, renamed fields get their new names.

    What needs no change is returned as it is.
    """
    return _changed(data, kind, _upgraded_part)


def _changed(data: Any, kind: Any, change: Callable[[Any, Any], Any]) -> Any:
    """Plain data of a model type after `change(part, type)` of each of its parts, outer ones first."""
    data = change(data, kind)
    arguments = [argument for argument in get_args(kind) if argument not in (Ellipsis, NoneType)]
    if get_origin(kind) in (Union, UnionType):
        return _changed(data, arguments[0], change) if data is not None and len(arguments) == 1 else data
    if isinstance(data, list) and len(arguments) == 1:
        return [_changed(item, arguments[0], change) for item in data]
    if isinstance(data, dict) and is_record(kind):
        hints = _hints_of(cast("Hashable", kind))
        return {key: _changed(item, hints[key], change) if key in hints else item for key, item in data.items()}
    if isinstance(data, dict) and len(arguments) == 2:
        return {key: _changed(item, arguments[1], change) for key, item in data.items()}
    return data


def _upgraded_part(part: Any, kind: Any) -> Any:
    if isinstance(part, str) and kind is Fact:
        return to_builtins(recorded_text(part))
    if isinstance(part, str) and get_origin(kind) is tuple and get_args(kind)[0] is Fact:
        return [to_builtins(recorded_text(part))] if part else []
    if isinstance(part, dict) and isinstance(kind, type):
        return {_RENAMED.get((kind, key), key): item for key, item in _UPGRADES.get(kind, dict)(part).items()}
    return part


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
    ev.Noted: _noted,
    ev.RunStarted: _run_started,
    Finding: finding_of_schema_1,
    CaseFailed: failure_of_schema_1,
}
"""What of schema 1 takes more than a new name, by type."""


def encode_event(event: Event, *, seq: int, t_wall: float, t_mono: float) -> bytes:
    """One line of `events.jsonl`."""
    body = {"event": _NAME_OF_EVENT[type(event)], "seq": seq, "t_mono": t_mono, "t_wall": t_wall}
    body.update(to_builtins(event))
    if isinstance(event, ev.SampleTimed) and event.own is None:
        del body["own"]  # samples are by far the most lines, and few benchmarks have signals of their own
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def decode_event(line: bytes, *, source: str) -> Event:
    """The event in a line of `events.jsonl`.

    Raises:
        StoreError: Not JSON, an unknown event, or fields that do not fit.
    """
    event = _decoded_numbers(line) or _decoded_event(line, source)
    if not isinstance(event, ev.OpsCompared):
        require_numbers(event, source)
    return event


def _decoded_numbers(line: bytes) -> Event | None:
    """The event in a line of `OF_NUMBERS`, read at four times the pace; None where another or a damaged one."""
    for beginning, kind in _BEGINNINGS:
        if line.startswith(beginning):
            with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
                return event_decoder(kind).decode(line)
    return None


@functools.cache
def event_decoder(kind: type[Event]) -> msgspec.json.Decoder[Event]:
    """Reads lines of today's schema that hold an event of this type; passes over fields of other names."""
    return json_decoder(kind)


def require_numbers(event: Event, source: str) -> None:
    """Refuse what Python's reader takes for numbers of JSON: `Infinity`, 1e999, and counts that no machine has.

    Raises:
        StoreError: A number of the event is not finite, or an integer beyond 64 bits.
    """
    for name in field_names(type(event)):
        value = getattr(event, name)
        if isinstance(value, float) and not math.isfinite(value):
            raise StoreError(f"{source}: {name} is not finite")
        if isinstance(value, int) and not -_BEYOND_INTEGERS < value < _BEYOND_INTEGERS:
            raise StoreError(f"{source}: {name} is beyond 64 bits")


def _decoded_event(line: bytes, source: str) -> Event:
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
    if kind not in OF_NUMBERS:
        body = upgraded(body, kind)
    # JSON has no number for what is unknown, and the unknown ends of an op's interval are no reason to refuse a run.
    return from_builtins(with_nan(body, kind) if kind is ev.OpsCompared else body, kind, source=source)


def schema_of(name: str) -> dict[str, Any]:
    """JSON schema of `result`, `profile`, `events` (a line), `fingerprint` or `task`. Raises KeyError: another name."""
    kind, title = _SCHEMAS[name]
    if kind is not Event:
        schema = msgspec.json.schema(kind)
    else:
        variants, components = msgspec.json.schema_components(EVENT_NAMES.values(), ref_template="#/$defs/{name}")
        envelope = {"seq": {"type": "integer"}, "t_mono": {"type": "number"}, "t_wall": {"type": "number"}}
        for event, kind_name in zip(EVENT_NAMES, variants, strict=True):
            definition = components[kind_name["$ref"].rpartition("/")[2]]
            definition["properties"] = {"event": {"const": event}, **envelope, **definition["properties"]}
            definition["required"] = ["event", *envelope, *definition.get("required", [])]
        schema = {"oneOf": list(variants), "$defs": components}
    for definition in _WITH_UNKNOWN & schema["$defs"].keys():
        for field in schema["$defs"][definition]["properties"].values():
            if field.get("type") == "number":
                field["type"] = ["number", "null"]
    plain: dict[str, Any] = _with_plain_descriptions(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **plain}


def _with_plain_descriptions(value: Any) -> Any:
    """Docstrings without indentation, which Python before 3.13 keeps when it compiles them."""
    if isinstance(value, dict):
        plain = {key: _with_plain_descriptions(item) for key, item in value.items()}
        if isinstance(text := plain.get("description"), str):
            plain["description"] = inspect.cleandoc(text)
        return plain
    return [_with_plain_descriptions(item) for item in value] if isinstance(value, (list, tuple)) else value
