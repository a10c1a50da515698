"""A recorded stream, cut into gates: every rule is fed the same samples.

The arms of the recording are identical, so a slowdown is put in by multiplying the candidate's samples of one case.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from perfguard.records.run import BlockConditions
from perfguard.records.run_data import RunData
from perfguard.runner.run_folder import read_events
from tests.changed_values import replace


class Design(str, Enum):
    """In which order a rule's samples were measured."""

    INTERLEAVED = "interleaved"
    """Both arms in every block: better than most tools do by themselves."""
    ROUNDS = "rounds"
    """Whole blocks take turns: baseline, candidate, candidate, baseline, …; as asv measures the rounds of two commits,
    the order turned round each time."""
    SEQUENTIAL = "sequential"
    """First half of the window for the baseline, second half for the candidate: as most tools measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """One case in one block."""

    baseline_s: tuple[float, ...]
    """Seconds for each iteration, one value a sample."""
    candidate_s: tuple[float, ...]
    """The same of the other arm."""
    wall_s: float | None = None
    """Wall seconds of the block that the case took; None in older recordings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fresh process of each arm."""

    cases: Mapping[str, Slices]
    """By case."""
    conditions: BlockConditions
    """What the host did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The blocks of one gate, and those that follow."""

    blocks: tuple[Block, ...]
    """In the order they ran; all cases in all of them fill the gate's budget."""
    further: tuple[Block, ...]
    """What a gate reaches within the same budget if it leaves cases that have their answer."""
    following: tuple[Block, ...]
    """Not part of the gate's budget: a confirmation takes its blocks from these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One case of a window as a peer's rule sees it: for each process of an arm its values."""

    baseline: tuple[tuple[float, ...], ...]
    """Processes of the baseline; seconds for each iteration."""
    candidate: tuple[tuple[float, ...], ...]
    """Processes of the candidate."""


def read_stream(folder: Path) -> tuple[Block, ...]:
    """The blocks of a recording in which every case completed.

    Raises:
        StoreError: The recording cannot be read.
    """
    data = RunData.of(read_events(folder / "events.jsonl")).paired()
    found: dict[int, dict[str, Slices]] = {}
    for entry in data.samples:
        samples = Slices(baseline_s=entry.baseline_s, candidate_s=entry.candidate_s, wall_s=entry.wall_s)
        found.setdefault(entry.block, {})[entry.case_id] = samples
    return tuple(
        Block(cases=found[condition.block], conditions=condition)
        for condition in data.conditions
        if set(found.get(condition.block, ())) == set(data.case_ids)
    )


def separate(stream: Sequence[Block], *, size: int, confirmation: int) -> tuple[Window, ...]:
    """Windows of a recording that share no block; confirmations follow, or wrap to the start.

    Only these are independent enough for an interval. What a window reaches beyond its blocks, and its confirmation,
    may be among the blocks of the window after it.
    """
    starts = range(0, len(stream) - size + 1, size)
    return tuple(_window(stream, start, size=size, confirmation=confirmation) for start in starts)


def resampled(stream: Sequence[Block], *, size: int, confirmation: int, count: int, seed: int) -> tuple[Window, ...]:
    """Windows that may overlap, with the arms exchanged in random blocks: more gates, but not independent ones.

    Exchanging identical arms gives another gate of identical arms; the order of the blocks, and with it every drift of
    the machine, stays as it was.
    """
    draw = random.Random(seed)
    windows = []
    for _ in range(count if len(stream) >= size else 0):
        window = _window(stream, draw.randrange(len(stream) - size + 1), size=size, confirmation=confirmation)
        parts = (window.blocks, window.further, window.following)
        blocks, further, following = (tuple(_exchanged(b) if draw.random() < 0.5 else b for b in p) for p in parts)
        windows.append(Window(blocks=blocks, further=further, following=following))
    return tuple(windows)


def injected(blocks: Sequence[Block], case: str | None, effect: float) -> tuple[Block, ...]:
    """The blocks with the candidate's samples of a case made slower by `effect`, a ratio."""
    if case is None or not effect:
        return tuple(blocks)
    changed = []
    for block in blocks:
        samples = block.cases[case]
        slower = replace(samples, candidate_s=tuple(value * (1 + effect) for value in samples.candidate_s))
        changed.append(replace(block, cases={**block.cases, case: slower}))
    return tuple(changed)


def sample(blocks: Sequence[Block], case: str, design: Design, effect: float = 0.0) -> Sample:
    """What a peer's rule is given of a case, with the candidate slower by `effect`.

    In the sequential design both (identical) arms of the first half are the baseline and both of the second half the
    candidate, so that each side has as many processes as in the interleaved one; a middle block is left out. In rounds
    both arms of a block belong to the same side, and up to three blocks at the end are left out.
    """
    if design is Design.INTERLEAVED:
        baseline = tuple(block.cases[case].baseline_s for block in blocks)
        candidate = tuple(block.cases[case].candidate_s for block in blocks)
    elif design is Design.ROUNDS:
        whole = blocks[: len(blocks) // 4 * 4]
        baseline = _both_arms([block for number, block in enumerate(whole) if number % 4 in (0, 3)], case)
        candidate = _both_arms([block for number, block in enumerate(whole) if number % 4 in (1, 2)], case)
    else:
        half = len(blocks) // 2
        baseline = _both_arms(blocks[:half], case)
        candidate = _both_arms(blocks[len(blocks) - half :], case)
    factor = 1 + effect
    return Sample(
        baseline=baseline, candidate=tuple(tuple(value * factor for value in process) for process in candidate)
    )


def _both_arms(blocks: Sequence[Block], case: str) -> tuple[tuple[float, ...], ...]:
    return tuple(
        process for block in blocks for process in (block.cases[case].baseline_s, block.cases[case].candidate_s)
    )


def _window(stream: Sequence[Block], start: int, *, size: int, confirmation: int) -> Window:
    further = max(0, min(size, len(stream) - size - confirmation))  # no block twice in one window
    after = [stream[(start + size + place) % len(stream)] for place in range(further + confirmation)]
    return Window(
        blocks=tuple(stream[start : start + size]), further=tuple(after[:further]), following=tuple(after[further:])
    )


def _exchanged(block: Block) -> Block:
    swapped = {
        case: replace(samples, baseline_s=samples.candidate_s, candidate_s=samples.baseline_s)
        for case, samples in block.cases.items()
    }
    return replace(block, cases=swapped)
