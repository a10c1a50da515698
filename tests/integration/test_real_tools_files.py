"""Files that the real tools write are read, and exports are given back to the tools that can read them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from perfguard.integrations.formats import asv_results, pyperf_json
from perfguard.integrations.formats.importing import import_suite
from tests.changed_values import replace
from tests.interchange_files import recorded, series_of
from tests.recorded_runs import SLOWER

COMMIT = "cb63287e63db10ce3eb0f3b8c279fd995678d0ae"

PYPERF_SCRIPT = """\
import pyperf

runner = pyperf.Runner(processes=2, values=3, warmups=1, loops=2)
runner.timeit("sort", "sorted(range(1000))")
runner.timeit("sum", "sum(range(1000))")
"""
PYTEST_SCRIPT = """\
import pytest


@pytest.mark.parametrize("size", [10, 20])
def test_sum(benchmark, size):
    benchmark.pedantic(sum, args=(range(size),), rounds=4, iterations=3)
"""
ASV_SUITE = """\
class TimeSorting:
    params = [10, 100]
    param_names = ["size"]
    rounds, repeat, number, warmup_time = 1, 3, 5, 0

    def setup(self, size):
        self.values = list(range(size))

    def time_sort(self, size):
        sorted(self.values)


def track_answer():
    return 42
