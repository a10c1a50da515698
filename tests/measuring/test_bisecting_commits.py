"""`bisect` as a user starts it, on a small project whose benchmarks need no torch."""

from __future__ import annotations

import json
import signal

import pytest

SLOWER = ("return sum(range(LENGTH))", "return [sum(range(LENGTH)) for _ in range(5)][0]")
"""Five times the work, the same result: several gates in a row must see it, on a busy machine too."""


@pytest.fixture
def history(project):
    """Seven commits: the second after the first does its work five times, the middle one cannot be imported."""
    commits = [project.git("rev-parse", "HEAD")]

    def change(name, old, new):
        project.replace(name, old, new)
        commits.append(project.commit(f"change {len(commits)}"))

    project.write("notes.txt", "Nothing that runs: good whatever the host does meanwhile.")
    commits.append(project.commit("change 1"))
    change("tiny_work.py", *SLOWER)
    change("tiny_work.py", "LENGTH = 20_000", "LENGTH = 20_000\nimport nowhere")
    change("tiny_work.py", "\nimport nowhere", "  # items")
    change("tiny_work.py", "# items", "# things")
    change("tiny_work.py", "# things", "# numbers")
    return commits


def test_names_the_slower_commit_skips_the_broken_one_and_measures_nothing_twice(project, history):
    arguments = ("bisect", "--good", history[0], "-c", "tiny.*")
    first = project.result(*arguments)
    assert (first["outcome"], first["exit_code"]) == ("found", 0), first["steps"]
    assert first["culprit"]["id"] == history[2]
    assert [effect["case_id"] for effect in first["effects"]] == ["tiny.sum"]
    assert first["effects"][0]["lower"] > 0
    answers = {step["commit"]["id"]: step["measured"]["answer"] for step in first["steps"]}
    assert (answers[history[3]], answers[history[2]], answers[history[1]]) == ("skip", "bad", "good")
    assert len(project.git("worktree", "list").splitlines()) == 1
    assert project.git("status", "--porcelain") == ""

    runs = len(list((project.path / ".perfguard" / "runs").iterdir()))
    again = project.run(*arguments)
    assert again.returncode == 0, again.stderr
    assert f"found: {history[2][:10]} is the first bad commit: change 2 (Test, " in again.stdout
    assert len(list((project.path / ".perfguard" / "runs").iterdir())) == runs == first["gates"]

    again = project.run(*arguments, "--format", "md")
    assert again.stdout.startswith("## perfguard bisect: found")


@pytest.mark.long
def test_interrupted_it_keeps_what_it_has_and_goes_on(project, history):
    arguments = ("bisect", "--good", history[0], "-c", "tiny.sum")
    process = project.start(*arguments, "-v", "--format", "json")
    for line in process.stderr:
        if line.startswith("· step 2"):
            process.send_signal(signal.SIGINT)
            break
    stdout, _ = process.communicate(timeout=100)
    found = json.loads(stdout)
    assert (process.returncode, found["outcome"]) == (130, "interrupted"), found["steps"]
    assert project.workers() == []
    rest = project.result(*arguments)
    assert rest["culprit"]["id"] == history[2]
    assert rest["gates"] < len(rest["steps"]) + 1


def test_where_nothing_became_slower_no_commit_is_named(project):
    first = project.git("rev-parse", "HEAD")
    project.write("notes.txt", "nothing that runs")
    project.commit()
    found = project.result("bisect", "--good", first, "-c", "tiny.sort", "--max-blocks", "5")
    assert (found["outcome"], found["exit_code"]) == ("no-regression", 4), found["steps"]
    assert (found["culprit"], found["suspects"]) == (None, [])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-c", "tiny.sum"), 2, "Missing option '--good'"),
        (("--good", "HEAD~1"), 2, "name the cases that became slower with --case"),
        (("--good", "HEAD~1", "-c", "tiny.summ"), 5, "no case matches 'tiny.summ'"),
        (("--good", "nowhere", "-c", "tiny.sum"), 2, "git knows no revision 'nowhere'"),
        (("--good", "HEAD", "-c", "tiny.sum"), 2, "are the same commit"),
        (("--good", "HEAD", "--bad", "HEAD~1", "-c", "tiny.sum"), 2, "exchange them"),
        (("--good", "HEAD~1", "-c", "tiny.sum", "--path", "absent"), 2, "touches"),
        (("--good", "HEAD~1", "-c", "tiny.sum", "--path", "/"), 2, "outside repository"),
    ],
)
def test_what_cannot_be_searched_is_said_in_one_sentence(project, arguments, code, said):
    project.replace("tiny_work.py", *SLOWER)
    project.commit()
    done = project.run("bisect", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project.path / ".perfguard").exists()


def test_outside_a_repository_it_is_said(empty_project):
    empty_project.write("perfguard.toml", 'suite = "quick"\n')
    done = empty_project.run("bisect", "--good", "v1", "-c", "kernel.layer_norm*")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not inside a git repository" in done.stderr
