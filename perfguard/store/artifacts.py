"""Results from artifacts of workflow runs that a stranger may have written: everything in them is data.

Nothing is unpacked to disk and nothing is run. Of a zip only one member is read, at most as many bytes as a result may
have, whatever its headers say of its size.
"""

from __future__ import annotations

import json
import math
import re
import stat
import struct
import zipfile
import zlib
from collections import Counter
from itertools import chain
from pathlib import PurePosixPath
from typing import IO, Any, cast

from perfguard.codec import from_builtins
from perfguard.errors import StoreError
from perfguard.recordings import upgraded, with_nan
from perfguard.records.result import RESULT_SCHEMA, RunResult

RESULT_NAME = "result.json"
MOST_ZIP_BYTES = 512 * 1024**2
"""A larger artifact is not downloaded: raw samples and traces of a long gate are some ten megabytes."""
MOST_RESULT_BYTES = 16 * 1024**2
MOST_MEMBERS = 20_000
MOST_CASES = 5_000
MOST_VALUES = 600_000  # Of a whole result, texts and numbers alike
_MOST_OLD_VALUES = 60_000  # Of a result of an older schema, whose sentences are understood one by one
_DEEPEST = 60  # Levels of nesting of a result; a written one has fewer than ten
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LARGEST_READ_BYTES = 4 * 1024**2
"""zipfile reads the list of members at once, however long it says to be; this is room for `MOST_MEMBERS`."""
_UNREADABLE = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, OSError, ValueError),
    *(RuntimeError, NotImplementedError),  # zipfile's words for encrypted members and unknown versions
)


class _SmallReads:
    """A file of which nothing large is read at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """The next bytes; BadZipFile where they are too many."""
        content = self._file.read(_LARGEST_READ_BYTES + 1 if size < 0 else min(size, _LARGEST_READ_BYTES + 1))
        if len(content) > _LARGEST_READ_BYTES:
            raise zipfile.BadZipFile(f"it lists more than {MOST_MEMBERS} files")
        return content


def result_in_zip(file: IO[bytes], *, source: str) -> RunResult:
    """The result in a zip. Raises StoreError: it is no zip, holds none or several, or could harm whoever unpacks it."""
    try:
        with zipfile.ZipFile(cast("IO[bytes]", _SmallReads(file))) as archive:
            member = _result_member(archive, source)
            with archive.open(member) as stream:
                content = stream.read(MOST_RESULT_BYTES + 1)
    except _UNREADABLE as error:
        raise StoreError(f"{source} is not a zip that can be read: {error}") from error
    if len(content) > MOST_RESULT_BYTES:
        raise StoreError(f"{RESULT_NAME} in {source} is larger than {MOST_RESULT_BYTES} bytes; no result is")
    return parse_result(content, source=f"{RESULT_NAME} in {source}")


def parse_result(content: bytes, *, source: str) -> RunResult:
    """A result from JSON, if each of its fields has the right type.

    Raises:
        StoreError: It is no JSON, has another schema or wrong types or is too large.
    """
    values = sum(map(content.count, (b",", b"{", b"[")))
    if values > MOST_VALUES:  # before anything is made of it
        raise StoreError(f"{source} holds more than {MOST_VALUES} values; no result does")
    try:
        data: Any = json.loads(
            content.decode("utf-8"), parse_constant=_finite, parse_float=_finite, object_pairs_hook=_distinct
        )
        if _SURROGATE.search(content):  # half of a pair is text to JSON, and to nothing else
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{source} is not JSON that perfguard wrote: {error}") from error
    if _depth(data) > _DEEPEST:
        raise StoreError(f"{source} is nested deeper than any result")
    found = data.get("schema") if isinstance(data, dict) else None
    if found not in (1, RESULT_SCHEMA) or isinstance(found, bool):
        raise StoreError(f"{source} has schema {found!r}, this perfguard reads {RESULT_SCHEMA}; use the same version")
    if found != RESULT_SCHEMA:
        if values > _MOST_OLD_VALUES:
            raise StoreError(f"{source} of schema {found} holds more than {_MOST_OLD_VALUES} values; it is refused")
        data = {**upgraded(data, RunResult), "schema": RESULT_SCHEMA}
    result = from_builtins(with_nan(data, RunResult), RunResult, source=source)
    cases = len(result.gate.verdicts) if result.gate is not None else len(result.measured)
    if cases > MOST_CASES:
        raise StoreError(f"{source} has {cases} cases; no gate has more than {MOST_CASES}")
    return result


def _result_member(archive: zipfile.ZipFile, source: str) -> zipfile.ZipInfo:
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise StoreError(f"{source} has {len(members)} files; no gate writes more than {MOST_MEMBERS}")
    for member in members:
        if _leads_outside(member.filename):
            raise StoreError(f"{source} holds {member.filename[:80]!r}, which leads out of its folder; it is refused")
    found = [member for member in members if member.filename == RESULT_NAME]
    if len(found) != 1:
        raise StoreError(f"{source} holds {len(found) or 'no'} {RESULT_NAME}; there must be one")
    (member,) = found
    if member.file_size > MOST_RESULT_BYTES:
        raise StoreError(f"{RESULT_NAME} in {source} is larger than {MOST_RESULT_BYTES} bytes; no result is")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise StoreError(f"{RESULT_NAME} in {source} is a link; it is refused")
    # Others let a header choose how many gigabytes their dictionary takes.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise StoreError(f"{RESULT_NAME} in {source} is compressed by method {member.compress_type}; it is refused")
    return member


def _leads_outside(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name.partition("/")[0] or "\0" in name


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a key that stands twice says one thing to one reader and another to the next."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object")
    return found


def _finite(text: str) -> float:
    """A number of JSON, which `NaN`, `Infinity` and 1e999 are not."""
    number = float(text)
    if not math.isfinite(number):
        is_name = not text[-1].isdigit()
        raise ValueError(f"{text} is not JSON" if is_name else f"{text[:40]} is larger than any number")
    return number


def _depth(data: Any) -> int:
    """Levels of nesting; breadth first, so that nothing deep can exhaust the stack."""
    depth, level = -1, list[Any]([[data]])
    while level:
        depth += 1
        children = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for child in chain.from_iterable(children) if isinstance(child, (dict, list))]
    return depth
