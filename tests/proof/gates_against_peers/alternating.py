"""Two processes that take turns: what a variant does to its cases, free of whatever slows down both."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.proof.gates_against_peers.journal import Row
from tests.proof.gates_against_peers.pinning import arm_environment
from tests.proof.gates_against_peers.places import HERE, SUITES_VENV, python_of


def alternating(
    arms: Sequence[tuple[Path, Mapping[str, str]]], cases: Sequence[str], *, samples: int, cpus: Sequence[int]
) -> list[Row]:
    """Wall and CPU seconds of an iteration of each case, for each arm; the arms' samples alternate on the same CPUs.

    Args:
        arms: Tree and further variables of each; an empty value unsets one.
        cases: Names of cases.
        samples: Of each case and arm.
        cpus: On which both run.

    Raises:
        RuntimeError: A process failed.
    """
    found: list[Row] = [{} for _ in arms]
    with ExitStack() as closing:
        processes = [closing.enter_context(_process(tree, cases, cpus, extra)) for tree, extra in arms]
        for case in cases:
            for process, row in zip(processes, found, strict=True):
                row[case] = {"wall_s": [], "cpu_s": [], **_answer(process)}
            for number in range(samples):
                turns = list(zip(processes, found, strict=True))
                for process, row in turns if number % 2 else reversed(turns):
                    for clock, seconds in _asked(process, "sample").items():
                        row[case][clock].append(seconds)
            for process in processes:
                _say(process, "next")
    return found


@contextmanager
def _process(
    tree: Path, cases: Sequence[str], cpus: Sequence[int], extra: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [str(python_of(SUITES_VENV)), str(HERE / "timing_probe.py"), str(tree), "ask", *cases],
        cwd=tree,
        env=arm_environment(cpus, extra),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, set(cpus)),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _asked(process: subprocess.Popen[str], word: str) -> Row:
    _say(process, word)
    return _answer(process)


def _say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
    except BrokenPipeError as error:
        raise RuntimeError("a process that times a case ended; what it said stands above") from error


def _answer(process: subprocess.Popen[str]) -> Row:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a process that times a case ended; what it said stands above")
    return json.loads(line)
