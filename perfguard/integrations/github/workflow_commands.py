"""Annotations, lines and files by which a step speaks to GitHub's runner, with foreign text made harmless.

Source: https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from perfguard.records.result import RunResult
from perfguard.records.spec import Gating
from perfguard.records.steps.ops import Attribution
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.culprits import culprit_texts
from perfguard.report.messages.catalog import describe_all
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
    """A remark that GitHub shows in the pull request, at a line of a file where one is known."""

    level: Level
    title: str
    """One line."""
    message: str
    file: str | None = None
    """Path in the repository."""
    line: int | None = None


def annotation_line(annotation: Annotation) -> str:
    """The workflow command that makes an annotation."""
    places = {"file": annotation.file, "line": annotation.line, "title": annotation.title}
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in places.items() if value)
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


_LEVELS = {
    Outcome.REGRESSED: Level.ERROR,
    Outcome.FAILED: Level.ERROR,
    Outcome.DIFFERENT: Level.ERROR,
    Outcome.INCONCLUSIVE: Level.WARNING,
    Outcome.INCOMPARABLE: Level.WARNING,
    Outcome.NO_BASELINE: Level.WARNING,
    Outcome.ALLOWED: Level.NOTICE,
}
_PLACE = re.compile(r"(?P<file>[^:]+\.py):(?P<line>\d{1,7})")


def annotations_of(result: RunResult) -> tuple[Annotation, ...]:
    """An annotation for each case that is not in order, at most ten of a kind, regressions first."""
    if result.gate is None:
        return ()
    blamed = {attribution.case_id: attribution for attribution in result.attributions}
    ranked = sorted(result.gate.verdicts, key=lambda v: (v.gating is Gating.ADVISORY, list(Outcome).index(v.outcome)))
    # Identical arms pass by construction; what noise hid of them is nothing to warn of.
    told = _LEVELS.keys() - ({Outcome.INCONCLUSIVE} if result.gate.identical else set())
    remarks = [_remark(v, blamed.get(v.case_id)) for v in ranked if v.outcome in told]
    return tuple(remark for level in Level for remark in [r for r in remarks if r.level is level][:MOST_ANNOTATIONS])


def _remark(verdict: Verdict, attribution: Attribution | None) -> Annotation:
    level = _LEVELS[verdict.outcome]
    if verdict.gating is Gating.ADVISORY and level is Level.ERROR:
        level = Level.WARNING
    file, line = _place(attribution)
    return Annotation(
        level=level,
        title=f"perfguard: {verdict.case_id} {verdict.outcome.value}",
        message="\n".join([describe_all(verdict.reasons), *(culprit_texts(attribution) if attribution else ())]),
        file=file,
        line=line,
    )


def _place(attribution: Attribution | None) -> tuple[str | None, int | None]:
    """The line of the first culprit's first op that has one."""
    if attribution is None:
        return None, None
    sources = {delta.key: delta.source for delta in attribution.deltas}
    for key in (key for culprit in attribution.culprits for key in culprit.ops):
        found = _PLACE.fullmatch(sources.get(key) or "")
        if found is None:
            continue
        path = PurePosixPath(found["file"])
        if not path.is_absolute() and ".." not in path.parts:
            return found["file"], int(found["line"])
    return None, None
