"""From the files of profiled steps to what they say of an arm: its ops, its primitives, its op counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import StoreError
from perfguard.profile.libraries.join import implementations, join_step, primitive_totals, runners
from perfguard.profile.libraries.verbose import parse_mkl_verbose, parse_verbose
from perfguard.profile.op_counts.steady import counts_of_steps, op_counts_of
from perfguard.profile.op_times.arm_profile import ArmProfile, EventCost
from perfguard.profile.op_times.op_profile import merge, profile_of, totals
from perfguard.profile.trace.context import context_of
from perfguard.profile.trace.op_spans import spans_of
from perfguard.profile.trace.trace import MOST_EVENTS, read_trace
from perfguard.records.facts import Fact, fact
from perfguard.records.steps.ops import OpCounts, OpKey, OpTotal, PrimitiveTotal
from perfguard.runner.process.answers import ProfiledStep
from perfguard.runner.profiling.cases import ProfiledProcess, StepFiles


class JoinedFindings(Struct, frozen=True, kw_only=True):
    """What a `joined` step says."""

    op_counts: OpCounts  # What the step executes
    primitives: tuple[PrimitiveTotal, ...]  # Its calls of oneDNN and MKL
    implementations: Mapping[OpKey, tuple[str, ...]]  # What oneDNN chose for each op
    runners: Mapping[OpKey, tuple[str, ...]]  # What computed each op, as far as that is certain
    notes: tuple[Fact, ...]  # What could not be read or placed


class ArmFindings(Struct, frozen=True, kw_only=True):
    """Everything that profiling says of one arm and case."""

    profile: ArmProfile  # Steps, for comparing
    totals: tuple[OpTotal, ...]  # Ops of a typical step, largest first
    joined: JoinedFindings | None  # None where no `joined` step was taken


def read_arm(
    case_id: str,
    processes: Sequence[ProfiledProcess],
    *,
    isa_class: str,
    torch: str,
    compile_events: Mapping[str, int] | None = None,
) -> ArmFindings:
    """Read all files of one arm and case.

    `isa_class` is the machine's widest instruction set in oneDNN's words, `torch` the arm's version. `compile_events`
    are those of the set-up.

    Raises:
        StoreError: A trace or a log cannot be read.
        MeasurementError: There is no traced step.
    """
    merged = merge(
        [
            profile_of(read_trace(files.trace, most_events=MOST_EVENTS), process=p.process)
            for p in processes
            for files in p.traced
        ]
    )
    where = next((p.where for p in processes if p.where is not None), None)
    if where is not None:
        located = profile_of(read_trace(where.trace, most_events=MOST_EVENTS))
        merged = replace(merged, sources=located.sources, python_lines=located.python_lines)
    files = next((p.joined for p in processes if p.joined is not None), None)
    joined = None
    if files is not None:
        joined = read_joined(case_id, files, isa_class=isa_class, torch=torch, compile_events=compile_events)
    chosen = joined.implementations if joined is not None else {}
    bare = [(p.process, step) for p in processes for step in p.bare]
    profile = ArmProfile(
        profile=merged,
        bare_s=np.array([step.wall_s for _, step in bare]),
        bare_thread_s=np.array([step.thread_s for _, step in bare]),
        bare_process=np.array([process for process, _ in bare], dtype=np.int64),
        implementations=joined.runners if joined is not None else {},
        event_cost=event_cost([files.step for p in processes for files in p.traced]),
    )
    return ArmFindings(
        profile=profile,
        totals=tuple(replace(total, implementations=chosen.get(total.key, ())) for total in totals(merged)),
        joined=joined,
    )


def event_cost(steps: Sequence[ProfiledStep]) -> EventCost:
    """What the workers measured of the profiler: medians over the steps."""
    known = {
        name: [value for step in steps if (value := getattr(step, name)) is not None]
        for name in ("event_s", "module_s", "own_share")
    }
    return EventCost(**{name: median(values) for name, values in known.items() if values})


def read_joined(
    case_id: str, files: StepFiles, *, isa_class: str, torch: str, compile_events: Mapping[str, int] | None = None
) -> JoinedFindings:
    """Read a `joined` step: its trace and the libraries' log.

    Raises:
        StoreError: The trace or the log cannot be read.
    """
    trace = read_trace(files.trace, most_events=MOST_EVENTS)
    context = context_of(trace)
    lines = logged_lines(files.log)
    logs = (parse_verbose(lines), parse_mkl_verbose(lines))
    calls = sorted((call for log in logs for call in log.calls), key=lambda call: call.line)
    joined = join_step(spans_of(trace, context, 0), calls)
    malformed = sum(log.malformed for log in logs)
    unreadable = fact("profile.unreadable_lines", lines=malformed)
    unplaced = fact("profile.unplaced_calls", unplaced=joined.unplaced, calls=len(joined.calls))
    events = Counter(compile_events or {}) + Counter(files.step.compile_events)
    (counts,) = counts_of_steps(trace, context, [joined], events)
    return JoinedFindings(
        op_counts=op_counts_of(counts, case_id=case_id, isa_class=isa_class, torch=torch),
        primitives=primitive_totals([joined]),
        implementations=implementations([joined]),
        runners=runners([joined], () if malformed else files.step.logs),
        notes=(*((unreadable,) if malformed else ()), *((unplaced,) if joined.unplaced else ())),
    )


def logged_lines(log: Path | None) -> list[str]:
    """What the libraries printed in a step; none where no log was written.

    Raises:
        StoreError: The log cannot be read.
    """
    if log is None:
        return []
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except OSError as error:
        raise StoreError(f"{log} cannot be read: {error.strerror}; profile again") from error
