"""`perfguard task` as a user types it, under the real LoadGen."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.task_backends import write_backends
from tests.task_records import FAST

pytest.importorskip("torch")
pytest.importorskip("mlperf_loadgen")
pytestmark = pytest.mark.torch


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
    done = project.run("report", found["run_id"], "-o", "page.html")
    assert done.returncode == 0, done.stderr
    page = (Path(project.path) / "page.html").read_text()
    assert "onnxruntime-fp32-1" in page
    assert "nothing can be said" not in page
    again = result(project, "run", "./fast.toml", "-b", "onnxruntime")
    assert again["cells"][0]["loaded"]["cached"] == ["export"]

    package = package_of(project, found)
    checked = project.run("task", "check", str(package))
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
    logs = next(package.glob("closed/*/results/*/*/SingleStream/performance/run_1"))
    assert (logs / "mlperf_log_detail.txt").read_text().startswith(":::MLLOG")


@pytest.mark.long
def test_cells_are_compared_and_equal_ones_have_an_interval_around_one(project):
    found = result(project, "compare", "./fast.toml", "-b", "onnxruntime,onnxruntime", "--rounds", "3")
    cells = {cell["cell"]["backend"] + cell["cell"]["precision"] + str(cell["cell"]["copy"]): cell
             for cell in found["cells"]}  # fmt: skip
    assert {name: cell["outcome"] for name, cell in cells.items()} == dict.fromkeys(cells, "valid")
    assert len(cells) == 2
    assert all(cell["rounds"] == 3 for cell in cells.values())
    ratio = cells["onnxruntimefp322"]["over_reference"]
    assert ratio["lower"] < ratio["ratio"] < ratio["upper"]
    assert found["recommended"] is not None


@pytest.mark.parametrize("scenario", ["offline", "server"])
def test_other_scenarios(project, scenario):
    found = result(project, "run", "digits", "--scenario", scenario, "--part", "tiny")
    (cell,) = found["cells"]
    assert cell["outcome"] in ("valid", "invalid")  # quality of 64 examples; the server's bound on a busy machine
    assert cell["score"] > 0
    assert found["plan"]["scenario"] == scenario
    codes = {
        broken["code"]
        for broken in json.loads(project.run("task", "check", "--json", str(package_of(project, found))).stdout)
    }
    assert not codes or cell["outcome"] == "invalid"


@pytest.mark.long
def test_a_higher_target_is_open_and_red_whatever_the_speed(project):
    found = result(project, "run", "./fast.toml", "--target", "1.0", "--part", "tiny", "-p", "bf16", "-b", "openvino")
    (cell,) = found["cells"]
    is_good = cell["quality"] >= 0.97 and cell["loaded"]["ran_in"] == "bf16"  # which not every CPU has
    assert found["plan"]["is_open"]
    assert cell["outcome"] == ("valid" if is_good else "invalid")
    assert package_of(project, found).joinpath("open").is_dir()


@pytest.mark.long
def test_a_training_is_run_with_five_seeds_until_its_quality_is_reached(project):
    found = result(project, "run", "digits", "--scenario", "training")
    (cell,) = found["cells"]
    assert (cell["outcome"], found["exit_code"], cell["rounds"]) == ("valid", 0, 5)
    assert [training["seed"] for training in cell["trainings"]] == [0, 1, 2, 3, 4]
    lasts = [training["epochs"][-1] for training in cell["trainings"]]
    assert all(last["quality"] >= 0.9604 for last in lasts)
    assert all(epoch["quality"] < 0.9604 for training in cell["trainings"] for epoch in training["epochs"][:-1])
    assert cell["score"] == sorted(last["wall_s"] for last in lasts)[2]
    assert cell["loaded"]["ran_in"] == "fp32"
    assert not package_of(project, found).exists()
    assert json.loads(project.run("show", found["run_id"], "--format", "json").stdout)["cells"] == found["cells"]


@pytest.mark.long
def test_random_weights_measure_speed_alone(project):
    missing = result(project, "run", "mobilenet-edgetpu")
    assert missing["cells"][0]["outcome"] == "failed"
    assert "imagenet/inputs.npy is missing" in missing["cells"][0]["reasons"][0]["values"]["error"]
    assert "--seeded" in missing["cells"][0]["reasons"][0]["values"]["error"]
    found = result(project, "run", "mobilenet-edgetpu", "--seeded", "--part", "tiny")
    (cell,) = found["cells"]
    assert (cell["outcome"], found["exit_code"], found["recommended"]) == ("speed only", 0, None)
    assert (cell["loaded"]["parameters"], cell["loaded"]["has_real_weights"]) == (4_092_713, False)


def test_int8_by_another_framework(project):
    found = result(project, "run", "./fast.toml", "-b", "openvino", "-p", "int8")
    (cell,) = found["cells"]
    assert (cell["outcome"], cell["loaded"]["ran_in"]) == ("valid", "int8"), cell["reasons"]
    assert cell["loaded"]["stages"].keys() | set(cell["loaded"]["cached"]) == {"export", "quantize", "compile"}
    assert cell["quality"] > 0.9506
    assert cell["loaded"]["snr_db"] < 60


def test_the_example_of_an_own_model_in_the_documentation_is_valid(project):
    text = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    network, task = re.findall(r"```(?:python|toml)\n(.*?)```", text[text.index("## Your own model") :], re.DOTALL)[:2]
    project.write("nets.py", network)
    project.write("mine.toml", task + "\n[durations]\nrapid = { min_queries = 64, min_s = 0.3, max_s = 60.0 }\n")
    (cell,) = result(project, "run", "./mine.toml")["cells"]
    assert (cell["outcome"], cell["loaded"]["has_real_weights"]) == ("valid", True)
    assert cell["quality"] >= 0.9506


@pytest.mark.long
def test_a_part_of_the_machine_that_is_not_there_is_a_row(project):
    found = result(project, "compare", "./fast.toml", "-b", "eager", "--on", "loaded,cuda", "--rounds", "3")
    loaded, cuda = found["cells"]
    assert loaded["cell"]["hardware"] == "loaded"
    assert loaded["rounds"] == 3
    assert "task.contended" in {reason["code"] for reason in loaded["reasons"]}
    if not torch_sees_an_accelerator():
        assert (cuda["outcome"], cuda["reasons"][0]["values"]) == ("refused", {"reason": "torch sees no accelerator"})


def torch_sees_an_accelerator():
    import torch

    return torch.cuda.is_available()


@pytest.mark.parametrize(
    ("backend", "outcome", "reason"),
    [
        ("killed", "failed", ("task.crashed", {"signal": "SIGSEGV"})),
        ("refusing", "refused", ("task.refused", {"reason": "not on this CPU"})),
        ("lying", "invalid", ("task.not_fp32", {})),
        ("two_faced", "invalid", ("task.answers_differ", {})),
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
        (("compare", "digits", "--on", "e-core"), "--on 'e-core' is unknown; did you mean 'e-cores'"),
        (("run", "digits", "--seeded"), "--seeded: task digits needs no files of yours"),
        (("run", "ssd-mobiledet", "--scenario", "training"), "task ssd-mobiledet has single-stream"),
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


@pytest.mark.long
def test_an_audit_measures_a_package_again_and_is_shown(project):
    package = package_of(project, result(project, "run", "./fast.toml", "--part", "tiny"))
    manifest = json.loads((package / "package.json").read_text())
    manifest["cells"][0]["score"] *= 100  # a host that is busy reaches that, too
    manifest["cells"][0]["quality"] = 0.5
    (package / "package.json").write_text(json.dumps(manifest))
    done = project.run("task", "audit", str(package), "-q", "--format", "json")
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    (cell,) = found["cells"]
    codes = {finding["code"] for finding in cell["findings"]}
    assert "audit.quality" in codes
    assert codes.isdisjoint({"audit.too_slow", "audit.other_answers"})
    assert (len(cell["found"]), found["exit_code"]) == (1, 1)
    assert project.run("show", found["run_id"], "--format", "json").stdout.strip() == json.dumps(
        found, indent=1, sort_keys=True, ensure_ascii=False
    )
    (Path(project.path) / ".perfguard" / "runs" / found["run_id"] / "audit.json").unlink()
    shown = project.run("show", found["run_id"])
    assert (shown.returncode, shown.stdout) == (3, "")
    assert "was cut off before its end; run it again" in shown.stderr
