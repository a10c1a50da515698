"""Mistakes that people make, more than a hundred: each is answered by one sentence that says what to type."""

from __future__ import annotations

import shlex
import tempfile

import pytest

from perfguard.cli import main

MISTAKES = """
2 | gat | type `perfguard gate`
2 | comapre | type `perfguard compare`
2 | bench | type `perfguard run`
2 | measure | type `perfguard run`
2 | test | type `perfguard gate`
2 | check | type `perfguard gate`
2 | diff | type `perfguard compare`
2 | help | type `perfguard --help`
2 | start | type `perfguard init`
2 | profil step.bert | type `perfguard profile`
2 | doctr | type `perfguard doctor`
2 | histroy | type `perfguard history`
2 | reprot | type `perfguard report`
2 | update | type `perfguard baseline update`
2 | baselines | type `perfguard baseline`
2 | train | type `perfguard hetero train`
2 | dashboard | type `perfguard tui`
2 | results | type `perfguard show`
2 | blame | type `perfguard bisect`
2 | optimize | type `perfguard tune`
2 | frobnicate | `perfguard --help` lists all
2 | baseline upadte | type `perfguard baseline update`
2 | baseline list | type `perfguard baseline show`
2 | baseline save | type `perfguard baseline update`
2 | baseline compare | type `perfguard baseline diff`
2 | task lst | type `perfguard task list`
2 | task start | type `perfguard task run`
2 | hetero trian | type `perfguard hetero train`
2 | fleet submitt | type `perfguard fleet submit`
2 | fleet start | type `perfguard fleet worker`
2 | fleet run | type `perfguard fleet submit`
2 | db stats | type `perfguard db status`
2 | db init | type `perfguard db upgrade`
2 | db restore | type `perfguard db move`
2 | github coment | type `perfguard github comment`
2 | study profiledn | type `perfguard study profilednn`
2 | config get suite | type `perfguard config show`
2 | config set suite pr | `perfguard config --help` lists all
2 | gate --suites tiny | did you mean --suite?
2 | gate --threshold 5% | did you mean --margin?
2 | gate --benchmark tiny.sum | did you mean --case?
2 | gate --filter tiny.sum | did you mean --case?
2 | gate --output json | did you mean --format?
2 | gate --base main | did you mean --baseline?
2 | gate --fail | did you mean --fail-on?
2 | gate -j 4 | did you mean --threads?
2 | gate --timeout 60 | did you mean --budget?
2 | run --repeat 5 | did you mean --samples?
2 | run --iterations 5 | did you mean --samples?
2 | compare --head feature | did you mean --candidate?
2 | gate --pass-env | `perfguard gate --help` lists all
2 | report --format pdf | `perfguard report --help` lists all
2 | gate --json=yes | Option '--json' does not take a value
2 | gate --format yaml | is not one of 'table', 'json', 'md', 'comment'
2 | gate tiny.sum | `perfguard gate -c tiny.sum`, revisions with --baseline REV
2 | run tiny.sum | `perfguard run -c tiny.sum`.
2 | compare main | `perfguard compare --baseline main`
2 | compare HEAD~1 HEAD | `perfguard compare --baseline HEAD~1 --candidate HEAD`
2 | compare --baseline mian | git knows no revision 'mian'
2 | compare --baseline ../other | is not a directory
2 | compare --candidate feature | git knows no revision 'feature'
2 | compare --baseline Stored | git knows no revision 'Stored'
2 | compare --baseline git: | nothing follows 'git:'
2 | compare --candidate conda:new | use stored, git:REV, dir:PATH, python:PATH
2 | compare --candidate stack:cuda | choose from default, ipex
2 | compare --candidate env:OMP_NUM_THREADS | is not KEY=VALUE
2 | gate --budget -3 | write it as 300, 90s, 5m or 2h
2 | gate --budget five | write it as 300, 90s, 5m or 2h
2 | gate --budget 10d | write it as 300, 90s, 5m or 2h
2 | gate --cpus all | write it like 0-3,8
2 | gate --cpus 1- | write it like 0-3,8
2 | gate --threads 0 | must be at least 1
2 | gate --margin five | write it as 2% or 0.02
2 | gate --margin 2 | 2 % is written 2% or 0.02
2 | gate --detect 1 % | a percentage has no blank: 5%
2 | gate --detect -5% | write it as 2% or 0.02
2 | gate --inject 5% | is not PATTERN=+5%
2 | gate -s all | `perfguard list` shows all
2 | gate -s | Option '-s' requires an argument
5 | gate -c tiny | 'tiny*' matches what begins so
5 | gate -c tiny.sun | the nearest is 'tiny.sum'
5 | gate -c nowhere.at.all | `perfguard list` shows all
2 | gate --samples 0 | must be between 1 and 1000
2 | gate --max-blocks 0 | must be at least 1
2 | gate --fail-on all | choose from regression, failed, inconclusive, missing, different
2 | gate --fail-on regressed | did you mean 'regression'?
2 | gate --env-profile fast | is not one of 'stable', 'production'
2 | gate --numa 9 | there is no such NUMA node; known: 0
2 | gate --confine soft | none of on, off, strict
2 | gate --policy-from nowhere | git knows no revision 'nowhere'
2 | gate --python python9 | give the path of a python executable
3 | show latest | without a name the latest is taken
5 | profile tiny.summ | the nearest is 'tiny.sum'
2 | profile absent.py | see `perfguard list`, or give a script's path
2 | tune tiny.sum --toggles nothing | choose from
2 | explain verdict.noisy | did you mean 'verdict.too_noisy'?
2 | bisect -c tiny.sum | Missing option '--good'
2 | bisect --good HEAD -c tiny.sum | are the same commit
2 | allow tiny.sum --max 3% | perfguard allow CASE --max 3% --until 30d --reason
2 | allow tiny.sum --max 3% --until tomorrow --reason x | write 2027-01-31, or a time from today such as 30d or 2w
2 | allow tiny.sum --max 3% --until 2020-01-01 --reason x | is in the past
2 | plan --detect 2 | 2 % is written 2% or 0.02
2 | history --last 0 | is not in the range x>=1
2 | serve --port 99999 | is not in the range 1<=x<=65535
2 | export --format xml | is not one of 'pyperf', 'asv'
3 | import absent.json | absent.json cannot be read: No such file or directory
2 | fingerprint --root absent-machine | give a recorded machine's folder or tarball
2 | env create cuda | choose from ipex
2 | completion powershell | is not one of 'bash', 'zsh', 'fish'
2 | task run digitz | did you mean 'digits'?
2 | task run digits -b tensorflow | choose from eager, compile, onnxruntime, openvino, litert
2 | hetero train --preset mnist | choose from covtype
2 | fleet status abc | is not a valid integer
2 | compare -s tinny | no suite is named 'tinny'; the nearest is 'tiny'
5 | run -c tiny.summ | no case matches 'tiny.summ'; the nearest is 'tiny.sum'
5 | compare --inject other=+5% | no case matches 'other'
2 | compare --inject tiny.sum=5 | is not PATTERN=+5%
2 | compare --detect 2 | 2 % is written 2% or 0.02
2 | compare --detect 0.5% | above the margin of 0.50 % are flagged; lower --margin, too
2 | compare --fail-on regresion | did you mean 'regression'?
2 | compare --baseline git:nowhere | git knows no revision 'nowhere'
2 | compare --baseline dir:absent | absent is not a directory
2 | compare --candidate stored | only the baseline can be a stored one
2 | compare --candidate python:/absent/python | there is no interpreter '/absent/python'
2 | compare --candidate python:/bin/ls | /bin/ls is not a Python interpreter
2 | run --budget 0 | budget_s = 0.0 must be positive
2 | run --budget inf | 'inf' is no time; write it as 300, 90s, 5m or 2h
2 | run --margin 5 | No such option --margin; `perfguard run --help` lists all.
2 | compare --margin 5 | 5 % is written 5% or 0.05
2 | explain regresed | did you mean 'regressed'?
2 | explain zzzz | `perfguard explain` lists all that it knows
2 | completion tcsh | is not one of 'bash', 'zsh', 'fish'
2 | demo -o . | is not empty; choose another folder with -o
2 | run --threads 9999 | --threads 9999 is more than
2 | run --cpus 0-999 | offline or absent
5 | run --ranks 2 | no selected case is a built-in training step
2 | run --ranks 9999 -c step.bert | --ranks 9999: --threads 9999 is more than
2 | run --ranks 1,two | '1,two' is no list of numbers from 1
2 | run --threads 1,2 | need --ranks
2 | run --numa left | neither a node number nor 'none'
3 | gate --baseline stored | no baseline of suite 'tiny' is stored for this machine
3 | baseline diff git:HEAD | was this machine's baseline committed there?
2 | baseline update --rounds 2 | 2 rounds say too little
5 | tune tiny.summ | no case matches 'tiny.summ'; the nearest is 'tiny.sum'
2 | tune 'tiny.*' | 'tiny.*' names 2 cases; tune takes one, for instance 'tiny.sort'
2 | tune tiny.sum --toggles alocator | no toggle 'alocator'; the nearest is 'allocator'
2 | tune tiny.sum --arm dir:absent | absent is not a directory
2 | tune tiny.sum --arm stored | a stored baseline cannot be measured
2 | tune tiny.sum --budget 0 | budget_s = 0.0 must be positive
2 | lits | No such command 'lits'; type `perfguard list`.
"""
LINES = [tuple(part.strip() for part in line.split(" | ")) for line in MISTAKES.strip().splitlines()]


@pytest.fixture(scope="module")
def mistaken(made_project, tmp_path_factory):
    return made_project(tmp_path_factory.mktemp("mistakes"))


@pytest.fixture
def inside(mistaken, monkeypatch):
    """This process as one that a user started in the project: its own settings, and its own place for locks."""
    monkeypatch.chdir(mistaken.path)
    for name in ("HOME", "XDG_CONFIG_HOME", "TMPDIR", "GIT_CONFIG_NOSYSTEM"):
        monkeypatch.setenv(name, mistaken.environment[name])
    monkeypatch.setattr(tempfile, "tempdir", mistaken.environment["TMPDIR"])


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("mistake", LINES, ids=[line[1] for line in LINES])
def test_a_mistake_is_answered_by_what_to_type(capsys, mistake):
    code, typed, said = mistake
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(typed))
    printed = capsys.readouterr()
    message = [line for line in printed.err.splitlines() if line and not line.startswith(("Usage: ", "Try ", "· "))]
    assert (ended.value.code, printed.out) == (int(code), "")
    assert said in " ".join(message)
    assert len(message) == 1, printed.err
