"""What a process knows of the program that it runs and no trace shows: who learns, what is denormal, who loads data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """A module with parameters or buffers of its own."""

    path: str  # As in traces: `ResNet.layer1.0.conv1`
    kind: str  # Its class: `Conv2d`
    parameters: int  # Parameters of its own, without those of modules in it
    trainable: int  # Those of them that require gradients
    updated: int  # Those of them that require gradients and that an optimizer holds; 0 where there is no optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class DenormalCount:
    """Denormal values in one kind of tensors."""

    group: str  # `parameters`, `gradients` or `optimizer state`
    values: int  # Values that were looked at; of large tensors a part
    denormals: int  # Those of them that are denormal
    worst: str  # Tensor with the largest share of them: `Net.conv1.weight`, `exp_avg_sq of Net.conv1.weight`, or empty


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    """A program between two steps."""

    modules: tuple[ModuleFacts, ...] = ()  # As they were registered, for most models the order of their calls
    optimizers: tuple[str, ...] = ()  # Classes of the optimizers, sorted
    loader_workers: tuple[int, ...] = ()  # Worker processes of each data loader
    denormals: tuple[DenormalCount, ...] = ()  # One for each kind of tensors that there is
    flushes_denormals: bool | None = None  # Whether the thread that steps rounds denormals to zero
