"""Rules on the plan of a package: that it is the task's and the run size's, that all of it was measured and judged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from perfguard.errors import PerfguardError
from perfguard.plain_files import read_plain
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.task_results import CellResult, Interval95, Package
from perfguard.records.tasks import Mode, Seeds, TaskConfig
from perfguard.tasks.checking.tree import ResultTree
from perfguard.tasks.judging import MIN_ROUNDS, judge
from perfguard.tasks.packages import MANIFEST, SCENARIO_FOLDERS, logs_folder, system_file, task_file
from perfguard.tasks.task_files import builtin_names, duration_of, load_task, pause_s, with_random_weights, with_target

_MOST_BYTES = 2**20  # Of a task
_EQUAL_RATIO = 1e-6

T = TypeVar("T")


def packaged_tasks_are_unchanged(tree: ResultTree) -> Iterator[Fact]:
    """A task with the name of a packaged one is that one; only an open package has another target."""
    if tree.package is None or (task := tree.package.plan.task).name not in builtin_names():
        return
    known = load_task(task.name)
    allowed = [known, *([with_random_weights(known)] if known.data.stand_in is not None else [])]
    if tree.package.plan.is_open:
        allowed = [with_target(each, task.quality.fraction) for each in allowed]
    if replace(task, doc="") not in [replace(each, doc="") for each in allowed]:
        yield fact("check.task", severity=Severity.GRAVE, place=MANIFEST, task=task.name)


def task_files_hold_the_task(tree: ResultTree) -> Iterator[Fact]:
    """The task that somebody would run again is the one of the package."""
    if tree.package is None:
        return
    place = task_file(tree.package.plan)
    content = read_plain(tree.root / place, _MOST_BYTES)
    if content is None:
        yield fact("check.file_missing", severity=Severity.GRAVE, place=str(place), name=place.name)
        return
    if _decoded(content, TaskConfig) != tree.package.plan.task:
        yield fact("check.task_file", severity=Severity.GRAVE, place=str(place))


def plans_are_the_rules(tree: ResultTree) -> Iterator[Fact]:
    """Durations, pauses, rounds and seeds are those of the run size; scenario and machine are those of the logs."""
    if tree.package is None:
        return
    plan = tree.package.plan
    duration, systems = duration_of(plan.task, plan.scenario, plan.size), sorted({logs.system for logs in tree.logs})
    compared: tuple[tuple[str, Any, Any], ...] = (
        ("scenario", [plan.scenario.value], sorted({logs.scenario.value for logs in tree.logs})),
        ("queries", plan.duration.min_queries, duration.min_queries),
        ("shortest duration in seconds", plan.duration.min_s, duration.min_s),
        ("longest duration in seconds", plan.duration.max_s, duration.max_s),
        ("pause in seconds", plan.cooling.most_s, pause_s(plan.size)),
        ("rounds", plan.rounds, max(plan.rounds, MIN_ROUNDS if len(plan.cells) > 1 else 1)),
        ("cells", len(plan.cells), len(set(plan.cells))),
        ("part", [plan.part.value], [each.value for each in plan.task.data.parts if each is plan.part]),
        ("seeds", plan.seeds, Seeds()),
        ("machine", [tree.package.machine_id], systems),
    )
    for name, found, wanted in compared:
        if found != wanted:
            values = {"name": name, "found": _text(found), "wanted": _text(wanted)}
            yield fact("check.plan", values, severity=Severity.GRAVE, place=MANIFEST)


def systems_are_whole(tree: ResultTree) -> Iterator[Fact]:
    """The description of the machine is its fingerprint."""
    if tree.package is None:
        return
    place = system_file(tree.package.plan, tree.package.machine_id)
    system = _decoded(read_plain(tree.root / place, _MOST_BYTES) or b"", Fingerprint)
    if system is None or system.machine_id != tree.package.machine_id:
        yield fact("check.system", severity=Severity.GRAVE, place=str(place))


def _decoded(content: bytes, kind: type[T]) -> T | None:
    """None where the content is something else."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def runs_are_what_their_folders_say(tree: ResultTree) -> Iterator[Fact]:
    """A measurement lies in the folder of its cell, mode and round, and has results, unless it has a problem."""
    if tree.package is None:
        return
    plan, system = tree.package.plan, tree.package.machine_id
    for run in tree.package.runs:
        wanted = logs_folder(plan, system, run.cell, run.mode, run.round) if plan.scenario in SCENARIO_FOLDERS else None
        if run.scenario is not plan.scenario or run.logs != str(wanted):
            yield fact("check.folder", severity=Severity.GRAVE, place=run.logs, wanted=str(wanted))
        found = run.speed if run.mode is Mode.PERFORMANCE else run.quality
        if run.problem is None and (found is None or run.loaded is None):
            yield fact("check.no_result", severity=Severity.GRAVE, place=run.logs)


