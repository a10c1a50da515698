"""The timed samples of a case in one block, and the values of their signals."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perfguard.records import events as ev
from perfguard.records.run import Arm, Signal, Stage

_SIGNALS = {signal.value: signal for signal in Signal}


_FLOATS = ("value_s", "cpu_s", "energy_j", "instructions", "waited_s", "elapsed_s")
_LARGEST = 2**63
_COUNTS = ("iterations", "minor_faults", "involuntary_switches", "voluntary_switches", "peak_memory_bytes")


class PackedSamples:
    """Samples of one case, block and arm in an eighth of their memory, in order: a recording may hold a million."""

    __slots__ = ("_first", "_numbers", "_own")

    def __init__(self) -> None:
        self._first: ev.SampleTimed | None = None
        self._numbers: array[float] = array("d")
        self._own: dict[int, Mapping[str, float]] = {}  # By the sample's place

    def append(self, timed: ev.SampleTimed) -> None:
        """Keep one more."""
        self._first = self._first or timed
        if timed.own:
            self._own[len(self)] = timed.own
        self._numbers.extend(math.nan if (value := getattr(timed, name)) is None else value for name in _FLOATS)
        self._numbers.extend(_count(getattr(timed, name)) for name in _COUNTS)

    def __len__(self) -> int:
        return len(self._numbers) // (len(_FLOATS) + len(_COUNTS))

    def __iter__(self) -> Iterator[ev.SampleTimed]:
        width = len(_FLOATS) + len(_COUNTS)
        for place in range(len(self)):
            row = self._numbers[place * width : (place + 1) * width]
            known: dict[str, Any] = {
                name: None if math.isnan(value) else value for name, value in zip(_FLOATS, row, strict=False)
            }
            counted = zip(_COUNTS, row[len(_FLOATS) :], strict=True)
            counts: dict[str, Any] = {name: None if math.isnan(value) else int(value) for name, value in counted}
            assert self._first is not None  # noqa: S101 - there are samples
            yield replace(self._first, index=place, own=self._own.get(place), **known, **counts)


def _count(value: int | None) -> float:
    """The value; not a number where there is none, or one that no counter holds."""
    return math.nan if value is None or abs(value) > _LARGEST else value


@dataclass(slots=True)
class CaseBlock:
    """The timed samples of one case in one block, warm-ups left out; compact, so that hours of them fit into memory."""

    case_id: str
    block: int  # Block number, from 0
    stage: Stage
    baseline_s: array[float] = field(default_factory=lambda: array("d"))  # Seconds of an iteration, in order
    candidate_s: array[float] = field(default_factory=lambda: array("d"))  # Likewise; also of an only arm
    timed: dict[Arm, PackedSamples] | None = None  # Samples with all signals; None where none are kept
    done: ev.CaseFinished | None = None  # What ended it; None while samples may follow
    is_finished: bool = False  # Whether the case is complete and the block has ended; only then its samples count

    def of(self, arm: Arm) -> array[float]:
        """The samples of one arm."""
        return self.baseline_s if arm is Arm.BASELINE else self.candidate_s


def own_signals(block: CaseBlock) -> tuple[str, ...]:
    """Names that the benchmark gave, in its order."""
    samples = (timed for arm in (block.timed or {}).values() for timed in arm)
    return tuple(dict.fromkeys(name for timed in samples for name in timed.own or ()))


def signal_value(name: str, timed: ev.SampleTimed, inner_loops: int) -> float | None:
    """A sample's value in the unit of its signal; recordings without iterations had one inner loop's worth of them."""
    if name not in _SIGNALS:
        return (timed.own or {}).get(name)
    count: int | None
    match _SIGNALS[name]:
        case Signal.CPU:
            return timed.cpu_s
        case Signal.MEMORY:
            return timed.peak_memory_bytes
        case Signal.ENERGY:
            return timed.energy_j
        case Signal.INSTRUCTIONS:
            return timed.instructions
        case Signal.FAULTS:
            count = timed.minor_faults
        case Signal.SWITCHES:
            voluntary = timed.voluntary_switches
            count = None if voluntary is None else voluntary + timed.involuntary_switches
    iterations = timed.iterations or inner_loops
    return None if count is None or not iterations else count / iterations
