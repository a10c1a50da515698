"""`show`: a run judged again from its events, also one that was killed before it could say anything."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perfguard.config import LoadedConfig
from perfguard.errors import ExitCode, StoreError
from perfguard.gate.calibration.error_rate import is_error_rate
from perfguard.gate.paired.allow_list import allowances_of, recorded_tags
from perfguard.gate.paired.judging import PairedJudge, policy_of, replay, signal_policy_of
from perfguard.gate.paired.results import describe_rounds
from perfguard.gate.rules.policy import exit_code
from perfguard.host.identity import machine_line
from perfguard.records.events import ArmReady, Event, Noted, RunFinished, RunStarted
from perfguard.records.facts import fact
from perfguard.records.result import ArmSummary, CaseMeasured, RunResult
from perfguard.records.run_data import RunData
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import GateResult
from perfguard.runner.run_folder import read_events
from perfguard.store.artifacts import RESULT_NAME, parse_result
from perfguard.watch.sources.event_sources import host_of, read_beside, selection_of


def runs_of(loaded: LoadedConfig) -> Path:
    """The folder that a project's runs are recorded in; need not exist."""
    return loaded.project / ".perfguard" / "runs"


def find_run(loaded: LoadedConfig, name: str | None) -> Path:
    """Folder of a run by its id or path; the latest one for None.

    Raises:
        StoreError: There is none.
    """
    runs = runs_of(loaded)
    if name is not None:
        for place in (runs / name, loaded.project / name):
            if (place / "events.jsonl").is_file():
                return place
        raise StoreError(f"there is no run {name!r} in {runs}, and no events.jsonl at that path")
    latest = latest_run(loaded)
    if latest is None:
        raise StoreError(f"no run is recorded in {runs}; `perfguard gate` makes one")
    return latest


def latest_run(loaded: LoadedConfig) -> Path | None:
    """Folder of the latest run; None where none is recorded."""
    return max((path.parent for path in runs_of(loaded).glob("*/events.jsonl")), default=None)


def show_run(loaded: LoadedConfig, folder: Path) -> RunResult:
    """The result that a run had; judged now from its events where it left none.

    Raises:
        StoreError: Neither can be read.
    """
    content = read_beside(folder, RESULT_NAME)
    with contextlib.suppress(StoreError):
        if content is not None:
            return parse_result(content, source=RESULT_NAME)
    return rejudge_run(loaded, folder)


def rejudge_run(loaded: LoadedConfig, folder: Path) -> RunResult:
    """What a run's events add up to, judged by the present rule.

    Raises:
        StoreError: The events cannot be read, or do not begin with a run's start.
    """
    return judged_run(loaded, folder, tuple(read_events(folder / "events.jsonl")))


def judged_run(loaded: LoadedConfig, folder: Path, events: Sequence[Event]) -> RunResult:
    """The same of events that were read already, as of a damaged run.

    Raises:
        StoreError: They hold no start of a run.
    """
    start = next((event for event in events if isinstance(event, RunStarted)), None)
    if start is None:
        raise StoreError(f"{folder / 'events.jsonl'} holds no start of a run; nothing can be said of it")
    data, gate = _replayed(loaded, start, events)
    end = next((event for event in events if isinstance(event, RunFinished)), None)
    measured = () if gate else _measured(start, data)
    notes = tuple(event.fact for event in events if isinstance(event, Noted))
    reasons = gate.reasons if gate else (fact("run.measured", cases=len(measured)),)
    return RunResult(
        command="show",
        run_id=start.run_id,
        folder=str(folder),
        suite=start.suite,
        machine_id=start.machine_id or "unknown",
        machine=_machine(folder),
        cpus=_cpus(folder),
        arms={event.arm.value: _summary(event) for event in events if isinstance(event, ArmReady)},
        gate=gate,
        measured=measured,
        exit_code=int(_code(loaded, gate, end)),
        verdict=gate.outcome.value if gate else "measured",
        reasons=reasons if end else (*reasons, fact("run.unfinished")),
        notes=notes,
        error_rate=next((note for note in notes if is_error_rate(note)), None),
        duration_s=recorded_duration_s(folder, data),
        op_count_changes=dict(data.op_count_changes),
        attributions=tuple(data.attributions.values()),
        findings=dict(data.findings),
        stored_op_count_changes=dict(data.stored_op_count_changes),
    )


def recorded_duration_s(folder: Path, data: RunData) -> float:
    """Wall seconds of a run; of its blocks alone where it did not come to its end."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = float(json.loads(read_beside(folder, "result.json") or b"")["duration_s"])
        return found if math.isfinite(found) else data.measured_s
    return data.measured_s


def _replayed(loaded: LoadedConfig, start: RunStarted, events: Sequence[Event]) -> tuple[RunData, GateResult | None]:
    if start.mode != "paired":
        return RunData.of(events), None
    cases = tuple(
        Case(benchmark=case_id, target="", gating=Gating.ADVISORY if case_id in start.advisory_ids else Gating.GATING)
        for case_id in start.case_ids
    )
    allowances = allowances_of(loaded) if start.gate.uses_allowances else ()
    judge = PairedJudge(
        cases=_tagged(cases, recorded_tags(loaded, allowances)),
        policy=policy_of(loaded.config),
        signals=signal_policy_of(loaded.config),
        allowances=allowances,
    )
    data = replay(events, judge)
    return data, judge.conclude(data)


def _tagged(cases: Sequence[Case], tags: Mapping[str, tuple[str, ...]]) -> tuple[Case, ...]:
    return tuple(replace(case, tags=tags.get(case.id, ())) for case in cases)


def _measured(start: RunStarted, data: RunData) -> tuple[CaseMeasured, ...]:
    rounds = data.rounds()
    return tuple(
        describe_rounds(
            case_id,
            rounds.get(case_id, ()),
            inner_loops=data.inner_loops.get(case_id),
            problem=data.failures[case_id].reason if case_id in data.failures else None,
        )
        for case_id in start.case_ids
    )


def _code(loaded: LoadedConfig, gate: GateResult | None, end: RunFinished | None) -> ExitCode:
    if gate is not None:
        return exit_code(gate, fail_on=loaded.config.fail_on)
    return ExitCode(end.exit_code) if end else ExitCode.PASS


def _summary(ready: ArmReady) -> ArmSummary:
    return ArmSummary(
        text=ready.text,
        source_id=ready.source_id,
        interpreter=ready.interpreter,
        python=ready.python,
        torch=ready.torch,
        stack_id=ready.stack_id,
        commit=ready.commit,
    )


def _machine(folder: Path) -> str:
    host = host_of(folder)
    return machine_line(host) if host is not None else "unknown machine"


def _cpus(folder: Path) -> tuple[int, ...]:
    selection = selection_of(folder)
    return selection.cpus if selection is not None else ()
