"""What the events of heterogeneous training add up to."""

from __future__ import annotations

from collections import deque

from msgspec import Struct, field

from perfguard.records.training import TrainedOn, TrainingEpoch, TrainingOutcome, TrainingPlanned, TrainingUse

_MOST_USES = 120


class TrainingData(Struct):
    """What is known of heterogeneous training so far."""

    planned: TrainingPlanned
    trained: TrainedOn | None = None
    epochs: list[TrainingEpoch] = field(default_factory=list)
    uses: deque[TrainingUse] = field(default_factory=lambda: deque(maxlen=_MOST_USES))  # The latest, oldest first
    outcome: TrainingOutcome | None = None

    def add(self, event: TrainedOn | TrainingEpoch | TrainingUse | TrainingOutcome) -> None:
        """Take one event into account."""
        match event:
            case TrainedOn():
                self.trained = event
            case TrainingEpoch():
                self.epochs.append(event)
            case TrainingUse():
                self.uses.append(event)
            case TrainingOutcome():
                self.outcome = event
