"""The run rules, one function each: a tree in, broken rules out."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.tasks import CellRun, Mode, Precision, Scenario, Seeds, TaskLoaded
from perfguard.tasks.checking.tree import Logs, Tree
from perfguard.tasks.judging import LEAST_SNR_DB
from perfguard.tasks.loadgen_logs import DETAIL, FIRST_ANSWERS, OWN_STAMPS, SUMMARY, answers_sha256, duplicates
from perfguard.tasks.packages import MANIFEST, SCENARIO_FOLDERS
from perfguard.tasks.scores import LEAST_EQUAL_DB, confirms, early_stopping, percentile, snr_db

_ROUNDS_OF_MLPERF = (
    Seeds(),
    Seeds(qsl=1624344308455410291, sample_index=517984244576520566, schedule=10051496985653635065),  # v1.1
)
_LEAST_QUERIES, _LEAST_S, _LEAST_OFFLINE = 1024, 60.0, 24_576
_TEST_MODES = {Mode.PERFORMANCE: "PerformanceOnly", Mode.ACCURACY: "AccuracyOnly"}
_UNSET = {
    "effective_performance_issue_same": False,
    "effective_performance_issue_unique": False,
    "effective_accuracy_log_sampling_target": 0,
    "effective_max_query_count": 0,
}
"""Settings that a measurement of speed leaves alone; an `audit.config` changes them."""
_SUMMARY = {
    "90.00 percentile latency (ns)": "result_90.00_percentile_latency_ns",
    "mean latency (ns)": "result_mean_latency_ns",
    "min latency (ns)": "result_min_latency_ns",
    "max latency (ns)": "result_max_latency_ns",
    "result is": "result_validity",
    "samples per second": "result_samples_per_second",
    "min_query_count": "effective_min_query_count",
    "qsl_rng_seed": "effective_qsl_rng_seed",
}
"""Lines of the summary, and where the detail log says the same."""

Rule = Callable[[Tree], Iterator[Fact]]


def files_are_there(tree: Tree) -> Iterator[Fact]:
    """Each measurement has LoadGen's detail log and summary, and they can be read."""
    for logs in tree.logs:
        wanted = [DETAIL] if logs.mode is Mode.ACCURACY else [DETAIL, SUMMARY]
        for name in wanted:
            if name not in logs.files:
                yield fact("check.file_missing", severity=Severity.GRAVE, place=logs.place, name=name)
        for problem in logs.problems:
            yield fact("check.unreadable", severity=Severity.GRAVE, place=logs.place, problem=problem)


def both_modes_are_there(tree: Tree) -> Iterator[Fact]:
    """What has times also has answers, and the other way round."""
    modes: dict[tuple[str, str, Scenario], set[Mode]] = defaultdict(set)
    for logs in tree.logs:
        modes[logs.system, logs.benchmark, logs.scenario].add(logs.mode)
    for (system, benchmark, scenario), found in modes.items():
        for missing in set(Mode) - found:
            yield fact(
                "check.mode_missing",
                severity=Severity.GRAVE,
                place=f"{system}/{benchmark}/{SCENARIO_FOLDERS[scenario]}",
                mode=missing.value,
            )


def systems_are_described(tree: Tree) -> Iterator[Fact]:
    """Each system has a description."""
    for system in sorted({logs.system for logs in tree.logs} - tree.systems):
        yield fact("check.system_missing", severity=Severity.GRAVE, place=f"systems/{system}.json")


def loadgen_reports_no_error(tree: Tree) -> Iterator[Fact]:
    """LoadGen's log has no error of its own."""
    for logs in tree.logs:
        for error in logs.detail.errors if logs.detail else ():
            yield fact("check.loadgen_error", severity=Severity.GRAVE, place=logs.place, error=error)


