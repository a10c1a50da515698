"""Randomised blocks from a seed: what runs when, decided before anything runs."""

from __future__ import annotations

import random
from collections.abc import Iterator

from perfguard.records.plan import BlockPlan
from perfguard.records.run import Arm

_ARMS = (Arm.BASELINE, Arm.CANDIDATE)


def plan_blocks(cases: int, *, seed: int, first: int = 0) -> Iterator[BlockPlan]:
    """Endless independent block plans for `cases` cases, numbered from `first`.

    Start-up order, set-up order, measuring order and first arm are
    uniform and independent in every block, so that neither position
    nor neighbour can favour an arm or a case. Within a case the arms then strictly alternate: each sample follows a
    sample of the other arm, which leaves both with the same caches.
    """
    index = first
    while True:
        yield plan_block(cases, index=index, seed=seed)
        index += 1


def plan_block(cases: int, *, index: int, seed: int) -> BlockPlan:
    """The plan of block `index`; a function of its arguments alone."""
    draw = random.Random(f"{seed}:{index}")  # noqa: S311 - a schedule, not a secret
    return BlockPlan(
        index=index,
        hash_seed=draw.randrange(1, 2**32),
        data_seed=draw.randrange(2**32),
        setup_order=tuple(draw.sample(range(cases), cases)),
        case_order=tuple(draw.sample(range(cases), cases)),
        first_arms=tuple(draw.choice(_ARMS) for _ in range(cases)),
        first_started=draw.choice(_ARMS),
    )
