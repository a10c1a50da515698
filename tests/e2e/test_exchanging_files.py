"""`perfguard export` and `perfguard import` on the command line, with recorded runs: nothing is measured."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from tests.interchange_files import BENCHER, GOOGLE, PYTEST
from tests.recorded_runs import DATA, SLOWER


@pytest.fixture
def exchanging(project):
    """A project with two recorded runs."""
    runs = project.path / ".perfguard" / "runs"
    for name in ("paired", "rounds"):
        shutil.copytree(DATA / name, runs / name)
    return project


def test_a_run_goes_out_as_pyperf_and_pyperf_reads_it(exchanging):
    done = exchanging.run("export", "paired", "--format", "pyperf", "-o", "out.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    stats = subprocess.run(
        [sys.executable, "-m", "pyperf", "stats", "out.json"],
        cwd=exchanging.path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert SLOWER in stats.stdout
    assert not list(exchanging.path.glob(".out.json.*"))


def test_both_arms_come_back_and_are_compared_with_their_control_workload(exchanging):
    for arm in ("baseline", "candidate"):
        exchanging.run("export", "paired", "--format", "pyperf", "--arm", arm, "-o", f"{arm}.json")
    done = exchanging.run("import", "baseline.json", "candidate.json", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    found = {entry["name"]: entry for entry in report["comparisons"]}
    assert (found[SLOWER]["difference"], found[SLOWER]["has_control"]) == ("slower", True)
    assert report["objections"] == [[], []]


def test_verdicts_go_to_stdout_and_the_exit_code_is_not_theirs(exchanging):
    done = exchanging.run("export", "paired", "--format", "junit")
    assert done.returncode == 0
    assert len(ET.fromstring(done.stdout).findall(".//failure")) == 1


def test_the_latest_run_is_exported_where_none_is_named(exchanging):
    done = exchanging.run("export", "--format", "csv")
    assert done.stdout.startswith("run,suite,machine,case,")
    assert "20260921T142640-rounds" in done.stdout


def test_a_file_is_shown_with_what_it_lacks_and_what_a_gate_says(exchanging):
    exchanging.write("bench.json", json.dumps(PYTEST))
    done = exchanging.run("import", "bench.json")
    assert done.returncode == 0
    assert "bench.json: pytest-benchmark 5.1.0" in done.stdout
    assert "missing: raw samples" in done.stdout
    assert "a gate could not judge by" in done.stdout


def test_a_file_may_come_by_a_pipe(exchanging):
    done = subprocess.run(
        [sys.executable, "-m", "perfguard", "import", "-", "--json"],
        cwd=exchanging.path,
        env=exchanging.environment,
        input=json.dumps(GOOGLE),
        capture_output=True,
        text=True,
        check=True,
    )
    (suite,) = json.loads(done.stdout)["suites"]
    assert (suite["source"], suite["tool"]) == ("stdin", "google-benchmark")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("import", "absent.json"), 3, "absent.json cannot be read: No such file or directory"),
        (("import", "broken.json"), 3, "broken.json is not JSON"),
        (("import", "bencher.json", "bencher.json"), 2, "no raw samples"),
        (("import", "a", "b", "c"), 2, "3 files were named"),
        (("import", "bencher.json", "--format", "pyperf"), 3, "pyperf's format None"),
        (("export", "paired", "--format", "asv"), 3, "--commit"),
        (("export", "paired", "--format", "junit", "--samples"), 2, "csv and parquet"),
        (("export", "rounds", "--format", "pyperf", "--arm", "baseline"), 3, "no measurement of its baseline"),
        (("export", "absent", "--format", "csv"), 3, "there is no run 'absent'"),
        (("export", "paired", "--format", "csv", "-o", "no/such/place.csv"), 3, "cannot be written"),
    ],
)
def test_what_cannot_be_done_gives_one_sentence(exchanging, arguments, code, said):
    exchanging.write("broken.json", '{"version": "1.0", "benchmarks": [')
    exchanging.write("bencher.json", json.dumps(BENCHER))
    done = exchanging.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
