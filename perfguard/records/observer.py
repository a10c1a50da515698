"""What watching a run costs it: rounds with a reader attached against rounds without."""

from __future__ import annotations

from dataclasses import dataclass

from perfguard.records.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseObserved:
    """One case, measured with a reader and without."""

    case_id: str
    """The case."""
    estimate: Estimate
    """Effect of the reader, over pairs of neighbouring rounds; positive is slower with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverEffect:
    """What a reader does to the times of a suite."""

    reader: str
    """Command line of the reader."""
    pairs: int
    """Pairs of rounds, one of them with the reader, in random order."""
    overall: Estimate
    """Effect over all cases: of each pair the mean of the cases' log-ratios."""
    cases: tuple[CaseObserved, ...]
    """Each case."""
    reader_cpu_ratio: float | None
    """CPU seconds of the reader over the wall seconds that it was attached; None where it could not be read."""
    run_id: str
    """Run that was made for it."""
