"""Rules on what a package claims and how it was made; they say nothing of trees that perfguard did not make."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath

from perfguard.errors import StoreError
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.task_results import CellRun, TaskLoaded
from perfguard.records.tasks import Mode, ModelPrecision, Scenario
from perfguard.tasks.checking.tree import Logs, ResultTree, is_plain
from perfguard.tasks.judging import LEAST_SNR_DB
from perfguard.tasks.loadgen_logs import OWN_ANSWERS, OWN_STAMPS, answers_sha256, logged_speed
from perfguard.tasks.packages import MANIFEST
from perfguard.tasks.sampled_answers import SAMPLED, are_the_same, read_sample
from perfguard.tasks.two_clocks import StampedQueries, contradicted, read_stamps


def stamps_agree_with_logs(tree: ResultTree) -> Iterator[Fact]:
    """Perfguard's own time stamps have as many queries as LoadGen, last as long, and confirm its percentiles."""
    seen: dict[tuple[int, ...], str] = {}
    for logs, run in _own_runs(tree, Mode.PERFORMANCE):
        if OWN_STAMPS not in logs.files:
            yield fact("check.file_missing", severity=Severity.GRAVE, place=logs.place, name=OWN_STAMPS)
            continue
        path = tree.root / logs.place / OWN_STAMPS
        try:
            queries = read_stamps(path) if is_plain(path) else None
        except StoreError:
            queries = None
        if queries is None:
            problem = f"{OWN_STAMPS} cannot be read"
            yield fact("check.unreadable", severity=Severity.GRAVE, place=logs.place, problem=problem)
            continue
        if (other := seen.setdefault(tuple(queries.returned_ns), logs.place)) != logs.place:
            yield fact("check.copied", severity=Severity.GRAVE, place=logs.place, other=other)
        if run.scenario is Scenario.SINGLE_STREAM:
            yield from _other_stamps(tree, logs, queries)


def _other_stamps(tree: ResultTree, logs: Logs, queries: StampedQueries) -> Iterator[Fact]:
    """Of queries that came one after the other."""
    count, own = logs.number("result_query_count"), len(queries.begun_ns)
    if count != own:
        yield fact("check.stamp_count", severity=Severity.GRAVE, place=logs.place, own=own, loadgen=int(count or 0))
        return
    span_s = (queries.returned_ns[-1] - queries.returned_ns[0]) / 1e9
    least_s = tree.package.plan.duration.min_s if tree.package is not None else 0.0
    if span_s < least_s:
        yield fact("check.span", severity=Severity.GRAVE, place=logs.place, span_s=span_s, least_s=least_s)
    for differing in contradicted(queries, logs.number):
        yield fact(
            "check.stamps",
            severity=Severity.GRAVE,
            place=logs.place,
            own_s=differing.own_ns / 1e9,
            loadgen_s=differing.loadgen_ns / 1e9,
        )


def claims_follow_from_logs(tree: ResultTree) -> Iterator[Fact]:
    """The package's figures are those of LoadGen's logs, none left out."""
    for logs, run in _own_runs(tree, Mode.PERFORMANCE):
        if run.speed is None or logs.detail is None:
            continue
        logged = logged_speed(logs.detail, logs.scenario)
        queries = None if logs.scenario is Scenario.OFFLINE else logs.number("result_query_count")
        figures: dict[str, tuple[float | None, float | None]] = {
            "validity": (float(run.speed.is_valid), float(logged.is_valid)),
            "score": (run.speed.score_s, logged.score_s),
            "p90": (run.speed.p90_s, logged.p90_s),
            "samples per second": (run.speed.samples_per_s, logged.samples_per_s),
            "mean": (run.speed.mean_s, logged.mean_s),
            "queries": (queries and float(run.speed.queries), queries),
        }
        for name, (claimed, found) in figures.items():
            if claimed is None and found is None:
                continue
            if claimed is None or found is None or not math.isclose(claimed, found, rel_tol=1e-6):
                yield fact(
                    "check.claim",
                    severity=Severity.GRAVE,
                    place=logs.place,
                    name=name,
                    claimed=claimed or 0.0,
                    logged=found or 0.0,
                )


