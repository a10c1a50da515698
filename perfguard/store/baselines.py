"""Stored baselines: `baselines/<machine_id>/<suite>/`, in git, reviewable in a pull request.

```
timings.json      pyperf's own format: one run for each round      noise.json   spread of each case, one value a line
fingerprint.json  the machine                                      info.json    where it comes from, how it was measured
```
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from perfguard.codec import from_builtins, to_json, upgraded
from perfguard.errors import StoreError
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.record import BASELINE_SCHEMA, BaselineInfo, CaseNoise, StoredBaseline
from perfguard.records.run import Round
from perfguard.store.files import write_text
from perfguard.store.pyperf_files import read_suite, suite_from_runs, write_suite

T = TypeVar("T")

CONTROL_KEY = "perfguard_canary_s"
STARTED_KEY = "perfguard_started_at"
SEED_KEY = "perfguard_data_seed"
CHECK_PREFIX = "perfguard_check_"
"""Before the name of each number that the round computed; older baselines hold none."""


def metadata_of(entry: Round) -> dict[str, Any]:
    """What a round's pyperf run carries beside its values, so that `load` gives the round back."""
    metadata: dict[str, Any] = {
        CONTROL_KEY: sorted(entry.control_s)[len(entry.control_s) // 2] if entry.control_s else 0.0,
        STARTED_KEY: round(entry.started_at, 3),
    }
    if entry.data_seed is not None:
        metadata[SEED_KEY] = entry.data_seed
    return metadata | {CHECK_PREFIX + name: value for name, value in entry.checks.items()}


@dataclass(frozen=True, slots=True)
class BaselineStore:
    """The directory that baselines live in."""

    root: Path
    """Usually `baselines` in the project."""

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
        """Read one baseline.

        Raises:
            StoreError: There is none, or a file is missing, corrupt, or of another schema.
        """
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
        """Write one baseline; `runs` are its pyperf runs by case id, each with its canary.

        Raises:
            StoreError: It cannot be written.
        """
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
    rounds: dict[str, tuple[Round, ...]] = {}
    for benchmark in suite.get_benchmarks():
        found = []
        for run in benchmark.get_runs():
            metadata = run.get_metadata()
            if not run.values:
                continue
            if CONTROL_KEY not in metadata:
                raise StoreError(
                    f"{source}: {benchmark.get_name()} has a run without its control workload; it was not written by "
                    "`perfguard baseline update`"
                )
            found.append(
                Round(
                    values_s=tuple(run.values),
                    control_s=(float(metadata[CONTROL_KEY]),),
                    started_at=float(metadata.get(STARTED_KEY, 0.0)),
                    data_seed=metadata.get(SEED_KEY),
                    checks={
                        name.removeprefix(CHECK_PREFIX): float(value)
                        for name, value in metadata.items()
                        if name.startswith(CHECK_PREFIX)
                    },
                )
            )
        rounds[benchmark.get_name()] = tuple(found)
    return rounds


def _read(path: Path, kind: type[T]) -> T:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{path} is missing; restore it from git, or run `perfguard baseline update`") from None
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path} is corrupt ({error}); restore it from git, or run `perfguard baseline update`"
        ) from error
    return from_builtins(upgraded(data, kind), kind, source=str(path))
