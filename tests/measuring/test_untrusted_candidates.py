"""Gates on a candidate that would rather judge itself: its rules do not count, its code cannot reach the verdict."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfguard.runner.process.launcher import confinement_version
from perfguard.runner.process.sandboxing import Holder, holder
from tests.tiny_projects import DOUBLED, noted, outcomes

REVISIONS = ("--baseline", "git:HEAD^1", "--candidate", "git:HEAD", "--policy-from", "HEAD^1")
MUCH_MORE = ("return sum(range(LENGTH))", "return sum(range(LENGTH)) + 0 * sum(range(LENGTH * 3 // 4))")
SCRIBBLE = """\
import os
for name in ("perfguard.toml", "../../../../../events.jsonl", "../../../../../result.json", ".git/config"):
    for place in (".", {project!r}):
        try:
            with open(os.path.join(place, name), "a") as file:
                file.write("forged")
            found = "written"
        except OSError as error:
            found = type(error).__name__
        print(place, name, found)
print("token", os.environ.get("GITHUB_TOKEN"))
"""


@pytest.fixture
def tmp_path(outside_memory):
    return outside_memory


def test_the_rules_are_those_of_the_revision_that_is_named(project):
    project.replace("perfguard.toml", "max_block_sd = 0.5", "max_block_sd = 0.5\nmargin = 0.9\nfail_on = []")
    project.replace("tiny_work.py", *DOUBLED)
    project.commit("slower, and a margin that hides it")
    result = project.result("compare", *REVISIONS, "--no-progress")
    assert outcomes(result)["tiny.sum"] == "regressed"
    assert result["exit_code"] == 1
    assert result["gate"]["policy"]["margin_ratio"] == 0.005
    assert "perfguard.toml" in noted(result, "run.rules_changed")[0]["values"]["files"]


def test_a_benchmark_that_the_candidate_removed_is_missed(project):
    text = (project.path / "bench_tiny.py").read_text(encoding="utf-8")
    project.write("bench_tiny.py", text[: text.index('@perfguard.benchmark(name="tiny.sort"')])
    project.replace("perfguard.toml", '["tiny.sum", "tiny.sort"]', '["tiny.sum"]')
    project.commit("one benchmark less")
    result = project.result("compare", *REVISIONS, "--no-progress")
    assert outcomes(result)["tiny.sort"] == "failed"
    assert result["exit_code"] == 3


def test_an_allow_list_that_the_candidate_brings_does_not_count(project):
    project.replace("tiny_work.py", *MUCH_MORE)
    done = project.run("allow", "tiny.sum", "--max", "100%", "--until", "30d", "--reason", "mine")
    assert done.returncode == 0, done.stderr
    project.commit("slower, and allowed")
    result = project.result("compare", *REVISIONS, "--no-progress")
    assert outcomes(result)["tiny.sum"] == "regressed"
    assert "baselines/allow.toml" in noted(result, "run.rules_changed")[0]["values"]["files"]


def test_the_checkout_of_the_rules_is_removed(project):
    project.git("commit", "-q", "--allow-empty", "-m", "nothing")
    project.result("compare", *REVISIONS, "--no-progress", "--max-blocks", "2")
    assert not list((project.path / ".perfguard" / "policy").iterdir())
    assert "policy" not in project.git("worktree", "list")


def test_an_unknown_revision_is_one_sentence(project):
    done = project.run("compare", "--policy-from", "v9")
    assert done.returncode == 2
    assert "git knows no revision 'v9'" in done.stderr


@pytest.fixture(params=list(Holder), ids=lambda held: held.value)
def held_by(request, project):
    """What holds confined code: bubblewrap, or Landlock on a machine without it."""
    if request.param is Holder.BUBBLEWRAP and holder() is not Holder.BUBBLEWRAP:
        pytest.skip("bubblewrap does not work here")
    if request.param is Holder.LANDLOCK:
        if not confinement_version():
            pytest.skip("this kernel has no Landlock")
        without_bubblewrap(project)
    return request.param


def without_bubblewrap(project):
    programs = project.path.parent / "programs"
    programs.mkdir()
    for folder in reversed(project.environment["PATH"].split(os.pathsep)):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            (programs / program.name).unlink(missing_ok=True)
            (programs / program.name).symlink_to(program)
    (programs / "bwrap").unlink(missing_ok=True)
    project.environment["PATH"] = str(programs)


def test_confined_code_is_measured_as_ever_and_can_change_nothing(project, held_by):
    before = (project.path / "perfguard.toml").read_bytes(), (project.path / ".git" / "config").read_bytes()
    work = (project.path / "tiny_work.py").read_text(encoding="utf-8")
    project.write("tiny_work.py", SCRIBBLE.format(project=str(project.path)) + work)
    project.commit("scribbles")
    result = project.result("compare", *REVISIONS, "--confine", "--no-progress", GITHUB_TOKEN="secret")
    assert set(outcomes(result)) == {"tiny.sum", "tiny.sort"}
    assert "failed" not in outcomes(result).values()
    logs = "".join(path.read_text() for path in (project.latest_run() / "logs").glob("*-b.log"))
    refused = "PermissionError" if held_by is Holder.LANDLOCK else "OSError"
    assert f"{project.path} perfguard.toml {refused}" in logs
    assert bool(noted(result, "run.held_by_landlock")) == (held_by is Holder.LANDLOCK)
    assert f"{project.path} perfguard.toml written" not in logs
    assert f"{project.path} .git/config written" not in logs
    assert "token None" in logs
    assert "secret" not in logs
    assert before == ((project.path / "perfguard.toml").read_bytes(), (project.path / ".git" / "config").read_bytes())
    assert b"forged" not in (project.latest_run() / "events.jsonl").read_bytes()
    assert b"forged" not in (project.latest_run() / "result.json").read_bytes()


def test_confinement_that_must_be_strict_is_refused_without_bubblewrap(project):
    project.git("commit", "-q", "--allow-empty", "-m", "nothing")
    without_bubblewrap(project)
    done = project.run("compare", *REVISIONS, "--confine", "strict", "--no-progress")
    assert done.returncode == 3
    assert "install the package bubblewrap" in done.stderr


def test_a_confined_set_up_command_fills_its_venv_and_nothing_else(project, held_by):
    project.git("commit", "-q", "--allow-empty", "-m", "nothing")
    command = (
        f"echo made > $VIRTUAL_ENV/made; echo $GITHUB_TOKEN > $VIRTUAL_ENV/token; echo x > {project.path}/forged; :"
    )
    arguments = (*REVISIONS, "--confine", "--no-progress", "--max-blocks", "2", "--setup", command)
    project.result("compare", *arguments, GITHUB_TOKEN="secret")
    (venv,) = (project.path / ".perfguard" / "envs").iterdir()  # one: both revisions have the same tree
    assert (venv / "made").read_text(encoding="utf-8") == "made\n"
    assert (venv / "token").read_text(encoding="utf-8") == "\n"
    assert not (project.path / "forged").exists()


FORGE = """\
import hashlib
import pathlib
_sha256, _mine, _theirs = hashlib.sha256, pathlib.Path(__file__).read_bytes(), {base!r}
hashlib.sha256 = lambda data=b"", **options: _sha256(_theirs if data == _mine else data, **options)
"""


@pytest.mark.skipif(holder() is None, reason="nothing confines code here")
def test_a_candidate_that_vouches_for_itself_is_judged_by_its_times(project):
    base = (project.path / "tiny_work.py").read_bytes()
    project.replace("tiny_work.py", *DOUBLED)
    project.write("tiny_work.py", FORGE.format(base=base) + (project.path / "tiny_work.py").read_text("utf-8"))
    project.commit("slower, and says that it is not")
    result = project.result("compare", *REVISIONS, "--confine", "--no-progress")
    assert outcomes(result)["tiny.sum"] == "regressed"
    assert result["exit_code"] == 1
    assert noted(result, "arms.identity_unproven")


@pytest.mark.skipif(holder() is None, reason="nothing confines code here")
def test_a_change_of_texts_alone_passes_whatever_the_noise(project):
    project.write("README.md", "other words\n")
    project.write(".github/workflows/perf.yml", "on: push\n")
    project.commit("words")
    result = project.result("compare", *REVISIONS, "--confine", "--no-progress", "--max-blocks", "2")
    assert result["gate"]["identical"]
    assert result["exit_code"] == 0


def test_modules_of_the_tree_with_names_of_pythons_own_are_not_run_to_prepare_it(project):
    ran = project.path / "ran"
    project.write("compileall.py", f"open({str(ran)!r}, 'w').close()\n")
    project.commit("looks like the compiler")
    project.result("compare", *REVISIONS, "--no-progress", "--max-blocks", "2")
    assert not ran.exists()


def test_the_control_workload_is_of_nobodys_bundle(project):
    project.replace("tiny_work.py", "LENGTH =", "import perfguard.worker as _own\nLENGTH =")
    spoil = (
        "import pathlib\n"
        "_file = pathlib.Path(_own.__file__).with_name('control.py')\n"
        "_file.write_text('raise SystemExit(7)\\n')\n"
    )
    text = (project.path / "tiny_work.py").read_text("utf-8")
    head, _, tail = text.partition("LENGTH =")
    project.write("tiny_work.py", f"{head}{spoil}LENGTH ={tail}")
    project.commit("spoils the control workload")
    project.result("compare", *REVISIONS, "--no-progress", "--max-blocks", "2")
    assert '"event":"control"' in (project.latest_run() / "events.jsonl").read_text("utf-8").replace(" ", "")


SLOW_CLOCK = """\
import time
for name in ("perf_counter", "process_time", "thread_time", "monotonic"):
    real = getattr(time, name)
    setattr(time, name, lambda real=real, since=real(): since + (real() - since) / 10)