def modes_and_scenarios_fit(tree: Tree) -> Iterator[Fact]:
    """A log is of the mode and the scenario that its folder says."""
    for logs in tree.logs:
        for key, wanted in (("test_mode", _TEST_MODES[logs.mode]), ("scenario", SCENARIO_FOLDERS[logs.scenario])):
            found = logs.value(f"effective_{key}")
            if logs.detail is not None and found != wanted:
                yield fact(
                    "check.wrong_mode", severity=Severity.GRAVE, place=logs.place, wanted=wanted, found=str(found)
                )


def results_are_valid(tree: Tree) -> Iterator[Fact]:
    """LoadGen calls each measurement of speed valid."""
    for logs in tree.of_mode(Mode.PERFORMANCE):
        if logs.detail is not None and logs.value("result_validity") != "VALID":
            yield fact(
                "check.invalid", severity=Severity.GRAVE, place=logs.place, validity=str(logs.value("result_validity"))
            )


def early_stopping_was_met(tree: Tree) -> Iterator[Fact]:
    """Where LoadGen stops early, it had enough queries; logs before v1.1 of LoadGen do not say."""
    for logs in tree.of_mode(Mode.PERFORMANCE):
        if logs.value("early_stopping_met") is False:
            yield fact("check.early_stopping", severity=Severity.GRAVE, place=logs.place)


def seeds_are_the_rounds(tree: Tree) -> Iterator[Fact]:
    """Seeds are those of the package, or of a round of MLPerf Mobile."""
    allowed = (tree.package.plan.seeds,) if tree.package is not None else _ROUNDS_OF_MLPERF
    for logs in tree.of_mode(Mode.PERFORMANCE):
        values = [logs.value(f"effective_{name}_rng_seed") for name in ("qsl", "sample_index", "schedule")]
        if logs.detail is not None and values not in [[each.qsl, each.sample_index, each.schedule] for each in allowed]:
            yield fact("check.seeds", severity=Severity.GRAVE, place=logs.place, seeds=", ".join(map(str, values)))


def queries_are_enough(tree: Tree) -> Iterator[Fact]:
    """As many queries, or samples offline, as the rules want: asked for and made."""
    for logs in tree.of_mode(Mode.PERFORMANCE):
        if logs.detail is None:
            continue
        is_offline = logs.scenario is Scenario.OFFLINE
        least = _LEAST_OFFLINE if is_offline else _LEAST_QUERIES
        if tree.package is not None:
            least = tree.package.plan.duration.min_queries
        asked = logs.number("effective_samples_per_query" if is_offline else "effective_min_query_count") or 0
        made = logs.number("result_query_count")
        if asked < least or (made is not None and not is_offline and made < least):
            yield fact(
                "check.too_few_queries",
                severity=Severity.GRAVE,
                place=logs.place,
                queries=int(min(asked, made or asked)),
                least=least,
            )


def durations_are_long_enough(tree: Tree) -> Iterator[Fact]:
    """The shortest duration that LoadGen was asked for is the rules'."""
    for logs in tree.of_mode(Mode.PERFORMANCE):
        least_s = 0.0 if logs.scenario is Scenario.OFFLINE else _LEAST_S
        if tree.package is not None:
            least_s = tree.package.plan.duration.min_s
        found = logs.number("effective_min_duration_ms")
        if logs.detail is not None and (found or 0) / 1000 < least_s:
            yield fact(
                "check.too_short",
                severity=Severity.GRAVE,
                place=logs.place,
                duration_s=(found or 0) / 1000,
                least_s=least_s,
            )


def settings_are_left_alone(tree: Tree) -> Iterator[Fact]:
    """No setting that repeats, picks or logs samples is on in a measurement of speed."""
    for logs in tree.of_mode(Mode.PERFORMANCE):
        for key, wanted in _UNSET.items():
            found = logs.value(key)
            if found is not None and found != wanted:
                yield fact(
                    "check.setting",
                    severity=Severity.GRAVE,
                    place=logs.place,
                    name=key.removeprefix("effective_"),
                    value=str(found),
                )


