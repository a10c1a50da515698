"""`perfguard task` as a user types it, under the real LoadGen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.task_backends import write_backends

pytest.importorskip("torch")
pytest.importorskip("mlperf_loadgen")
pytestmark = pytest.mark.torch

FAST = """
name = "fast"
doc = "Digits, in a second"
[model]
architecture = "digits_cnn"
weights = "trained"
[data]
source = "sklearn:digits"
parts = { full = 597, tiny = 64 }
[quality]
metric = "top-1"
kind = "labelled"
reference = 0.97
fraction = 0.98
[durations.rapid]
min_queries = 64
min_s = 0.3
max_s = 60.0
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """What is made once, for all tests of this file."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def project(empty_project, cache):
    empty_project.write("fast.toml", FAST)
    empty_project.environment["XDG_CACHE_HOME"] = str(cache)
    return empty_project


def result(project, *arguments):
    done = project.run("task", *arguments, "-q", "--format", "json")
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"]
    return found


def package_of(project, found):
    return Path(project.path) / ".perfguard" / "runs" / found["run_id"] / "package"


def use_backends(project, folder):
    write_backends(folder)
    path = project.environment.get("PYTHONPATH", "")
    project.environment["PYTHONPATH"] = f"{folder}:{path}" if path else str(folder)


def test_a_task_is_run_shown_and_keeps_all_rules(project):
    found = result(project, "run", "./fast.toml", "-b", "onnxruntime")
    (cell,) = found["cells"]
    assert (cell["outcome"], found["exit_code"]) == ("valid", 0), cell["reasons"]
    assert cell["quality"] > 0.9506
    assert 0 < cell["score"] < 0.1
    assert (cell["loaded"]["ran_in"], cell["loaded"]["stages"].keys()) == ("fp32", {"export"})
    assert cell["loaded"]["snr_db"] > 100
    shown = project.run("show", found["run_id"], "--format", "json")
    assert json.loads(shown.stdout)["cells"] == found["cells"]
    again = result(project, "run", "./fast.toml", "-b", "onnxruntime")
    assert again["cells"][0]["loaded"]["cached"] == ["export"]

    package = package_of(project, found)
    checked = project.run("task", "check", str(package))
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
    logs = next(package.glob("closed/*/results/*/*/SingleStream/performance/run_1"))
    assert (logs / "mlperf_log_detail.txt").read_text().startswith(":::MLLOG")


def test_cells_are_compared_and_equal_ones_have_an_interval_around_one(project):
    found = result(project, "compare", "./fast.toml", "-b", "eager,eager", "--rounds", "3")
    cells = {cell["cell"]["backend"] + cell["cell"]["precision"] + str(cell["cell"]["copy"]): cell
             for cell in found["cells"]}  # fmt: skip
    assert {name: cell["outcome"] for name, cell in cells.items()} == dict.fromkeys(cells, "valid")
    assert len(cells) == 2
    assert all(cell["rounds"] == 3 for cell in cells.values())
    ratio = cells["eagerfp322"]["over_reference"]
    assert ratio["lower"] < ratio["ratio"] < ratio["upper"]
    assert found["recommended"] is not None


@pytest.mark.parametrize("scenario", ["offline", "server"])
def test_other_scenarios(project, scenario):
    found = result(project, "run", "digits", "--scenario", scenario, "--part", "tiny")
    (cell,) = found["cells"]
    assert cell["outcome"] in ("valid", "invalid")  # quality of 64 examples; the server's bound on a busy machine
    assert cell["score"] > 0
    assert found["plan"]["scenario"] == scenario


def test_a_higher_target_is_open_and_red_whatever_the_speed(project):
    found = result(project, "run", "./fast.toml", "--target", "1.0", "--part", "tiny", "-p", "bf16", "-b", "openvino")
    (cell,) = found["cells"]
    is_good = cell["quality"] >= 0.97 and cell["loaded"]["ran_in"] == "bf16"  # which not every CPU has
    assert found["plan"]["is_open"]
    assert cell["outcome"] == ("valid" if is_good else "invalid")
    assert package_of(project, found).joinpath("open").is_dir()


@pytest.mark.parametrize(
    ("backend", "outcome", "reason"),
    [
        ("raising", "failed", ("task.failed", {"error": "ValueError: no more of this"})),
        ("killed", "failed", ("task.crashed", {"signal": "SIGSEGV"})),
        ("leaving", "failed", ("task.crashed", {"exit_code": 7})),
        ("hanging", "failed", ("task.silent", {"is_loaded": True})),
        ("refusing", "refused", ("task.refused", {"reason": "not on this CPU"})),
        ("lying", "invalid", ("task.not_fp32", {})),
        ("noisy", "invalid", ("task.not_fp32", {})),
    ],
)
def test_a_backend_that_misbehaves_is_a_row_with_its_reason(project, tmp_path, backend, outcome, reason):
    use_backends(project, tmp_path)
    found = result(project, "run", "./fast.toml", "-b", backend)
    (cell,) = found["cells"]
    assert cell["outcome"] == outcome
    code, values = reason
    assert cell["reasons"][0]["code"] == code
    assert values.items() <= cell["reasons"][0]["values"].items()
    assert found["exit_code"] == (1 if outcome == "invalid" else 3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "digit"), "did you mean 'digits'"),
        (("run", "absent.toml"), "absent.toml cannot be read"),
        (("run", "digits", "-b", "tensorrt"), "backend 'tensorrt' is unknown"),
        (("run", "digits", "--target", "2"), "fraction = 2"),
        (("compare", "digits", "-p", "fp16"), "--precision 'fp16' is unknown"),
        (("run", "digits", "--threads", "999"), "--threads 999"),
        (("run", "./fast.toml", "--scenario", "server"), "task fast has single-stream"),
        (("run", "./fast.toml", "--part", "lite"), "--part lite: task fast has full, tiny"),
        (("check", "."), "has no results"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence(project, arguments, says):
    done = project.run("task", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def audited(project, package):
    done = project.run("task", "audit", str(package), "-q", "--format", "json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_an_audit_measures_a_package_again_and_finds_a_claim_that_is_too_high(project):
    package = package_of(project, result(project, "run", "./fast.toml", "--part", "tiny"))
    manifest = json.loads((package / "package.json").read_text())
    manifest["cells"][0]["score"] /= 10
    manifest["cells"][0]["quality"] = 0.5
    (package / "package.json").write_text(json.dumps(manifest))
    found = audited(project, package)
    (cell,) = found["cells"]
    assert {finding["code"] for finding in cell["findings"]} >= {"audit.too_slow", "audit.quality"}
    assert (len(cell["found"]), found["exit_code"]) == (5, 1)
    assert project.run("show", found["run_id"], "--format", "json").stdout.strip() == json.dumps(
        found, indent=1, sort_keys=True, ensure_ascii=False
    )


def test_an_audit_catches_a_backend_that_keeps_its_answers(project, tmp_path):
    use_backends(project, tmp_path)
    package = package_of(project, result(project, "run", "./fast.toml", "--part", "tiny", "-b", "caching"))
    (cell,) = audited(project, package)["cells"]
    assert "audit.caching" in {finding["code"] for finding in cell["findings"]}
