"""Values out of untrusted text; nonsense becomes None."""

from __future__ import annotations

import re
from typing import Protocol

from perfguard.records.machine.cpuset import parse_cpu_list, parse_cpu_mask

_MAX_INT_DIGITS = 18
_MAX_TEXT = 256
_SIZE = re.compile(r"(\d{1,15})\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_SCALES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MAX_BYTES = 1 << 62


class Files(Protocol):
    """The files of a machine, by path relative to its root."""

    def text(self, path: str) -> str | None:
        """Contents; None when missing, unreadable or not a plain file."""

    def names(self, path: str) -> tuple[str, ...]:
        """Names in a folder, sorted; empty when it cannot be listed."""

    def place(self, path: str) -> str | None:
        """The path with links resolved, relative to the root; None when missing or outside."""


def parse_int(text: str | None) -> int | None:
    """A decimal integer of at most 18 digits."""
    body = (text or "").strip()
    return int(body) if re.fullmatch(rf"-?[0-9]{{1,{_MAX_INT_DIGITS}}}", body) else None


def parse_count(text: str | None) -> int | None:
    """A non-negative decimal integer."""
    value = parse_int(text)
    return value if value is not None and value >= 0 else None


def parse_float(text: str | None) -> float | None:
    """A plain decimal number, not negative."""
    if text is None or not re.fullmatch(r"\d{1,18}(\.\d{1,18})?", text.strip()):
        return None
    return float(text)


def parse_size_bytes(text: str | None) -> int | None:
    """`48K`, `2 MB`, `1024` (bytes)."""
    match = _SIZE.fullmatch(text.strip()) if text is not None else None
    if match is None or not match[1].isascii():
        return None
    size = int(match[1]) * _SCALES[match[2].upper()]
    return size if size <= _MAX_BYTES else None


def parse_words(text: str | None) -> str | None:
    """One short line of printable text, spaces collapsed; None for anything else, also for no text."""
    if text is None or len(text) > 16 * _MAX_TEXT:
        return None
    words = " ".join(text.split())
    return words if words and words.isprintable() and "\ufffd" not in words and len(words) <= _MAX_TEXT else None


def parse_choice(text: str | None) -> str | None:
    """The chosen word of `always [madvise] never`; a single word stands for itself."""
    words = parse_words(text) or ""
    match = re.search(r"\[([\w+-]+)\]", words) or re.fullmatch(r"([\w+-]+)", words)
    return match[1] if match else None


def parse_switch(text: str | None) -> bool | None:
    """`1`/`0`, and `Y`/`N` of module parameters."""
    return {"1": True, "0": False, "Y": True, "N": False}.get((text or "").strip())


def read_cpus(files: Files, path: str) -> frozenset[int] | None:
    """A CPU list file; an empty file is the empty set, a missing or bad one None."""
    text = files.text(path)
    return None if text is None else parse_cpu_list(text)


def read_cpus_or_mask(files: Files, list_path: str, mask_path: str) -> frozenset[int] | None:
    """A CPU list file, or where that is missing or bad the mask that old kernels write."""
    cpus = read_cpus(files, list_path)
    if cpus is not None:
        return cpus
    mask = files.text(mask_path)
    return None if mask is None else parse_cpu_mask(mask)


def read_hz(files: Files, path: str) -> int | None:
    """A frequency file, which holds kHz; None also for 0 and for more than 100 GHz."""
    khz = parse_count(files.text(path))
    return khz * 1000 if khz is not None and 0 < khz <= 100_000_000 else None
