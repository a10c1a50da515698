"""Runs of heterogeneous training without any training."""

from __future__ import annotations

from perfguard.hetero.planning import places
from perfguard.hetero.settings import load_preset
from perfguard.recordings import encode_event
from perfguard.records.events import EVENT_SCHEMA, Noted, RunFinished, RunStarted
from perfguard.records.facts import Severity, fact
from perfguard.records.training import (
    Counters,
    Ending,
    GroupPace,
    GroupUse,
    TrainedOn,
    TrainingEpoch,
    TrainingOutcome,
    TrainingPlanned,
    TrainingUse,
    Utilisation,
)
from tests.changed_values import replace

CONFIG = replace(load_preset("covtype"), target_loss=0.6)
WORKERS = places(CONFIG, (0, 1))
PACE = GroupPace(update_s=1e-3, example_s=2e-5, loss_example_s=1e-5, transfer_s=0.0, latency_s=1e-4)
STARTED = RunStarted(
    run_id="20260102T030405-a1b2c3",
    schema=EVENT_SCHEMA,
    mode="training",
    suite="covtype",
    case_ids=(),
    command=("perfguard", "hetero", "train", "--preset", "covtype"),
    budget_s=0.0,
    machine_id="amd-test-1",
)
TRAINED_ON = TrainedOn(
    examples=20_000,
    features=54,
    classes=7,
    parameters=294_407,
    is_sparse=False,
    is_multilabel=False,
    devices={"cpu": "CPU", "large": "CPU"},
    torch="2.13.0+cpu",
)


def epoch(number):
    return TrainingEpoch(
        epoch=number,
        at_s=number * 1.2,
        trained_s=float(number),
        loss_s=0.2,
        loss=2.0 / (1 + number),
        updates={"cpu": 240 * number, "large": 10 * number},
        batches={"cpu": 512, "large": 1024 * (1 + number % 2)} if number else {},
    )


def use(number):
    groups = {
        "cpu": GroupUse(updates=240 * number, examples=15_000 * number, batch=512, busy_ratio=0.97, worker_count=1),
        "large": GroupUse(updates=10 * number, examples=5_000 * number, batch=2048, busy_ratio=0.6, worker_count=1),
    }
    return TrainingUse(at_s=number * 1.2, groups=groups)


OUTCOME = TrainingOutcome(
    ending=Ending.TARGET,
    at_s=3.6,
    counters={
        "cpu-0": Counters(updates=720, trained=45_000, busy_s=3.4, training_s=2.9),
        "large-0": Counters(updates=30, trained=15_000, busy_s=2.2, transfer_s=0.1, training_s=1.9, ranges_returned=1),
    },
    utilisation=Utilisation(bin_s=1.0, groups={"cpu": (0.9, 1.0, 0.95, 0.8), "large": (0.5, 0.7, 0.6, 0.4)}),
    paces={"cpu": PACE, "large": PACE},
    schedule=((0.0, "cpu", 512), (0.0, "large", 1024), (1.3, "large", 2048), (2.2, "large", 1024)),
)
FINISHED = RunFinished(
    outcome="target", exit_code=0, reasons=(fact("training.target_reached", loss=0.5, trained_s=3.0),)
)
LOST = fact(
    "training.worker_lost", severity=Severity.NOTABLE, worker="large-0", reason="its process was ended by SIGKILL"
)


def events(*, is_finished=True, epochs=3):
    """The events of a run, in order."""
    found = [STARTED, TrainingPlanned(config=CONFIG, workers=WORKERS), TRAINED_ON, epoch(0)]
    for number in range(1, epochs + 1):
        found += [use(number), epoch(number)]
    return [*found, Noted(fact=LOST), OUTCOME, FINISHED] if is_finished else found


def write_training(folder, **how):
    """A run's folder with these events, a second between two."""
    lines = [encode_event(each, seq=seq, t_wall=1e9 + seq, t_mono=float(seq)) for seq, each in enumerate(events(**how))]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_bytes(b"".join(lines))
    return folder
