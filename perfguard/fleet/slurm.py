"""The Slurm engine: shards are tasks of array jobs on nodes of their own, and their results are files.

Nodes need no database. Whoever tends (`perfguard fleet tend`, on the login node) claims shards, writes the attempts
into a folder that all nodes share, and submits an array; later the same tender takes the results from there. A task is
known by the random name of its array and its index, never by Slurm's job id, which a restarted controller may give
twice.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perfguard.codec import from_builtins
from perfguard.errors import MeasurementError, RefusedDataError, StoreError, UsageError
from perfguard.fleet import overview, shards
from perfguard.fleet.canary import measure_canary
from perfguard.fleet.hosts import heed_canary, read_hosts, register
from perfguard.fleet.measuring import measure
from perfguard.fleet.schedules import submit_due
from perfguard.fleet.working import clones_of, host_name
from perfguard.history.database import Database
from perfguard.history.run_records import stored_json
from perfguard.host.probe import probe
from perfguard.plain_files import read_plain
from perfguard.records.fleet import Acceptance, Attempt, Delivery, Engine, Fitness
from perfguard.store.files import write_whole

T = TypeVar("T")

_PREFIX = "perfguard-"  # Of the names of arrays
_ATTEMPTS = "attempts.json"
_NAME = re.compile("[0-9a-f]{16}")  # What follows the prefix, and the name of the array's folder
_HELD = re.compile("JobHoldMaxRequeue|launch.*held")  # By Slurm itself, not by a user or an administrator
_MOST_BYTES = 2**28  # Of a file in the shared folder
_LARGEST_ARRAY = 1_000  # Tasks; Slurm's own default is 1,001
_GRACE_S = 180.0  # After a task has left Slurm's queue: its files may come late over a network
_ANSWERS_S = 60.0  # Of Slurm's commands
_LEAST_MINUTES = 10


def require_slurm() -> None:
    """Raises UsageError: Slurm's commands are not here."""
    for program in ("sbatch", "squeue"):
        if shutil.which(program) is None:
            raise UsageError(f"--engine slurm needs {program}, which is not on the path; run this on a login node")


def tend(database: Database) -> None:
    """Submit what is due, take results, find what was lost, and hand out what waits.

    Raises:
        MeasurementError: Slurm does not answer; nothing counts as lost then.
        DatabaseError: The database cannot be reached.
    """
    submit_due(database)
    folders = _folders(database)
    if not folders:
        return
    require_slurm()
    tasks = _listed()
    for task in tasks:
        if task.is_held:  # until somebody releases it; its shard gets another attempt instead
            _slurm("scancel", "--quiet", f"--name={_PREFIX}{task.array}", task.job)
    listed = {(task.array, task.index) for task in tasks if not task.is_held}
    shards.renew(database, [attempt.token for attempt in _known(folders, listed)], seconds=_GRACE_S)
    for folder in folders:
        _collect(database, folder)
    shards.expire(database, Engine.SLURM)
    _submit_waiting(database, folders)
    for folder in folders:
        _clear(folder, {name for name, _ in listed})


def _folders(database: Database) -> tuple[Path, ...]:
    """Shared folders of all submissions that have not ended."""
    found = overview.read_open(database, Engine.SLURM)
    return tuple(sorted({Path(each.work.shared_folder) for each in found}))


