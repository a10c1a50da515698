"""A long stream of interleaved blocks of identical arms, recorded with perfguard's own runner, to cut replays from.

No looks are taken and no case is left early, so that every block holds every case.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from perfguard.config import load_config
from perfguard.records.run import Arm
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.measuring import MeasuringLimits, calibrate, measure, start_arms
from perfguard.runner.session import Request, open_session
from perfguard.runner.suites import load_catalog, selected_cases
from tests.proof.gates_against_peers.journal import Journal
from tests.proof.gates_against_peers.machine import commit, moment
from tests.proof.gates_against_peers.making import BASE, Made
from tests.proof.gates_against_peers.pinning import measured_cpus
from tests.proof.gates_against_peers.places import RECORDINGS, SUITES_VENV, VICTIM_REPOSITORY, python_of
from tests.proof.gates_against_peers.variants import IDENTICAL

_MANY = 1_000_000


def folder_of(run_id: str) -> Path:
    """Where a recording lies."""
    return VICTIM_REPOSITORY / ".perfguard" / "runs" / run_id


def record(made: Made, *, minutes: float, gate_minutes: float, say: object = print) -> str:
    """Record for `minutes`; gives the run's name. What was recorded before an interruption is kept.

    Args:
        made: The victim.
        minutes: How long.
        gate_minutes: Blocks are made as in a gate of so many minutes, which decides how many samples they have.
        say: Takes one line for each step.

    Raises:
        PerfguardError: The arms cannot be measured.
    """
    options = {
        "suite": "victim",
        "cpus": ",".join(map(str, measured_cpus(1))),
        "threads": 1,
        "python": str(python_of(SUITES_VENV)),
        "max_blocks": _MANY,
        "budget_s": gate_minutes * 60,
    }
    loaded = load_config(made.repository, os.environ, options)
    request = Request(
        command="compare",
        arguments=("compare", "--baseline", f"git:{BASE}", "--candidate", f"git:{IDENTICAL.name}"),
        loaded=loaded,
        suite="victim",
        cases=selected_cases(load_catalog(loaded), suite="victim", patterns=()),
        budget_s=gate_minutes * 60,
        progress=say,
    )
    with open_session(request, mode="paired") as session:
        start = moment()
        specs = {Arm.BASELINE: parse_arm(f"git:{BASE}"), Arm.CANDIDATE: parse_arm(f"git:{IDENTICAL.name}")}
        starter, arms = start_arms(session, specs)
        plan = calibrate(session, starter, arms)
        Journal(RECORDINGS).append(
            {
                "key": session.folder.run_id,
                "gate_minutes": gate_minutes,
                "slices": plan.settings.samples,
                "machine_id": session.fingerprint.machine_id,
                "cpus": list(session.selection.cpus),
                "set_up_s": time.monotonic() - session.started,
                "commit": commit(),
                **start,
            }
        )
        limits = MeasuringLimits(budget_s=minutes * 60, max_blocks=_MANY)
        blocks = measure(session, starter, plan, arms=(Arm.BASELINE, Arm.CANDIDATE), limits=limits)
        say(f"{blocks} blocks in {session.folder.path}")
        return session.folder.run_id
