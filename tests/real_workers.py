"""Real worker processes of a small tree, for tests that speak to them."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, TypeVar

from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.records.plan import ArmSpec, EnvProfile
from perfguard.records.run import Arm
from perfguard.records.spec import Case, Phase
from perfguard.runner.arms.resolve import ArmSettings, resolve_arm
from perfguard.runner.blocks.measure import Measuring, measure_blocks, plan_block, plan_blocks
from perfguard.runner.measuring import needs_torch
from perfguard.runner.process.arm_worker import ArmWorker
from perfguard.runner.process.starting import ProcessStarter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from perfguard.records.events import Event
    from perfguard.records.plan import CasePlan, MeasureSettings
    from perfguard.records.protocol import Message
    from perfguard.records.spec import ParameterValue

BOTH = (Arm.BASELINE, Arm.CANDIDATE)


class RealStarter(ProcessStarter, frozen=True, kw_only=True):
    """Starts real workers, and knows how they are to measure."""

    settings: MeasureSettings


W = TypeVar("W", bound=ArmWorker)


def plain_case(name: str) -> Case:
    """A function of the tree's `bench.py` that needs no torch."""
    return Case(benchmark=name, target=f"bench.py:{name}", phase=Phase.FORWARD, tags=("no-torch",))


def catalogue_case(name: str, **parameters: ParameterValue) -> Case:
    """A training step of the catalogue."""
    target = {spec.name: spec.target for spec in BENCHMARKS}[name]
    return Case(benchmark=name, target=target, parameters=tuple(parameters.items()), phase=Phase.STEP)


def arm_settings(tree: Path, workshop: Path) -> ArmSettings:
    """Of an arm in this interpreter, on one thread."""
    return ArmSettings(
        project=tree, workshop=workshop, interpreter=None, setup=None, profile=EnvProfile.STABLE, threads=1
    )


def starter_in(
    place: Path,
    settings: MeasureSettings,
    *,
    arms: Sequence[Arm] = (Arm.CANDIDATE,),
    files: Mapping[str, str] | None = None,
    cpus: Sequence[int] | None = None,
) -> RealStarter:
    """What starts workers.

    Args:
        place: Gets the folders `tree`, the source of all arms, and `run`, for what the workers leave.
        settings: Of the workers.
        arms: Those that can be started.
        files: Texts by name in `tree`.
        cpus: Those to run on, each a core of the same socket; one by default.
    """
    tree, folder = place / "tree", place / "run"
    cpus = cpus or (max(os.sched_getaffinity(0)),)
    for needed in (tree, folder / "raw", folder / "logs"):
        needed.mkdir(parents=True)
    for name, text in (files or {}).items():
        (tree / name).write_text(text)
    spec = ArmSpec(text="dir:.", directory=".")
    resolved = {arm: resolve_arm(spec, arm, arm_settings(tree, folder / "arms"), os.environ) for arm in arms}
    return RealStarter(
        arms=resolved,
        environments={arm: dict(found.environment) for arm, found in resolved.items()},
        settings=settings,
        cpus=tuple(cpus),
        sockets=(tuple((cpu,) for cpu in cpus),),
        memory_node=None,
        folder=folder,
        control_bundle=resolved[Arm.CANDIDATE].bundle,
    )


@contextlib.contextmanager
def greeted(
    starter: RealStarter, kind: type[W], job: Message, *, calibrate: bool, block: int = 0
) -> Iterator[tuple[W, Message]]:
    """A worker of the candidate and what it says at hello; it is closed at the end."""
    process = starter.start(Arm.CANDIDATE, plan_block(1, index=block, seed=1), None if calibrate else starter.settings)
    worker = kind(Arm.CANDIDATE, process, starter.settings)
    try:
        yield worker, worker.hello(job, cpus=starter.cpus)
    finally:
        worker.close()
        starter.close()


def measure(starter: RealStarter, plans: Sequence[CasePlan], arms: Sequence[Arm] = BOTH) -> tuple[int, list[Event]]:
    """Measure all blocks of the starter's settings; gives how many came to their end, and all events."""
    events: list[Event] = []
    measuring = Measuring(
        starter=starter,
        emit=events.append,
        should_stop=lambda: False,
        settings=starter.settings,
        cpus=starter.cpus,
        arms=tuple(arms),
        needs_torch=needs_torch([plan.case for plan in plans]),
    )
    try:
        return measure_blocks(plan_blocks(len(plans), seed=1), plans, measuring), events
    finally:
        starter.close()
