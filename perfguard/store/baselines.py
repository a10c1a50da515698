"""Stored baselines: `baselines/<machine_id>/<suite>/`, in git, reviewable in a pull request.

```
timings.json      pyperf's own format: one run for each round      noise.json   spread of each case, one value a line
fingerprint.json  the machine                                      info.json    where it comes from, how it was measured
```
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from perfguard.codec import from_builtins, to_json
from perfguard.errors import StoreError, UsageError
from perfguard.recordings import upgraded
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.record import BASELINE_SCHEMA, BaselineInfo, CaseNoise, StoredBaseline
from perfguard.records.run import Round
from perfguard.store.files import parse_json, write_text
from perfguard.store.pyperf_files import REMEDY, read_suite, suite_from_runs, write_suite

T = TypeVar("T")

CONTROL_KEY = "perfguard_canary_s"
STARTED_KEY = "perfguard_started_at"
SEED_KEY = "perfguard_data_seed"
CHECK_PREFIX = "perfguard_check_"  # Before the name of each number that the round computed; older baselines hold none


def metadata_of(entry: Round) -> dict[str, Any]:
    """What a round's pyperf run carries beside its values, so that `load` gives the round back."""
    metadata: dict[str, Any] = {
        CONTROL_KEY: sorted(entry.control_s)[len(entry.control_s) // 2] if entry.control_s else 0.0,
        STARTED_KEY: round(entry.started_at, 3),
    }
    if entry.data_seed is not None:
        metadata[SEED_KEY] = entry.data_seed
    return metadata | {CHECK_PREFIX + name: value for name, value in entry.checks.items()}


class BaselineStore(Struct, frozen=True):
    """The directory that baselines live in."""

    root: Path  # Usually `baselines` in the project

    def place(self, machine_id: str, suite: str) -> Path:
        """Directory of one baseline."""
        return self.root / machine_id / suite

    def exists(self, machine_id: str, suite: str) -> bool:
        """Whether anything is stored there."""
        return (self.place(machine_id, suite) / "info.json").exists()

    def stored(self) -> tuple[Path, ...]:
        """Directories of all baselines, sorted."""
        return tuple(sorted(info.parent for info in self.root.glob("*/*/info.json")))

    def load(self, place: Path) -> StoredBaseline:
        """Read one baseline. Raises StoreError: there is none, or a file is missing, corrupt, or of another schema."""
        if not any(place.glob("*.json")):
            raise StoreError(f"{place} holds no baseline; `perfguard baseline show` lists those that are stored")
        info = _read(place / "info.json", BaselineInfo)
        if info.schema != BASELINE_SCHEMA:
            raise StoreError(
                f"{place / 'info.json'} has schema {info.schema}, this perfguard reads {BASELINE_SCHEMA}; update "
                "perfguard, or record the baseline again with `perfguard baseline update`"
            )
        return StoredBaseline(
            info=info,
            fingerprint=_read(place / "fingerprint.json", Fingerprint),
            noise=_read(place / "noise.json", dict[str, CaseNoise]),
            rounds=_rounds_of(read_suite(place / "timings.json"), place / "timings.json"),
        )

    def save(self, baseline: StoredBaseline, runs: dict[str, list[Any]]) -> Path:
        """Write one baseline, or raise StoreError; `runs` are its pyperf runs by case id, with control workloads."""
        place = self.place(baseline.info.machine_id, baseline.info.suite)
        write_suite(suite_from_runs(runs), place / "timings.json", public=True)
        for name, value in (
            ("noise.json", baseline.noise),
            ("fingerprint.json", baseline.fingerprint),
            ("info.json", baseline.info),  # last: its presence says that the others are there
        ):
            write_text(place / name, to_json(value, indent=1) + "\n")
        return place


def _rounds_of(suite: Any, source: Path) -> dict[str, tuple[Round, ...]]:
    return {
        benchmark.get_name(): tuple(
            _round_of(run, f"{source}: {benchmark.get_name()}") for run in benchmark.get_runs() if run.values
        )
        for benchmark in suite.get_benchmarks()
    }


def _round_of(run: Any, source: str) -> Round:
    metadata = run.get_metadata()
    if CONTROL_KEY not in metadata:
        raise StoreError(
            f"{source} has a run without its control workload; it was not written by `perfguard baseline update`"
        )
    known = {
        "values_s": list(run.values),
        "control_s": [metadata[CONTROL_KEY]],
        "started_at": metadata.get(STARTED_KEY, 0.0),
        "data_seed": metadata.get(SEED_KEY),
        "checks": {k.removeprefix(CHECK_PREFIX): v for k, v in metadata.items() if k.startswith(CHECK_PREFIX)},
    }
    return from_builtins(known, Round, source=source)


def _read(path: Path, kind: type[T]) -> T:
    try:
        data = parse_json(path, if_corrupt=REMEDY)
    except FileNotFoundError:
        raise StoreError(f"{path} is missing; {REMEDY}") from None
    return from_builtins(upgraded(data, kind), kind, source=str(path))


ANCHOR = "anchor"  # Name of the folder, inside that of the baseline

FILES = ("timings.json", "noise.json", "fingerprint.json", "info.json")  # What a baseline consists of

OPTIONAL_FILES = ("census.json",)  # What a baseline has besides where it could be counted


def anchor_place(place: Path) -> Path:
    """Directory of the anchor that belongs to the baseline at `place`."""
    return place / ANCHOR


def has_anchor(place: Path) -> bool:
    """Whether the baseline at `place` has an anchor; a damaged one is one, too, and is said when it is read."""
    return os.path.lexists(anchor_place(place))


def files_of(place: Path) -> dict[str, bytes]:
    """The files of a stored baseline as they are. Raises StoreError: one is missing or cannot be read."""
    try:
        counted = [name for name in OPTIONAL_FILES if (place / name).is_file()]
        return {name: (place / name).read_bytes() for name in (*FILES, *counted)}
    except OSError as error:
        raise StoreError(f"{error.filename} cannot be read ({error.strerror}); {REMEDY}") from error


def freeze(files: Mapping[str, bytes], place: Path, *, replace: bool) -> Path:
    """Write an anchor beside the baseline at `place`, in one step; gives its directory.

    Raises:
        UsageError: There is one, and it is not to be replaced.
        StoreError: It cannot be written.
    """
    destination = anchor_place(place)
    if has_anchor(place) and not replace:
        raise UsageError(
            f"{destination} exists: an anchor is only worth something while it stays; use --replace to accept what "
            "has been added since, or --remove"
        )
    new, old = place / f".{ANCHOR}.{os.getpid()}.new", place / f".{ANCHOR}.{os.getpid()}.old"
    try:
        new.mkdir(parents=True)
        for name in (*FILES, *(name for name in OPTIONAL_FILES if name in files)):
            (new / name).write_bytes(files[name])
        if has_anchor(place):
            destination.rename(old)
        new.rename(destination)
    except OSError as error:
        raise StoreError(f"{destination} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if old.is_dir() and not destination.exists():
            old.rename(destination)
        shutil.rmtree(old, ignore_errors=True)
    return destination


def remove(place: Path) -> Path:
    """Remove the anchor of the baseline at `place`; gives its directory.

    Raises:
        StoreError: There is none, or it cannot be removed.
    """
    destination = anchor_place(place)
    if not has_anchor(place):
        raise StoreError(f"there is no anchor at {destination}")
    try:
        shutil.rmtree(destination)
    except OSError as error:
        raise StoreError(f"{destination} cannot be removed: {error.strerror or error}") from error
    return destination
