"""Events in words: the log of a run that is watched, and the lines of `perfguard watch`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone, tzinfo

from perfguard.records.events import (
    ArmReady,
    ArmsCompared,
    BlockFinished,
    BlockStarted,
    CaseCalibrated,
    CaseFailed,
    Event,
    LooksPlanned,
    LookTaken,
    Noted,
    OpsCompared,
    RunFinished,
    RunStarted,
    StageStarted,
    StepsCounted,
    VerdictReached,
)
from perfguard.records.facts import Severity
from perfguard.records.run import Stage
from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.report.culprits import change_text, culprit_texts, step_text
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.sources import short_source
from perfguard.units import (
    format_count,
    format_duration,
    format_ratio,
    format_seconds,
    printable,
)
from perfguard.watch.view.run_view import LogLine

_ERRORS = {Outcome.REGRESSED.value, Outcome.FAILED.value, GateOutcome.REGRESSED.value, GateOutcome.FAILED.value}
_WARNINGS = {
    *(Outcome.DIFFERENT.value, Outcome.INCOMPARABLE.value, Outcome.NO_BASELINE.value, Outcome.INCONCLUSIVE.value),
    *(GateOutcome.HOST_UNSTABLE.value, "interrupted"),
}
_SIGNS = {"info": "·", "warning": "!", "error": "✗"}
_ASCII_SIGNS = {"info": "-", "warning": "!", "error": "x"}
_STAGES = {
    Stage.MAIN: "measuring",
    Stage.PAIRING: "pairing open cases with the baseline's commit",
    Stage.CONFIRMATION: "confirming flags with relocated arms",
    Stage.DRIFT: "pairing with the anchor's commit",
    Stage.DRIFT_CONFIRMATION: "confirming drift with relocated arms",
}


def log_line(event: Event, *, seq: int, t_wall: float) -> LogLine | None:
    """An event as a line of the log; None for what comes many times a second and for what its neighbours say, too."""
    level, text = _preparation(event)
    if not text:
        level, text = _measurement(event)
    if not text:
        level, text = _conclusion(event)
    return LogLine(seq=seq, t_wall=t_wall, level=level, text=printable(text)) if text else None


def plain_line(line: LogLine, *, is_ascii: bool = False, zone: tzinfo | None = None) -> str:
    """`14:03:07 · block 4 took 12 s`: a line for a terminal, a CI log or a screen reader.

    Args:
        line: What to say.
        is_ascii: Whether signs are ASCII characters; names in the text stay as they are.
        zone: Of the time of day; that of the machine when None.
    """
    sign = (_ASCII_SIGNS if is_ascii else _SIGNS).get(line.level, "·")
    return f"{_time_of_day(line.t_wall, zone)} {sign} {line.text}"


def _preparation(event: Event) -> tuple[str, str]:
    match event:
        case RunStarted():
            cases = format_count(len(event.case_ids), "case")
            return "info", (
                f"run {event.run_id}: {cases} of {event.suite}, {_mode(event.mode)}, at most "
                f"{format_duration(event.budget_s)}"
            )
        case ArmReady():
            torch = f", torch {event.torch}" if event.torch else ""
            source = short_source(event.source_id, event.commit)
            return "info", f"{event.arm.value} is {event.text}: Python {event.python}{torch}, source {source}"
        case ArmsCompared(identical=True):
            return "info", "both arms are identical by their hashes: they pass by construction"
        case CaseCalibrated():
            loops = format_count(event.inner_loops, "iteration")
            return "info", f"{event.case_id}: {format_seconds(event.iteration_s)} an iteration, {loops} a slice"
        case _:
            return "info", ""


def _measurement(event: Event) -> tuple[str, str]:
    level, text = "info", ""
    match event:
        case StageStarted():
            text = f"{_STAGES[event.stage]}: {format_count(len(event.case_ids), 'case')}"
        case BlockStarted():
            text = f"block {event.block + 1} begins with {format_count(len(event.case_ids), 'case')}"
        case BlockFinished():
            stolen = "" if event.steal_ratio is None else f", {format_ratio(event.steal_ratio)} stolen"
            text = f"block {event.block + 1} took {format_duration(event.duration_s)}{stolen}"
        case LooksPlanned():
            text = f"looks are spread over about {format_count(event.blocks, 'block')}"
        case CaseFailed(skipped=True):
            text = f"{event.case_id}: {describe(event.reason)}"
        case CaseFailed():
            level, text = "error", f"{event.case_id} failed in the {event.arm.value}: {describe(event.reason)}"
        case Noted():
            level = "info" if event.fact.severity is Severity.INFO else "warning"
            text = describe(event.fact)
        case _:
            pass
    return level, text


def _conclusion(event: Event) -> tuple[str, str]:
    level, text = "info", ""
    match event:
        case LookTaken() if event.decided:
            found = ", ".join(f"{case_id} {outcome}" for case_id, outcome in event.decided.items())
            level = _worst(event.decided.values())
            text = f"answered after {format_count(event.blocks, 'block')}: {found}"
        case LookTaken(final=True):
            text = f"last look, after {format_count(event.blocks, 'block')}"
        case StepsCounted() if event.changes:
            changes = format_count(len(event.changes), "change")
            since = f" since {event.counted_on}" if event.counted_on else ""
            level, text = "warning", f"{event.case_id}: {changes} in op counts{since}: {change_text(event.changes[0])}"
        case OpsCompared():
            said = (step_text(event.attribution), *culprit_texts(event.attribution))
            text = f"{event.attribution.case_id}: {'; '.join(said)}"
        case VerdictReached():
            level, text = _worst([event.outcome]), f"{event.case_id} {event.outcome}: {describe_all(event.reasons)}"
        case RunFinished():
            level = _worst([event.outcome])
            text = f"run ended, {event.outcome}, exit code {event.exit_code}: {describe_all(event.reasons)}"
        case _:
            pass
    return level, text


def _mode(mode: str) -> str:
    return {"paired": "two arms in interleaved blocks", "rounds": "one arm in rounds"}.get(mode, mode)


def _worst(outcomes: Iterable[str]) -> str:
    found = set(outcomes)
    if found & _ERRORS:
        return "error"
    return "warning" if found & _WARNINGS else "info"


def _time_of_day(t_wall: float, zone: tzinfo | None) -> str:
    try:
        return datetime.fromtimestamp(t_wall, tz=timezone.utc).astimezone(zone).strftime("%H:%M:%S")
    except (OverflowError, OSError, ValueError):  # a time that no calendar has, from a damaged line
        return "--:--:--"
