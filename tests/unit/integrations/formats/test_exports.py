"""Verdicts as JUnit, OpenMetrics, tables and a chart's input, from recorded runs and from hostile names."""

from __future__ import annotations

import csv
import io
import json
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfguard.errors import StoreError, UsageError
from perfguard.integrations.formats import charts, ci_reports, tables
from perfguard.integrations.formats.exporting import WITH_SAMPLES, WRITERS, arms_of, export_run
from perfguard.integrations.formats.suites import RunExport
from perfguard.records.case_names import split_case_id
from perfguard.records.events import SampleTimed
from perfguard.records.facts import RECORDED_TEXT, Severity, fact, recorded_text
from perfguard.records.result import CaseMeasured
from perfguard.records.run import Arm
from perfguard.records.spec import Gating
from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.runner.run_folder import read_events
from tests.changed_values import replace
from tests.interchange_files import recorded
from tests.recorded_runs import ADVISORY, DATA, FAILING, NEW, NOISY, SAME, SLOWER

HOSTILE = "evil\x00\x1b[31m \ud800 <b>&\"' \ufffe ]]> \n=cmd|' /C calc'!A0"
POINT = re.compile(r'^[a-z_]+\{([a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*\} [-+]?[0-9.]+(e[-+]?[0-9]+)?$')


@pytest.fixture
def paired(tmp_path) -> RunExport:
    return recorded("paired", tmp_path, commit="a" * 40)


@pytest.fixture
def rounds(tmp_path) -> RunExport:
    return recorded("rounds", tmp_path, commit="a" * 40)


def judged(run: RunExport, outcome: Outcome, *, gating: Gating = Gating.GATING, gate: GateOutcome | None = None):
    """The run with one verdict only."""
    verdict = replace(run.result.gate.verdicts[0], outcome=outcome, gating=gating)
    found = replace(run.result.gate, verdicts=(verdict,), outcome=gate or run.result.gate.outcome)
    return replace(run, result=replace(run.result, gate=found))


def hostile(run: RunExport) -> RunExport:
    """The run with names and reasons that want to break out."""
    verdicts = tuple(
        replace(v, case_id=HOSTILE, reasons=(recorded_text(HOSTILE),)) for v in run.result.gate.verdicts[:1]
    )
    gate = replace(run.result.gate, verdicts=verdicts, reasons=(recorded_text(HOSTILE),))
    arms = {
        role: replace(suite, series=(replace(suite.series[0], name=HOSTILE),), machine=HOSTILE)
        for role, suite in run.arms.items()
    }
    return replace(run, result=replace(run.result, gate=gate, suite=HOSTILE, machine=HOSTILE), arms=arms)


def cases_of(content: bytes) -> dict[str, ET.Element]:
    return {case.get("name"): case for case in ET.fromstring(content).iter("testcase")}


def test_a_regression_is_a_failure_a_crash_an_error_and_an_advisory_one_never_fails(paired):
    cases = cases_of(ci_reports.write_junit(paired))
    assert list(cases) == [verdict.case_id for verdict in paired.result.gate.verdicts]
    assert [child.tag for child in cases[SLOWER]] == ["failure"]
    assert cases[SLOWER].find("failure").get("type") == "regressed"
    assert [child.tag for child in cases[SAME]] == []
    for name in (FAILING, NEW, NOISY):
        assert name in ADVISORY
        assert [child.tag for child in cases[name]] == ["skipped"]


@pytest.mark.parametrize(
    ("outcome", "element"),
    [
        (Outcome.REGRESSED, "failure"),
        (Outcome.DIFFERENT, "failure"),
        (Outcome.FAILED, "error"),
        (Outcome.INCONCLUSIVE, "skipped"),
        (Outcome.INCOMPARABLE, "skipped"),
        (Outcome.NO_BASELINE, "skipped"),
        (Outcome.IMPROVED, None),
        (Outcome.UNCHANGED, None),
        (Outcome.ALLOWED, None),
    ],
)
def test_each_outcome_has_its_element(paired, outcome, element):
    (case,) = cases_of(ci_reports.write_junit(judged(paired, outcome, gate=GateOutcome.PASS))).values()
    assert [child.tag for child in case] == ([element] if element else [])
    advisory = judged(paired, outcome, gating=Gating.ADVISORY, gate=GateOutcome.PASS)
    (case,) = cases_of(ci_reports.write_junit(advisory)).values()
    assert [child.tag for child in case] == (["skipped"] if element else [])


def test_a_gate_that_fails_for_no_cases_reason_has_a_test_of_its_own(paired):
    cases = cases_of(ci_reports.write_junit(judged(paired, Outcome.UNCHANGED, gate=GateOutcome.HOST_UNSTABLE)))
    assert cases["gate"].find("skipped").get("type") == "host-unstable"


