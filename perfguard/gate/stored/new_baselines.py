"""A run's rounds as a baseline to be stored: provenance, noise, and pyperf runs that name no host."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from perfguard import __version__
from perfguard.errors import StoreError
from perfguard.gate.paired.results import describe_rounds
from perfguard.gate.stored.lookup import folder_of_baselines
from perfguard.gate.stored.rounds import utc_now
from perfguard.records.plan import Plan
from perfguard.records.record import BASELINE_SCHEMA, BaselineInfo, CaseNoise, StoredBaseline
from perfguard.records.run import Round
from perfguard.runner.arms import git
from perfguard.runner.session import Session
from perfguard.store.baselines import metadata_of
from perfguard.store.pyperf_files import read_suite


def baseline_of(session: Session, state: git.TreeState, plan: Plan) -> StoredBaseline:
    """The baseline that a run of one arm has measured.

    Args:
        session: The run.
        state: What was measured, as git sees it.
        plan: How it was measured.
    """
    rounds = rounds_of(session)
    starts = [entry.started_at for found in rounds.values() for entry in found] or [time.time()]
    return StoredBaseline(
        info=BaselineInfo(
            schema=BASELINE_SCHEMA,
            suite=session.request.suite,
            machine_id=session.fingerprint.machine_id,
            stack_id=session.fingerprint.stack_id,
            created_at=utc_now(),
            commit=state.commit,
            source_id=state.source_id,
            perfguard=__version__,
            cpus=len(session.selection.cpus),
            env_profile=session.settings.env_profile.value,
            sample_s=plan.settings.sample_s,
            samples=plan.settings.samples,
            span_s=max(starts) - min(starts),
            seed=session.settings.seed,
            code_id=_code_id(session, state),
        ),
        fingerprint=session.fingerprint,
        noise={case_id: _noise(session, case_id) for case_id in rounds},
        rounds=rounds,
    )


def rounds_of(session: Session) -> dict[str, tuple[Round, ...]]:
    """The rounds of each case that its own suite does not skip."""
    failures = session.data.failures
    skipped = {case_id for case_id, failure in failures.items() if failure.skipped}
    return {case_id: found for case_id, found in session.data.rounds().items() if case_id not in skipped}


def _code_id(session: Session, state: git.TreeState) -> str | None:
    loaded = session.request.loaded
    repository = git.top_level(loaded.project)
    folder = folder_of_baselines(loaded, repository) if repository else None
    if repository is None or folder is None or state.commit is None or state.dirty:
        return None
    return git.code_id(repository, state.commit, without=folder)


def _noise(session: Session, case_id: str) -> CaseNoise:
    loops = session.data.inner_loops.get(case_id, 1)
    measured = describe_rounds(case_id, session.data.rounds()[case_id], inner_loops=loops, problem=None)
    return CaseNoise(
        rounds=measured.rounds,
        median_s=measured.median_s or 0.0,
        between_round_sd_ratio=measured.between_sd_ratio or 0.0,
        within_round_sd_ratio=measured.within_sd_ratio or 0.0,
        inner_loops=loops,
    )


def public_runs(session: Session) -> dict[str, list[Any]]:
    """The rounds as pyperf runs: what each process wrote, and what only the parent knows."""
    import pyperf

    metadata: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(StoreError):  # it adds facts about the interpreter; the values are in the events
        suite = read_suite(session.folder.path / "candidate.json")
        metadata = {found.get_name(): found.get_runs()[0].get_metadata() for found in suite.get_benchmarks()}
    keep = ("inner_loops", "loops", "name", "unit", "python_version", "python_implementation", "timer")
    runs: dict[str, list[Any]] = {}
    for case_id, rounds in rounds_of(session).items():
        shared = {key: value for key, value in metadata.get(case_id, {}).items() if key in keep}
        runs[case_id] = [
            pyperf.Run(
                list(entry.values_s), metadata={**shared, "name": case_id, **metadata_of(entry)}, collect_metadata=False
            )
            for entry in rounds
        ]
    return runs
