"""A run judged again from its events, also one that was killed before it could say anything."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from perfguard.config import LoadedConfig
from perfguard.errors import ExitCode, StoreError
from perfguard.gate.paired.allow_list import allowances_of, recorded_tags
from perfguard.gate.paired.judging import PairedJudge, policy_of, replay, signal_policy_of
from perfguard.gate.paired.results import describe_measured
from perfguard.gate.paired.scaling import scaling_of
from perfguard.gate.rules.policy import exit_code
from perfguard.host.identity import machine_line
from perfguard.recordings import OF_NUMBERS
from perfguard.records.events import ArmReady, Event, Noted, RunFinished, RunStarted
from perfguard.records.facts import fact
from perfguard.records.result import ArmSummary, RunResult
from perfguard.records.run_data import RunData
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import GateResult
from perfguard.runner.run_folder import read_events
from perfguard.watch.sources.event_sources import host_of, read_beside, selection_of


def rejudge_run(
    loaded: LoadedConfig, folder: Path, events: Iterable[Event] | None = None, *, margin_ratio: float | None = None
) -> RunResult:
    """What a run's events add up to, judged by the present rule; read here unless given, as of a damaged run.

    The margins are the recorded ones unless another is given. Of a recording of any length only a few numbers a sample
    are kept.

    Raises:
        StoreError: The events cannot be read, or hold no start of a run.
    """
    stream = iter(read_events(folder / "events.jsonl") if events is None else events)
    known: list[Event] = []  # All but samples
    before, start = [], None
    for event in stream:
        before.append(event)
        if isinstance(event, RunStarted):
            start = event
            break
    if start is None:
        raise StoreError(f"{folder / 'events.jsonl'} holds no start of a run; nothing can be said of it")
    try:
        data, gate = _replayed(loaded, start, _noticed(chain(before, stream), known), margin_ratio)
    except (ValueError, ArithmeticError) as error:
        raise StoreError(f"{folder / 'events.jsonl'} holds what cannot be judged: {error}") from error
    end = next((event for event in known if isinstance(event, RunFinished)), None)
    measured = () if gate else describe_measured(data, start.case_ids)
    code = end.exit_code if end else ExitCode.PASS
    if gate is not None:
        code = exit_code(gate, fail_on=loaded.config.fail_on)
    host, selection = host_of(folder), selection_of(folder)
    notes = tuple(event.fact for event in known if isinstance(event, Noted))
    reasons = gate.reasons if gate else (fact("run.measured", cases=len(measured)),)
    return RunResult(
        command="show",
        run_id=start.run_id,
        folder=str(folder),
        suite=start.suite,
        machine_id=start.machine_id or "unknown",
        machine=machine_line(host) if host else "unknown machine",
        cpus=selection.cpus if selection else (),
        arms={event.arm.value: _summary(event) for event in known if isinstance(event, ArmReady)},
        gate=gate,
        measured=measured,
        scaling=scaling_of(measured, cpus=len(selection.cpus) if selection else 1),
        exit_code=int(code),
        verdict=gate.outcome.value if gate else "measured",
        reasons=reasons if end or start.mode == "profile" else (*reasons, fact("run.unfinished")),
        notes=notes,
        error_rate=next((note for note in notes if note.code.startswith("rate.")), None),
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


def _noticed(events: Iterable[Event], known: list[Event]) -> Iterator[Event]:
    """The events; all but samples are kept as they pass."""
    for event in events:
        if not isinstance(event, OF_NUMBERS):
            known.append(event)
        yield event


def _replayed(
    loaded: LoadedConfig, start: RunStarted, events: Iterable[Event], margin_ratio: float | None
) -> tuple[RunData, GateResult | None]:
    if start.mode != "paired":
        return RunData.of(events), None
    allowances = allowances_of(loaded) if start.gate.uses_allowances else ()
    tags = recorded_tags(loaded, allowances)
    judge = PairedJudge(
        cases=tuple(
            Case(
                benchmark=case_id,
                target="",
                gating=Gating.ADVISORY if case_id in start.advisory_ids else Gating.GATING,
                tags=tags.get(case_id, ()),
            )
            for case_id in start.case_ids
        ),
        policy=policy_of(loaded.config),
        signals=signal_policy_of(loaded.config),
        allowances=allowances,
    )
    data = replay(events, judge, margin_ratio=margin_ratio)
    return data, judge.conclude(data)


def _summary(ready: ArmReady) -> ArmSummary:
    return ArmSummary(**{name: getattr(ready, name) for name in ArmSummary.__struct_fields__})
