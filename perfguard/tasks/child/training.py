"""Trains a model until its quality reaches the target: the time to quality, MLPerf Training's measure."""

from __future__ import annotations

import contextlib
import copy
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from perfguard.errors import ConfigError
from perfguard.records.task_results import MeasuredTraining, QualityAfter, TaskLoaded
from perfguard.records.tasks import Hardware, ModelPrecision, QualityKind, TaskConfig, TaskJob
from perfguard.tasks.child.backends import RefusedError, Stages
from perfguard.tasks.child.backends.eager import arrays_of
from perfguard.tasks.child.code import code_sha256
from perfguard.tasks.child.examples import Inputs, Split, TaskExamples
from perfguard.tasks.child.learning import Trainable, train_epoch, trainable
from perfguard.tasks.child.models import digest_of, new_module, postprocess_of
from perfguard.tasks.child.postprocessing import Arrays
from perfguard.tasks.child.quality import quality_of

_EVALUATED = 64  # Examples at a time
_REPORTS_S = 1.0  # How often it says that it goes on


def measure_training(job: TaskJob, examples: TaskExamples, tell: Callable[[str, Any], None]) -> MeasuredTraining:
    """Train from new weights, drawn by the job's seed, epoch by epoch, and evaluate after each.

    The clock runs from the first step to the end of the evaluation that reaches the target.

    Raises:
        RefusedError: The backend or the precision trains nothing.
        ConfigError: The model cannot be trained, or the data has no labels.
    """
    if job.cell.backend not in ("eager", "compile"):
        raise RefusedError(f"{job.cell.backend} trains nothing; choose eager or compile")
    if job.cell.hardware is Hardware.CUDA:
        raise RefusedError("trainings run on CPUs alone")
    if job.cell.precision is ModelPrecision.INT8:
        raise RefusedError("nothing is trained in INT8")
    if job.task.quality.kind is not QualityKind.LABELLED or examples.evaluation.labels is None:
        raise ConfigError("quality: a training needs labels; its kind is 'labelled'")
    torch.set_num_threads(job.cell.threads)
    torch.manual_seed(job.seed)
    name = job.task.model.architecture
    module, stages = new_module(name), Stages()
    model, split = trainable(module, name, examples)
    learner = _Learner(
        job.task,
        module,
        model,
        is_compiled=job.cell.backend == "compile",
        is_bf16=job.cell.precision is ModelPrecision.BF16,
    )
    with stages.stage("compile") if learner.is_compiled else contextlib.nullcontext():
        learner.try_out(split, examples.evaluation)
    tell(
        "loaded",
        TaskLoaded(
            parameters=sum(each.numel() for each in module.parameters()),
            model_sha256=digest_of(name, module),
            data_sha256=examples.sha256,
            code_sha256=code_sha256(name),
            has_real_weights=False,
            ran_in="bf16" if torch.bfloat16 in learner.dtypes else "fp32",
            version=torch.__version__,
            snr_db=None,
            stages=stages.seconds,
            cached=(),
        ),
    )
    return _until_reached(job, learner, split, examples.evaluation, _Alive(tell))


@dataclass(slots=True)
class _Learner:
    """A module in training, and what makes answers of it."""

    task: TaskConfig
    module: nn.Module
    model: Trainable
    is_compiled: bool
    is_bf16: bool
    dtypes: set[torch.dtype] = field(default_factory=set)  # Of outputs so far
    _forward: Callable[..., Any] = field(init=False)
    _loss: Callable[..., torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self._forward = torch.compile(self.module) if self.is_compiled else self.module
        self._loss = torch.compile(self.model.loss) if self.is_compiled else self.model.loss

    def try_out(self, split: Split, evaluated: Split) -> None:
        """Compute a loss, its gradients and answers once, so that compiling them is no part of a training's time.

        Weights, buffers and torch's seed are afterwards what they were.
        """
        before = copy.deepcopy(self.module.state_dict())
        assert split.labels is not None  # noqa: S101 - `trainable` has checked it
        inputs, labels = (torch.from_numpy(each[: self.model.batch]) for each in (split.inputs, split.labels))
        with torch.random.fork_rng(devices=()):
            self.module.train()
            self.loss(inputs, labels).backward()
            self.answers(evaluated.inputs[:_EVALUATED])
        self.module.zero_grad(set_to_none=True)
        self.module.load_state_dict(before)

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss, computed in the precision that is measured."""
        with self._precision():
            return self._loss(inputs, labels)

    def answers(self, inputs: Inputs) -> Arrays:
        """What the module says of some examples."""
        self.module.eval()
        with torch.inference_mode(), self._precision():
            outputs = self._forward(torch.from_numpy(np.ascontiguousarray(inputs)))
        self.dtypes.update(each.dtype for each in (outputs if isinstance(outputs, tuple) else (outputs,)))
        finish, arrays = postprocess_of(self.task.model), arrays_of(outputs)
        return arrays if finish is None else finish(arrays, inputs)

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.is_bf16 else contextlib.nullcontext()


class _Alive:
    """Says about once a second that training goes on."""

    def __init__(self, tell: Callable[[str, Any], None]) -> None:
        self._tell, self._said = tell, time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._said > _REPORTS_S:
            self._said = now
            self._tell("progress", 0)


def _until_reached(
    job: TaskJob, learner: _Learner, split: Split, evaluated: Split, alive: Callable[[], None]
) -> MeasuredTraining:
    target, curve = job.task.quality, list[QualityAfter]()
    optimizer, began, used = learner.model.make_optimizer(), time.perf_counter(), _cpu_s()
    while True:
        learner.module.train()
        train_epoch(learner.model, learner.loss, optimizer, split, stepped=alive)
        quality = _quality(learner, evaluated, alive)
        curve.append(QualityAfter(wall_s=time.perf_counter() - began, cpu_s=_cpu_s() - used, quality=quality))
        is_reached = quality >= target.least
        if is_reached or curve[-1].wall_s > job.task.training_limit_s:
            return MeasuredTraining(
                seed=job.seed, is_reached=is_reached, epochs=tuple(curve), examples=len(curve) * len(split.inputs)
            )


def _quality(learner: _Learner, evaluated: Split, alive: Callable[[], None]) -> float:
    pieces = []
    for row in range(0, len(evaluated.inputs), _EVALUATED):
        pieces.append(learner.answers(evaluated.inputs[row : row + _EVALUATED]))
        alive()
    found = tuple(np.concatenate(parts) for parts in zip(*pieces, strict=True))
    assert evaluated.labels is not None  # noqa: S101 - checked before the first step
    return quality_of(learner.task.quality.metric, found, evaluated.labels)


def _cpu_s() -> float:
    """Seconds that all threads of this process have used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
