"""Heterogeneous training as cases: workers of different speed train one model until its loss is small enough."""

from __future__ import annotations

import functools
import os

from perfguard.hetero.child.repeated import RepeatedTraining, WorkerPool
from perfguard.records.training import DataConfig, Device, GroupConfig, Kind, ModelConfig, TrainingConfig

_GOALS = {"covtype": (0.05, 0.9), "w8a": (0.5, 0.1)}
"""Learning rate and target loss by shape: about 15 epochs."""


def covtype(*, algorithm: str) -> RepeatedTraining:
    """Dense rows, 7 classes."""
    return RepeatedTraining(functools.partial(_pool, "covtype", algorithm))


def w8a(*, algorithm: str) -> RepeatedTraining:
    """Sparse rows, 2 classes of unequal size."""
    return RepeatedTraining(functools.partial(_pool, "w8a", algorithm))


@functools.cache
def _pool(source: str, algorithm: str) -> WorkerPool:
    """The workers of a case: all set-ups in this process share them."""
    return WorkerPool(_config(source, algorithm), sorted(os.sched_getaffinity(0)))


def _config(source: str, algorithm: str) -> TrainingConfig:
    learning_rate, target_loss = _GOALS[source]
    return TrainingConfig(
        data=DataConfig(source=source, examples=2048),
        groups={
            "cpu": GroupConfig(kind=Kind.HOGWILD, batch=64, minimum=32, maximum=256, updates=2),
            "large": GroupConfig(kind=Kind.REPLICA, batch=128, minimum=64, maximum=512, device=Device.AUTO),
        },
        learning_rate=learning_rate,
        reference_batch=64,
        model=ModelConfig(width=128),
        algorithm=algorithm,
        epochs=200,
        target_loss=target_loss,
        loss_batch=1024,
        patience_s=1.0,
    )
