"""The state of a run between two epochs, in one file: model, counters, batches."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import msgspec
import torch

from perfguard.errors import HostUnfitError, StoreError
from perfguard.hetero.coordinator import Snapshot


def write_checkpoint(path: Path, snapshot: Snapshot, state: dict[str, torch.Tensor]) -> None:
    """Replace the file as a whole.

    Raises:
        HostUnfitError: It cannot be written; the one before it is still there.
    """
    scratch = path.with_suffix(".new")
    try:
        torch.save({"snapshot": msgspec.to_builtins(snapshot), "model": state}, scratch)
        os.replace(scratch, path)  # noqa: PTH105 - the same by another name
    except (OSError, RuntimeError) as error:
        scratch.unlink(missing_ok=True)
        raise HostUnfitError(f"the checkpoint {path} cannot be written: {error}") from error


def read_checkpoint(path: Path) -> tuple[Snapshot, dict[str, torch.Tensor]]:
    """Snapshot and model.

    Raises:
        StoreError: There is no such file, or it holds something else.
    """
    if not path.is_file():
        raise StoreError(f"{path} is missing: the run ended before its first epoch; start it anew")
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
        return msgspec.convert(content["snapshot"], Snapshot), content["model"]
    except (
        RuntimeError,
        OSError,
        EOFError,
        KeyError,
        TypeError,
        pickle.UnpicklingError,
        msgspec.ValidationError,
    ) as error:
        raise StoreError(
            f"the {path.name} of that run is no checkpoint, or is damaged ({type(error).__name__}); go on from another "
            "run: perfguard hetero train --resume RUN"
        ) from error
