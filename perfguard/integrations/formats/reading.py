"""What every reader asks of a file: bounded JSON without repeated keys, names to show, usable numbers, nothing twice.

A file may be packed with gzip. All that is refused is a StoreError that begins with the file's name.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from perfguard.errors import StoreError
from perfguard.integrations.formats.suites import SECONDS, ImportedSeries, ImportedSuite
from perfguard.records.facts import Fact, fact
from perfguard.report.messages.catalog import describe
from perfguard.units import format_bytes, printable

MAX_FILE_BYTES = 128 * 1024**2
"""Larger files are refused, unpacked ones too; a hundred thousand rounds of one test take five megabytes."""
MAX_SERIES = 100_000  # More series than this are refused
MAX_NAME = 1024  # Longest name of a benchmark, as in Bencher's own limit
SHORTEST_S, LONGEST_S = 1e-15, 1e9
"""Times outside of this are no times of an iteration; inside, no sum or square of them overflows."""
SECONDS_IN = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}  # Units of time that files name
_LARGEST = 1e30  # The same limit for values that are no times
_MOST = 1e15  # More values, iterations or threads than this are no count
_GZIP = b"\x1f\x8b"
_SHOWN = 60


def parse(content: bytes, *, source: str) -> Any:
    """The JSON document in a file; a list of all documents where each line is one.

    `content` may be cut off after `MAX_FILE_BYTES` and one byte.

    Raises:
        StoreError: It is too large, or not JSON.
    """
    _check_size(len(content), source=source)
    if content.startswith(_GZIP):
        content = _unpacked(content, source=source)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise StoreError(f"{source} is not UTF-8 text ({error.reason} at byte {error.start}), so not JSON") from None
    try:
        return _decoded(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return _lines(text, source=source)
        raise StoreError(f"{source} is not JSON: {error}") from None
    except RecursionError:
        raise StoreError(f"{source} is nested too deeply to be the file of a benchmark tool") from None
    except ValueError as error:  # a repeated key, or an integer of more digits than Python takes
        raise StoreError(f"{source} cannot be read as JSON: {error}") from None


def _check_size(size: int, *, source: str) -> None:
    if size > MAX_FILE_BYTES:
        raise StoreError(
            f"{source} is larger than {format_bytes(MAX_FILE_BYTES)}, the most that is read; export fewer benchmarks "
            "at a time, or leave single timings out"
        )


def _unpacked(content: bytes, *, source: str) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)  # with a gzip header
    try:
        unpacked = unpacker.decompress(content, MAX_FILE_BYTES + 1)
    except zlib.error as error:
        raise StoreError(f"{source} begins like a gzip file but cannot be unpacked: {error}") from None
    _check_size(len(unpacked), source=f"{source}, unpacked,")
    if not unpacker.eof:
        raise StoreError(f"{source} is a gzip file that was cut off; write it again")
    return unpacked


def _lines(text: str, *, source: str) -> list[Any]:
    """Records one a line, or lists of them, as PyTorch's uploads may be."""
    documents: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = _decoded(line)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{source}, line {number}: not JSON: {error}") from None
        documents.extend(found if isinstance(found, list) else [found])
    return documents


def _decoded(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_without_repeats)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"one object holds {printable(repeated)[:_SHOWN]!r} twice")
    return found


def checked_name(text: str, *, source: str, what: str = "a benchmark") -> str:
    """A name that can be printed and written to any format: not empty, not too long, no control characters."""
    if not text.strip():
        raise StoreError(f"{source}: {what} has an empty name")
    if len(text) > MAX_NAME:
        raise StoreError(f"{source}: the name {text[:_SHOWN]!r}… has more than {MAX_NAME} characters")
    if not text.isprintable():
        raise StoreError(f"{source}: the name {text[:_SHOWN]!a} holds characters that cannot be printed")
    return text


def checked_values(values: Iterable[float], *, name: str, source: str, unit: str = SECONDS) -> tuple[float, ...]:
    """Values of the series `name` that statistics may be made of: finite, and positive where the unit is `s`."""
    found = tuple(values)
    for value in found:
        if not is_usable(value, unit=unit):
            wanted = f"between {SHORTEST_S:g} and {LONGEST_S:g} s" if unit == SECONDS else "finite"
            raise StoreError(f"{source}: {printable(name)} has a value of {value!r}; a value must be {wanted}")
    return found


def is_usable(value: float, *, unit: str = SECONDS) -> bool:
    """Whether a number can be a value of a series."""
    if unit == SECONDS:
        return SHORTEST_S <= value <= LONGEST_S
    return math.isfinite(value) and abs(value) <= _LARGEST


def number_or_none(value: Any) -> float | None:
    """A number of a summary that a file gives; None for what is missing, not a number, or absurd."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) <= _LARGEST else None  # nan is no less than anything


def count_or_none(value: Any) -> int | None:
    """A count that a file gives; None for what is missing, negative, or absurd."""
    number = number_or_none(value)
    return int(number) if number is not None and 0 <= number <= _MOST else None


def text_or_none(*values: Any) -> str | None:
    """The first of the values that is a text, safe to show; None where none is."""
    texts = (" ".join(printable(value).split())[:MAX_NAME] for value in values if isinstance(value, str))
    return next(filter(None, texts), None)


def parameters_of(values: Any) -> tuple[tuple[str, str], ...]:
    """Names and values of parameters as text; what is no flat mapping has none."""
    if not isinstance(values, dict):
        return ()
    return tuple(
        (printable(str(key))[:MAX_NAME], printable(str(value))[:MAX_NAME])
        for key, value in values.items()
        if isinstance(value, (str, int, float, bool))
    )


def checked_suite(
    tool: str, source: str, series: Sequence[ImportedSeries], *, what_is_missing: tuple[Fact, ...] = (), **texts: Any
) -> ImportedSuite:
    """A suite in which each series is named once; `texts` are further fields as the file gives them, of any type.

    Raises:
        StoreError: It is empty, too large, or names a series twice.
    """
    if not series:
        left_out = f" ({describe(what_is_missing[0])})" if what_is_missing else ""
        raise StoreError(f"{source} holds no benchmark that can be read{left_out}")
    if len(series) > MAX_SERIES:
        raise StoreError(f"{source} holds {len(series)} series; at most {MAX_SERIES} are read")
    ((name, metric), times), *_ = Counter((one.name, one.metric) for one in series).most_common(1)
    if times > 1:
        raise StoreError(f"{source} holds {metric} of {name} twice, so which of them is meant is unknown")
    shown = {"version": None, **{key: text_or_none(value) for key, value in texts.items()}}
    return ImportedSuite(tool=tool, source=source, series=tuple(series), what_is_missing=what_is_missing, **shown)


def left_out_failed(names: Sequence[str]) -> tuple[Fact, ...]:
    """Benchmarks that failed or were skipped; nothing where there are none."""
    return (fact("import.left_out_failed", benchmarks=len(names), names=_shown(names)),) if names else ()


def left_out_empty(names: Sequence[str]) -> tuple[Fact, ...]:
    """Benchmarks without a value; nothing where there are none."""
    return (fact("import.left_out_empty", benchmarks=len(names), names=_shown(names)),) if names else ()


def _shown(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(printable(name)[:_SHOWN] for name in names)
