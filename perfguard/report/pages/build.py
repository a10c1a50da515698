"""A recorded run, read and judged for a page: what can be read is shown, and what cannot is said."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from perfguard import __version__
from perfguard.codec import from_builtins
from perfguard.config import LoadedConfig
from perfguard.errors import MeasurementError, PerfguardError, StoreError
from perfguard.gate.rejudge import rejudge_run
from perfguard.gate.tasks import task_result
from perfguard.history.reading import read_history
from perfguard.host.identity import machine_line
from perfguard.recordings import upgraded, with_nan
from perfguard.records.events import OpsCompared
from perfguard.records.facts import fact
from perfguard.records.history import History
from perfguard.records.result import RunResult
from perfguard.records.run import BlockConditions, CaseSamples, Stage
from perfguard.records.run_data import RunData
from perfguard.records.steps.ops import Attribution
from perfguard.records.steps.profile import ProfileReport
from perfguard.records.verdict import Policy
from perfguard.report.html.content import BlockPoint, CaseEvidence, RunContent
from perfguard.report.html.page import look, render_report
from perfguard.report.messages.catalog import describe
from perfguard.report.pages.raw_files import arm_facts, raw_files
from perfguard.report.terminal.fingerprint import render_fingerprint
from perfguard.runner.training import training_of
from perfguard.store.artifacts import RESULT_NAME, parse_result
from perfguard.watch.sources.event_sources import EVENTS_FILE, host_of, read_attribution, read_beside
from perfguard.watch.sources.event_tail import EventTail, SeenEvent, TailUpdate
from perfguard.watch.view.watching import CUT

_POLICY = Policy()
_STAGES = (Stage.MAIN, Stage.PAIRING, Stage.CONFIRMATION)


def report_on(loaded: LoadedConfig, folders: Sequence[Path], *, index: str = "") -> str:
    """One page on recorded runs, at least one; runs without a result are judged by the project's rule.

    `index` is the relative address of the page that lists all runs and has their history; empty where there is none.
    """
    contents = [read_run(loaded, folder, with_history=not index) for folder in folders]
    source = hashlib.sha256("".join(source_of(folder) for folder in folders).encode()).hexdigest()[:32]
    return render_report(contents, source=source, index=index)


def source_of(folder: Path) -> str:
    """Identity of everything that a run's page is made of: its files, this perfguard and the look of pages."""
    digest = hashlib.sha256(f"{__version__} {look()}".encode())
    for path in sorted([folder / EVENTS_FILE, *folder.glob("*.json")]):
        content = read_beside(folder, path.name)
        if content is None:  # missing, no plain file, or large: then its size and its age must do
            content = _size_and_age(path)
        digest.update(f"{path.name} {len(content)} ".encode("utf-8", "surrogateescape") + content)
    return digest.hexdigest()[:32]


def _size_and_age(path: Path) -> bytes:
    try:
        status = path.lstat()
    except OSError:
        return b""
    return f"{status.st_size} {status.st_mtime_ns}".encode()


def read_run(loaded: LoadedConfig, folder: Path, *, with_history: bool = True) -> RunContent:
    """Everything that is known of a run; never fails because of what stands in its folder."""
    problems: list[str] = []
    recording = _read_recording(folder, problems)
    data = recording.data
    start, case_ids, compared = data.start, data.case_ids, recording.compared
    profile = _profile(folder, problems)
    training = training_of(data, machine=_machine_line(folder)) if data.training is not None and start else None
    task = task_result(data, machine=_machine_line(folder)) if data.task is not None and start else None
    is_apart = training is not None or task is not None
    is_profile = profile is not None or is_apart or (start is not None and start.mode == "profile")
    if recording.started_at is not None and data.end is None and profile is None:
        problems.append("the recording has no end: the run was killed, or is still measuring")
    started_at, evidence = recording.started_at, _evidence(data, problems)
    del recording, data  # judging reads the events again, and takes as much
    result = None if is_profile else _result(folder, problems)
    is_rejudged = result is None and not is_profile
    if is_rejudged and start is None:
        problems.append("the recording holds no start of a run, so nothing can be judged")
    elif is_rejudged:
        result = _judged(loaded, folder, problems)
    if is_profile and profile is None and not is_apart:
        problems.append("profile.json is missing or damaged, so nothing that was profiled can be shown")
    return RunContent(
        run_id=folder.name,
        started_at=started_at,
        command=start.command if start else (),
        is_rejudged=is_rejudged and result is not None,
        result=result,
        profile=profile,
        training=training,
        task=task,
        evidence=evidence,
        attributions=_attributions(folder, compared, problems),
        history=_history(loaded, case_ids) if with_history and not is_profile else None,
        arm_facts=arm_facts(folder),
        fingerprint=_machine(folder),
        problems=tuple(problems),
        files=tuple(raw_files(folder)),
    )


class _Recording(Struct):
    """What the events add up to; of a recording of any length, a few numbers a sample."""

    data: RunData = field(default_factory=functools.partial(RunData, keeps_signals=False))
    compared: list[OpsCompared] = field(default_factory=list)
    started_at: float | None = None  # Seconds since the epoch, of the first event

    def add(self, seen: SeenEvent) -> None:
        """Take one more event."""
        self.started_at = seen.t_wall if self.started_at is None else self.started_at
        self.data.add(seen.event)
        if isinstance(seen.event, OpsCompared):
            self.compared.append(seen.event)


