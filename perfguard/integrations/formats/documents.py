"""From the bytes of a file to a JSON document: bounded, without repeated keys, also packed with gzip."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from typing import Any

from perfguard.errors import StoreError
from perfguard.units import format_bytes, printable

MAX_FILE_BYTES = 128 * 1024**2
"""Larger files are refused, unpacked ones too; a hundred thousand rounds of one test take five megabytes."""
_GZIP = b"\x1f\x8b"
_SHOWN = 60


class _RepeatedKeyError(ValueError):
    """A JSON object names one key twice, so one of the values would silently be lost."""


def parse(content: bytes, *, source: str) -> Any:
    """The JSON document in a file; a list of all documents where each line is one.

    Args:
        content: The file, at most `MAX_FILE_BYTES` and one byte of it.
        source: The file as named, for messages.

    Raises:
        StoreError: It is too large, or not JSON.
    """
    check_size(len(content), source=source)
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


def check_size(size: int, *, source: str) -> None:
    """Refuse what is too large.

    Raises:
        StoreError: It is.
    """
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
    check_size(len(unpacked), source=f"{source}, unpacked,")
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
        raise _RepeatedKeyError(f"one object holds {printable(repeated)[:_SHOWN]!r} twice")
    return found
