"""What cannot be done: one sentence, an exit code, no traceback; no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("compare", "-s", "tinny"), 2, "no suite is named 'tinny'; the nearest is 'tiny'"),
        (("run", "-c", "tiny.summ"), 5, "no case matches 'tiny.summ'; the nearest is 'tiny.sum'"),
        (("compare", "--inject", "other=+5%"), 5, "no case matches 'other'"),
        (("compare", "--inject", "tiny.sum=5"), 2, "is not PATTERN=+5%"),
        (("compare", "--detect", "2"), 2, "2 % is written 2% or 0.02"),
        (("compare", "--detect", "0.5%"), 2, "above the margin of 0.50 % are flagged; lower --margin, too"),
        (("compare", "--fail-on", "regresion"), 2, "did you mean 'regression'?"),
        (("compare", "--baseline", "git:nowhere"), 2, "git knows no revision 'nowhere'"),
        (("compare", "--baseline", "dir:absent"), 2, "absent is not a directory"),
        (("compare", "--candidate", "stored"), 2, "only the baseline can be a stored one"),
        (("compare", "--candidate", "python:/absent/python"), 2, "there is no interpreter '/absent/python'"),
        (("compare", "--candidate", "python:/bin/ls"), 2, "/bin/ls is not a Python interpreter"),
        (("run", "--budget", "0"), 2, "budget_s = 0.0 must be positive"),
        (("run", "--budget", "inf"), 2, "'inf' is no time; write it as 300, 90s, 5m or 2h"),
        (("run", "--margin", "5"), 2, "No such option --margin; `perfguard run --help` lists all."),
        (("compare", "--margin", "5"), 2, "5 % is written 5% or 0.05"),
        (("explain", "regresed"), 2, "did you mean 'regressed'?"),
        (("explain", "zzzz"), 2, "`perfguard explain` lists all that it knows"),
        (("completion", "tcsh"), 2, "is not one of 'bash', 'zsh', 'fish'"),
        (("demo", "-o", "."), 2, "is not empty; choose another folder with -o"),
        (("run", "--threads", "9999"), 2, "--threads 9999 is more than"),
        (("run", "--cpus", "0-999"), 2, "offline or absent"),
        (("run", "--ranks", "2"), 5, "no selected case is a built-in training step"),
        (("run", "--ranks", "9999", "-c", "step.bert"), 2, "--ranks 9999: --threads 9999 is more than"),
        (("run", "--ranks", "1,two"), 2, "'1,two' is no list of numbers from 1"),
        (("run", "--threads", "1,2"), 2, "need --ranks"),
        (("run", "--numa", "left"), 2, "neither a node number nor 'none'"),
        (("gate", "--baseline", "stored"), 3, "no baseline of suite 'tiny' is stored for this machine"),
        (("baseline", "diff", "git:HEAD"), 3, "was this machine's baseline committed there?"),
        (("baseline", "update", "--rounds", "2"), 2, "2 rounds say too little"),
        (("tune", "tiny.summ"), 5, "no case matches 'tiny.summ'; the nearest is 'tiny.sum'"),
        (("tune", "tiny.*"), 2, "'tiny.*' names 2 cases; tune takes one, for instance 'tiny.sort'"),
        (("tune", "tiny.sum", "--toggles", "alocator"), 2, "no toggle 'alocator'; the nearest is 'allocator'"),
        (("tune", "tiny.sum", "--arm", "dir:absent"), 2, "absent is not a directory"),
        (("tune", "tiny.sum", "--arm", "stored"), 2, "a stored baseline cannot be measured"),
        (("tune", "tiny.sum", "--budget", "0"), 2, "budget_s = 0.0 must be positive"),
        (("lits",), 2, "No such command 'lits'; type `perfguard list`."),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence_with_its_exit_code(project, arguments, code, said):
    done = project.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_configuration_names_file_and_key(project):
    project.write("perfguard.toml", "samplez = 3")
    done = project.run("list")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{project.path / 'perfguard.toml'}: unknown key 'samplez'; did you mean 'samples'?" in done.stderr


def test_benchmarks_that_cannot_be_imported_are_shown_with_their_traceback(project):
    project.write("bench_broken.py", "raise ValueError('not importable')")
    done = project.run("list")
    assert (done.returncode, done.stdout) == (2, "")
    assert "bench_broken.py cannot be imported" in done.stderr
    assert "ValueError: not importable" in done.stderr


def test_a_working_directory_that_is_gone_gives_a_sentence(project, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["/bin/sh", "-c", f"cd {gone} && rmdir {gone} && exec {sys.executable} -m perfguard list"],
        env=project.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "the working directory is gone" in done.stderr
    assert "Traceback" not in done.stderr
