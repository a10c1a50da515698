"""Searches settings for each algorithm alike, then races the algorithms to one loss, seed by seed.

Search: every algorithm trains with every setting of one list for the same seconds, from the same initial weights, and
keeps the setting with the lowest loss at their end. While that has the highest learning rate so far, the next higher
one is tried with all batches. The target is the loss that PyTorch's best setting has then. Race: for each seed all
algorithms run one after the other, in an order that turns with the seed, to the target or five times
the search's seconds. Run it again to continue: what is in the folder is not measured again.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.codec import from_builtins, to_json
from perfguard.errors import InterruptedRunError, MeasurementError, PerfguardError, StoreError, UsageError
from perfguard.hetero.settings import load_preset
from perfguard.hetero.shapes import SHAPES
from perfguard.hetero.simulated import live, simulated
from perfguard.hetero.simulator import Speed
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.training import DataConfig, Ending, Kind, Training, TrainingConfig
from perfguard.store.files import parse_json, write_text
from perfguard.study.collect import nothing_measured
from perfguard.study.hogbatch.evidence import (
    ALGORITHMS,
    EVIDENCE_SCHEMA,
    HogbatchEvidence,
    LossPoint,
    Setting,
    TrainedRun,
)

EVIDENCE = "evidence"
BATCHES = (16, 64, 256)
LEARNING_RATES = (0.03, 0.1, 0.3)
HIGHER_RATES = (1.0, 3.0, 10.0, 30.0)  # Tried one after the other, while the best setting has the highest so far
REPLICA_FACTOR = 8  # A replica's batch over that of a hogwild update
THREADED = ("pytorch", "large")  # Algorithms with one worker, which may have all CPUs
UPDATES = 8  # Of a hogwild worker's request
SEARCH_SEED = 1000
_LONGEST = 5  # Times the search's seconds that a raced run may take
_ENDLESS = 1_000_000  # Epochs


class HogbatchPlan(Struct, frozen=True, kw_only=True):
    """What the study was asked to do."""

    folder: Path
    shapes: tuple[str, ...]
    seeds: int
    search_s: float  # Seconds of training of each run of the search
    budget_s: float  # Wall seconds; a run that was begun is finished
    cpus: int
    device: str | None = None  # Of replicas; None: the preset's
    train: Callable[[TrainingConfig], Training]
    progress: Callable[[Fact], None] = field(default=lambda _: None)


def candidates(algorithm: str, cpus: int, rates: Sequence[float] = LEARNING_RATES) -> list[Setting]:
    """The settings that are tried for an algorithm: the same batches for all, all threads where one works."""
    threads = range(1, cpus + 1) if algorithm in THREADED else (1,)
    return [
        Setting(batch=batch, learning_rate=rate, threads=count)
        for batch, rate, count in itertools.product(BATCHES, rates, threads)
    ]


def config_of(shape: str, algorithm: str, setting: Setting, seed: int) -> TrainingConfig:
    """The settings of one run."""
    base, groups = load_preset(shape), {}
    examples = base.data.examples or SHAPES[shape].reduced
    for name, group in base.groups.items():
        if group.kind is Kind.HOGWILD:
            size, least, most = setting.batch * UPDATES, UPDATES, setting.batch * UPDATES * 8
            groups[name] = replace(group, batch=size, minimum=least, maximum=most, updates=UPDATES)
        elif group.kind is Kind.REPLICA:
            size = setting.batch * REPLICA_FACTOR
            groups[name] = replace(
                group, batch=size, minimum=max(1, size // 8), maximum=size * 8, threads=setting.threads
            )
        else:
            updates = min(32, examples // setting.batch)
            groups[name] = replace(group, batch=setting.batch * updates, updates=updates, threads=setting.threads)
    return replace(
        base,
        groups=groups,
        algorithm=algorithm,
        learning_rate=setting.learning_rate,
        reference_batch=None,
        seed=seed,
        epochs=_ENDLESS,
        data=DataConfig(source=shape, examples=base.data.examples),
    )


def collect(plan: HogbatchPlan) -> HogbatchEvidence:
    """Measure what is missing and give all that is known then.

    Raises:
        InterruptedRunError: The user ended it; the runs before are stored.
        StoreError: The folder cannot be read or written.
        UsageError: The folder is of another machine.
        MeasurementError: Nothing was measured.
    """
    work = _Work(plan)
    for shape in dict.fromkeys((*plan.shapes, *work.known_shapes)):
        chosen = work.search(shape)
        if chosen is not None:
            work.race(shape, chosen)
    return work.evidence()


class _Work:
    def __init__(self, plan: HogbatchPlan) -> None:
        self._plan, self._began = plan, time.monotonic()
        self._known = {stored.run.id: stored for stored in stored_runs(plan.folder)}
        self._used: dict[str, StoredRun] = {}  # Those that this study asks for
        self._problems: dict[str, Fact] = {}
        self._targets: dict[str, float] = {}

    @property
    def known_shapes(self) -> tuple[str, ...]:
        """Shapes of stored runs."""
        return tuple(dict.fromkeys(stored.run.shape for stored in self._known.values()))

    def search(self, shape: str) -> dict[str, Setting] | None:
        """The best setting of each algorithm; None where the search is not complete."""
        chosen: dict[str, Setting] = {}
        for algorithm in ALGORITHMS:
            best = self._best(shape, algorithm)
            if best is None:
                return None
            chosen[algorithm] = best.setting
            if algorithm == "pytorch":
                if not math.isfinite(final_loss(best)):
                    self._problems[best.id] = fact("study.item_failed", item=shape, error="PyTorch diverged each time")
                    return None
                self._targets[shape] = final_loss(best)
        return chosen

    def _best(self, shape: str, algorithm: str) -> TrainedRun | None:
        found: list[TrainedRun] = []
        for rates in (LEARNING_RATES, *((rate,) for rate in HIGHER_RATES)):
            for setting in candidates(algorithm, self._plan.cpus, rates):
                config = replace(config_of(shape, algorithm, setting, SEARCH_SEED), time_s=self._plan.search_s)
                run = self._run(shape, algorithm, setting, config, is_search=True)
                if run is None:
                    return None
                found.append(run)
            best = min(found, key=final_loss)
            if best.setting.learning_rate < rates[-1]:
                break
        return best

    def race(self, shape: str, chosen: Mapping[str, Setting]) -> None:
        """Every algorithm to the target, for each seed."""
        for seed in range(self._plan.seeds):
            turned = ALGORITHMS[seed % len(ALGORITHMS) :] + ALGORITHMS[: seed % len(ALGORITHMS)]
            for algorithm in turned:
                setting = chosen[algorithm]
                config = replace(
                    config_of(shape, algorithm, setting, seed),
                    target_loss=self._targets[shape],
                    time_s=self._plan.search_s * _LONGEST,
                )
                self._run(shape, algorithm, setting, config, is_search=False)

    def evidence(self) -> HogbatchEvidence:
        """All runs as one value."""
        stored = list(self._used.values())
        if not stored:
            raise nothing_measured(self._problems.values())
        first = stored[0]
        return HogbatchEvidence(
            machine_id=first.machine_id,
            machine=first.machine,
            torch=first.torch,
            cpus=first.cpus,
            runs=tuple(sorted((each.run for each in stored), key=lambda run: run.id)),
            targets=self._targets,
            problems=self._problems,
        )

    def _run(
        self, shape: str, algorithm: str, setting: Setting, config: TrainingConfig, *, is_search: bool
    ) -> TrainedRun | None:
        plan = self._plan
        name = _name(shape, algorithm, setting, config.seed, is_search=is_search)
        known, digest = self._known.get(name), _digest(config, plan.device)
        if known is not None and known.digest == digest:
            self._used[name] = known
            return known.run
        if shape not in plan.shapes:
            return None
        if time.monotonic() - self._began >= plan.budget_s:
            self._problems[name] = fact("study.budget_ended", budget_s=plan.budget_s)
            return None
        plan.progress(fact("step.study_run", run=name))
        try:
            training = plan.train(config)
        except InterruptedRunError:
            raise
        except PerfguardError as error:
            self._problems[name] = fact("study.item_failed", severity=Severity.NOTABLE, item=name, error=str(error))
            return None
        if training.outcome is not None and training.outcome.ending is Ending.ASKED:
            raise InterruptedRunError("interrupted; the runs before are stored")
        if not training.epochs or training.epochs[-1].epoch == 0:
            why = "it ended before its first epoch; give more --search-s"
            self._problems[name] = fact("study.item_failed", severity=Severity.NOTABLE, item=name, error=why)
            return None
        stored = replace(_stored(training, shape, algorithm, setting, plan.cpus, is_search=is_search), digest=digest)
        _require_same(plan.folder, [*self._known.values(), stored])
        self._known[name] = self._used[name] = stored
        write_text(plan.folder / EVIDENCE / f"{stored.run.id}.json", f"{to_json(stored, indent=1)}\n")
        return stored.run


def final_loss(run: TrainedRun) -> float:
    """The last loss of a run; infinite where it diverged."""
    return float("inf") if run.ending is Ending.DIVERGED or not run.points else run.points[-1].loss


class StoredRun(Struct, frozen=True, kw_only=True):
    """What a run's file holds."""

    schema: int = EVIDENCE_SCHEMA
    machine_id: str
    machine: str
    torch: str
    cpus: int
    digest: str = ""  # Of what the run was asked for; another one is measured anew
    run: TrainedRun


