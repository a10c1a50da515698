"""Which kind of comparison a gate is: against a stored baseline, or paired with a revision."""

from __future__ import annotations

from dataclasses import replace

from perfguard.errors import ArmError, UsageError
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.gate.stored.anchors import anchor_of
from perfguard.gate.stored.lookup import commit_of, find_stored, op_counts_of_another_machine, require_stored, store_of
from perfguard.gate.stored.pairing import changed_state
from perfguard.gate.stored.rounds import gate_against_stored
from perfguard.profile.runs.profiling import isa_of
from perfguard.records.facts import Fact, Severity, Subject, fact
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
    _require_no_injection(request)
    _require_whole_suite(request)
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
            notes = _state_notes(reasons, has_anchor=anchor is not None)
            return compare_arms(request, parse_arm(f"git:{commit}"), candidate, notes=notes)
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


def _require_no_injection(request: Request) -> None:
    if request.injections:
        raise UsageError("--inject needs two arms that run now; use --baseline git:HEAD")


def _require_whole_suite(request: Request) -> None:
    """Cases that share a worker share its memory and caches, so a case alone is another measurement."""
    if request.patterns:
        raise UsageError(
            f"the stored baseline is of all cases of suite {request.loaded.config.suite!r} in one worker, so single "
            "cases are not compared with its numbers; leave --case out, or pair the cases with its commit: "
            "--baseline git:REV"
        )


def _state_notes(reasons: tuple[Fact, ...], *, has_anchor: bool) -> tuple[Fact, ...]:
    return (
        fact("baseline.other_state", severity=Severity.NOTABLE),
        *(replace(reason, subject=Subject(arm="baseline")) for reason in reasons),
        *((fact("drift.not_measured", severity=Severity.NOTABLE),) if has_anchor else ()),
    )
