"""Kinds of ops: the keys by which the ops of two traces are aligned, and which of them an event is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfguard.profile.trace.context import Context
from perfguard.profile.trace.nesting import IntArray
from perfguard.profile.trace.phases import PHASES, PhaseArray
from perfguard.profile.trace.trace import Trace
from perfguard.records.steps.ops import PYTHON_OP, OpKey


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyedEvents:
    """Events and which kind of op each is; what is no op is time in no op at its place."""

    keys: tuple[OpKey, ...]
    """The kinds that occur, each once."""
    key: IntArray
    """Position in `keys` of each event."""
    sources: dict[OpKey, str]
    """Line of the user's code that led to most events of a kind; only of ops, and only where one is known."""


def op_events(context: Context, step: int) -> IntArray:
    """Positions of a step's ops, wrappers as well as what they wrap."""
    return np.flatnonzero(context.is_op & (context.step == step))


def keyed(trace: Trace, context: Context, events: IntArray, phases: PhaseArray | None = None) -> KeyedEvents:
    """The kinds of events.

    Args:
        trace: The trace.
        context: Its context.
        events: Positions in the trace, in steps; may hold one several times.
        phases: Of each, where it is not the context's.
    """
    is_op = context.is_op[events]
    columns = (
        (context.phase[events] if phases is None else phases, len(PHASES)),
        (context.module[events], len(context.modules)),
        (np.where(is_op, trace.name[events], len(trace.names)), len(trace.names) + 1),
        (np.where(is_op, trace.signature[events], 0), len(trace.signatures)),
    )
    codes = np.zeros(events.size, dtype=np.int64)
    for column, size in columns:
        codes = codes * size + column
    kinds = np.unique(codes)
    key = np.searchsorted(kinds, codes)  # twice as fast as to have it returned
    parts = []
    for _, size in reversed(columns):
        kinds, part = np.divmod(kinds, size)
        parts.append(part.tolist())
    names = (*trace.names, PYTHON_OP)
    keys = tuple(
        OpKey(
            phase=PHASES[phase],
            module=context.modules[module],
            op=names[name],
            shapes=trace.signatures[signature].shapes,
            dtypes=trace.signatures[signature].dtypes,
            layouts=trace.signatures[signature].layouts,
        )
        for signature, name, module, phase in zip(*parts, strict=True)
    )
    return KeyedEvents(keys=keys, key=key, sources=_sources(context, events[is_op], key[is_op], keys))


def _sources(context: Context, events: IntArray, key: IntArray, keys: tuple[OpKey, ...]) -> dict[OpKey, str]:
    known = context.source[events] > 0
    pairs, counts = np.unique(key[known] * len(context.sources) + context.source[events][known], return_counts=True)
    # The last one that is written stays: the most frequent, among equals the first.
    order = np.lexsort((-pairs, counts))
    found, source = np.divmod(pairs[order], len(context.sources))
    return {keys[key]: context.sources[line] for key, line in zip(found.tolist(), source.tolist(), strict=True)}
