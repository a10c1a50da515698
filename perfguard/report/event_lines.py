"""Lines of a log in words, for the TUI's log and for `perfguard watch`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone, tzinfo
from types import MappingProxyType

from perfguard.records.events import (
    AnalysesPlanned,
    ArmReady,
    ArmsCompared,
    BlockFinished,
    BlockStarted,
    CaseCalibrated,
    Event,
    InterimAnalysis,
    Noted,
    OpsCompared,
    RunFinished,
    RunStarted,
    StageStarted,
    StepsCounted,
    VerdictReached,
)
from perfguard.records.facts import Fact
from perfguard.records.run import CaseFailed, Stage
from perfguard.report.case_history import short_source
from perfguard.report.culprits import change_text, culprit_texts, step_text
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.units import format_count, format_duration, format_ratio, format_seconds, printable
from perfguard.watch.view.run_view import LogLine

_SIGNS = {"info": "·", "warning": "!", "error": "✗"}
_ASCII_SIGNS = {"info": "-", "warning": "!", "error": "x"}
_STAGES = {
    Stage.MAIN: "measuring",
    Stage.PAIRING: "pairing open cases with the baseline's commit",
    Stage.CONFIRMATION: "confirming flags with relocated arms",
    Stage.DRIFT: "pairing with the anchor's commit",
    Stage.DRIFT_CONFIRMATION: "confirming drift with relocated arms",
}
_MODES = {"paired": "two arms in interleaved blocks", "rounds": "one arm in rounds"}


def line_text(line: LogLine, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """What a line says, printable.

    Args:
        line: What to say.
        names: Short names of cases by id; other cases go by their id.
    """
    if isinstance(line.what, Fact):
        return printable(describe(line.what))
    event = line.what
    return printable(_preparation(event, names) or _measurement(event, names) or _conclusion(event, names))


def plain_line(line: LogLine, names: Mapping[str, str], *, is_ascii: bool = False, zone: tzinfo | None = None) -> str:
    """`14:03:07 · block 4 took 12 s`: a line for a terminal, a CI log or a screen reader.

    Args:
        line: What to say.
        names: Short names of cases by id.
        is_ascii: Whether signs are ASCII characters; names in the text stay as they are.
        zone: Of the time of day; that of the machine when None.
    """
    sign = (_ASCII_SIGNS if is_ascii else _SIGNS)[line.level]
    return f"{_time_of_day(line.t_wall, zone)} {sign} {line_text(line, names)}"


def _preparation(event: Event, names: Mapping[str, str]) -> str:
    match event:
        case RunStarted():
            cases = format_count(len(event.case_ids), "case")
            mode = _MODES.get(event.mode, event.mode)
            return f"run {event.run_id}: {cases} of {event.suite}, {mode}, at most {format_duration(event.budget_s)}"
        case ArmReady():
            torch = f", torch {event.torch}" if event.torch else ""
            source = short_source(event.source_id, event.commit)
            return f"{event.arm.value} is {event.text}: Python {event.python}{torch}, source {source}"
        case ArmsCompared(identical=True):
            return "both arms are identical by their hashes: they pass by construction"
        case CaseCalibrated():
            loops = format_count(event.inner_loops, "iteration")
            return (
                f"{_name(event.case_id, names)}: {format_seconds(event.iteration_s)} per iteration, {loops} per sample"
            )
        case _:
            return ""


def _measurement(event: Event, names: Mapping[str, str]) -> str:
    text = ""
    match event:
        case StageStarted():
            text = f"{_STAGES[event.stage]}: {format_count(len(event.case_ids), 'case')}"
        case BlockStarted():
            text = f"block {event.block + 1} begins with {format_count(len(event.case_ids), 'case')}"
        case BlockFinished():
            stolen = "" if event.steal_ratio is None else f", {format_ratio(event.steal_ratio)} stolen"
            text = f"block {event.block + 1} took {format_duration(event.duration_s)}{stolen}"
        case AnalysesPlanned():
            text = f"interim analyses planned over about {format_count(event.blocks, 'block')}"
        case CaseFailed(skipped=True):
            text = f"{_name(event.case_id, names)}: {describe(event.reason)}"
        case CaseFailed():
            text = f"{_name(event.case_id, names)} failed in the {event.arm.value}: {describe(event.reason)}"
        case Noted():
            text = describe(event.fact)
        case _:
            pass
    return text


def _conclusion(event: Event, names: Mapping[str, str]) -> str:
    text = ""
    match event:
        case InterimAnalysis() if event.decided:
            found = ", ".join(f"{_name(case_id, names)} {outcome}" for case_id, outcome in event.decided.items())
            text = f"answered after {format_count(event.blocks, 'block')}: {found}"
        case InterimAnalysis():
            text = f"final analysis, after {format_count(event.blocks, 'block')}"
        case StepsCounted() if event.changes:
            changes = format_count(len(event.changes), "change")
            since = f" since {event.counted_on}" if event.counted_on else ""
            change = change_text(event.changes[0])
            text = f"{_name(event.case_id, names)}: {changes} in op counts{since}: {change}"
        case OpsCompared():
            said = (step_text(event.attribution), *culprit_texts(event.attribution))
            text = f"{_name(event.attribution.case_id, names)}: {'; '.join(said)}"
        case VerdictReached():
            text = f"{_name(event.case_id, names)} {event.outcome}: {describe_all(event.reasons)}"
        case RunFinished():
            text = f"run ended, {event.outcome}, exit code {event.exit_code}: {describe_all(event.reasons)}"
        case _:
            pass
    return text


def _name(case_id: str, names: Mapping[str, str]) -> str:
    return names.get(case_id, case_id)


def _time_of_day(t_wall: float, zone: tzinfo | None) -> str:
    try:
        return datetime.fromtimestamp(t_wall, tz=timezone.utc).astimezone(zone).strftime("%H:%M:%S")
    except (OverflowError, OSError, ValueError):  # a time that no calendar has, from a damaged line
        return "--:--:--"