def quality_reaches_its_target(tree: ResultTree) -> Iterator[Fact]:
    """The quality of each cell is at least what the task wants."""
    for logs, run in _own_runs(tree, Mode.ACCURACY):
        target = tree.package.plan.task.quality if tree.package is not None else None
        # The metrics are shares: whoever claims more than 1 has made it up, however far beyond the target.
        if target is not None and run.quality is not None and not target.least <= run.quality.value <= 1:
            yield fact(
                "check.quality",
                severity=Severity.GRAVE,
                place=logs.place,
                quality=run.quality.value,
                least=target.least,
            )


def answers_are_those_that_were_judged(tree: ResultTree) -> Iterator[Fact]:
    """The quality was computed from the accuracy log that is there."""
    for logs, run in _own_runs(tree, Mode.ACCURACY):
        if run.quality is not None and answers_sha256(logs.answers) != run.quality.answers_sha256:
            yield fact("check.answers_changed", severity=Severity.GRAVE, place=logs.place)


def speed_runs_answer_as_accuracy_runs(tree: ResultTree) -> Iterator[Fact]:
    """Answers that were kept of each measurement of speed are those of accuracy mode, but for rounding."""
    judged = {
        run.cell.id: {answer.sample: answer.data for answer in logs.answers}
        for logs, run in _own_runs(tree, Mode.ACCURACY)
    }
    for logs, run in _own_runs(tree, Mode.PERFORMANCE):
        if OWN_ANSWERS not in logs.files:
            yield fact("check.file_missing", severity=Severity.GRAVE, place=logs.place, name=OWN_ANSWERS)
            continue
        path = tree.root / logs.place / OWN_ANSWERS
        try:
            sampled = read_sample(path) if is_plain(path) else ()
        except StoreError:
            sampled = ()
        if len(sampled) < _least_sampled(tree):
            problem = f"{OWN_ANSWERS} cannot be read, or has too few answers"
            yield fact("check.unreadable", severity=Severity.GRAVE, place=logs.place, problem=problem)
        elif run.cell.id in judged and not are_the_same(sampled, judged[run.cell.id]):
            yield fact("check.answers_differ", severity=Severity.GRAVE, place=logs.place, cell=run.cell.id)


def models_are_the_same(tree: ResultTree) -> Iterator[Fact]:
    """All cells ran one model."""
    for other in _unlike_most(tree, lambda loaded: loaded.model_sha256):
        yield fact("check.model", severity=Severity.GRAVE, place=other.place, found=other.found, usual=other.usual)


def data_is_the_tasks(tree: ResultTree) -> Iterator[Fact]:
    """All measurements used the same data, and it is the task's where that has a checksum."""
    for other in _unlike_most(tree, lambda loaded: loaded.data_sha256):
        yield fact("check.data", severity=Severity.GRAVE, place=other.place, found=other.found, wanted=other.usual)
    wanted = tree.package.plan.task.data.sha256 if tree.package is not None else None
    for run in _runs(tree):
        if wanted is not None and run.loaded is not None and run.loaded.data_sha256 != wanted:
            yield fact(
                "check.data",
                severity=Severity.GRAVE,
                place=run.logs,
                found=run.loaded.data_sha256[:12],
                wanted=wanted[:12],
            )


def code_is_the_same(tree: ResultTree) -> Iterator[Fact]:
    """Times and answers come from the same code."""
    for other in _unlike_most(tree, lambda loaded: loaded.code_sha256):
        yield fact("check.code", severity=Severity.GRAVE, place=other.place, found=other.found, usual=other.usual)


def tree_was_clean(tree: ResultTree) -> Iterator[Fact]:
    """Nothing in the project was changed and not committed."""
    if tree.package is not None and tree.package.is_dirty:
        yield fact("check.dirty", severity=Severity.GRAVE, place=MANIFEST, commit=tree.package.commit)


def precision_is_what_was_asked_for(tree: ResultTree) -> Iterator[Fact]:
    """The framework computed in the precision of the cell, and FP32 is FP32."""
    for run in _runs(tree):
        loaded = run.loaded
        if loaded is None:
            continue
        if loaded.ran_in != run.cell.precision.value:
            yield fact(
                "check.precision",
                severity=Severity.GRAVE,
                place=run.logs,
                asked=run.cell.precision.value,
                ran_in=loaded.ran_in,
            )
        if run.cell.precision is ModelPrecision.FP32 and loaded.snr_db is not None and loaded.snr_db < LEAST_SNR_DB:
            yield fact(
                "check.not_fp32", severity=Severity.GRAVE, place=run.logs, snr_db=loaded.snr_db, least_db=LEAST_SNR_DB
            )