def test_what_the_reader_must_know_beside_the_cases_is_on_the_suites_error_output(paired):
    grave, minor = (
        fact(RECORDED_TEXT, severity=severity, text=severity.value) for severity in (Severity.GRAVE, Severity.INFO)
    )
    assert ET.fromstring(ci_reports.write_junit(with_notes(paired))).find("testsuite/system-err") is None
    root = ET.fromstring(ci_reports.write_junit(with_notes(paired, grave, minor)))
    assert root.find("testsuite/system-err").text == "grave"


def with_notes(run, *notes):
    gate = replace(run.result.gate, notes=(), missing_signals=())
    return replace(run, result=replace(run.result, notes=notes, gate=gate))


def test_counts_are_those_of_the_cases(paired):
    root = ET.fromstring(ci_reports.write_junit(paired))
    (suite,) = root
    for element in (root, suite):
        assert int(element.get("tests")) == len(list(suite.iter("testcase")))
        for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(element.get(name)) == len(list(suite.iter(tag)))
    assert suite.get("timestamp").startswith("2026-09-21T")
    assert {prop.get("name") for prop in suite.iter("property")} >= {"verdict", "run", "machine", "baseline"}


def test_a_run_that_compared_nothing_has_its_cases_and_an_error_where_one_failed(rounds):
    failed = CaseMeasured(
        case_id="x", rounds=0, median_s=None, between_sd_ratio=None, within_sd_ratio=None, inner_loops=None,
        problem=fact("case.raised", error="it crashed"),
    )  # fmt: skip
    result = replace(rounds.result, measured=(*rounds.result.measured, failed))
    cases = cases_of(ci_reports.write_junit(replace(rounds, result=result)))
    assert cases["x"].find("error").text == "it crashed"
    assert float(cases[SAME].get("time")) == pytest.approx(0.00042, rel=0.05)


def test_hostile_names_stay_text_in_every_format(paired):
    run = hostile(paired)
    root = ET.fromstring(ci_reports.write_junit(run))
    assert "[31m" in next(root.iter("testcase")).get("name")
    for line in ci_reports.write_open_metrics(run).decode().splitlines()[:-1]:
        assert line.startswith("# ") or POINT.match(line), line
    (row,) = csv.DictReader(io.StringIO(tables.write_csv(run).decode()))
    assert row["case"].isprintable()
    for name in ("pyperf", "asv", "pytorch", "bencher", "github-action"):
        found = export_run(run, name).decode()
        assert "\x1b" not in json.dumps(json.loads(found), ensure_ascii=False)
        assert "\\u001b" not in found


