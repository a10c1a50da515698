"""Entries of the catalogue, read from `catalog.ini`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from perfguard.records.facts import Fact

UNKNOWN = "unknown"  # A gain that nobody has published


class Message(Struct, frozen=True):
    """How a code reads."""

    text: str | Callable[[Fact], str]
    """A template (see `perfguard.report.messages.template`), or a function where a template will not do."""
    about: str  # What the code means and when it is raised, for `docs/codes.md`
    change: str = ""  # For advice: template of what to change in the code or the environment
    gain: str = UNKNOWN
    """For advice: what following it brought elsewhere, never an estimate for this step, with its source."""


@functools.cache
def sections() -> Mapping[str, Mapping[str, Message]]:
    """Entries by subject and code, read on first use; computed texts are empty."""
    from configparser import ConfigParser, ExtendedInterpolation

    parser = ConfigParser(delimiters=("=",), interpolation=ExtendedInterpolation(), empty_lines_in_values=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(Path(__file__).with_name("catalog.ini").read_text(encoding="utf-8"))
    return {
        section: {
            code: Message(*(field.replace("\n", " ") for field in entry.split("\n| ")))
            for code, entry in parser[section].items()
            if "." in code
        }
        for section in parser.sections()
    }
