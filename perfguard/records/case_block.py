"""The timed samples of one case in one block, as compact numbers: hours of them fit into memory."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from perfguard.records.events import CaseFinished, SampleTimed
from perfguard.records.run import Arm, CaseSamples, Signal, Stage


@dataclass(slots=True)
class CaseBlock:
    """The timed samples of one case in one block, warm-ups left out."""

    case_id: str
    """The case."""
    block: int
    """Block number, from 0."""
    stage: Stage
    """What the block is measured for."""
    baseline_s: array[float] = field(default_factory=lambda: array("d"))
    """Seconds of an iteration, in the order they ran."""
    candidate_s: array[float] = field(default_factory=lambda: array("d"))
    """The same of the candidate, or of the only arm."""
    timed: dict[Arm, list[SampleTimed]] | None = None
    """The samples with all signals; None where the run's data keeps none."""
    done: CaseFinished | None = None
    """What ended it; None while samples may follow."""
    is_finished: bool = False
    """Whether the case is complete and the whole block has ended; only then do its samples count."""

    def of(self, arm: Arm) -> array[float]:
        """The samples of one arm."""
        return self.baseline_s if arm is Arm.BASELINE else self.candidate_s

    def signal(self, signal: Signal, arm: Arm, inner_loops: int) -> tuple[float | None, ...]:
        """What was measured beside wall time in each sample of an arm; empty where signals are not kept.

        Args:
            signal: Which one.
            arm: Which side.
            inner_loops: Iterations of a sample, for recordings that do not tell them.
        """
        return tuple(_signal(signal, timed, inner_loops) for timed in (self.timed or {}).get(arm, ()))

    def samples(self) -> CaseSamples:
        """The same, immutable."""
        return CaseSamples(
            case_id=self.case_id,
            block=self.block,
            baseline_s=tuple(self.baseline_s),
            candidate_s=tuple(self.candidate_s),
            wall_s=self.done.wall_s if self.done else None,
        )


def _signal(signal: Signal, timed: SampleTimed, inner_loops: int) -> float | None:
    """A sample's value in the unit of its signal; recordings without iterations had one inner loop's worth of them."""
    amounts = {
        Signal.CPU: timed.cpu_s,
        Signal.MEMORY: timed.peak_memory_bytes,
        Signal.ENERGY: timed.energy_j,
        Signal.INSTRUCTIONS: timed.instructions,
    }
    if signal in amounts:
        return amounts[signal]
    iterations = timed.iterations or inner_loops
    count: int | None = timed.minor_faults
    if signal is Signal.SWITCHES:
        count = None if timed.voluntary_switches is None else timed.voluntary_switches + timed.involuntary_switches
    return None if count is None or not iterations else count / iterations
