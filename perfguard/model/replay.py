"""From events back to data: what a run measured is a fold over its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from perfguard.model.events import (
    BlockFinished,
    CanaryTimed,
    CaseCalibrated,
    CaseFailed,
    CaseFinished,
    Event,
    RunStarted,
    SliceTimed,
)
from perfguard.model.run import Arm, BlockConditions, CaseFailure, CaseSlices, PairedData, Round


@dataclass(slots=True)
class RunData:
    """Collects events; `paired()` and `rounds()` give what they add up to so far."""

    case_ids: tuple[str, ...] = ()
    """Selected cases."""
    failures: dict[str, CaseFailed] = field(default_factory=dict)
    """First failure of each case."""
    inner_loops: dict[str, int] = field(default_factory=dict)
    """Iterations of one slice, by case id."""
    _slices: dict[tuple[int, str, Arm], list[float]] = field(default_factory=dict)
    _complete: list[tuple[int, str]] = field(default_factory=list)
    _canary: dict[int, list[float]] = field(default_factory=dict)
    _finished: dict[int, BlockFinished] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> RunData:
        """The data of a finished (or broken off) stream."""
        data = cls()
        for event in events:
            data.add(event)
        return data

    def add(self, event: Event) -> None:
        """Take one event into account; those that carry no data are ignored."""
        match event:
            case RunStarted():
                self.case_ids = event.case_ids
            case CaseCalibrated():
                self.inner_loops[event.case_id] = event.inner_loops
            case SliceTimed(warmup=False):
                key = (event.block, event.case_id, event.arm)
                self._slices.setdefault(key, []).append(event.value_s)
            case CanaryTimed():
                self._canary.setdefault(event.block, []).append(event.value_s)
            case CaseFinished():
                self._complete.append((event.block, event.case_id))
            case CaseFailed():
                self.failures.setdefault(event.case_id, event)
            case BlockFinished():
                self._finished[event.block] = event
            case _:
                pass

    @property
    def blocks_finished(self) -> int:
        """Blocks that ran to their end."""
        return len(self._finished)

    @property
    def measured_s(self) -> float:
        """Wall seconds of the finished blocks together."""
        return sum(end.duration_s for end in self._finished.values())

    def paired(self) -> PairedData:
        """Complete cases of finished blocks, both arms."""
        return PairedData(
            case_ids=self.case_ids,
            slices=tuple(
                CaseSlices(
                    case_id=case_id,
                    block=block,
                    baseline_s=tuple(self._slices.get((block, case_id, Arm.BASELINE), ())),
                    candidate_s=tuple(self._slices.get((block, case_id, Arm.CANDIDATE), ())),
                )
                for block, case_id in self._complete
                if block in self._finished
            ),
            conditions=tuple(self._conditions(end) for end in self._finished.values()),
            failures=tuple(self._failure(failed) for failed in self.failures.values()),
        )

    def rounds(self) -> dict[str, tuple[Round, ...]]:
        """Complete rounds of each case in a one-arm run (the candidate's slices)."""
        found: dict[str, list[Round]] = {case_id: [] for case_id in self.case_ids}
        for block, case_id in self._complete:
            end = self._finished.get(block)
            values = self._slices.get((block, case_id, Arm.CANDIDATE))
            if end is not None and values:
                canary = tuple(self._canary.get(block, ()))
                found[case_id].append(Round(values_s=tuple(values), canary_s=canary, started_at=end.started_at))
        return {case_id: tuple(rounds) for case_id, rounds in found.items()}

    def _conditions(self, end: BlockFinished) -> BlockConditions:
        return BlockConditions(
            block=end.block,
            duration_s=end.duration_s,
            steal_ratio=end.steal_ratio,
            involuntary_switches=end.involuntary_switches,
            canary_s=tuple(self._canary.get(end.block, ())),
        )

    @staticmethod
    def _failure(failed: CaseFailed) -> CaseFailure:
        return CaseFailure(
            case_id=failed.case_id, arm=failed.arm, reason=failed.reason, detail=failed.detail, missing=failed.missing
        )
