"""Queries of tasks as cases: a model under a framework answers examples, and its quality must reach the target."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.shared import checked
from perfguard.errors import BelowTargetError, MeasurementError, UsageError
from perfguard.records.tasks import (
    DataPart,
    DataSource,
    Metric,
    ModelPrecision,
    ModelSource,
    QualityKind,
    QualityTarget,
)
from perfguard.tasks.child.answers import answer_each
from perfguard.tasks.child.backends import LoadRequest, RefusedError, backend_named
from perfguard.tasks.child.examples import Inputs, TaskExamples, load_examples
from perfguard.tasks.child.models import Model, load_model
from perfguard.tasks.child.postprocessing import Arrays
from perfguard.tasks.child.quality import measured_quality
from perfguard.tasks.places import tasks_cache, tasks_home

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PARTS = (DataPart.LITE, DataPart.FULL)
"""Examples that the quality is measured on: the first of these that the task has."""


def digits(*, backend: str, dtype: str, batch: int) -> Timed:
    """Handwritten digits, classified by a small CNN."""
    return query("digits", backend=backend, dtype=dtype, batch=batch)


def ssd_mobilenetv2(*, backend: str, dtype: str, batch: int) -> Timed:
    """Objects in photos, found by SSD-MobileNetV2."""
    return query("ssd-mobilenetv2", backend=backend, dtype=dtype, batch=batch)


def query(task: str | Path, *, backend: str = "eager", dtype: str = "fp32", batch: int = 1) -> Timed:
    """A benchmark of a task, a packaged one by name or a task file: one query of `batch` examples a call.

    Its check measures the quality, and fails where that misses the task's target.

    Raises:
        UsageError: No such task, data or weights.
        MeasurementError: The backend cannot run the model so.
        BelowTargetError: By the check: the quality misses the target.
    """
    model_source, data, target = _read(task)
    part = next((each for each in _PARTS if each in data.parts), DataPart.FULL)
    examples = load_examples(data, part, tasks_home())
    with torch.random.fork_rng(devices=()):
        model = load_model(model_source, examples, data_folder=tasks_home(), cache=_cache())
    chosen = examples.evaluation.inputs[[number % len(examples.evaluation.inputs) for number in range(batch)]]
    answer = _answering(model, examples, backend, ModelPrecision(dtype))

    def ask() -> torch.Tensor:
        return torch.from_numpy(answer(chosen)[0])

    def plain() -> Arrays:
        return answer_each(_answering(model, examples, "eager", ModelPrecision.FP32), examples.evaluation.inputs)

    def check() -> dict[str, float]:
        evaluated = examples.evaluation
        found = measured_quality(target, answer_each(answer, evaluated.inputs), evaluated.labels, plain)
        if found < target.least:
            raise BelowTargetError(
                f"{target.metric.value} is {found:.4g}, the target is {target.least:.4g}: the speed does not count"
            )
        return {f"quality_{target.metric.value}": found}

    return checked(ask, check)


def _read(task: str | Path) -> tuple[ModelSource, DataSource, QualityTarget]:
    """What a task file says, as `perfguard task` has checked it; here nothing but Python's library can be relied on."""
    path = task if isinstance(task, Path) else Path(__file__).parents[1] / "tasks" / "builtin" / f"{task}.toml"
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        model = ModelSource(**table["model"])
        data = DataSource(**{**table["data"], "parts": {DataPart(k): v for k, v in table["data"]["parts"].items()}})
        quality = dict(table["quality"])
        quality |= {"metric": Metric(quality["metric"]), "kind": QualityKind(quality["kind"])}
        return model, data, QualityTarget(**quality)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"the task {path} cannot be read ({error}); try it with `perfguard task run`") from error


def _cache() -> Path:
    """The user's, or a new folder where that cannot be written, as in a confined worker."""
    cache = tasks_cache()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            return cache
    except OSError:
        return Path(tempfile.mkdtemp(prefix="perfguard-tasks-"))


def _answering(
    model: Model, examples: TaskExamples, backend: str, precision: ModelPrecision
) -> Callable[[Inputs], Arrays]:
    order = LoadRequest(
        model=model,
        precision=precision,
        threads=torch.get_num_threads(),
        example=examples.evaluation.inputs[:1],
        calibration=examples.calibration.inputs,
        cache=_cache(),
    )
    try:
        loaded = backend_named(backend)(order)
    except RefusedError as error:
        raise MeasurementError(f"{backend} cannot run it in {precision.value}: {error}") from error
    if loaded.ran_in != precision.value:
        raise MeasurementError(f"{precision.value} was asked for, and {backend} runs {loaded.ran_in}")
    return model.answering(loaded.run)
