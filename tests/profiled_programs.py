"""Small programs that a real child profiles, as evidence for rules."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfguard.codec import from_builtins
from perfguard.profile.advice.evidence import Evidence, shortest_calls
from perfguard.profile.advice.trials import Program
from perfguard.profile.runs.profiles import read_arm
from perfguard.records.steps.program import ProgramFacts
from perfguard.runner.process.answers import ProfiledStep, decoded
from perfguard.runner.profiling.cases import ProfiledProcess, StepFiles
from perfguard.worker.profiling.library_logs import TIMESTAMP_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.context import ForkServerContext

TRACED_STEPS = 5


@functools.cache
def _with_torch() -> ForkServerContext:
    """Forks of a process that has imported torch and Dynamo, as optimizers do; most programs take less time."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["torch._dynamo", "perfguard.worker.profiling.profiler", "perfguard.worker.cases"])
    return forks


def _profile(folder: Path, program: Path, variables: dict[str, str]) -> None:
    """What the child does."""
    os.environ.update(variables)
    os.chdir(folder)
    import torch

    from perfguard.records.protocol import StepKind
    from perfguard.worker.cases import PreparedCase
    from perfguard.worker.profiling.profiler import CaseProfiler, StepProfiler
    from perfguard.worker.program import answer

    try:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        names: dict[str, Any] = {"__name__": "program"}
        exec(compile(program.read_text(), program, "exec"), names)
        case = PreparedCase(id="case", calls=(names["step"],), digest=0.0)
        profiler = CaseProfiler(StepProfiler())
        told: list[Any] = [
            profiler.profile(case, StepKind.TRACE, trace=folder / f"{number}.json.gz", log=None)
            for number in range(TRACED_STEPS)
        ]
        told.append(profiler.profile(case, StepKind.JOINED, trace=folder / "joined.json.gz", log=folder / "joined.log"))
        told.append(answer(case.calls))
        (folder / "told.json").write_text(json.dumps(told))
    except BaseException:
        (folder / "error.txt").write_text(traceback.format_exc())
        raise


def evidence_of(source: str, folder: Path, variables: Mapping[str, str] | None = None, **more: Any) -> Evidence:
    """What is known of the function `step` that a program defines, profiled on one thread in a child.

    Args:
        source: The program.
        folder: Takes its files.
        variables: Set for the child.
        more: Further evidence.
    """
    program = folder / "program.py"
    program.write_text(source, encoding="utf-8")
    environment = {TIMESTAMP_VARIABLE: "1", "OMP_NUM_THREADS": "1", **(variables or {})}
    child = _with_torch().Process(target=_profile, args=(folder, program, environment))
    child.start()
    child.join(300)
    assert child.exitcode == 0, (folder / "error.txt").read_text()
    *traced, joined, facts = json.loads((folder / "told.json").read_text())
    process = ProfiledProcess(process=0)
    process.traced += [
        StepFiles(step=decoded(step, ProfiledStep), trace=folder / f"{number}.json.gz")
        for number, step in enumerate(traced)
    ]
    process.joined = StepFiles(
        step=decoded(joined, ProfiledStep), trace=folder / "joined.json.gz", log=folder / "joined.log"
    )
    found = read_arm("case", [process], isa_class="", torch="")
    assert found.joined is not None
    shortest = shortest_calls(found.profile.profile)
    given = {
        "program": from_builtins(facts, ProgramFacts, source="the child"),
        "target": Program(case_id="case"),
        "shortest_call_s": shortest,
        "event_s": traced[-1]["event_s"],
    }
    return Evidence(
        totals=found.totals, primitives=found.joined.primitives, op_counts=found.joined.op_counts, **{**given, **more}
    )
