"""`doctor --observer-effect`: the same code measured in rounds, with a reader attached to every other one of them."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from perfguard.errors import MeasurementError
from perfguard.gate.paired.results import finish, measured_cases
from perfguard.gate.stored.rounds import measure_rounds
from perfguard.records.events import BlockFinished, BlockStarted, Event
from perfguard.records.observer import CaseObserved, ObserverEffect
from perfguard.records.plan import ArmSpec
from perfguard.records.run import Stage
from perfguard.records.verdict import Policy
from perfguard.runner.session import Request, open_session
from perfguard.stats.paired import estimate_paired

MIN_PAIRS = 3
"""Fewer pairs say nothing of how pairs differ."""


class Reader(Protocol):
    """Somebody who watches a run and can be stopped for a while."""

    @property
    def text(self) -> str:
        """Its command line."""
        ...

    def start(self, folder: Path) -> None:
        """Watch a run."""
        ...

    def suspend(self) -> None:
        """Stop, as if it were not there."""
        ...

    def resume(self) -> None:
        """Go on."""
        ...

    def is_alive(self) -> bool:
        """Whether it has not ended by itself."""
        ...

    def cpu_s(self) -> float | None:
        """CPU seconds that it has used; None where that cannot be read."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


def measure_observer_effect(request: Request, arm: ArmSpec, reader: Reader, *, pairs: int) -> ObserverEffect:
    """Measure one arm in pairs of rounds, one of each pair watched, drawn at random.

    Args:
        request: What to measure; its budget ends it early.
        arm: What is measured with and without the reader.
        reader: Who watches.
        pairs: Wanted pairs.

    Raises:
        MeasurementError: The reader ended by itself, or fewer than three pairs were measured.
    """
    switch = RoundSwitch(reader, pairs, request.observe)
    with open_session(replace(request, observe=switch.observe), mode="rounds") as session:
        reader.start(session.folder.path)
        try:
            measure_rounds(session, arm, rounds=2 * pairs, spread_s=0.0)
        finally:
            reader.stop()
        finish(session, None, measured=measured_cases(session))
        slices = session.data.paired(Stage.MAIN).slices
        order = [case.id for case in request.cases]
        medians = {
            (found.case_id, found.block): statistics.median(found.candidate_s)
            for found in sorted(slices, key=lambda found: order.index(found.case_id))
            if found.candidate_s
        }
        return effect_of(reader, switch, medians, session.folder.run_id)


class RoundSwitch:
    """Attaches and detaches the reader as rounds begin."""

    def __init__(self, reader: Reader, pairs: int, observe: Callable[[Event], None]) -> None:
        """Draw which round of each pair is watched.

        Args:
            reader: Who watches.
            pairs: Pairs of rounds.
            observe: Sees every event, too.
        """
        drawn = random.SystemRandom()
        self.watched = {2 * pair + drawn.randrange(2) for pair in range(pairs)}
        self.attached_s = 0.0
        self.cpu_s: float | None = 0.0
        self._reader = reader
        self._observe = observe
        self._cpu_before_s: float | None = None

    def observe(self, event: Event) -> None:
        """Let the reader in or out, then let others see the event."""
        if isinstance(event, BlockStarted):
            self._begin(event.block in self.watched)
        elif isinstance(event, BlockFinished) and event.block in self.watched:
            self._count(event.duration_s)
        self._observe(event)

    def _begin(self, is_watched: bool) -> None:  # noqa: FBT001 - one of two kinds of rounds
        if not self._reader.is_alive():
            raise MeasurementError(
                f"the reader ({self._reader.text}) ended by itself, so nothing can be said of its effect; start it by "
                "hand to see why"
            )
        if is_watched:
            self._reader.resume()
            self._cpu_before_s = self._reader.cpu_s()
        else:
            self._reader.suspend()

    def _count(self, duration_s: float) -> None:
        self.attached_s += duration_s
        now_s = self._reader.cpu_s()
        if self.cpu_s is None or now_s is None or self._cpu_before_s is None:
            self.cpu_s = None
        else:
            self.cpu_s += now_s - self._cpu_before_s


def effect_of(
    reader: Reader, switch: RoundSwitch, medians: Mapping[tuple[str, int], float], run_id: str
) -> ObserverEffect:
    """The effect of a reader on what was measured.

    Args:
        reader: Who watched.
        switch: Which rounds it watched.
        medians: Seconds of an iteration, by case id and round.
        run_id: Run that was made for it.

    Raises:
        MeasurementError: Fewer than three pairs were measured.
    """
    level = Policy().interval_level
    ratios = log_ratios(medians, switch.watched)
    by_pair: dict[int, list[float]] = {}
    for found in ratios.values():
        for pair, ratio in found.items():
            by_pair.setdefault(pair, []).append(ratio)
    if len(by_pair) < MIN_PAIRS:
        raise MeasurementError(
            f"{len(by_pair)} pairs of rounds were measured, and {MIN_PAIRS} are needed; give --budget more seconds"
        )
    return ObserverEffect(
        reader=reader.text,
        pairs=len(by_pair),
        overall=estimate_paired([statistics.fmean(values) for values in by_pair.values()], level),
        cases=tuple(
            CaseObserved(case_id=case_id, estimate=estimate_paired(list(found.values()), level))
            for case_id, found in ratios.items()
            if len(found) >= MIN_PAIRS
        ),
        reader_cpu_ratio=switch.cpu_s / switch.attached_s if switch.cpu_s is not None and switch.attached_s else None,
        run_id=run_id,
    )


def log_ratios(medians: Mapping[tuple[str, int], float], watched: set[int]) -> dict[str, dict[int, float]]:
    """For each case and each complete pair of rounds: log of the time with the reader over that without.

    Args:
        medians: Seconds of an iteration, by case id and round.
        watched: Rounds with the reader; rounds 2k and 2k + 1 are a pair.
    """
    found: dict[str, dict[int, float]] = {}
    for (case_id, block), with_s in medians.items():
        without_s = medians.get((case_id, block ^ 1))
        if block in watched and without_s is not None and with_s > 0 and without_s > 0:
            found.setdefault(case_id, {})[block // 2] = math.log(with_s / without_s)
    return found
