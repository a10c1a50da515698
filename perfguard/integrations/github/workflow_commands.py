"""Lines and files by which a step speaks to GitHub's runner, with foreign text made harmless.

Source: https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from perfguard.units import printable

MOST_ANNOTATIONS = 10
"""GitHub shows no more of one kind in a step."""
_LONGEST_MESSAGE = 1000


class Level(str, Enum):
    """Kinds of annotations."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A remark that GitHub shows in the pull request, at a line where one is known."""

    level: Level
    """How grave it is."""
    title: str
    """One line."""
    message: str
    """What was found."""
    file: str | None = None
    """Path in the repository."""
    line: int | None = None
    """Line in it."""


def annotation_line(annotation: Annotation) -> str:
    """The workflow command that makes an annotation."""
    places = {
        "file": annotation.file,
        "line": str(annotation.line) if annotation.line is not None else None,
        "title": annotation.title,
    }
    properties = ",".join(f"{name}={_property(value)}" for name, value in places.items() if value)
    return f"::{annotation.level.value} {properties}::{_data(annotation.message[:_LONGEST_MESSAGE])}"


def output_lines(values: Mapping[str, str]) -> str:
    """The text that gives a step's outputs, to be added to the file that GITHUB_OUTPUT names.

    Each value is set between delimiters that nobody can guess, so that no value can add an output of its own.
    """
    blocks = []
    for name, value in values.items():
        delimiter = f"end-{secrets.token_hex(16)}"
        blocks.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    return "".join(blocks)


def stop_and_resume() -> tuple[str, str]:
    """Two lines: what stands between them is no command to the runner, whoever wrote it."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}", f"::{token}::"


def _data(text: str) -> str:
    """Text as a command's message: the runner takes `%25`, `%0D` and `%0A` back."""
    return printable(text, keep="\n").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(" ".join(text.split())).replace(":", "%3A").replace(",", "%2C")
