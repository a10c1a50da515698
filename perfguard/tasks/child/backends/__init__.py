"""Backends: frameworks that run a model. Each module has one; others come by entry points.

A backend is a function `load(LoadRequest) -> Loaded`. What it cannot do it refuses with a reason, which becomes a row
of the result.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from perfguard.records.tasks import ModelPrecision
from perfguard.tasks.backend_names import BUILTIN, GROUP
from perfguard.tasks.child.examples import Inputs
from perfguard.tasks.child.models import Model
from perfguard.tasks.child.postprocessing import Arrays


class RefusedError(Exception):
    """A backend cannot run this model so; the message says why."""


def reason_of(error: BaseException) -> str:
    """An error in one line: its kind, and the first line of what it says."""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


@dataclass(slots=True)
class Stages:
    """Seconds of what is made once and kept: export, compilation, quantization."""

    seconds: dict[str, float] = field(default_factory=dict)
    cached: list[str] = field(default_factory=list)  # Stages whose result was there already

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What a backend is asked for."""

    model: Model
    precision: ModelPrecision
    threads: int
    example: Inputs  # One example, `(1, …)`, for tracing
    calibration: Inputs  # Examples that INT8 is calibrated with, `(examples, …)`
    cache: Path  # Folder of what is made once
    stages: Stages = field(default_factory=Stages)
    device: str = "cpu"  # Or `cuda`; frameworks other than PyTorch run on CPUs alone

    def kept(self, stage: str, suffix: str, make: Callable[[Path], None]) -> Path:
        """A file that depends on the model and `suffix` alone: made by `make` in a stage, unless it is there."""
        path = self.cache / f"{self.model.digest[:16]}-{suffix}"
        if path.is_file():
            self.stages.cached.append(stage)
            return path
        self.cache.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}")
        with self.stages.stage(stage):
            make(temporary)
        temporary.replace(path)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model that is ready to answer."""

    run: Callable[[Inputs], Arrays]  # A batch `(batch, …)` to its outputs
    ran_in: str  # The precision that really runs, as the framework itself says: `fp32`, `bf16`, `int8`
    version: str  # Of the framework


Backend = Callable[[LoadRequest], Loaded]


def backend_named(name: str) -> Backend:
    """A backend.

    Raises:
        RefusedError: There is none of this name, or its framework is not installed.
    """
    try:
        if name in BUILTIN:
            return cast("Backend", importlib.import_module(f"{__name__}.{BUILTIN[name]}").load)
        for entry in entry_points(group=GROUP):
            if entry.name == name:
                return cast("Backend", entry.load())
    except ImportError as error:
        raise RefusedError(f"not installed ({error})") from error
    raise RefusedError(f"there is no backend {name!r}")
