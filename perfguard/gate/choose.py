"""Which kind of comparison a gate is: against a stored baseline, or paired with a revision or an anchor's."""

from __future__ import annotations

from dataclasses import replace

from perfguard.config import LoadedConfig
from perfguard.errors import ArmError, ConfigError, StoreError, UsageError
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.gate.stored.lookup import (
    anchor_of,
    commit_of,
    find_stored,
    op_counts_of_another_machine,
    require_stored,
    store_of,
)
from perfguard.gate.stored.pairing import changed_state
from perfguard.gate.stored.rounds import gate_against_stored
from perfguard.profile.runs.profiling import isa_of
from perfguard.records.facts import Severity, Subject, fact
from perfguard.records.plan import ArmSpec
from perfguard.records.result import RunResult
from perfguard.runner.arms import git
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.session import Request


def compare_or_gate(request: Request, baseline: ArmSpec, candidate: ArmSpec) -> RunResult:
    """Compare with the stored baseline where that is asked for, else in interleaved blocks.

    Raises:
        StoreError: `stored` was asked for, and there is none for this machine and suite.
        UsageError: Injections need both arms, or single cases were to be compared with `stored`.
    """
    if not baseline.stored:
        return compare_arms(request, baseline, candidate)
    if request.injections:
        raise UsageError("--inject needs two arms that run now; use --baseline git:HEAD")
    if request.patterns:  # cases that share a worker share its memory and caches: a case alone is another measurement
        raise UsageError(
            f"the stored baseline is of all cases of suite {request.loaded.config.suite!r} in one worker, so single "
            "cases are not compared with its numbers; leave --case out, or pair the cases with its commit: "
            "--baseline REV"
        )
    place = require_stored(request.loaded, request.suite, request.fingerprint.machine_id)
    stored, anchor = store_of(request.loaded).load(place), anchor_of(request.loaded, place)
    return gate_against_stored(request, candidate, stored, str(place), anchor=anchor)


def default_gate(request: Request, candidate: ArmSpec) -> RunResult:
    """Judge against the stored baseline of this machine where there is one, else against the last commit.

    Where only another machine has one, whose libraries choose from the same instruction sets, its times say nothing
    here, but what the steps execute is compared with it.

    Raises:
        ArmError: There is neither.
    """
    machine = request.fingerprint
    place = None if request.injections else find_stored(request.loaded, request.suite, machine.machine_id)
    if place is not None:
        stored, anchor = store_of(request.loaded).load(place), anchor_of(request.loaded, place)
        reasons = changed_state(stored, machine)
        commit = commit_of(request.loaded, stored) if reasons else None
        if commit is not None:
            notes = [
                fact("baseline.other_state", severity=Severity.NOTABLE),
                *(replace(reason, subject=Subject(arm="baseline")) for reason in reasons),
            ]
            if anchor is not None:
                notes.append(fact("drift.not_measured", severity=Severity.NOTABLE))
            return compare_arms(request, parse_arm(f"git:{commit}"), candidate, notes=tuple(notes))
        return gate_against_stored(request, candidate, stored, str(place), anchor=anchor)
    if git.top_level(request.loaded.project) is None:
        raise ArmError(
            f"no baseline is stored for this machine, and {request.loaded.project} is not inside a git repository; run "
            "`perfguard baseline update`, or name both sides with --baseline and --candidate"
        )
    return compare_arms(
        request,
        parse_arm("git:HEAD"),
        candidate,
        notes=(fact("baseline.none_stored", suite=None if request.patterns else request.suite),),
        op_counts=op_counts_of_another_machine(request.loaded, request.suite, machine.machine_id, isa_of(machine)),
    )


def gate_against_anchor(request: Request, candidate: ArmSpec) -> RunResult:
    """Pair the candidate with the anchor's revision, and judge by the anchor's margin.

    Raises:
        UsageError: No anchor is configured or stored.
        PerfguardError: The run could not be made.
    """
    spec, since, origin = _anchor_arm(request.loaded, request.fingerprint.machine_id)
    note = fact("drift.paired", since=since, origin=origin, margin_ratio=request.loaded.config.anchor_margin)
    return compare_arms(request, spec, candidate, notes=(note,), is_anchor=True)


def _anchor_arm(loaded: LoadedConfig, machine_id: str) -> tuple[ArmSpec, str, str]:
    """The revision that `--anchor` compares with, its day (ISO 8601), and where it was found."""
    repository = git.top_level(loaded.project)
    if repository is None:
        raise ArmError(f"--anchor needs a git repository, and {loaded.project} is not inside one")
    configured = loaded.config.anchor
    if configured is not None:
        spec = parse_arm(configured)
        if spec.revision is None or spec != parse_arm(f"git:{spec.revision}"):
            origin = loaded.origins.get("anchor", "built-in")
            raise ConfigError(f"{origin}: anchor = {configured!r} must be a revision alone")
        commit = git.resolve_commit(repository, spec.revision)
        return spec, git.date_of(repository, commit), configured
    anchor = anchor_of(loaded, store_of(loaded).place(machine_id, loaded.config.suite))
    if anchor is None:
        raise UsageError(
            f"there is no anchor of suite {loaded.config.suite!r} for this machine; run `perfguard baseline anchor`, "
            'or name a revision in the configuration: anchor = "REV"'
        )
    if anchor.info.commit is None:
        raise StoreError("the stored anchor names no commit; freeze a baseline that was recorded in a repository")
    commit_id = commit_of(loaded, anchor) or anchor.info.commit  # which git then says it does not know
    origin = f"stored for this machine, commit {commit_id[:12]}"
    return parse_arm(f"git:{commit_id}"), anchor.info.created_at[:10], origin
