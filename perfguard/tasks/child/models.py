"""Models of tasks: built-in architectures, a user's own, and their weights."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from perfguard.errors import ConfigError, UsageError
from perfguard.records.tasks import ModelSource
from perfguard.tasks.child.detection import detections
from perfguard.tasks.child.examples import TaskExamples
from perfguard.tasks.child.importing import import_tflite

Arrays = tuple[npt.NDArray[np.float32], ...]
"""Outputs of a model for a batch, each of shape `(batch, …)`."""


class Architecture(Protocol):
    """A network that tasks can name, and how it is trained, if it can be here."""

    def __call__(self) -> nn.Module:
        """The network, with weights of torch's default initialization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A network with its weights, ready for inference."""

    module: nn.Module  # In evaluation mode, FP32
    digest: str  # Of architecture and weights
    parameters: int  # Numbers in it
    has_real_weights: bool  # Whether it was trained, here or elsewhere
    postprocess: Callable[[Arrays], Arrays] | None  # Makes answers of outputs


def _boxes(outputs: Arrays) -> Arrays:
    encodings, logits = outputs
    return (detections(encodings, logits),)


TFLITE = "tflite"
"""Architecture of a task whose weights are a file of TensorFlow Lite."""
_POSTPROCESSES: dict[str, Callable[[Arrays], Arrays]] = {"ssd": _boxes}


def load_model(source: ModelSource, examples: TaskExamples, *, data_folder: Path, cache: Path) -> Model:
    """The model of a task.

    Raises:
        UsageError: Weights are missing or do not fit.
        ConfigError: No such architecture.
    """
    if source.postprocess is not None and source.postprocess not in _POSTPROCESSES:
        raise ConfigError(
            f"model: postprocess {source.postprocess!r} is unknown; choose from {', '.join(_POSTPROCESSES)}"
        )
    torch.manual_seed(0)
    module = _with_weights(source, examples, data_folder=data_folder, cache=cache)
    module.eval().requires_grad_(requires_grad=False)
    return Model(
        module=module,
        digest=digest_of(source.architecture, module),
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        has_real_weights=source.weights != "seeded",
        postprocess=_POSTPROCESSES[source.postprocess] if source.postprocess is not None else None,
    )


def _with_weights(source: ModelSource, examples: TaskExamples, *, data_folder: Path, cache: Path) -> nn.Module:
    if source.architecture == TFLITE:
        return import_tflite(_checked(data_folder / source.weights, source.sha256))
    module = _architecture(source.architecture)()
    if source.weights == "trained":
        _train_cached(module, source.architecture, examples, cache)
    elif source.weights != "seeded":
        _read_weights(module, data_folder / source.weights, source.sha256)
    return module


def digest_of(name: str, module: nn.Module) -> str:
    """Hash of a network's name and all its numbers."""
    found = hashlib.sha256(name.encode())
    for key, value in sorted(module.state_dict().items()):
        found.update(key.encode() + str(tuple(value.shape)).encode() + value.contiguous().numpy().tobytes())
    return found.hexdigest()


def _architecture(name: str) -> Callable[[], nn.Module]:
    if ":" in name:
        return _of_user(name)
    from perfguard.tasks.child.networks import ARCHITECTURES

    if name not in ARCHITECTURES:
        raise ConfigError(
            f"model: architecture {name!r} is unknown; choose from {', '.join(sorted(ARCHITECTURES))}, or "
            "give module:function"
        )
    return ARCHITECTURES[name]


def _of_user(name: str) -> Callable[[], nn.Module]:
    module_name, _, function_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"model: architecture {name!r} cannot be imported: {error}") from error

    def make() -> nn.Module:
        module = found()
        if not isinstance(module, nn.Module):
            raise ConfigError(f"model: {name} returned {type(module).__name__}, not an nn.Module")
        return module

    return make


def _train_cached(module: nn.Module, name: str, examples: TaskExamples, cache: Path) -> None:
    train = getattr(module, "train_on", None)
    if train is None or examples.training is None:
        raise ConfigError(f"model: {name} cannot be trained here; give a file as its weights, or 'seeded'")
    key = hashlib.sha256(f"{name}\0{digest_of(name, module)}\0{examples.sha256}\0{torch.__version__}".encode())
    path = cache / f"weights-{name.replace(':', '-')}-{key.hexdigest()[:16]}.pt"
    if path.is_file():
        module.load_state_dict(torch.load(path, weights_only=True))
        return
    train(torch.from_numpy(examples.training.inputs), torch.from_numpy(examples.training.labels))
    cache.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    torch.save(module.state_dict(), temporary)
    temporary.replace(path)


def _checked(path: Path, sha256: str | None) -> Path:
    """The file of weights, which is what the task wants."""
    if not path.is_file():
        raise UsageError(
            f"the weights {path} are missing; `perfguard task fetch` gets those of packaged tasks, all others are the "
            "user's (docs/tasks.md)"
        )
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 is not None and found != sha256:
        raise UsageError(f"{path} has the SHA-256 {found}, the task wants {sha256}; get the file again")
    return path


def _read_weights(module: nn.Module, path: Path, sha256: str | None) -> None:
    _checked(path, sha256)
    try:
        module.load_state_dict(torch.load(path, weights_only=True))
    except Exception as error:
        raise UsageError(f"{path} does not fit the model: {str(error).splitlines()[0]}") from error