def stored_runs(folder: Path) -> Iterator[StoredRun]:
    """The runs of a study's folder.

    Raises:
        StoreError: A file cannot be read.
    """
    for path in sorted((folder / EVIDENCE).glob("*.json")):
        data = parse_json(path, if_corrupt="delete it, and the study measures it again")
        if not isinstance(data, dict) or data.get("schema") != EVIDENCE_SCHEMA:
            raise StoreError(
                f"{path} is no evidence that this version reads; delete it, and the study measures it again"
            )
        yield from_builtins(data, StoredRun, source=str(path))


def _name(shape: str, algorithm: str, setting: Setting, seed: int, *, is_search: bool) -> str:
    kind = "search" if is_search else f"seed{seed}"
    return f"{shape}-{algorithm}-{kind}-b{setting.batch}-lr{setting.learning_rate:g}-t{setting.threads}"


def _stored(
    training: Training, shape: str, algorithm: str, setting: Setting, cpus: int, *, is_search: bool
) -> StoredRun:
    outcome, on, planned = training.outcome, training.trained, training.planned
    if outcome is None or on is None:
        raise MeasurementError(f"the run {training.run_id} ended before its result")
    balance = live(training.epochs, outcome, planned.workers)
    epochs = training.epochs[-1].epoch if training.epochs else 0
    shares: Mapping[str, float] = {}
    epoch_s = 0.0
    if balance is not None and {place.group for place in planned.workers} <= set(outcome.paces):
        speeds = {group: Speed.of(pace) for group, pace in outcome.paces.items()}
        again = simulated(replace(planned.config, epochs=epochs), planned.workers, on.examples, speeds)
        shares, epoch_s = again.shares, again.epoch_s
    run = TrainedRun(
        shape=shape,
        algorithm=algorithm,
        setting=setting,
        seed=planned.config.seed,
        is_search=is_search,
        ending=outcome.ending,
        points=tuple(LossPoint(epoch=each.epoch, trained_s=each.trained_s, loss=each.loss) for each in training.epochs),
        updates=training.epochs[-1].updates if training.epochs else {},
        busy=balance.busy if balance else {},
        utilisation=outcome.utilisation,
        schedule=outcome.schedule,
        paces=outcome.paces,
        simulated_shares=shares,
        simulated_epoch_s=epoch_s,
        devices=on.devices,
    )
    return StoredRun(machine_id=training.machine_id, machine=training.machine, torch=on.torch, cpus=cpus, run=run)


def _digest(config: TrainingConfig, device: str | None) -> str:
    """What a run was asked for."""
    return hashlib.sha256(to_json({"config": config, "device": device}).encode()).hexdigest()[:16]


def _require_same(folder: Path, runs: Sequence[StoredRun]) -> None:
    found = {f"torch {each.torch} on {each.machine_id} with {each.cpus} CPUs" for each in runs}
    if len(found) > 1:
        raise UsageError(
            f"{folder / EVIDENCE} holds runs of {' and '.join(sorted(found))}; choose another folder with --out"
        )