@given(name=st.text(max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_gives_xml_that_can_be_parsed(paired, name):
    verdict = replace(
        paired.result.gate.verdicts[0], case_id=name, reasons=(recorded_text(name),), outcome=Outcome.REGRESSED
    )
    gate = replace(paired.result.gate, verdicts=(verdict,))
    (case, *_) = cases_of(ci_reports.write_junit(replace(paired, result=replace(paired.result, gate=gate)))).values()
    assert case.get("name") is not None


def test_a_formula_in_a_name_is_defused(paired):
    verdict = replace(paired.result.gate.verdicts[0], case_id="=1+1")
    run = replace(paired, result=replace(paired.result, gate=replace(paired.result.gate, verdicts=(verdict,))))
    (row,) = csv.DictReader(io.StringIO(tables.write_csv(run).decode()))
    assert row["case"] == "'=1+1"


def test_metrics_end_as_they_must_and_name_no_commit_and_no_run(paired):
    text = ci_reports.write_open_metrics(paired).decode()
    lines = text.splitlines()
    assert lines[-1] == "# EOF"
    assert paired.result.run_id not in text
    assert "a" * 40 not in text
    assert all(line.split()[-1] == "gauge" for line in lines if line.startswith("# TYPE"))
    for line in lines[:-1]:
        assert line.startswith("# ") or POINT.match(line), line


def test_each_family_is_in_one_piece_and_no_point_comes_twice(paired):
    lines = [line for line in ci_reports.write_open_metrics(paired).decode().splitlines() if not line.startswith("#")]
    families = [line.partition("{")[0] for line in lines]
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines)
    order = [name for index, name in enumerate(families) if index == 0 or families[index - 1] != name]
    assert len(order) == len(set(order))


def test_a_metric_with_a_unit_ends_with_it(paired):
    for line in ci_reports.write_open_metrics(paired).decode().splitlines():
        if line.startswith("# UNIT"):
            _, _, name, unit = line.split()
            assert name.endswith(f"_{unit}")


def test_exactly_one_outcome_of_a_case_is_set(paired):
    lines = ci_reports.write_open_metrics(paired).decode().splitlines()
    for verdict in paired.result.gate.verdicts:
        points = [
            line for line in lines if line.startswith("perfguard_case_outcome{") and f'"{verdict.case_id}"' in line
        ]
        assert len(points) == len(Outcome)
        (one,) = [line for line in points if line.endswith(" 1.0")]
        assert f'outcome="{verdict.outcome.value}"' in one


def test_a_table_holds_each_verdict_with_its_numbers(paired):
    rows = {row["case"]: row for row in csv.DictReader(io.StringIO(tables.write_csv(paired).decode()))}
    for verdict in paired.result.gate.verdicts:
        row = rows[verdict.case_id]
        assert (row["outcome"], row["gating"]) == (verdict.outcome.value, verdict.gating.value)
        if verdict.comparison.estimate is None:
            assert (row["effect_ratio"], row["blocks"]) == ("", "")
    assert float(rows[SLOWER]["lower_ratio"]) < 0.062 < float(rows[SLOWER]["upper_ratio"])


def test_a_table_of_samples_holds_every_sample_of_the_main_stage(paired):
    rows = list(csv.DictReader(io.StringIO(tables.write_csv(replace(paired, samples=True)).decode())))
    kept = {(row["case"], row["arm"], row["block"], row["index"]): float(row["value_s"]) for row in rows}
    assert len(kept) == len(rows)
    timed = [
        event
        for event in read_events(DATA / "paired" / "events.jsonl")
        if isinstance(event, SampleTimed) and not event.warmup and event.block < 8
    ]
    assert kept == {
        (event.case_id, event.arm.value, str(event.block), str(event.index)): event.value_s for event in timed
    }


def test_parquet_holds_the_same_table(paired):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    for samples in (False, True):
        table = parquet.read_table(io.BytesIO(tables.write_parquet(replace(paired, samples=samples))))
        rows = list(csv.DictReader(io.StringIO(tables.write_csv(replace(paired, samples=samples)).decode())))
        assert table.column_names == list(rows[0])
        assert table.column("case").to_pylist() == [row["case"] for row in rows]
    assert str(table.schema.field("value_s").type) == "double"


def test_without_pyarrow_there_is_a_sentence(paired, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'perfguard\[parquet\]'"):
        tables.write_parquet(paired)


def test_a_chart_gets_milliseconds_a_range_and_the_verdict(paired):
    entries = json.loads(charts.write_github_action(paired))
    slowest = next(entry for entry in entries if entry["name"] == SLOWER)
    assert slowest["unit"] == "ms"
    assert slowest["value"] == pytest.approx(1e3 * 0.041 * 1.062, rel=0.02)
    assert re.fullmatch(r"± [0-9.e-]+", slowest["range"])
    assert "verdict: regressed" in slowest["extra"]
    assert all(entry.keys() <= {"name", "unit", "value", "range", "extra"} for entry in entries)


@pytest.mark.parametrize("name", WRITERS)
def test_samples_are_asked_only_of_tables(paired, name):
    if name in WITH_SAMPLES:
        return
    with pytest.raises(UsageError, match="csv and parquet"):
        export_run(replace(paired, samples=True), name)


def test_an_arm_that_measured_nothing_is_named(rounds):
    with pytest.raises(StoreError, match="no measurement of its baseline; arms that measured: candidate"):
        export_run(replace(rounds, arm="baseline"), "pyperf")


def test_every_format_can_be_written_of_a_run_without_a_comparison(rounds):
    for name in WRITERS:
        if name != "parquet":
            assert export_run(rounds, name)


def test_a_sample_that_is_no_time_is_refused(paired):
    events = list(read_events(DATA / "paired" / "events.jsonl"))
    index = next(i for i, event in enumerate(events) if isinstance(event, SampleTimed) and not event.warmup)
    for value in (float("nan"), float("inf"), 0.0, -1.0):
        events[index] = replace(events[index], value_s=value)
        with pytest.raises(StoreError, match="has a value of"):
            arms_of(events, paired.result)


def test_arms_are_told_apart(paired):
    assert set(paired.arms) == {Arm.BASELINE.value, Arm.CANDIDATE.value}
    old, new = (paired.arms[role].series[0].summary.median for role in ("baseline", "candidate"))
    assert new / old == pytest.approx(1.062, rel=0.01)


@pytest.mark.parametrize(
    ("case_id", "benchmark", "parameters"),
    [
        ("kernel.linear[m=512,dtype=bf16]", "kernel.linear", (("m", "512"), ("dtype", "bf16"))),
        ("tiny.sum", "tiny.sum", ()),
        ("x[a=b=c]", "x", (("a", "b=c"),)),
        ("x[1,2]", "x[1,2]", ()),
        ("x[a=1", "x[a=1", ()),
        ("x[]", "x[]", ()),
    ],
)
def test_a_case_id_comes_apart_or_stays_whole(case_id, benchmark, parameters):
    found = split_case_id(case_id)
    assert (found.benchmark, found.parameters) == (benchmark, parameters)