def _slurm(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWERS_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeasurementError(f"{command[0]} gives no answer: {error}") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise MeasurementError(f"{command[0]} fails: {said}")
    return done.stdout


class _Task(Struct, frozen=True):
    """A task that Slurm has."""

    array: str
    index: int
    job: str  # Slurm's number of the array and the index: `12_3`
    is_held: bool  # By Slurm, which could not launch it


def _listed() -> list[_Task]:
    """Each task of this user that Slurm still has."""
    found = []
    for line in _slurm("squeue", "--me", "--noheader", "--array", "--format=%i|%r|%j").splitlines():
        job, reason, name = line.strip().split("|", maxsplit=2)
        index, array = job.partition("_")[2], name.removeprefix(_PREFIX)
        if name.startswith(_PREFIX) and _NAME.fullmatch(array) and index.isdecimal():
            found.append(_Task(array, int(index), job, _HELD.fullmatch(reason) is not None))
    return found


def _known(folders: Iterable[Path], listed: set[tuple[str, int]]) -> list[Attempt]:
    """Attempts of the tasks that Slurm has."""
    found: list[Attempt] = []
    for folder in folders:
        for name in {name for name, _ in listed}:
            with contextlib.suppress(StoreError):
                attempts = read_attempts(folder / name)
                found.extend(attempt for index, attempt in enumerate(attempts) if (name, index) in listed)
    return found


def read_attempts(array: Path) -> tuple[Attempt, ...]:
    """The attempts of an array. Raises StoreError: they cannot be read."""
    return _read(array / _ATTEMPTS, tuple[Attempt, ...])


def _read(path: Path, kind: type[T]) -> T:
    """What a file in the shared folder holds: others may write there. Raises StoreError: it cannot be read."""
    content = read_plain(path, _MOST_BYTES)
    if content is None:
        raise StoreError(f"{path} is no plain file that can be read")
    try:
        return from_builtins(json.loads(content), kind, source=str(path))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _submit_waiting(database: Database, folders: Sequence[Path]) -> None:
    """An array for each folder, class and thousand of shards."""
    groups: dict[tuple[Path, str], list[int]] = {}
    of = {each.id: Path(each.work.shared_folder) for each in overview.read_open(database, Engine.SLURM)}
    for shard in overview.waiting(database, Engine.SLURM):
        if (folder := of.get(shard.submission_id)) in folders and folder is not None:
            groups.setdefault((folder, shard.machine_class), []).append(shard.id)
    unfit = _unfit_nodes(database)
    for (folder, machine_class), found in groups.items():
        for start in range(0, len(found), _LARGEST_ARRAY):
            piece = found[start : start + _LARGEST_ARRAY]
            claimed = (shards.claim(database, shard_id, None, first_lease_s=_GRACE_S) for shard_id in piece)
            attempts = [attempt for attempt in claimed if attempt is not None]
            if attempts:
                _submit(database, folder, machine_class, attempts, unfit)


def _unfit_nodes(database: Database) -> list[str]:
    """Nodes that get no shards; Slurm refuses names that it does not know, such as those of the queue's hosts."""
    unfit = {host.name for host in read_hosts(database) if host.fitness is not Fitness.FIT}
    if not unfit:
        return []
    nodes = _slurm("sinfo", "--noheader", "--Node", "--format=%N").split()
    return sorted(unfit.intersection(nodes))


def _submit(
    database: Database, folder: Path, machine_class: str, attempts: Sequence[Attempt], unfit: Sequence[str]
) -> None:
    """Submit an array; where Slurm refuses it, its shards wait again."""
    name = secrets.token_hex(8)
    array = folder / name
    try:
        array.mkdir(parents=True)
        write_whole(array / _ATTEMPTS, stored_json(attempts).encode())
        _slurm(*_command(name, array, machine_class, attempts, unfit))
    except (OSError, MeasurementError, StoreError):
        for attempt in attempts:
            shards.give_back(database, attempt)
        shutil.rmtree(array, ignore_errors=True)
        raise


def _command(
    name: str, array: Path, machine_class: str, attempts: Sequence[Attempt], unfit: Sequence[str]
) -> list[str]:
    """One node of the class for each task, alone; `-I`: the task starts in the shared folder.

    Slurm may start a task again where its node dies: it is measured again as a whole, and the first result counts.
    """
    task = "exec " + shlex.join([sys.executable, "-I", "-m", "perfguard", "fleet", "measure", str(array)])
    minutes = max(_LEAST_MINUTES, math.ceil(max(attempt.lease_s for attempt in attempts) / 60))
    return [
        "sbatch",
        "--parsable",
        f"--job-name={_PREFIX}{name}",
        f"--array=0-{len(attempts) - 1}",
        "--nodes=1",
        "--exclusive",
        f"--constraint={machine_class}",
        *([f"--exclude={','.join(unfit)}"] if unfit else []),
        f"--time={minutes}",
        "--requeue",
        f"--output={array}/%a-%N.log",
        f"--chdir={array}",
        f"--wrap={task} $SLURM_ARRAY_TASK_ID",
    ]


def measure_task(array: Path, index: int, environment: Mapping[str, str]) -> Delivery:
    """What a task does on its node: measure its attempt and leave the result beside it.

    Raises:
        StoreError: The attempt cannot be read, or the result not be written.
    """
    attempts = read_attempts(array)
    if not 0 <= index < len(attempts):
        raise StoreError(f"{array} has no attempt {index}")
    host, canary_s = host_name(), measure_canary()
    # Slurm binds steps that a job starts by itself; perfguard chooses CPUs among all that the job has.
    variables = {name: value for name, value in environment.items() if not name.startswith("SLURM_CPU_BIND")}
    found = measure(attempts[index], host=host, folder=clones_of(environment), environment=variables)
    if found.measured is not None and found.measured.fingerprint is None:
        found = replace(found, measured=replace(found.measured, fingerprint=probe()))
    found = replace(found, canary_s=canary_s)
    write_whole(array / f"{index}-{host}-{os.getpid()}.result", stored_json(found).encode())
    return found


def _collect(database: Database, folder: Path) -> None:
    """Deliver the results in a shared folder, and remove them once they are in the database."""
    for array in _arrays(folder):
        for path in sorted(array.glob("*.result")):
            try:
                found = _read(path, Delivery)
                if shards.deliver(database, found) is Acceptance.ACCEPTED:
                    _keep_host(database, found)
            except (StoreError, RefusedDataError):  # damaged: its lease ends, and it is measured again
                with contextlib.suppress(OSError):
                    path.rename(path.with_suffix(".damaged"))
            else:
                path.unlink(missing_ok=True)


def _arrays(folder: Path) -> list[Path]:
    """Folders of arrays in a shared folder."""
    return sorted(path for path in folder.glob("*/") if _NAME.fullmatch(path.name) and not path.is_symlink())


def _keep_host(database: Database, found: Delivery) -> None:
    """Register the node that measured, and what its canary said."""
    fingerprint = found.measured.fingerprint if found.measured else None
    if fingerprint is None or found.canary_s is None:
        return
    register(database, found.host, fingerprint, (fingerprint.machine_id,))
    heed_canary(database, found.host, found.canary_s)


def _clear(folder: Path, listed: set[str]) -> None:
    """Remove arrays that Slurm has no task of any more and whose results were taken."""
    for array in _arrays(folder):
        if array.name not in listed and not any(array.glob("*.result")) and _is_old(array / _ATTEMPTS):
            shutil.rmtree(array, ignore_errors=True)


def _is_old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > 7 * 86_400
    return False
