"""The timed samples of a case in one block, and the values of their signals."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from perfguard.records import events as ev
from perfguard.records.run import Arm, Signal, Stage

_SIGNALS = {signal.value: signal for signal in Signal}


@dataclass(slots=True)
class CaseBlock:
    """The timed samples of one case in one block, warm-ups left out; compact, so that hours of them fit into memory."""

    case_id: str
    block: int  # Block number, from 0
    stage: Stage
    baseline_s: array[float] = field(default_factory=lambda: array("d"))  # Seconds of an iteration, in order
    candidate_s: array[float] = field(default_factory=lambda: array("d"))  # Likewise; also of an only arm
    timed: dict[Arm, list[ev.SampleTimed]] | None = None  # Samples with all signals; None where none are kept
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
