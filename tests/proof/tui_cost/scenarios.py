"""Runs that change while they are watched, larger and longer than real ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

from perfguard.records import events as happened
from perfguard.records.events import Event
from perfguard.records.facts import fact
from perfguard.records.run import Arm
from perfguard.watch.sources.event_tail import SeenEvent, TailUpdate
from perfguard.watch.view.run_view import CaseState, CaseView, RunView
from tests.changed_values import replace
from tests.tui_runs import RED, a_case, a_run, a_series, a_watch, an_attribution, an_open_case, some_deltas

CASES, CHANGING = 500, 50
OPS = 5000
HOURS = 8
SLICES_A_SECOND = 20


class ManyCases:
    """Five hundred cases; each second fifty of them change, as does the progress."""

    is_between_samples = True
    is_behind = False
    replay = None

    def __init__(self) -> None:
        self._draw = random.Random(1)
        self._cases = [an_open_case(f"kernel.linear[m={index},dtype=bf16]") for index in range(CASES)]
        self._view = a_run(cases=tuple(self._cases))
        self._series = a_series("any", blocks=60)

    def poll(self) -> RunView:
        """The next second."""
        for _ in range(CHANGING):
            index = self._draw.randrange(CASES)
            self._cases[index] = self._changed(self._cases[index])
        progress = self._view.progress
        assert progress is not None
        progress = replace(progress, elapsed_s=progress.elapsed_s + 1)
        self._view = replace(self._view, cases=tuple(self._cases), progress=progress)
        return self._view

    def _changed(self, case: CaseView) -> CaseView:
        effect = self._draw.gauss(0, 0.01)
        return replace(
            case,
            state=CaseState.OPEN,
            blocks=case.blocks + 1,
            candidate_s=12.4e-3 * (1 + effect),
            log_ratio=effect,
            lower=effect - 0.01,
            upper=effect + 0.01,
        )

    def series(self, case_id: str):
        """The same curves for every case."""
        return replace(self._series, case_id=case_id)

    def selection(self) -> None:
        """No CPUs are known."""
        return

    def deltas(self, _: str) -> tuple:
        """None were compared."""
        return ()


def many_ops():
    """One red case with five thousand ops, in a run whose progress goes on each second."""
    deltas = some_deltas(OPS)
    red = a_case(RED, attribution=an_attribution(RED, deltas))
    watch = a_watch(a_run(cases=(red,)))
    watch.ops = {RED: deltas}
    first = watch.views[0]
    seconds = [0]

    def poll() -> RunView:
        seconds[0] += 1
        assert first.progress is not None
        return replace(first, progress=replace(first.progress, elapsed_s=81.0 + seconds[0]))

    watch.poll = poll
    return watch


class HoursOfEvents:
    """A source that gives one second of a long run at each poll: samples, blocks, looks, notes."""

    is_live = True
    folder = None
    name = "hours"

    def __init__(self) -> None:
        self._events = self._happen()
        self._seq = 0

    def poll(self) -> TailUpdate:
        """The next second."""
        seen = []
        for event in next(self._events):
            at = 1000.0 + self._seq / SLICES_A_SECOND
            seen.append(SeenEvent(seq=self._seq, t_wall=1.79e9 + at, t_mono=at, event=event))
            self._seq += 1
        return TailUpdate(events=tuple(seen))

    def wall_s(self, _: float) -> float:
        """As much as has happened."""
        return 1.79e9 + 1000.0 + self._seq / SLICES_A_SECOND

    def read_file(self, _: str) -> None:
        """There are no other files."""

    def close(self) -> None:
        """Nothing is held."""

    def _happen(self) -> Iterator[list[Event]]:
        ids = tuple(f"kernel.case{index}[dtype=bf16]" for index in range(30))
        draw = random.Random(2)
        yield [
            happened.RunStarted(
                run_id="hours",
                schema=1,
                mode="paired",
                suite="long",
                case_ids=ids,
                command=("perfguard", "gate"),
                budget_s=HOURS * 3600.0,
            )
        ]
        block = 0
        while True:
            yield [happened.BlockStarted(block=block, hash_seed=1, data_seed=1, case_ids=ids)]
            for case_id in ids:
                yield self._samples(draw, block, case_id)
                yield [
                    happened.ControlTimed(block=block, value_s=draw.gauss(0.02, 1e-4)),
                    happened.CaseFinished(block=block, case_id=case_id, baseline_digest=1.0, candidate_digest=1.0),
                ]
            yield [
                happened.BlockFinished(
                    block=block, started_at=0.0, duration_s=60.0, steal_ratio=0.0, involuntary_switches=0
                ),
                happened.Noted(fact=fact("recorded.text", text=f"block {block} of a long run has ended as expected")),
            ]
            block += 1

    @staticmethod
    def _samples(draw: random.Random, block: int, case_id: str) -> list[Event]:
        return [
            happened.SampleTimed(
                block=block,
                case_id=case_id,
                arm=arm,
                index=index,
                warmup=False,
                value_s=draw.gauss(1e-3, 1e-5),
                cpu_s=1e-3,
                minor_faults=0,
                involuntary_switches=0,
            )
            for index in range(SLICES_A_SECOND)
            for arm in Arm
        ]
