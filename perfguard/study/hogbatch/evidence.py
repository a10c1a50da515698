"""What the study of Hogbatch measured: one file a run, written as soon as the run has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, field

from perfguard.records.facts import Fact
from perfguard.records.training import Ending, GroupPace, Utilisation

EVIDENCE_SCHEMA = 1
ALGORITHMS = ("pytorch", "cpu", "large", "hogbatch", "adaptive")
"""Algorithms that are compared, the baseline first."""


class Setting(Struct, frozen=True, kw_only=True):
    """What the search chooses for each algorithm and shape."""

    batch: int  # Examples of an update of a hogwild worker or the stream; a replica's is a multiple of it
    learning_rate: float
    threads: int = 1  # Of the stream alone


class LossPoint(Struct, frozen=True, kw_only=True):
    """The loss after an epoch."""

    epoch: int
    trained_s: float  # Seconds of training, without losses
    loss: float


class TrainedRun(Struct, frozen=True, kw_only=True):
    """One run."""

    shape: str
    algorithm: str
    setting: Setting
    seed: int
    is_search: bool  # Whether it only helped to choose a setting
    ending: Ending
    points: tuple[LossPoint, ...]
    updates: Mapping[str, int]  # By group
    busy: Mapping[str, float]  # By group: part of the time
    utilisation: Utilisation
    schedule: tuple[tuple[float, str, int], ...]  # Changes of batches
    paces: Mapping[str, GroupPace]
    simulated_shares: Mapping[str, float]  # By group, from the simulator with these paces
    simulated_epoch_s: float
    devices: Mapping[str, str]  # By group

    @property
    def id(self) -> str:
        """Names the file."""
        s = self.setting
        kind = "search" if self.is_search else f"seed{self.seed}"
        return f"{self.shape}-{self.algorithm}-{kind}-b{s.batch}-lr{s.learning_rate:g}-t{s.threads}"

    def time_to(self, loss: float) -> float | None:
        """Seconds of training until a loss, between epochs by a straight line; None where it was not reached."""
        return crossing([(point.trained_s, point.loss) for point in self.points], loss)

    def epochs_to(self, loss: float) -> float | None:
        """Epochs until a loss, likewise."""
        return crossing([(float(point.epoch), point.loss) for point in self.points], loss)

    @property
    def epoch_s(self) -> float:
        """Seconds of training an epoch."""
        last = self.points[-1]
        return last.trained_s / last.epoch if last.epoch else 0.0


def crossing(points: Sequence[tuple[float, float]], limit: float) -> float | None:
    """Where a curve first comes down to a limit, by straight lines between its points."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if y0 > limit >= y1:
            return x0 + (x1 - x0) * (y0 - limit) / (y0 - y1)
    return None


class HogbatchEvidence(Struct, frozen=True, kw_only=True):
    """Everything that was measured."""

    machine_id: str
    machine: str
    torch: str
    cpus: int
    runs: tuple[TrainedRun, ...]
    targets: Mapping[str, float] = field(default_factory=dict)  # By shape: the loss that is raced to
    problems: Mapping[str, Fact] = field(default_factory=dict)  # By run: why it is missing

    def raced(self, shape: str, algorithm: str) -> list[TrainedRun]:
        """The runs of an algorithm that count, by seed."""
        own = [run for run in self.runs if (run.shape, run.algorithm, run.is_search) == (shape, algorithm, False)]
        return sorted(own, key=lambda run: run.seed)

    @property
    def shapes(self) -> tuple[str, ...]:
        """Shapes with at least one run, also of a search that has not ended."""
        return tuple(dict.fromkeys(run.shape for run in self.runs))

    def problems_of(self, shape: str) -> tuple[Fact, ...]:
        """Why runs of a shape are missing."""
        return tuple(why for run, why in self.problems.items() if run.startswith(f"{shape}-"))
