"""The timed samples of a case in one block, and the values of their signals."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

from msgspec import Struct, field

from perfguard.records import events as ev
from perfguard.records.run import Arm, CaseChecks, CaseClock, CaseIntrusion, CaseSamples, Signal, SignalSamples, Stage

_SIGNALS = {signal.value: signal for signal in Signal}


class SampleValues(NamedTuple):
    """What a sample is judged by; the names are those of `SampleTimed`."""

    value_s: float
    cpu_s: float
    energy_j: float | None
    instructions: float | None
    waited_s: float | None
    elapsed_s: float | None
    parent_cpu_s: float | None
    parent_waited_s: float | None
    iterations: int
    minor_faults: int
    involuntary_switches: int
    voluntary_switches: int | None
    peak_memory_bytes: int | None
    own: Mapping[str, float] | None


_SIGNAL_NUMBERS = SampleValues._fields[1:-1]
_FLOATS = 7  # The first of them


class PackedSamples:
    """Samples of one case, block and arm in an eighth of their memory, in order: a recording may hold a million."""

    __slots__ = ("_numbers", "_own", "values_s")

    def __init__(self) -> None:
        self.values_s: array[float] = array("d")  # Seconds of an iteration
        self._numbers: array[float] = array("d")  # All others of the first sample, of the second ...; nan: not known
        self._own: dict[int, Mapping[str, float]] | None = None  # By the sample's place

    def append(self, timed: ev.SampleTimed, *, keeps_signals: bool = True) -> None:
        """Keep one more, or its time alone."""
        if keeps_signals:
            if timed.own:
                self._own = self._own or {}
                self._own[len(self)] = timed.own
            for name in _SIGNAL_NUMBERS:
                value = getattr(timed, name)
                self._numbers.append(math.nan if value is None else value)
        self.values_s.append(timed.value_s)

    def __len__(self) -> int:
        return len(self.values_s)

    def __iter__(self) -> Iterator[SampleValues]:
        """The samples with their signals; none where times alone are kept."""
        width, numbers, own = len(_SIGNAL_NUMBERS), self._numbers.tolist(), self._own or {}
        for place, start in enumerate(range(0, len(numbers), width)):
            row: list[Any] = [None if math.isnan(value) else value for value in numbers[start : start + width]]
            row[_FLOATS:] = [None if value is None else int(value) for value in row[_FLOATS:]]
            yield SampleValues._make((self.values_s[place], *row, own.get(place)))


_Clocks = Callable[[SampleValues], tuple[float | None, float]]
"""Seconds of a sample as the parent saw them, if it could, and as the worker claims them."""


class CaseBlock(Struct):
    """The timed samples of one case in one block, warm-ups left out; compact, so that hours of them fit into memory."""

    case_id: str
    block: int  # Block number, from 0
    stage: Stage
    baseline: PackedSamples = field(default_factory=PackedSamples)
    candidate: PackedSamples = field(default_factory=PackedSamples)  # Also of an only arm
    done: ev.CaseFinished | None = None  # What ended it; None while samples may follow
    is_finished: bool = False  # Whether the case is complete and the block has ended; only then its samples count

    @property
    def baseline_s(self) -> array[float]:
        """Seconds of an iteration in each of the baseline's samples, in order."""
        return self.baseline.values_s

    @property
    def candidate_s(self) -> array[float]:
        """The same of the candidate, or of an only arm."""
        return self.candidate.values_s

    def of(self, arm: Arm) -> PackedSamples:
        """The samples of one arm."""
        return self.baseline if arm is Arm.BASELINE else self.candidate


def signal_value(name: str, timed: SampleValues, inner_loops: int) -> float | None:
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


def signal_samples(block: CaseBlock, inner_loops: int) -> list[SignalSamples]:
    """Each signal of a case in a block, both arms."""
    baseline, candidate = tuple(block.baseline), tuple(block.candidate)
    own = dict.fromkeys(name for sample in (*baseline, *candidate) for name in sample.own or ())
    return [
        SignalSamples(
            case_id=block.case_id,
            block=block.block,
            signal=signal,
            baseline=tuple(signal_value(signal, sample, inner_loops) for sample in baseline),
            candidate=tuple(signal_value(signal, sample, inner_loops) for sample in candidate),
        )
        for signal in (*_SIGNALS, *own)
    ]


def times_of(block: CaseBlock, done: ev.CaseFinished) -> CaseSamples:
    """The times of a case in a block, both arms."""
    return CaseSamples(
        case_id=block.case_id,
        block=block.block,
        baseline_s=tuple(block.baseline_s),
        candidate_s=tuple(block.candidate_s),
        wall_s=done.wall_s,
    )


def checks_of(block: CaseBlock, done: ev.CaseFinished, *, data_seed: int | None, dtypes: tuple[str, ...]) -> CaseChecks:
    """What both arms computed under the block's seed, with the dtypes that an arm sets instead of the case's own."""
    return CaseChecks(
        case_id=block.case_id,
        data_seed=data_seed,
        baseline=done.baseline_checks,
        candidate=done.candidate_checks,
        dtypes=dtypes,
    )


def intrusion_of(block: CaseBlock, done: ev.CaseFinished) -> CaseIntrusion:
    """What each arm used in the turns of the other."""
    return CaseIntrusion(
        case_id=block.case_id,
        block=block.block,
        baseline_ratio=done.baseline_intrusion_ratio,
        candidate_ratio=done.candidate_intrusion_ratio,
    )


def clock_of(block: CaseBlock) -> CaseClock | None:
    """How the parent's clock and the workers' agree; None where they cannot be compared."""
    return _compared(block, _wall_s)


def cpu_clock_of(block: CaseBlock) -> CaseClock | None:
    """The same of their CPU seconds."""
    return _compared(block, _cpu_s)


def _wall_s(sample: SampleValues) -> tuple[float | None, float]:
    if sample.elapsed_s is None:
        return None, 0.0
    claimed_s = sample.value_s * sample.iterations
    # A claim holds the waits for a CPU within it, which are at most what no CPU time explains; no claim holds others.
    within_s = min(sample.waited_s or 0.0, max(0.0, claimed_s - sample.cpu_s * sample.iterations))
    outside_s = max(0.0, (sample.parent_waited_s or 0.0) - within_s)
    return sample.elapsed_s - outside_s, claimed_s


def _cpu_s(sample: SampleValues) -> tuple[float | None, float]:
    seen_s = None if sample.elapsed_s is None else sample.parent_cpu_s
    return seen_s, sample.cpu_s * sample.iterations


def _compared(block: CaseBlock, seen_and_claimed: _Clocks) -> CaseClock | None:
    known = {arm: [seen_and_claimed(sample) for sample in block.of(arm)] for arm in (Arm.BASELINE, Arm.CANDIDATE)}
    left_s = []
    for samples in known.values():
        seen = [(seen_s, seen_s - claimed_s) for seen_s, claimed_s in samples if seen_s is not None]
        if not seen or len(seen) < len(samples):
            return None
        left_s.append(median(unclaimed_s for _, unclaimed_s in seen))
    elapsed_s = median(seen_s or 0.0 for seen_s, _ in known[Arm.CANDIDATE])
    if elapsed_s <= 0 or not all(map(math.isfinite, (elapsed_s, *left_s))):  # of a damaged recording
        return None
    return CaseClock(case_id=block.case_id, block=block.block, elapsed_s=elapsed_s, unexplained_s=left_s[1] - left_s[0])