"""


def run(*arguments, cwd):
    # A process of pytest-xdist tells its children so, and pytest-benchmark then measures nothing.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


def read(path):
    return import_suite(path.read_bytes(), source=path.name)


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_what_pyperf_measures_is_read_plain_and_packed(tmp_path, name):
    (tmp_path / "bench.py").write_text(PYPERF_SCRIPT)
    run("bench.py", "-o", name, cwd=tmp_path)
    suite = read(tmp_path / name)
    assert (suite.tool, [series.name for series in suite.series]) == ("pyperf", ["sort", "sum"])
    sort = series_of(suite, "sort")
    assert [len(process.values) for process in sort.samples] == [3, 3]
    assert (sort.inner_loops, sort.has_processes, sort.unit) == (2, True, "s")


def test_what_pyperf_measured_goes_back_to_pyperf_and_is_the_same(tmp_path):
    (tmp_path / "bench.py").write_text(PYPERF_SCRIPT)
    run("bench.py", "-o", "out.json", cwd=tmp_path)
    suite = read(tmp_path / "out.json")
    (tmp_path / "back.json").write_bytes(pyperf_json.write(suite))
    said = run("-m", "pyperf", "compare_to", "out.json", "back.json", cwd=tmp_path)
    assert "faster" not in said
    assert "slower" not in said
    assert "Number of run with values: 2" in run("-m", "pyperf", "stats", "back.json", "-b", "sort", cwd=tmp_path)


def test_pyperf_compares_the_arms_of_a_recorded_run(tmp_path):
    arms = recorded("paired", tmp_path).arms
    for role, suite in arms.items():
        (tmp_path / f"{role}.json").write_bytes(pyperf_json.write(suite))
    said = run("-m", "pyperf", "compare_to", "baseline.json", "candidate.json", cwd=tmp_path)
    assert any(SLOWER in line and "slower" in line for line in said.splitlines()), said
    run("-m", "pyperf", "check", "baseline.json", cwd=tmp_path)
    run("-m", "pyperf", "hist", "candidate.json", "-b", SLOWER, cwd=tmp_path)


def test_what_pytest_benchmark_measures_is_read(tmp_path):
    needs("pytest_benchmark")
    (tmp_path / "test_perf.py").write_text(PYTEST_SCRIPT)
    run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", "/dev/null", "--rootdir", str(tmp_path),
        "--benchmark-json=out.json", "test_perf.py", cwd=tmp_path,
    )  # fmt: skip
    suite = read(tmp_path / "out.json")
    assert [series.name for series in suite.series] == ["test_perf.py::test_sum[10]", "test_perf.py::test_sum[20]"]
    first = suite.series[0]
    theirs = json.loads((tmp_path / "out.json").read_text())["benchmarks"][0]["stats"]
    assert (first.n, first.inner_loops, first.parameters) == (4, 3, (("size", "10"),))
    assert first.samples[0].values == tuple(theirs["data"])
    assert first.summary.median == pytest.approx(theirs["median"])
    assert first.summary.mean == pytest.approx(theirs["mean"])
    assert first.summary.sd == pytest.approx(theirs["stddev"])


@pytest.fixture
def asv_project(tmp_path):
    needs("asv")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("")
    (tmp_path / "benchmarks" / "sorting.py").write_text(ASV_SUITE)
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "x")):
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)
    config = {"version": 1, "project": "x", "repo": ".", "branches": ["HEAD"], "environment_type": "existing"}
    (tmp_path / "asv.conf.json").write_text(json.dumps(config))
    run("-m", "asv", "machine", "--yes", "--machine", "box", cwd=tmp_path)
    return tmp_path


def test_what_asv_measures_is_read_with_and_without_samples(asv_project):
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=asv_project, check=True, capture_output=True, text=True
    ).stdout.strip()
    for flags in ((), ("--record-samples",)):
        run(
            "-m", "asv", "run", "--python=same", "--machine", "box", f"--set-commit-hash={commit}", "--quick", *flags,
            cwd=asv_project,
        )  # fmt: skip
        (path,) = (asv_project / "results" / "box").glob(f"{commit[:8]}-*.json")
        suite = read(path)
        assert suite.commit == commit
        sort = series_of(suite, "sorting.TimeSorting.time_sort(10)")
        assert (sort.unit, sort.metric) == ("s", "time")
        assert (sort.samples is not None) == bool(flags)
        answer = series_of(suite, "sorting.track_answer")
        assert (answer.summary.median, answer.unit) == (42.0, "")
        path.unlink()


def test_asv_loads_the_export_of_a_recorded_run(tmp_path):
    needs("asv")
    results = pytest.importorskip("asv.results", reason="asv is not installed")
    exported = recorded("paired", tmp_path, commit=COMMIT)
    place = tmp_path / exported.result.machine_id
    place.mkdir()
    path = place / f"{COMMIT[:8]}-perfguard.json"
    for role, suite in exported.arms.items():
        path.write_bytes(asv_results.write(replace(exported, arm=role)))
        loaded = results.Results.load(str(path), machine_name=exported.result.machine_id)
        assert loaded.commit_hash == COMMIT, role
        assert set(loaded.get_all_result_keys()) == {series.name for series in suite.series}
        for series in suite.series:
            (value,) = loaded.get_result_value(series.name, [])
            (samples,) = loaded.get_result_samples(series.name, [])
            (stats,) = loaded.get_result_stats(series.name, [])
            assert samples == [entry for process in series.samples for entry in process.values]
            assert stats["q_25"] <= value <= stats["q_75"]
            assert stats["repeat"] == len(samples)
            assert stats["ci_99_a"] <= value <= stats["ci_99_b"]


def test_asv_tells_the_arms_of_a_recorded_run_apart_by_its_own_test(tmp_path):
    needs("asv")
    compute_stats = pytest.importorskip("asv_runner.statistics", reason="asv is older than 0.6").compute_stats
    is_different = pytest.importorskip("asv._stats", reason="asv is older than 0.6.5").is_different
    exported = recorded("paired", tmp_path, commit=COMMIT)
    rows = {}
    for role, suite in exported.arms.items():
        first = replace(suite, series=suite.series[:1])
        document = json.loads(asv_results.write(replace(exported, arm=role, arms={role: first})))
        ((name, row),) = document["results"].items()
        assert name == SLOWER
        rows[role] = dict(zip(document["result_columns"], row, strict=False))
    old, new = rows["baseline"], rows["candidate"]
    stats = [
        {key.removeprefix("stats_"): value[0] for key, value in found.items() if key.startswith("stats_")}
        for found in (old, new)
    ]
    assert is_different(old["samples"][0], new["samples"][0], *stats)
    median, theirs = compute_stats(old["samples"][0], 1)
    assert median == pytest.approx(old["result"][0])
    for key in ("ci_99_a", "ci_99_b", "q_25", "q_75"):
        assert theirs[key] == pytest.approx(stats[0][key]), key