def no_audit_config(tree: Tree) -> Iterator[Fact]:
    """No file lies about that changes LoadGen's settings."""
    for path in tree.stray:
        yield fact("check.audit_config", severity=Severity.GRAVE, place=path)


def summaries_say_what_logs_say(tree: Tree) -> Iterator[Fact]:
    """Figures of the summary are those of the detail log."""
    for logs in tree.of_mode(Mode.PERFORMANCE):
        for name, key in _SUMMARY.items():
            said, logged = logs.summary.get(name), logs.value(key)
            if said is not None and logged is not None and not _is_same(said, logged):
                yield fact(
                    "check.summary", severity=Severity.GRAVE, place=logs.place, name=name, said=said, logged=str(logged)
                )


def every_example_has_one_answer(tree: Tree) -> Iterator[Fact]:
    """In accuracy mode each example was answered, once."""
    for logs in tree.of_mode(Mode.ACCURACY):
        wanted = logs.number("effective_accuracy_sample_count") or logs.number("qsl_reported_total_count")
        if wanted is None:
            continue
        found = {answer.sample for answer in logs.answers}
        missing, twice = int(wanted) - len(found), len(duplicates(logs.answers))
        if missing or twice:
            yield fact(
                "check.answers",
                severity=Severity.GRAVE,
                place=logs.place,
                missing=missing,
                twice=twice,
                examples=int(wanted),
            )


def stamps_agree_with_logs(tree: Tree) -> Iterator[Fact]:
    """Perfguard's own time stamps have as many queries as LoadGen, and the same percentiles."""
    for logs, run in _own_runs(tree, Mode.PERFORMANCE):
        if OWN_STAMPS not in logs.files:
            yield fact("check.file_missing", severity=Severity.GRAVE, place=logs.place, name=OWN_STAMPS)
            continue
        if run.scenario is not Scenario.SINGLE_STREAM:
            continue
        with np.load(tree.root / logs.place / OWN_STAMPS) as stamps:
            latencies = (stamps["ended_ns"] - stamps["begun_ns"]).tolist()
        count = logs.number("result_query_count")
        if count is not None and count != len(latencies):
            yield fact(
                "check.stamp_count", severity=Severity.GRAVE, place=logs.place, own=len(latencies), loadgen=int(count)
            )
            continue
        pairs = ((percentile(latencies), logs.number("result_90.00_percentile_latency_ns")),
                 (early_stopping(latencies), logs.number("early_stopping_latency_ss")))  # fmt: skip
        for own_ns, theirs_ns in pairs:
            if own_ns is not None and theirs_ns is not None and not confirms(latencies, theirs_ns, own_ns):
                yield fact(
                    "check.stamps",
                    severity=Severity.GRAVE,
                    place=logs.place,
                    own_s=own_ns / 1e9,
                    loadgen_s=theirs_ns / 1e9,
                )


def claims_follow_from_logs(tree: Tree) -> Iterator[Fact]:
    """The package's figures are those of LoadGen's logs."""
    for logs, run in _own_runs(tree, Mode.PERFORMANCE):
        if run.speed is None:
            continue
        keys = {
            "score": (run.speed.score_s, "early_stopping_latency_ss", 1e9),
            "p90": (run.speed.p90_s, "result_90.00_percentile_latency_ns", 1e9),
            "samples per second": (run.speed.samples_per_s, "result_samples_per_second", 1.0),
        }
        for name, (claimed, key, unit) in keys.items():
            logged = logs.number(key)
            if claimed is not None and logged is not None and abs(claimed * unit - logged) > 1e-6 * logged:
                yield fact(
                    "check.claim",
                    severity=Severity.GRAVE,
                    place=logs.place,
                    name=name,
                    claimed=claimed,
                    logged=logged / unit,
                )


