"""`perfguard task check`: a package that perfguard made passes; each forged one is named by the rule that it breaks."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile

import numpy as np
import pytest

from perfguard.codec import to_builtins
from perfguard.errors import StoreError, UsageError
from perfguard.tasks.checking.rules import broken_rules
from perfguard.tasks.checking.tree import read_tree
from perfguard.tasks.packages import MANIFEST
from perfguard.tasks.task_files import load_task
from tests.changed_values import replace
from tests.e2e.test_running_tasks import FAST, package_of, result
from tests.forged_packages import ACCURACY, DETAIL, FORGERIES, SUMMARY, Forgery

pytest.importorskip("torch")
pytest.importorskip("mlperf_loadgen")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def genuine(made_project, tmp_path_factory):
    """The package of a run with three measurements of speed."""
    project = made_project(tmp_path_factory.mktemp("tasks"))
    project.write("fast.toml", FAST)
    project.commit("a task")
    found = result(project, "compare", "./fast.toml", "-b", "eager", "--rounds", "3", "--part", "tiny")
    return package_of(project, found)


def test_a_genuine_package_keeps_all_rules(genuine):
    assert broken_rules(read_tree(genuine)) == ()


@pytest.fixture
def forger(genuine, tmp_path):
    return Forgery(genuine, tmp_path)


def test_a_score_that_was_edited_is_found(forger):
    forger.edit(lambda manifest: manifest["cells"][0].update(score=manifest["cells"][0]["score"] / 2))
    assert [found.code for found in broken_rules(read_tree(forger.root))] == ["check.claim"]


def test_a_figure_that_the_log_no_longer_has_confirms_no_claim(forger):
    path = forger.performance[0] / DETAIL
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if "early_stopping_latency_ss" not in line) + "\n")
    forger.edit_run(lambda run: run["speed"].update(score_s=1e-9))
    assert "check.claim" in forger.broken()


@pytest.mark.parametrize("value", [float("inf"), 10**400, "many", None])
def test_a_count_that_is_no_number_is_not_that_of_the_stamps(forger, value):
    forger.set_logged("result_query_count", value)
    assert "check.stamp_count" in forger.broken()


def test_a_file_without_a_checksum_is_found(forger):
    forger.edit(lambda manifest: manifest.update(files={}))
    assert {found.code for found in broken_rules(read_tree(forger.root))} == {"check.file_changed"}
    assert not forger.broken()
    (forger.performance[0] / "added.txt").write_text("more")
    assert {found.code for found in broken_rules(read_tree(forger.root))} == {"check.file_changed"}


@pytest.mark.parametrize("quality", [0.5, 1.0, 2.0, None])
def test_a_quality_that_was_edited_is_found(forger, quality):
    forger.edit(lambda manifest: manifest["cells"][0].update(quality=quality))
    assert [found.code for found in broken_rules(read_tree(forger.root))] == ["check.claim"]


def test_a_quality_that_no_metric_can_have_is_found_also_where_all_of_the_package_claims_it(forger):
    forger.edit(lambda manifest: manifest["cells"][0].update(quality=2.0))
    forger.edit(lambda manifest: [run["quality"].update(value=2.0) for run in manifest["runs"] if run["quality"]])
    assert [found.code for found in broken_rules(read_tree(forger.root))] == ["check.quality"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x93NUMPY", bytes(range(256)) * 100])
def test_time_stamps_that_are_rubbish_are_said_to_be(forger, content):
    (forger.performance[0] / "perfguard_stamps.npz").write_bytes(content)
    assert "check.unreadable" in {found.code for found in broken_rules(read_tree(forger.root))}


@pytest.mark.parametrize("name", [SUMMARY, DETAIL, "perfguard_stamps.npz", "perfguard_answers.npz"])
@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
def test_what_could_be_read_for_ever_is_not_read(forger, name, kind):
    path = forger.performance[0] / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    assert {found.code for found in broken_rules(read_tree(forger.root))} & {"check.unreadable", "check.file_missing"}


@pytest.mark.parametrize(
    "array",
    [np.array(["text"]), np.zeros(3, complex), np.zeros((), np.int64), np.full(40, -1), np.full(40, 2**62), None],
    ids=["text", "complex", "scalar", "negative", "huge", "missing"],
)
@pytest.mark.parametrize("name", ["samples", "sizes", "data"])
def test_answers_of_another_kind_are_no_answers(forger, name, array):
    arrays = {"samples": np.zeros(40, np.int64), "sizes": np.ones(40, np.int64), "data": np.zeros(40, np.uint8)}
    arrays = {key: value for key, value in {**arrays, name: array}.items() if value is not None}
    np.savez(forger.performance[0] / "perfguard_answers.npz", **arrays)
    assert forger.broken() & {"check.unreadable", "check.answers_differ"}


@pytest.mark.parametrize(
    "change",
    [
        lambda sample: [replace(answer, data=np.full(10, np.nan, "f4").tobytes()) for answer in sample],
        lambda sample: [replace(sample[0], data=np.full(10, np.nan, "f4").tobytes()), *sample[1:]],
        lambda sample: [replace(sample[0], data=sample[0].data[:-4]), *sample[1:]],
        lambda sample: [replace(sample[0], sample=10**6), *sample[1:]],
        lambda sample: [replace(answer, sample=1 - answer.sample % 2) for answer in sample],
    ],
    ids=["NaN", "one NaN", "another size", "no example", "another example"],
)
def test_other_answers_in_a_measurement_of_speed_are_found(forger, change):
    forger.resample(change)
    assert forger.broken() == {"check.answers_differ"}


def test_too_few_answers_of_a_measurement_of_speed_prove_nothing(forger):
    forger.resample(lambda sample: sample[:31])
    assert forger.broken() == {"check.unreadable"}


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({"outcome": "speed only"}, {"check.cell"}),
        ({"rounds": 30}, {"check.cell"}),
        ({"loaded": None}, {"check.cell"}),
        ({"reasons": [{"code": "task.answers_differ", "severity": "grave", "values": {}}]}, {"check.cell"}),
        ({"over_reference": {"ratio": 0.5, "lower": 0.4, "upper": 0.6}}, {"check.claim"}),
    ],
)
def test_what_is_claimed_of_a_cell_must_follow_from_its_measurements(forger, change, codes):
    forger.edit(lambda manifest: manifest["cells"][0].update(change))
    assert forger.broken() == codes


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda plan: plan["duration"].update(min_queries=8), "check.plan"),
        (lambda plan: plan["duration"].update(min_s=0.0), "check.plan"),
        (lambda plan: plan["duration"].update(max_s=1e6), "check.plan"),
        (lambda plan: plan["cooling"].update(most_s=0.0), "check.plan"),
        (lambda plan: plan.update(size="normal"), "check.plan"),
        (lambda plan: plan.update(part="full"), "check.answers"),
        (lambda plan: plan["task"]["quality"].update(fraction=0.1), "check.task_file"),
        (lambda plan: plan["cells"].append({**plan["cells"][0], "threads": 2}), "check.rounds"),
    ],
)
def test_a_plan_of_its_own_is_found(forger, change, code):
    forger.edit(lambda manifest: change(manifest["plan"]))
    assert code in forger.broken()


def test_seeds_that_the_package_chose_itself_are_found(forger):
    forger.edit(lambda manifest: manifest["plan"]["seeds"].update(qsl=7))
    for folder in forger.performance:
        forger.set_logged("effective_qsl_rng_seed", 7, folder)
    assert forger.broken() == {"check.plan", "check.summary"}


def test_a_packaged_task_with_another_target_is_found_unless_the_package_is_open(forger):
    def easier(manifest):
        task = to_builtins(load_task("digits"))
        manifest["plan"]["task"] = {**task, "quality": {**task["quality"], "fraction": 0.5}}

    forger.edit(easier)
    assert "check.task" in forger.broken()
    forger.edit(lambda manifest: manifest["plan"].update(is_open=True))
    assert "check.task" not in forger.broken()


def test_a_round_that_vanished_is_missed(forger):
    def drop(manifest):
        manifest["runs"] = [run for run in manifest["runs"] if run["logs"] != place]

    place = str(forger.performance[2].relative_to(forger.root))
    forger.edit(drop)
    shutil.rmtree(forger.performance[2])
    assert "check.rounds" in forger.broken()


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-320, 1e308])
def test_times_that_are_none_claim_nothing(forger, value):
    forger.edit(lambda manifest: [run["speed"].update(score_s=value) for run in manifest["runs"] if run["speed"]])
    assert forger.broken() & {"check.cell", "check.claim"}


@pytest.mark.parametrize("cells", [[], "twice"])
def test_cells_that_are_not_the_plans_claim_nothing(forger, cells):
    forger.edit(lambda manifest: manifest.update(cells=cells if cells == [] else manifest["cells"] * 2))
    assert "check.cell" in forger.broken()
    forger.edit(lambda manifest: manifest["plan"].update(cells=[]))
    assert forger.broken()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda run: run["cell"].update(precision="int8"), "check.folder"),
        (lambda run: run["cell"].update(threads=16), "check.folder"),
        (lambda run: run["cell"].update(backend="openvino"), "check.folder"),
        (lambda run: run.update(round=7), "check.folder"),
        (lambda run: run.update(scenario="offline"), "check.folder"),
        (lambda run: run.update(loaded=None), "check.no_result"),
        (lambda run: run.update(speed=None), "check.no_result"),
        (lambda run: run["speed"].update(score_s=None), "check.claim"),
        (lambda run: run["speed"].update(p90_s=None), "check.claim"),
        (lambda run: run["speed"].update(mean_s=1e-9), "check.claim"),
        (lambda run: run["speed"].update(queries=10**6), "check.claim"),
        (lambda run: run["speed"].update(is_valid=False), "check.claim"),
        (lambda run: run.update(ended_at=run["began_at"]), "check.overlap"),
        (
            lambda run: run.update(problem={"code": "task.refused", "severity": "notable", "values": {}}),
            "check.run_unknown",
        ),
    ],
)
def test_a_measurement_is_what_its_folder_and_its_log_say(forger, change, code):
    forger.edit_run(change)
    assert code in forger.broken()


@pytest.mark.parametrize("scenario", ["training", "offline"])
def test_a_package_of_another_scenario_than_its_logs_is_found(forger, scenario):
    forger.edit(lambda manifest: manifest["plan"].update(scenario=scenario))
    forger.edit(lambda manifest: [run.update(scenario=scenario) for run in manifest["runs"]])
    assert {"check.plan", "check.folder"} <= forger.broken()


def test_a_measurement_that_was_copied_is_found(forger):
    shutil.copyfile(*(folder / "perfguard_stamps.npz" for folder in forger.performance[:2]))
    assert "check.copied" in forger.broken()


def test_queries_that_lasted_shorter_than_the_shortest_duration_are_found(forger):
    path = forger.performance[0] / "perfguard_stamps.npz"
    with np.load(path) as stamps:
        np.savez_compressed(path, **{name: np.arange(len(stamps[name])) * 1000 for name in stamps.files})
    assert "check.span" in forger.broken()


def test_several_cells_have_three_rounds_each(forger):
    forger.edit(lambda manifest: manifest["plan"]["cells"].append({**manifest["plan"]["cells"][0], "threads": 2}))
    forger.edit(lambda manifest: manifest["plan"].update(rounds=1))
    found = [each for each in broken_rules(read_tree(forger.root)) if each.code == "check.plan"]
    assert {each.values["name"] for each in found} == {"rounds"}


@pytest.mark.parametrize("text", ["{}", "a fast one", ""])
def test_a_system_that_is_no_fingerprint_is_found(forger, text):
    next(forger.root.glob("closed/*/systems/*.json")).write_text(text)
    assert forger.broken() == {"check.system"}


def test_rubbish_is_a_broken_rule_and_no_error(forger):
    (forger.root / "circle").symlink_to("circle")
    forger.edit(lambda manifest: manifest["files"].update({"a\0b": "0" * 64, "circle": "0" * 64}))
    forger.set_logged("result_mean_latency_ns", 10**400)
    forger.replace(ACCURACY, '"qsl_idx" : ', '"qsl_idx" : 9999999999999999999999', forger.accuracy[0])
    path = forger.performance[1] / "perfguard_stamps.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    path.write_bytes(content)
    codes = {found.code for found in broken_rules(read_tree(forger.root))}
    assert {"check.file_missing", "check.file_changed", "check.summary", "check.unreadable"} <= codes


def test_answers_whose_sizes_overflow_are_no_answers(forger):
    arrays = {"samples": np.full(40, 10**6), "sizes": np.full(40, 2**62), "data": np.zeros(0, np.uint8)}
    np.savez(forger.performance[0] / "perfguard_answers.npz", **arrays)
    assert forger.broken() == {"check.unreadable"}


def test_a_package_without_any_measurement_is_refused_in_a_sentence(forger):
    shutil.rmtree(next(forger.root.glob("closed/*/results")))
    with pytest.raises(UsageError, match="ended before a measurement was over"):
        read_tree(forger.root)


def test_a_package_whose_run_was_cut_off_is_refused_in_a_sentence(forger):
    (forger.root / MANIFEST).unlink()
    with pytest.raises(UsageError, match="its run was cut off"):
        read_tree(forger.root)


def test_time_stamps_that_unpack_to_gigabytes_are_not_unpacked(forger):
    path = forger.performance[0] / "perfguard_stamps.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("begun_ns.npy", "w") as entry:
        for _ in range(1_100):
            entry.write(bytes(2**20))
    assert "check.unreadable" in forger.broken()


@pytest.mark.parametrize("name", ["/etc/hostname", "../outside", "linked/outside", "."])
def test_a_checksum_of_a_file_outside_the_package_is_of_none(forger, name):
    outside = forger.root.parent / "outside"
    outside.write_text("x")
    (forger.root / "linked").symlink_to(forger.root.parent)
    path = forger.root / name
    wanted = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "0" * 64
    forger.edit(lambda manifest: manifest["files"].update({name: wanted}))
    assert {found.code for found in broken_rules(read_tree(forger.root))} == {"check.file_missing"}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1" + "0" * 400])
def test_a_manifest_with_a_number_that_is_none_is_refused(forger, number):
    forger.edit(lambda manifest: manifest["cells"][0].update(score="here"))
    path = forger.root / MANIFEST
    path.write_text(path.read_text().replace('"here"', number))
    with pytest.raises(StoreError, match="is not the file of a package"):
        read_tree(forger.root)


@pytest.mark.parametrize("code", FORGERIES)
def test_each_forged_package_is_caught_by_its_rule(genuine, tmp_path, code):
    forgery = Forgery(genuine, tmp_path)
    FORGERIES[code](forgery)
    assert code in forgery.broken()


def test_a_file_that_was_changed_is_caught_by_its_checksum(genuine, tmp_path):
    forgery = Forgery(genuine, tmp_path)
    forgery.replace(SUMMARY, "SUT name", "SUT  name")
    assert {found.code for found in broken_rules(read_tree(forgery.root))} == {"check.file_changed"}


def log(**values):
    """A detail log as LoadGen of 2021 wrote it."""
    about = {"is_error": False, "is_warning": False, "file": "C:\\\\loadgen\\\\a.cc", "line_no": 1, "pid": 1, "tid": 1}
    entries = ({"key": key.replace("__", "."), "value": value, "metadata": about} for key, value in values.items())
    return "".join(f":::MLLOG {json.dumps(entry)}\n" for entry in entries)


SEEDS = {
    "effective_qsl_rng_seed": 1624344308455410291,
    "effective_sample_index_rng_seed": 517984244576520566,
    "effective_schedule_rng_seed": 10051496985653635065,
}


@pytest.mark.parametrize(
    ("performance", "accuracy"), [("log_performance", "log_accuracy"), ("performance/run_1", "accuracy")]
)
def test_a_submission_of_version_1_1_keeps_the_rules_and_one_with_other_seeds_does_not(tmp_path, performance, accuracy):
    own = tmp_path / "closed" / "somebody"
    scenario = own / "results" / "phone" / "mobilenetEdgeTPU" / "SingleStream"
    for folder in (scenario / performance, scenario / accuracy, own / "systems"):
        folder.mkdir(parents=True)
    (own / "systems" / "phone.json").write_text('{"System": "Phone"}')
    times = {
        **SEEDS,
        "effective_test_mode": "PerformanceOnly",
        "effective_scenario": "SingleStream",
        "effective_min_query_count": 1024,
        "effective_min_duration_ms": 60000,
        "effective_performance_issue_same": False,
        "result_validity": "VALID",
        "result_query_count": 31000,
        "result_90__00_percentile_latency_ns": 1796000,
    }
    (scenario / performance / DETAIL).write_text(log(**times))
    (scenario / performance / SUMMARY).write_text("Result is : VALID\n90.00 percentile latency (ns)   : 1796000\n")
    answers = [{"seq_id": number, "qsl_idx": number, "data": "00"} for number in range(4)]
    (scenario / accuracy / DETAIL).write_text(
        log(effective_test_mode="AccuracyOnly", effective_scenario="SingleStream", qsl_reported_total_count=4)
    )
    (scenario / accuracy / ACCURACY).write_text(json.dumps(answers))
    assert broken_rules(read_tree(tmp_path)) == ()

    (scenario / performance / DETAIL).write_text(log(**{**times, "effective_schedule_rng_seed": 1}))
    assert [found.code for found in broken_rules(read_tree(tmp_path))] == ["check.seeds"]
