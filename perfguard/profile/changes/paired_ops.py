"""The ops of two profiles side by side: one column a key, one row a pair of processes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfguard.profile.op_times.arm_profile import ArmProfile, ProcessPairs
from perfguard.profile.op_times.overhead import Overhead, profiler_cost_s
from perfguard.profile.op_times.typical_steps import FloatArray, IntArray, middle_steps, typical_steps
from perfguard.profile.trace.op_spans import changed_line
from perfguard.records.steps.ops import OpKey


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedOps:
    """Ops of both arms, aligned by their keys, the profiler's cost taken out."""

    keys: tuple[OpKey, ...]
    """The baseline's keys, then those that only the candidate has."""
    baseline_s: FloatArray
    """Seconds in a typical step, shape `(pairs, keys)`; 0 where the arm has no such op. The
    profiler's cost is taken out, as far as the op's time can hold it."""
    candidate_s: FloatArray
    """The same of the candidate."""
    baseline_calls: FloatArray
    """Calls in a step, shape `(keys,)`."""
    candidate_calls: FloatArray
    """The same of the candidate."""
    count_change: IntArray
    """1 where every step of the candidate has more calls than any of the baseline, -1 where fewer, else 0."""
    overhead_error_s: FloatArray
    """Standard error of each key's difference that comes from the profiler's cost, shape `(keys,)`."""
    sources: tuple[str | None, ...]
    """Line of the user's code, by key; the candidate's where it has one. Of time in no op, the line that changed."""
    implementations: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    """What computed each key, before and after, as `runners` says; empty where unknown."""

    @property
    def deltas_s(self) -> FloatArray:
        """Candidate minus baseline, shape `(pairs, keys)`."""
        return self.candidate_s - self.baseline_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """One arm in the columns of both."""

    seconds: FloatArray
    calls: FloatArray
    fewest: FloatArray
    most: FloatArray
    cost_s: FloatArray


def pair_ops(baseline: ArmProfile, candidate: ArmProfile, pairs: ProcessPairs, overhead: Overhead) -> PairedOps:
    """Align two arms by phase, module, op, shapes, dtypes and layouts.

    Args:
        baseline: One arm.
        candidate: The other one.
        pairs: Their processes.
        overhead: To take out.
    """
    keys = tuple(dict.fromkeys((*baseline.profile.keys, *candidate.profile.keys)))
    column_of = {key: column for column, key in enumerate(keys)}
    # Where steps without the profiler say what a step takes, what is left out of ops is unexplained. Of traces taken
    # elsewhere whole steps are left out, lest their difference goes where nobody can look for it.
    whole_steps = not (baseline.has_bare_steps and candidate.has_bare_steps)
    before = _side(baseline, pairs.baseline, column_of, overhead, whole_steps=whole_steps)
    after = _side(candidate, pairs.candidate, column_of, overhead, whole_steps=whole_steps)
    lines = {**baseline.profile.sources, **candidate.profile.sources, **_changed_lines(baseline, candidate)}
    return PairedOps(
        keys=keys,
        baseline_s=before.seconds,
        candidate_s=after.seconds,
        baseline_calls=before.calls,
        candidate_calls=after.calls,
        count_change=(after.fewest > before.most).astype(np.int64) - (after.most < before.fewest),
        overhead_error_s=np.abs(after.cost_s - before.cost_s) * overhead.error_ratio,
        sources=tuple(lines.get(key) for key in keys),
        implementations=tuple(
            (baseline.implementations.get(key, ()), candidate.implementations.get(key, ())) for key in keys
        ),
    )


def _changed_lines(baseline: ArmProfile, candidate: ArmProfile) -> dict[OpKey, str]:
    before, after = baseline.profile.python_lines, candidate.profile.python_lines
    found = {key: changed_line(before.get(key, {}), after.get(key, {})) for key in {*before, *after}}
    return {key: line for key, line in found.items() if line is not None}


def _side(
    arm: ArmProfile, processes: tuple[int, ...], column_of: dict[OpKey, int], overhead: Overhead, *, whole_steps: bool
) -> _Side:
    profile = arm.profile
    columns = np.array([column_of[key] for key in profile.keys], dtype=np.intp)
    cost_s = profiler_cost_s(profile, overhead)
    self_s, process = profile.self_s - cost_s, profile.process
    if whole_steps:
        chosen = middle_steps(profile.wall_s, process)
        seconds = np.stack([self_s[chosen & (process == number)].mean(axis=0) for number in processes])
    else:
        seconds = typical_steps(self_s, process, processes)

    def spread(values: FloatArray) -> FloatArray:
        """Of this arm's keys, in the columns of both arms."""
        wide = np.zeros((*values.shape[:-1], len(column_of)))
        wide[..., columns] = values
        return wide

    calls = profile.calls.astype(np.float64)
    return _Side(
        seconds=spread(seconds),
        calls=spread(calls.mean(axis=0)),
        fewest=spread(calls.min(axis=0)),
        most=spread(calls.max(axis=0)),
        cost_s=spread(cost_s.mean(axis=0)),
    )
