"""A tree of results on disk: perfguard's packages, and submissions to MLPerf Mobile.

Both are `{closed,open}/<organization>/results/<system>/<benchmark>/<Scenario>/…`, with times in `performance/run_1` or
`log_performance` and answers in `accuracy` or `log_accuracy`. A package has `package.json` in its root as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from perfguard.errors import StoreError, UsageError
from perfguard.plain_files import read_plain
from perfguard.records.task_results import CellRun, Package
from perfguard.records.tasks import Mode, Scenario
from perfguard.tasks.loadgen_logs import (
    ACCURACY,
    DETAIL,
    SUMMARY,
    DetailLog,
    LoggedAnswer,
    parse_answers,
    parse_detail,
    parse_summary,
)
from perfguard.tasks.packages import MANIFEST, ORGANIZATION, SCENARIO_FOLDERS

DIVISIONS = ("closed", "open")
SCENARIOS = {name: scenario for scenario, name in SCENARIO_FOLDERS.items()}
_MOST_BYTES = 2**30  # Of a log
_MODES = {
    "performance": Mode.PERFORMANCE,
    "log_performance": Mode.PERFORMANCE,
    "accuracy": Mode.ACCURACY,
    "log_accuracy": Mode.ACCURACY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """What LoadGen left of one measurement."""

    place: str  # Folder, relative to the tree
    system: str
    benchmark: str
    scenario: Scenario
    mode: Mode
    detail: DetailLog | None  # None where it is missing or unreadable; `problems` says which
    summary: Mapping[str, str]
    answers: tuple[LoggedAnswer, ...]
    files: frozenset[str]  # Names in the folder
    problems: tuple[str, ...] = ()  # What could not be read
    run: CellRun | None = None  # What the package says of it

    def value(self, key: str) -> object:
        """A value of the detail log; None where it has none."""
        return None if self.detail is None else self.detail.values.get(key)

    def number(self, key: str) -> float | None:
        """The same, where it is a number."""
        return None if self.detail is None else self.detail.number(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTree:
    """A tree of results."""

    root: Path
    package: Package | None  # None of a submission that perfguard did not make
    logs: tuple[Logs, ...]
    systems: frozenset[str]  # Systems that are described
    stray: tuple[str, ...] = field(default=())  # Files that change what LoadGen does

    def of_mode(self, mode: Mode) -> Iterator[Logs]:
        """Logs of one mode."""
        return (logs for logs in self.logs if logs.mode is mode)


def read_tree(root: Path) -> ResultTree:
    """All of a tree; what cannot be read is a problem of its logs.

    Raises:
        UsageError: There are no results.
        StoreError: The package's own file is corrupt.
    """
    package = _package(root)
    if package is None and any(root.glob(f"*/{ORGANIZATION}")):
        raise UsageError(f"{root} has no {MANIFEST}: its run was cut off before the end; run the task again")
    by_place = {run.logs: run for run in package.runs} if package is not None else {}
    folders = [
        folder
        for division in DIVISIONS
        for folder in sorted(root.glob(f"{division}/*/results/*/*/*"))
        if folder.is_dir() and folder.name in SCENARIOS
    ]
    logs = [
        _read(root, folder, scenario, mode, by_place) for scenario in folders for folder, mode in _measured(scenario)
    ]
    if not logs and package is not None:
        raise UsageError(f"{root} has no results: its run ended before a measurement was over; run the task again")
    if not logs:
        raise UsageError(
            f"{root} has no results; a tree has them in {{closed,open}}/ORGANIZATION/results/SYSTEM/BENCHMARK/"
            "{SingleStream,Offline,Server}"
        )
    systems = {path.stem for division in DIVISIONS for path in root.glob(f"{division}/*/systems/*.json")}
    stray = tuple(sorted(str(path.relative_to(root)) for path in root.rglob("audit.config")))
    return ResultTree(root=root, package=package, logs=tuple(logs), systems=frozenset(systems), stray=stray)


def _package(root: Path) -> Package | None:
    path = root / MANIFEST
    if not path.exists() and not path.is_symlink():
        return None
    if (content := read_plain(path, _MOST_BYTES)) is None:
        raise StoreError(f"{path} is no plain file that can be read; make the package again")
    try:
        return msgspec.json.decode(content, type=Package)  # refuses infinite numbers, unlike the standard library
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise StoreError(f"{path} is not the file of a package ({error}); make the package again") from error


def _measured(scenario: Path) -> Iterator[tuple[Path, Mode]]:
    """Folders with LoadGen's logs below a scenario."""
    for name, mode in _MODES.items():
        folder = scenario / name
        if not folder.is_dir():
            continue
        runs = sorted(each for each in folder.iterdir() if each.is_dir())
        yield from ((run, mode) for run in runs) if runs else [(folder, mode)]


def _read(root: Path, folder: Path, scenario: Path, mode: Mode, by_place: Mapping[str, CellRun]) -> Logs:
    problems: list[str] = []
    texts = {name: _text(folder / name, problems) for name in (DETAIL, SUMMARY, ACCURACY)}
    detail: DetailLog | None = None
    answers: tuple[LoggedAnswer, ...] = ()
    try:
        if (text := texts[DETAIL]) is not None:
            detail = parse_detail(text, source=DETAIL)
        if (text := texts[ACCURACY]) is not None and mode is Mode.ACCURACY:
            answers = parse_answers(text, source=ACCURACY)
    except StoreError as error:
        problems.append(str(error))
    place = str(folder.relative_to(root))
    return Logs(
        place=place,
        system=scenario.parent.parent.name,
        benchmark=scenario.parent.name,
        scenario=SCENARIOS[scenario.name],
        mode=mode,
        detail=detail,
        summary=parse_summary(texts[SUMMARY] or ""),
        answers=answers,
        files=frozenset(path.name for path in folder.iterdir()),
        problems=tuple(problems),
        run=by_place.get(place),
    )


def is_plain(path: Path) -> bool:
    """Whether it is a file that ends: no link, pipe or device, which could be read for ever."""
    return path.is_file() and not path.is_symlink()


def _text(path: Path, problems: list[str]) -> str | None:
    if not path.exists() and not path.is_symlink():
        return None
    if (content := read_plain(path, _MOST_BYTES)) is None:
        problems.append(f"{path.name} is no plain file that can be read, or larger than 1 GiB")
        return None
    return content.decode(errors="replace")