def every_round_was_measured(tree: ResultTree) -> Iterator[Fact]:
    """Each cell of the plan has all its rounds and one measurement of quality, unless it has a problem."""
    if tree.package is None:
        return
    plan, runs = tree.package.plan, tree.package.runs
    for run in runs:
        if run.cell not in plan.cells:
            yield fact("check.run_unknown", severity=Severity.GRAVE, place=run.logs)
    for cell in plan.cells:
        own = [run for run in runs if run.cell == cell]
        if any(run.problem is not None and run.problem.code != "task.interrupted" for run in own):
            continue
        for mode, wanted in ((Mode.PERFORMANCE, list(range(plan.rounds))), (Mode.ACCURACY, [0])):
            found = sorted(run.round for run in own if run.mode is mode)
            if found != wanted:
                yield fact(
                    "check.rounds",
                    severity=Severity.GRAVE,
                    place=MANIFEST,
                    cell=cell.id,
                    mode=mode.value,
                    found=len(found),
                    wanted=len(wanted),
                )


def claims_follow_from_measurements(tree: ResultTree) -> Iterator[Fact]:
    """What the package says of each cell is what its measurements come to."""
    package = tree.package
    if package is None:
        return
    try:
        judged = judge(package.plan, package.runs) if package.plan.cells else ()
    except (PerfguardError, ValueError, ArithmeticError):
        yield _unlike(None, "times", "above 0", "none that can be compared")
        return
    claimed = [result.cell for result in package.cells]
    if claimed != list(package.plan.cells):
        yield _unlike(None, "cells", ", ".join(cell.id for cell in claimed), _cells_of(package))
        return
    for claim, found in zip(package.cells, judged, strict=True):
        yield from _other_claims(claim, found)


def _other_claims(claim: CellResult, found: CellResult) -> Iterator[Fact]:
    for name, claimed, measured in (
        ("score", claim.score, found.score),
        ("quality", claim.quality, found.quality),
        *_of_ratio(claim.over_reference, found.over_reference),
    ):
        if not _is_equal(claimed, measured):
            yield fact(
                "check.claim",
                severity=Severity.GRAVE,
                place=MANIFEST,
                name=name,
                claimed=claimed or 0.0,
                logged=measured or 0.0,
            )
    if claim.outcome is not found.outcome:
        yield _unlike(claim, "result", claim.outcome.value, found.outcome.value)
    elif _codes(claim) != _codes(found):
        yield _unlike(claim, "reasons", *(", ".join(_codes(each)) or "none" for each in (claim, found)))
    if claim.rounds != found.rounds:
        yield _unlike(claim, "rounds", str(claim.rounds), str(found.rounds))
    if claim.loaded != found.loaded:
        yield _unlike(claim, "model", "another one", "that of its measurements")


def _codes(result: CellResult) -> list[str]:
    return [reason.code for reason in result.reasons]


def _of_ratio(claimed: Interval95 | None, found: Interval95 | None) -> Iterator[tuple[str, float | None, float | None]]:
    for name in ("ratio", "lower", "upper"):
        yield name, getattr(claimed, name, None), getattr(found, name, None)


def _is_equal(claimed: float | None, measured: float | None) -> bool:
    if claimed is None or measured is None:
        return claimed is measured
    return math.isclose(claimed, measured, rel_tol=_EQUAL_RATIO)


def _unlike(claim: CellResult | None, name: str, claimed: str, found: str) -> Fact:
    return fact(
        "check.cell",
        severity=Severity.GRAVE,
        place=MANIFEST,
        cell=claim.cell.id if claim is not None else None,
        name=name,
        claimed=claimed,
        found=found,
    )


def _cells_of(package: Package) -> str:
    return ", ".join(cell.id for cell in package.plan.cells)


def _text(value: Any) -> str:
    if isinstance(value, Seeds):
        return f"{value.qsl}, {value.sample_index}, {value.schedule}"
    return ", ".join(value) if isinstance(value, list) else f"{value:g}"
