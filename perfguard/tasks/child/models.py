"""Models of tasks: built-in architectures, a user's own, and their weights."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from perfguard.errors import ConfigError, UsageError
from perfguard.records.tasks import ModelSource
from perfguard.tasks.child.examples import Inputs, TaskExamples, sha256_of
from perfguard.tasks.child.importing import import_tflite
from perfguard.tasks.child.learning import train_epoch, trainable
from perfguard.tasks.child.postprocessing import POSTPROCESSES, Arrays, Postprocess


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A network with its weights, ready for inference."""

    module: nn.Module  # In evaluation mode, FP32
    digest: str  # Of architecture and weights
    parameters: int  # Numbers in it
    has_real_weights: bool  # Whether it was trained, here or elsewhere
    postprocess: Postprocess | None  # Makes answers of outputs
    file: Path | None = None  # That it was imported from

    def answering(self, run: Callable[[Inputs], Arrays]) -> Callable[[Inputs], Arrays]:
        """What gives answers: a framework's function for the network, and what makes answers of its outputs."""
        finish = self.postprocess
        return run if finish is None else lambda batch: finish(run(batch), batch)


TFLITE = "tflite"
"""Architecture of a task whose weights are a file of TensorFlow Lite."""
_EPOCHS = 12  # Of a model that is trained here


def load_model(source: ModelSource, examples: TaskExamples, *, data_folder: Path, cache: Path) -> Model:
    """The model of a task.

    Raises:
        UsageError: Weights are missing or do not fit.
        ConfigError: No such architecture.
    """
    finish = postprocess_of(source)
    torch.manual_seed(0)
    module = _with_weights(source, examples, data_folder=data_folder, cache=cache)
    module.eval().requires_grad_(requires_grad=False)
    return Model(
        module=module,
        digest=digest_of(source.architecture, module),
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        has_real_weights=source.weights != "seeded",
        postprocess=finish,
        file=data_folder / source.weights if source.architecture == TFLITE else None,
    )


def postprocess_of(source: ModelSource) -> Postprocess | None:
    """What makes answers of a model's outputs; None where they are the answers.

    Raises:
        ConfigError: There is none of this name.
    """
    if source.postprocess is not None and source.postprocess not in POSTPROCESSES:
        raise ConfigError(
            f"model: postprocess {source.postprocess!r} is unknown; choose from {', '.join(POSTPROCESSES)}"
        )
    return POSTPROCESSES[source.postprocess] if source.postprocess is not None else None


def _with_weights(source: ModelSource, examples: TaskExamples, *, data_folder: Path, cache: Path) -> nn.Module:
    if source.architecture == TFLITE:
        return import_tflite(_checked(data_folder / source.weights, source.sha256))
    module = new_module(source.architecture)
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


def new_module(name: str) -> nn.Module:
    """A network with new weights, drawn by torch's seed.

    Raises:
        ConfigError: No such architecture.
    """
    if ":" in name:
        return _of_user(name)
    from perfguard.tasks.child.networks import ARCHITECTURES

    if name not in ARCHITECTURES:
        raise ConfigError(
            f"model: architecture {name!r} is unknown; choose from {', '.join(sorted(ARCHITECTURES))}, or "
            "give module:function"
        )
    return ARCHITECTURES[name]()


def _of_user(name: str) -> nn.Module:
    module_name, _, function_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"model: architecture {name!r} cannot be imported: {error}") from error

    module = found()
    if not isinstance(module, nn.Module):
        raise ConfigError(f"model: {name} returned {type(module).__name__}, not an nn.Module")
    return module


def _train_cached(module: nn.Module, name: str, examples: TaskExamples, cache: Path) -> None:
    model, split = trainable(module, name, examples)
    parts = (name, digest_of(name, module), sha256_of(split), torch.__version__)
    key = hashlib.sha256("\0".join(parts).encode())
    path = cache / f"weights-{name.replace(':', '-')}-{key.hexdigest()[:16]}.pt"
    if path.is_file():
        module.load_state_dict(torch.load(path, weights_only=True))
        return
    module.train()
    optimizer = model.make_optimizer()
    for _ in range(_EPOCHS):
        train_epoch(model, model.loss, optimizer, split, stepped=lambda: None)
    cache.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    torch.save(module.state_dict(), temporary)
    temporary.replace(path)


def _checked(path: Path, sha256: str | None) -> Path:
    """The file of weights, which is what the task wants."""
    if not path.is_file():
        raise UsageError(
            f"the weights {path} are missing; put them there (docs/tasks.md says how), get them with `perfguard task "
            "fetch` if the task has some, or measure speed alone with --seeded"
        )
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 is not None and found != sha256:
        raise UsageError(f"{path} has the SHA-256 {found}, the task wants {sha256}; get the file again")
    return path


def _read_weights(module: nn.Module, path: Path, sha256: str | None) -> None:
    _checked(path, sha256)
    try:
        state = torch.load(path, weights_only=True)
    except Exception as error:  # pickles of anything, archives that are cut off
        raise UsageError(
            f"{path} cannot be read as weights ({type(error).__name__}); give a file of torch.save(model.state_dict())"
        ) from error
    try:
        module.load_state_dict(state)
    except Exception as error:
        said = [line.strip() for line in str(error).splitlines()]
        raise UsageError(f"{path} does not fit the model: {' '.join(said[:2])}") from error