def _read_recording(folder: Path, problems: list[str]) -> _Recording:
    """Every event that can be read; `problems` takes what is wrong with the others."""
    recording = _Recording()
    for update in _updates(folder):
        recording = _Recording() if update.restarted else recording
        for seen in update.events:
            recording.add(seen)
        problems.extend(map(describe, update.problems))
    if recording.started_at is None and not problems:
        problems.append(f"{EVENTS_FILE} is missing or empty")
    if update.is_cut:
        problems.append(describe(CUT))
    return recording


def _updates(folder: Path) -> Iterator[TailUpdate]:
    """The whole file in pieces, one at least."""
    tail = EventTail(folder / EVENTS_FILE)
    while True:
        update = tail.poll()
        yield update
        if not update.has_more:
            return


def _evidence(data: RunData, problems: list[str]) -> dict[str, CaseEvidence]:
    """Blocks and samples of each case; a case whose times are unusable has none, which is said."""
    from perfguard.stats.paired import block_effect

    found: dict[str, CaseEvidence] = {}
    for case_id in data.case_ids:
        own = {stage: data.samples_of(case_id, stage) for stage in _STAGES}
        stage = Stage.PAIRING if own[Stage.PAIRING] else Stage.MAIN
        shown = (stage, Stage.CONFIRMATION)
        voided = {of: _voided(data.conditions(of), own[of], problems) for of in shown}
        try:
            blocks = tuple(
                BlockPoint(block=each.block, log_ratio=ratio, stage=of, voided=voided[of].get(each.block, ()))
                for of in shown
                for each in own[of]
                if math.isfinite(ratio := block_effect(each.baseline_s, each.candidate_s).log_ratio)
            )
        except MeasurementError as error:
            problems.append(f"{case_id}: {error}")
            continue
        counted = [each for each in own[stage] if each.block not in voided[stage]]
        found[case_id] = CaseEvidence(
            case_id=case_id,
            blocks=blocks,
            baseline_s=array("d", (value for each in counted for value in each.baseline_s)),
            candidate_s=array("d", (value for each in counted for value in each.candidate_s)),
        )
    return found


def _voided(
    conditions: Sequence[BlockConditions], own: Sequence[CaseSamples], problems: list[str]
) -> dict[int, tuple[str, ...]]:
    """Blocks that the arm-blind rule left out when the case was judged: right after the last one that holds it."""
    from perfguard.stats.voiding import void_blocks

    last = max((each.block for each in own), default=-1)
    try:
        voiding = void_blocks([known for known in conditions if known.block <= last], _POLICY)
    except MeasurementError as error:
        problems.append(f"cannot tell which blocks were disturbed: {error}")
        return {}
    return {block.block: (describe(fact("host.block_causes", block.causes)),) for block in voiding.voided}


def _result(folder: Path, problems: list[str]) -> RunResult | None:
    """What the run itself concluded; None where it left nothing that can be read."""
    content = read_beside(folder, RESULT_NAME)
    if content is None:
        return None
    try:
        return parse_result(content, source=RESULT_NAME)
    except StoreError as error:
        problems.append(str(error))
        return None


def _judged(loaded: LoadedConfig, folder: Path, problems: list[str]) -> RunResult | None:
    try:
        return rejudge_run(loaded, folder, (seen.event for update in _updates(folder) for seen in update.events))
    except (PerfguardError, ValueError, ArithmeticError) as error:
        problems.append(f"what was measured cannot be judged: {error}")
        return None


def _profile(folder: Path, problems: list[str]) -> ProfileReport | None:
    content = read_beside(folder, "profile.json")
    if content is None:
        return None
    try:
        data = json.loads(content)
        return from_builtins(
            upgraded(with_nan(data, ProfileReport), ProfileReport), ProfileReport, source="profile.json"
        )
    except (ValueError, RecursionError, StoreError) as error:
        problems.append(f"profile.json cannot be read: {error}")
        return None


def _attributions(folder: Path, compared: Iterable[OpsCompared], problems: list[str]) -> dict[str, Attribution]:
    """With every op where the file that holds them can be read, else with the largest differences."""
    found: dict[str, Attribution] = {}
    for event in compared:
        whole = read_attribution(lambda name: read_beside(folder, name), event.file)
        case_id = event.attribution.case_id
        if whole is None or whole.case_id != case_id:
            problems.append(f"{event.file} cannot be read: of the ops of {case_id} only the largest are shown")
            whole = event.attribution
        found[case_id] = whole
    return found


def _history(loaded: LoadedConfig, case_ids: Sequence[str]) -> History | None:
    """The series of the run's cases."""
    if not case_ids:
        return None
    try:
        return read_history(loaded, frozenset(case_ids))
    except PerfguardError:
        return None


def _machine_line(folder: Path) -> str:
    found = host_of(folder)
    return machine_line(found) if found is not None else "unknown machine"


def _machine(folder: Path) -> str:
    try:
        found = host_of(folder)
        return render_fingerprint(found) if found is not None else ""
    except (ValueError, TypeError):
        return ""