def quality_reaches_its_target(tree: Tree) -> Iterator[Fact]:
    """The quality of each cell is at least what the task wants."""
    for logs, run in _own_runs(tree, Mode.ACCURACY):
        target = tree.package.plan.task.quality if tree.package is not None else None
        if target is not None and run.quality is not None and run.quality.value < target.least:
            yield fact(
                "check.quality",
                severity=Severity.GRAVE,
                place=logs.place,
                quality=run.quality.value,
                least=target.least,
            )


def answers_are_those_that_were_judged(tree: Tree) -> Iterator[Fact]:
    """The quality was computed from the accuracy log that is there."""
    for logs, run in _own_runs(tree, Mode.ACCURACY):
        if run.quality is not None and answers_sha256(logs.answers) != run.quality.answers_sha256:
            yield fact("check.answers_changed", severity=Severity.GRAVE, place=logs.place)


def speed_runs_answer_as_accuracy_runs(tree: Tree) -> Iterator[Fact]:
    """In each measurement of speed a cell answered the first examples as in that of quality, but for rounding."""
    judged = {run.cell.id: _first_answers(tree, logs) for logs, run in _own_runs(tree, Mode.ACCURACY)}
    for logs, run in _own_runs(tree, Mode.PERFORMANCE):
        found, wanted = _first_answers(tree, logs), judged.get(run.cell.id)
        if found is None:
            yield fact("check.file_missing", severity=Severity.GRAVE, place=logs.place, name=FIRST_ANSWERS)
        elif wanted is not None and (level := snr_db((found,), (wanted,))) is not None and level < LEAST_EQUAL_DB:
            yield fact("check.answers_differ", severity=Severity.GRAVE, place=logs.place, cell=run.cell.id)


def models_are_the_same(tree: Tree) -> Iterator[Fact]:
    """All cells ran one model."""
    for other in _unlike_most(tree, lambda loaded: loaded.model_sha256):
        yield fact("check.model", severity=Severity.GRAVE, place=other.place, found=other.found, usual=other.usual)


def data_is_the_tasks(tree: Tree) -> Iterator[Fact]:
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


def code_is_the_same(tree: Tree) -> Iterator[Fact]:
    """Times and answers come from the same code."""
    for other in _unlike_most(tree, lambda loaded: loaded.code_sha256):
        yield fact("check.code", severity=Severity.GRAVE, place=other.place, found=other.found, usual=other.usual)


def tree_was_clean(tree: Tree) -> Iterator[Fact]:
    """Nothing in the project was changed and not committed."""
    if tree.package is not None and tree.package.is_dirty:
        yield fact("check.dirty", severity=Severity.GRAVE, place=MANIFEST, commit=tree.package.commit)


def precision_is_what_was_asked_for(tree: Tree) -> Iterator[Fact]:
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
        if run.cell.precision is Precision.FP32 and loaded.snr_db is not None and loaded.snr_db < LEAST_SNR_DB:
            yield fact(
                "check.not_fp32", severity=Severity.GRAVE, place=run.logs, snr_db=loaded.snr_db, least_db=LEAST_SNR_DB
            )


def times_come_before_answers(tree: Tree) -> Iterator[Fact]:
    """All measurements of speed were over before the first one of quality."""
    times = [run.ended_at for run in _runs(tree) if run.mode is Mode.PERFORMANCE]
    for run in _runs(tree):
        if run.mode is Mode.ACCURACY and times and run.began_at < max(times):
            yield fact("check.order", severity=Severity.GRAVE, place=run.logs)


def pauses_were_made(tree: Tree) -> Iterator[Fact]:
    """Between two measurements of speed lies the pause that the plan says, or the CPU was cool before."""
    if tree.package is None or tree.package.plan.cooling.by != "time":
        return
    most_s = tree.package.plan.cooling.most_s
    runs = sorted((run for run in _runs(tree) if run.mode is Mode.PERFORMANCE), key=lambda run: run.began_at)
    for before, after in pairwise(runs):
        if after.began_at - before.ended_at < most_s:
            yield fact(
                "check.pause",
                severity=Severity.GRAVE,
                place=after.logs,
                paused_s=max(0.0, after.began_at - before.ended_at),
                least_s=most_s,
            )