def times_come_before_answers(tree: ResultTree) -> Iterator[Fact]:
    """All measurements of speed were over before the first one of quality."""
    times = [run.ended_at for run in _runs(tree) if run.mode is Mode.PERFORMANCE]
    for run in _runs(tree):
        if run.mode is Mode.ACCURACY and times and run.began_at < max(times):
            yield fact("check.order", severity=Severity.GRAVE, place=run.logs)


def pauses_were_made(tree: ResultTree) -> Iterator[Fact]:
    """One measurement follows the other, after the pause that the plan says, unless the CPU was cool before."""
    if tree.package is None:
        return
    cooling = tree.package.plan.cooling
    runs = sorted((run for run in _runs(tree) if run.problem is None), key=lambda run: run.began_at)
    for run in runs:
        if run.speed is not None and run.ended_at - run.began_at < run.speed.duration_s:
            yield fact("check.overlap", severity=Severity.GRAVE, place=run.logs)
    for before, after in pairwise(runs):
        paused_s = after.began_at - before.ended_at
        is_timed = cooling.by == "time" and after.mode is before.mode is Mode.PERFORMANCE
        if paused_s < 0:
            yield fact("check.overlap", severity=Severity.GRAVE, place=after.logs)
        elif is_timed and paused_s < cooling.most_s:
            values = {"paused_s": paused_s, "least_s": cooling.most_s}
            yield fact("check.pause", values, severity=Severity.GRAVE, place=after.logs)


def files_are_unchanged(tree: ResultTree) -> Iterator[Fact]:
    """Each file has the checksum that the package has of it, and none was added."""
    if tree.package is None:
        return
    for name, wanted in sorted(tree.package.files.items()):
        found = _sha256(tree.root, name)
        if found != wanted:
            yield fact(
                "check.file_changed" if found else "check.file_missing",
                severity=Severity.GRAVE,
                place=name,
                name=PurePosixPath(name).name,
            )
    for path in sorted(filter(is_plain, tree.root.rglob("*"))):
        name = str(path.relative_to(tree.root))
        if path.name != MANIFEST and name not in tree.package.files:
            yield fact("check.file_changed", severity=Severity.GRAVE, place=name, name=path.name)


def runs_are_all_there(tree: ResultTree) -> Iterator[Fact]:
    """Each measurement that the package names has its logs, and no other ones are there."""
    if tree.package is None:
        return
    named = Counter(run.logs for run in tree.package.runs if run.problem is None)
    found = Counter(logs.place for logs in tree.logs)
    for place in sorted((named - found).keys()):
        yield fact("check.run_missing", severity=Severity.GRAVE, place=place)
    for place in sorted(found.keys() - named.keys()):
        yield fact("check.run_unknown", severity=Severity.GRAVE, place=place)


def _least_sampled(tree: ResultTree) -> int:
    return min(SAMPLED, tree.package.plan.duration.min_queries) if tree.package is not None else 0


def _runs(tree: ResultTree) -> tuple[CellRun, ...]:
    return tree.package.runs if tree.package is not None else ()


def _sha256(root: Path, name: str) -> str | None:
    """Of a plain file below a folder; None where there is none."""
    path = root / name
    try:
        if not path.resolve().is_relative_to(root.resolve()) or not is_plain(path):
            return None
    except (OSError, ValueError, RuntimeError):  # a null byte, or links in a circle
        return None
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


def _own_runs(tree: ResultTree, mode: Mode) -> Iterator[tuple[Logs, CellRun]]:
    """Logs with what the package says of them."""
    return ((logs, logs.run) for logs in tree.of_mode(mode) if logs.run is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Other:
    """A measurement that differs from most others of its package."""

    place: str
    found: str  # The first characters of a hash
    usual: str


def _unlike_most(tree: ResultTree, of: Callable[[TaskLoaded], str]) -> Iterator[_Other]:
    values = {run.logs: of(run.loaded) for run in _runs(tree) if run.loaded is not None}
    usual = Counter(values.values()).most_common(1)
    for place, value in values.items():
        if value != usual[0][0]:
            yield _Other(place=place, found=value[:12], usual=usual[0][0][:12])
