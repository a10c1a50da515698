"""Records of runs of tasks, for tests that judge, show and write them."""

from __future__ import annotations

from perfguard.recordings import encode_event
from perfguard.records.events import EVENT_SCHEMA, RunFinished, RunStarted
from perfguard.records.task_results import (
    CellRun,
    MeasuredQuality,
    MeasuredSpeed,
    MeasuredTraining,
    QualityAfter,
    TaskLoaded,
)
from perfguard.records.tasks import (
    Cooling,
    DataPart,
    Duration,
    Mode,
    ModelPrecision,
    QualityKind,
    Scenario,
    Size,
    TaskCell,
    TaskPlan,
)
from perfguard.tasks.task_files import parse_task
from tests.changed_values import replace

OWN = """
name = "own"
doc = "A network of mine"
[model]
architecture = "nets:make"
[data]
source = "sklearn:digits"
parts = { full = 100 }
[quality]
metric = "top-1"
kind = "labelled"
reference = 0.9
fraction = 0.5
"""
"""A task file."""
FAST = """
name = "fast"
doc = "Digits, in a second"
[model]
architecture = "digits_cnn"
weights = "trained"
[data]
source = "sklearn:digits"
parts = { full = 597, tiny = 64 }
[quality]
metric = "top-1"
kind = "labelled"
reference = 0.97
fraction = 0.98
[durations.rapid]
min_queries = 64
min_s = 0.3
max_s = 60.0
"""
"""A packaged task's network and data, measured in a third of a second."""
FIRST, SECOND = (TaskCell(backend=name, precision=ModelPrecision.FP32, threads=1) for name in ("eager", "onnxruntime"))
NOISE = (1.0, 1.02, 0.99, 1.01, 0.98)
LOADED = TaskLoaded(
    parameters=1, model_sha256="m", data_sha256="d", code_sha256="c", has_real_weights=True, ran_in="fp32",
    version="1", snr_db=130.0, stages={}, cached=(),
)  # fmt: skip


def plan(*cells, scenario=Scenario.SINGLE_STREAM, kind=QualityKind.LABELLED):
    task = parse_task(OWN, "own.toml")
    return TaskPlan(
        task=replace(task, quality=replace(task.quality, kind=kind)),
        scenario=scenario,
        size=Size.RAPID,
        part=DataPart.FULL,
        cells=cells,
        rounds=5,
        duration=Duration(min_queries=64, min_s=1, max_s=2),
        cooling=Cooling(by="time", most_s=0.0),
    )


def speed(seconds, **changes):
    values = {
        "queries": 64, "is_valid": True, "score_s": seconds, "p90_s": seconds, "samples_per_s": None,
        "own_score_s": seconds, "own_p90_s": seconds, "duration_s": 1.0, "wall_per_cpu": 1.0, "waited_share": 0.0,
    }  # fmt: skip
    return MeasuredSpeed(**{**values, **changes})


def timed(cell, number, found, loaded=LOADED):
    return CellRun(
        cell=cell, scenario=Scenario.SINGLE_STREAM, mode=Mode.PERFORMANCE, round=number, loaded=loaded, speed=found,
        logs=f"closed/perfguard/results/host/own-{cell.id}/SingleStream/performance/run_{number + 1}",
        began_at=100.0 * number, ended_at=100.0 * number + 50.0,
    )  # fmt: skip


def answered(cell, value=0.9, loaded=LOADED):
    quality = MeasuredQuality(value=value, examples=100, answers_sha256="a")
    return CellRun(
        cell=cell, scenario=Scenario.SINGLE_STREAM, mode=Mode.ACCURACY, round=0, loaded=loaded, quality=quality,
        logs=f"closed/perfguard/results/host/own-{cell.id}/SingleStream/accuracy", began_at=900.0, ended_at=950.0,
    )  # fmt: skip


def measured(cell, seconds=0.01, *, quality=0.9, loaded=LOADED, noise=NOISE, **changes):
    runs = [timed(cell, number, speed(seconds * factor, **changes), loaded) for number, factor in enumerate(noise)]
    return [*runs, answered(cell, quality, loaded)]


def trained(cell, seed, *qualities, is_reached=True):
    """A training: its quality after each second."""
    curve = tuple(QualityAfter(wall_s=at, cpu_s=2 * at, quality=each) for at, each in enumerate(qualities, start=1))
    measurement = MeasuredTraining(seed=seed, is_reached=is_reached, epochs=curve, examples=100 * len(curve))
    return CellRun(
        cell=cell, scenario=Scenario.TRAINING, mode=Mode.PERFORMANCE, round=seed, loaded=LOADED, training=measurement,
        logs=f"{cell.id}-{seed + 1}", began_at=100.0 * seed, ended_at=100.0 * seed + 50.0,
    )  # fmt: skip


STARTED = RunStarted(
    run_id="20260102T030405-a1b2c3", schema=EVENT_SCHEMA, mode="task", suite="own", case_ids=(),
    command=("perfguard", "task", "compare", "own.toml"), budget_s=0.0, machine_id="amd-test-1",
)  # fmt: skip


def write_task_run(folder, asked, runs, *, is_finished=True):
    """A run's folder with these measurements, a second between two."""
    end = [RunFinished(outcome="valid", exit_code=0, reasons=())] if is_finished else []
    lines = [
        encode_event(each, seq=seq, t_wall=1e9 + seq, t_mono=float(seq))
        for seq, each in enumerate([STARTED, asked, *runs, *end])
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_bytes(b"".join(lines))
    return folder