def files_are_unchanged(tree: Tree) -> Iterator[Fact]:
    """Each file has the checksum that the package has of it, and none was added to the results."""
    if tree.package is None:
        return
    for name, wanted in sorted(tree.package.files.items()):
        path = tree.root / name
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        if found != wanted:
            yield fact(
                "check.file_changed" if found else "check.file_missing",
                severity=Severity.GRAVE,
                place=name,
                name=path.name,
            )


def runs_are_all_there(tree: Tree) -> Iterator[Fact]:
    """Each measurement that the package names has its logs, and no other ones are there."""
    if tree.package is None:
        return
    named = Counter(run.logs for run in tree.package.runs if run.problem is None)
    found = Counter(logs.place for logs in tree.logs)
    for place in sorted((named - found).keys()):
        yield fact("check.run_missing", severity=Severity.GRAVE, place=place)
    for place in sorted(found.keys() - {run.logs for run in tree.package.runs}):
        yield fact("check.run_unknown", severity=Severity.GRAVE, place=place)


RULES: tuple[Rule, ...] = (
    files_are_there,
    both_modes_are_there,
    systems_are_described,
    loadgen_reports_no_error,
    modes_and_scenarios_fit,
    results_are_valid,
    early_stopping_was_met,
    seeds_are_the_rounds,
    queries_are_enough,
    durations_are_long_enough,
    settings_are_left_alone,
    no_audit_config,
    summaries_say_what_logs_say,
    every_example_has_one_answer,
    stamps_agree_with_logs,
    claims_follow_from_logs,
    quality_reaches_its_target,
    answers_are_those_that_were_judged,
    speed_runs_answer_as_accuracy_runs,
    models_are_the_same,
    data_is_the_tasks,
    code_is_the_same,
    tree_was_clean,
    precision_is_what_was_asked_for,
    times_come_before_answers,
    pauses_were_made,
    files_are_unchanged,
    runs_are_all_there,
)
"""All of them; those on packages say nothing of other trees."""


def broken_rules(tree: Tree) -> tuple[Fact, ...]:
    """Every rule that is broken, with its place."""
    return tuple(found for rule in RULES for found in rule(tree))


def _runs(tree: Tree) -> tuple[CellRun, ...]:
    return tree.package.runs if tree.package is not None else ()


def _first_answers(tree: Tree, logs: Logs) -> npt.NDArray[np.float32] | None:
    """None where there are none that can be read."""
    try:
        found: npt.NDArray[np.float32] = np.load(tree.root / logs.place / FIRST_ANSWERS, allow_pickle=False)
    except (OSError, ValueError):
        return None
    return found


def _own_runs(tree: Tree, mode: Mode) -> Iterator[tuple[Logs, CellRun]]:
    """Logs with what the package says of them."""
    return ((logs, logs.run) for logs in tree.of_mode(mode) if logs.run is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Other:
    """A measurement that differs from most others of its package."""

    place: str
    found: str  # The first characters of a hash
    usual: str


def _unlike_most(tree: Tree, of: Callable[[TaskLoaded], str]) -> Iterator[_Other]:
    values = {run.logs: of(run.loaded) for run in _runs(tree) if run.loaded is not None}
    usual = Counter(values.values()).most_common(1)
    for place, value in values.items():
        if value != usual[0][0]:
            yield _Other(place=place, found=value[:12], usual=usual[0][0][:12])


def _is_same(said: str, logged: object) -> bool:
    if isinstance(logged, (int, float)) and not isinstance(logged, bool):
        try:
            number = float(said)
        except ValueError:
            return False
        return abs(number - logged) <= 1e-5 * abs(logged)  # the summary rounds
    return said == str(logged)
