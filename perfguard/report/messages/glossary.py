"""The words that output, code and documents use, each with one meaning, read from `glossary.ini`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path

_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
_REMARK = re.compile(r" \([^)]*\)$")


def _read() -> Mapping[str, str]:
    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(Path(__file__).with_name("glossary.ini").read_text(encoding="utf-8"))
    return dict(parser["words"])


GLOSSARY: Mapping[str, str] = _read()  # Meanings as Markdown, by the word and its other names


def meanings(word: str) -> dict[str, str]:
    """Plain meanings of a word, singular or plural; else those of the terms that contain it."""
    wanted = word.lower()
    named = {entry: _names(entry) for entry in GLOSSARY}
    found = [entry for entry, names in named.items() if wanted in names or wanted.removesuffix("s") in names]
    found = found or [entry for entry, names in named.items() if any(wanted in name.split() for name in names)]
    return {entry: _LINK.sub(r"\1", GLOSSARY[entry]) for entry in found}


def _names(entry: str) -> set[str]:
    return {name.lower() for name in _REMARK.sub("", entry).split(", ")}
