"""Rules on LoadGen's logs alone, which every tree of results has to keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.tasks import Mode, Scenario, Seeds
from perfguard.tasks.checking.tree import ResultTree
from perfguard.tasks.loadgen_logs import DETAIL, SUMMARY, duplicates
from perfguard.tasks.packages import SCENARIO_FOLDERS

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


def files_are_there(tree: ResultTree) -> Iterator[Fact]:
    """Each measurement has LoadGen's detail log and summary, and they can be read."""
    for logs in tree.logs:
        wanted = [DETAIL] if logs.mode is Mode.ACCURACY else [DETAIL, SUMMARY]
        for name in wanted:
            if name not in logs.files:
                yield fact("check.file_missing", severity=Severity.GRAVE, place=logs.place, name=name)
        for problem in logs.problems:
            yield fact("check.unreadable", severity=Severity.GRAVE, place=logs.place, problem=problem)


def both_modes_are_there(tree: ResultTree) -> Iterator[Fact]:
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


def systems_are_described(tree: ResultTree) -> Iterator[Fact]:
    """Each system has a description."""
    for system in sorted({logs.system for logs in tree.logs} - tree.systems):
        yield fact("check.system_missing", severity=Severity.GRAVE, place=f"systems/{system}.json")


def loadgen_reports_no_error(tree: ResultTree) -> Iterator[Fact]:
    """LoadGen's log has no error of its own."""
    for logs in tree.logs:
        for error in logs.detail.errors if logs.detail else ():
            yield fact("check.loadgen_error", severity=Severity.GRAVE, place=logs.place, error=error)


def modes_and_scenarios_fit(tree: ResultTree) -> Iterator[Fact]:
    """A log is of the mode and the scenario that its folder says."""
    for logs in tree.logs:
        for key, wanted in (("test_mode", _TEST_MODES[logs.mode]), ("scenario", SCENARIO_FOLDERS[logs.scenario])):
            found = logs.value(f"effective_{key}")
            if logs.detail is not None and found != wanted:
                yield fact(
                    "check.wrong_mode", severity=Severity.GRAVE, place=logs.place, wanted=wanted, found=str(found)
                )


def results_are_valid(tree: ResultTree) -> Iterator[Fact]:
    """LoadGen calls each measurement of speed valid."""
    for logs in tree.of_mode(Mode.PERFORMANCE):
        if logs.detail is not None and logs.value("result_validity") != "VALID":
            yield fact(
                "check.invalid", severity=Severity.GRAVE, place=logs.place, validity=str(logs.value("result_validity"))
            )


def early_stopping_was_met(tree: ResultTree) -> Iterator[Fact]:
    """Where LoadGen stops early, it had enough queries; logs before v1.1 of LoadGen do not say."""
    for logs in tree.of_mode(Mode.PERFORMANCE):
        if logs.value("early_stopping_met") is False:
            yield fact("check.early_stopping", severity=Severity.GRAVE, place=logs.place)


def seeds_are_the_rounds(tree: ResultTree) -> Iterator[Fact]:
    """Seeds are those of the package, or of a round of MLPerf Mobile."""
    allowed = (tree.package.plan.seeds,) if tree.package is not None else _ROUNDS_OF_MLPERF
    for logs in tree.of_mode(Mode.PERFORMANCE):
        values = [logs.value(f"effective_{name}_rng_seed") for name in ("qsl", "sample_index", "schedule")]
        if logs.detail is not None and values not in [[each.qsl, each.sample_index, each.schedule] for each in allowed]:
            yield fact("check.seeds", severity=Severity.GRAVE, place=logs.place, seeds=", ".join(map(str, values)))


def queries_are_enough(tree: ResultTree) -> Iterator[Fact]:
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


def durations_are_long_enough(tree: ResultTree) -> Iterator[Fact]:
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


def settings_are_left_alone(tree: ResultTree) -> Iterator[Fact]:
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


def no_audit_config(tree: ResultTree) -> Iterator[Fact]:
    """No file lies about that changes LoadGen's settings."""
    for path in tree.stray:
        yield fact("check.audit_config", severity=Severity.GRAVE, place=path)


def summaries_say_what_logs_say(tree: ResultTree) -> Iterator[Fact]:
    """Figures of the summary are those of the detail log."""
    for logs in tree.of_mode(Mode.PERFORMANCE):
        for name, key in _SUMMARY.items():
            said, logged = logs.summary.get(name), logs.value(key)
            if said is not None and logged is not None and not _is_same(said, logged):
                yield fact(
                    "check.summary", severity=Severity.GRAVE, place=logs.place, name=name, said=said, logged=str(logged)
                )


def every_example_has_one_answer(tree: ResultTree) -> Iterator[Fact]:
    """In accuracy mode each example was answered, once."""
    for logs in tree.of_mode(Mode.ACCURACY):
        wanted = logs.number("effective_accuracy_sample_count") or logs.number("qsl_reported_total_count")
        if tree.package is not None:
            wanted = tree.package.plan.task.data.parts.get(tree.package.plan.part, wanted)
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


def _is_same(said: str, logged: object) -> bool:
    if isinstance(logged, (int, float)) and not isinstance(logged, bool):
        try:
            number = float(said)
            logged = float(logged)
        except (ValueError, OverflowError):
            return False
        return abs(number - logged) <= 1e-5 * abs(logged)  # the summary rounds
    return said == str(logged)
