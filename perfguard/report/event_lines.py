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
    CaseUntouched,
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
from perfguard.records.task_results import CellRun
from perfguard.records.training import TrainedOn, TrainingEpoch
from perfguard.report.case_history import short_source
from perfguard.report.culprits import change_text, culprit_texts, step_text
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.tasks import run_line
from perfguard.report.terminal.training import epoch_line, started_line
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
    """What a line says, printable; cases without a short name in `names` go by their id."""
    if isinstance(line.what, Fact):
        return printable(describe(line.what))
    case_id = getattr(line.what, "case_id", "")
    name = names.get(case_id, case_id)
    text = _of_other_runs(line.what) or _of_a_case(line.what, name) or _of_a_run(line.what) or _in_blocks(line.what)
    return printable(text or _after_blocks(line.what, names))


def plain_line(line: LogLine, names: Mapping[str, str], *, is_ascii: bool = False, zone: tzinfo | None = None) -> str:
    """`14:03:07 · block 4 took 12 s`: a line for a terminal, a CI log or a screen reader.

    `is_ascii` is of the signs alone. The time of day is of `zone`, that of the machine for None.
    """
    sign = (_ASCII_SIGNS if is_ascii else _SIGNS)[line.level]
    return f"{_time_of_day(line.t_wall, zone)} {sign} {line_text(line, names)}"


def _of_other_runs(event: Event) -> str:
    match event:
        case RunStarted(mode="training"):
            return f"run {event.run_id}: training on {event.suite}"
        case TrainedOn():
            return started_line(event)
        case TrainingEpoch():
            return epoch_line(event)
        case RunStarted(mode="task"):
            return f"run {event.run_id}: task {event.suite}"
        case CellRun():
            return run_line(event)
        case _:
            return ""


def _of_a_run(event: Event) -> str:
    match event:
        case RunStarted():
            cases, mode = format_count(len(event.case_ids), "case"), _MODES.get(event.mode, event.mode)
            return f"run {event.run_id}: {cases} of {event.suite}, {mode}, at most {format_duration(event.budget_s)}"
        case ArmReady():
            torch = f", torch {event.torch}" if event.torch else ""
            source = short_source(event.source_id, event.commit)
            return f"{event.arm.value} is {event.text}: Python {event.python}{torch}, source {source}"
        case ArmsCompared(identical=True):
            return "both arms are identical by their hashes: they pass by construction"
        case StageStarted():
            return f"{_STAGES[event.stage]}: {format_count(len(event.case_ids), 'case')}"
        case _:
            return ""


def _of_a_case(event: Event, name: str) -> str:
    match event:
        case CaseCalibrated():
            loops = format_count(event.inner_loops, "iteration")
            return f"{name}: {format_seconds(event.iteration_s)} per iteration, {loops} per sample"
        case CaseUntouched():
            return f"{name}: untouched, both arms run the same code"
        case CaseFailed():
            failed = "" if event.skipped else f" failed in the {event.arm.value}"
            return f"{name}{failed}: {describe(event.reason)}"
        case _:
            return ""


def _in_blocks(event: Event) -> str:
    match event:
        case BlockStarted():
            return f"block {event.block + 1} begins with {format_count(len(event.case_ids), 'case')}"
        case BlockFinished():
            stolen = "" if event.steal_ratio is None else f", {format_ratio(event.steal_ratio)} stolen"
            return f"block {event.block + 1} took {format_duration(event.duration_s)}{stolen}"
        case AnalysesPlanned():
            return f"interim analyses planned over about {format_count(event.blocks, 'block')}"
        case Noted():
            return describe(event.fact)
        case _:
            return ""


def _after_blocks(event: Event, names: Mapping[str, str]) -> str:
    text = ""
    match event:
        case InterimAnalysis() if event.decided:
            found = ", ".join(f"{names.get(case_id, case_id)} {outcome}" for case_id, outcome in event.decided.items())
            text = f"answered after {format_count(event.blocks, 'block')}: {found}"
        case InterimAnalysis():
            text = f"final analysis, after {format_count(event.blocks, 'block')}"
        case StepsCounted() if event.changes:
            changes = format_count(len(event.changes), "change")
            since = f" since {event.counted_on}" if event.counted_on else ""
            name = names.get(event.case_id, event.case_id)
            text = f"{name}: {changes} in op counts{since}: {change_text(event.changes[0])}"
        case OpsCompared():
            case_id = event.attribution.case_id
            said = (step_text(event.attribution), *culprit_texts(event.attribution))
            text = f"{names.get(case_id, case_id)}: {'; '.join(said)}"
        case VerdictReached():
            text = f"{names.get(event.case_id, event.case_id)} {event.outcome}: {describe_all(event.reasons)}"
        case RunFinished():
            text = f"run ended, {event.outcome}, exit code {event.exit_code}: {describe_all(event.reasons)}"
        case _:
            pass
    return text


def _time_of_day(t_wall: float, zone: tzinfo | None) -> str:
    try:
        return datetime.fromtimestamp(t_wall, tz=timezone.utc).astimezone(zone).strftime("%H:%M:%S")
    except (OverflowError, OSError, ValueError):  # a time that no calendar has, from a damaged line
        return "--:--:--"