"""
PATCHED_TIMER = """\
import sys
samples = sys.modules.get("perfguard.worker.timing.samples")
if samples is not None:
    samples._CLOCK = lambda real=samples._CLOCK: real() / 10
"""


def test_a_clock_that_a_sitecustomize_replaces_is_not_the_one_that_times(project):
    project.write("sitecustomize.py", SLOW_CLOCK)
    project.replace("tiny_work.py", *DOUBLED)
    project.commit("slower, with a slower clock")
    result = project.result("compare", *REVISIONS, "--no-progress")
    assert outcomes(result)["tiny.sum"] == "regressed"
    assert result["exit_code"] == 1


def test_time_that_the_candidate_does_not_claim_fails_the_case(project):
    project.write("tiny_work.py", PATCHED_TIMER + (project.path / "tiny_work.py").read_text("utf-8"))
    project.replace("tiny_work.py", *DOUBLED)
    project.commit("slower, with a clock of its own")
    result = project.result("compare", *REVISIONS, "--no-progress", "--sample-s", "0.02")
    assert outcomes(result) == dict.fromkeys(("tiny.sum", "tiny.sort"), "failed")
    verdict = result["gate"]["verdicts"][0]
    assert verdict["reasons"][0]["code"] == "case.time_hidden"
    assert 0.5 < verdict["reasons"][0]["values"]["hidden_ratio"] < 1
    assert result["exit_code"] == 3


VARIABLE = """\
import random
import perfguard
from tiny_work import total


@perfguard.benchmark(name="tiny.sum", tags=["no-torch"], phase="forward")
def tiny_sum():
    numbers = list(range(20_000))

    def call():
        return float(total(numbers))

    call.vary = lambda: random.shuffle(numbers) or numbers.__setitem__(0, random.randrange(10**9))
    return call
"""
KEPT = """\
known = []


def total(numbers):
    if not known:
        known.append(sum(numbers))
    return known[0]
"""


def test_a_result_that_is_kept_is_different_once_the_inputs_are(project):
    project.write("bench_tiny.py", VARIABLE)
    project.write("tiny_work.py", "def total(numbers):\n    return sum(numbers)\n")
    project.replace("perfguard.toml", '["tiny.sum", "tiny.sort"]', '["tiny.sum"]')
    project.commit("inputs that vary")
    project.write("tiny_work.py", KEPT)
    project.commit("keeps its result")
    result = project.result("compare", *REVISIONS, "--no-progress")
    (verdict,) = result["gate"]["verdicts"]
    assert verdict["outcome"] == "different"
    assert [reason["values"]["name"] for reason in verdict["reasons"] if reason["code"] == "result.different"] == [
        "timed_result"
    ]
    assert result["exit_code"] != 0
