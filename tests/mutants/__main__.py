"""Changes the deciding modules one place at a time, and says which changes no unit test notices.

`make mutants` goes through the rooms below; `make mutants ARGS=perfguard/stats/voiding.py` through one module. Each
change is tried against the tests under `tests/unit/` of its room and the property and integration tests that import it:
those that run the changed line. What is known is kept in `.mutants/`, so a run that was stopped goes on, and after a
change of tests only the survivors are tried again (`--fresh` forgets everything). `--share 0.2` tries a fifth of the
changes, the same ones in every run.

Ends with 1 where less than 90 % of a room's changes are noticed, or where `survivors.toml` does not list, with a
reason, exactly those that are not.

Why no mutation tool off the shelf: mutmut 3 changes strings, and nothing outside functions, where this project keeps
its limits; cosmic-ray rewrites the working tree and starts Python anew for each change, which takes ten times as long.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import ast
import functools
import gc
import hashlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.changes import Change, changes
from tests.mutants.trial import LinesOfTests, fails, lines_of_tests

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOMS = (
    "perfguard/stats",
    "perfguard/gate/rules",
    "perfguard/gate/calibration",
    "perfguard/profile/changes",
    "perfguard/integrations/github",
)
LEAST_SHARE = 0.9
KNOWN = Path(".mutants")
SURVIVORS = Path(__file__).with_name("survivors.toml")
SLOWEST_S = 5.0
"""Slower tests are left out: they simulate rates, or fill disks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What became of one module's changes."""

    module: Path
    noticed: int
    survivors: tuple[Change, ...]
    left_out: frozenset[str]
    """Names of the changes that a share left out."""

    @property
    def total(self) -> int:
        """All changes that were tried."""
        return self.noticed + len(self.survivors)


def main() -> int:
    """Try the modules, print the survivors."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", default=ROOMS, help="rooms or modules")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--share", type=float, default=1.0, help="try only this share of the changes: 0.2 for a fifth")
    options = parser.parse_args()
    _import_what_never_changes()
    listed = {name: set(found) for name, found in tomllib.loads(SURVIVORS.read_text()).items()}
    rooms = functools.cache(Room)
    good = True
    for path in map(Path, options.paths):
        scores = [
            try_module(module, rooms(module.parent), fresh=options.fresh, share=options.share)
            for module in _modules(path)
        ]
        noticed, total = sum(score.noticed for score in scores), sum(score.total for score in scores)
        sampled = f" (a sample: {options.share:.0%} of its changes)" if options.share < 1 else ""
        print(f"{path}: {noticed} of {total} noticed, {noticed / max(total, 1):.1%}{sampled}\n", flush=True)
        good &= noticed >= LEAST_SHARE * total
        for score in scores:
            good &= _is_listed(score, listed.get(str(score.module), set()))
    return 0 if good else 1


class Room:
    """A folder of modules with the tests that belong to them."""

    def __init__(self, folder: Path) -> None:
        self.files = tuple(_tests_of(folder))
        self.digest = _digest(self.files)
        self._folder = folder
        self._ran: LinesOfTests | None = None

    def tests_of(self, change: Change, module: Path) -> tuple[list[str], float]:
        """Tests that run the changed line, the fastest first, and the seconds that all of them take unchanged."""
        if self._ran is None:
            self._ran = lines_of_tests(sorted(self._folder.glob("*.py")), self.files)
        seconds, lines = self._ran.seconds, self._ran.lines[str(module)]
        quick = [test for test in lines if seconds[test] < SLOWEST_S]
        # What a cache keeps is run by the first test alone, and matters to others.
        is_anywhere = change.is_imported or "cache" in module.read_text()
        tests = [test for test in quick if is_anywhere or not lines[test].isdisjoint(change.lines)]
        return sorted(tests, key=seconds.__getitem__), sum(seconds[test] for test in tests)


def try_module(module: Path, room: Room, *, fresh: bool, share: float = 1.0) -> Score:
    """Try every change of one module, or a share of them."""
    kept = KNOWN / f"{'.'.join(module.with_suffix('').parts)}.json"
    digests = {"module": _digest([str(module)]), "tests": room.digest}
    known = {} if fresh else _read_known(kept, digests)
    found: dict[str, bool] = {}
    survivors: list[Change] = []
    left_out: set[str] = set()
    started = time.monotonic()
    for change in changes(module.read_text()):
        if not _is_in_sample(module, change, share):
            left_out.add(change.name)
            continue
        if change.name not in known:
            tests, seconds = room.tests_of(change, module)
            known[change.name] = bool(tests) and fails(module, change.tree, tests, limit_s=10 + 3 * seconds)
            _write_known(kept, digests, known)
        found[change.name] = known[change.name]
        if not found[change.name]:
            survivors.append(change)
    score = Score(module=module, noticed=sum(found.values()), survivors=tuple(survivors), left_out=frozenset(left_out))
    print(f"{score.noticed:5} of {score.total:4}  {time.monotonic() - started:6.0f} s  {module}", flush=True)
    return score


def _is_listed(score: Score, listed: set[str]) -> bool:
    names = {change.name for change in score.survivors}
    for change in score.survivors:
        if change.name not in listed:
            print(f"not listed: {score.module}:{change.lines.start}\n    {json.dumps(change.name)} = ''")
    gone = listed - names - score.left_out
    for name in sorted(gone):
        print(f"listed, but noticed or gone: {score.module}\n    {json.dumps(name)}")
    return names <= listed and not gone


def _is_in_sample(module: Path, change: Change, share: float) -> bool:
    """By the change's name, so that every run with this share tries the same changes."""
    return int(hashlib.sha256(f"{module} {change.name}".encode()).hexdigest()[:8], 16) < share * 16**8


def _modules(path: Path) -> list[Path]:
    return [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))


def _tests_of(folder: Path) -> Iterator[str]:
    home = Path("tests/unit", *folder.parts[1:])
    while not home.is_dir():  # a subroom's tests may lie with those of its room
        home = home.parent
    yield from map(str, sorted(home.glob("test_*.py")))
    package = ".".join(folder.parts)
    others = [*Path("tests/property").glob("test_*.py"), *Path("tests/integration", folder.name).glob("test_*.py")]
    for file in sorted(others):
        imported = {node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)}
        if any(name and name.startswith(package) for name in imported):
            yield str(file)


def _read_known(kept: Path, digests: dict[str, str]) -> dict[str, bool]:
    stored = json.loads(kept.read_text()) if kept.exists() else {}
    if stored.get("module") != digests["module"]:
        return {}
    same_tests = stored["tests"] == digests["tests"]
    return {name: noticed for name, noticed in stored["noticed"].items() if noticed or same_tests}


def _write_known(kept: Path, digests: dict[str, str], noticed: dict[str, bool]) -> None:
    kept.parent.mkdir(exist_ok=True)
    partial = kept.with_suffix(".part")
    partial.write_text(json.dumps({**digests, "noticed": noticed}, indent=0))
    partial.replace(kept)


def _digest(files: Sequence[str]) -> str:
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def _import_what_never_changes() -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a fork has the first thread alone
    sys.pycache_prefix = str(KNOWN.resolve() / "pycache")
    sys.dont_write_bytecode = False
    import click  # noqa: F401
    import jinja2  # noqa: F401
    import msgspec  # noqa: F401
    import numpy as np  # noqa: F401
    import psutil  # noqa: F401
    import rich.console  # noqa: F401
    import scipy.stats  # noqa: F401

    for plugin in importlib.metadata.entry_points(group="pytest11"):
        plugin.load()
    gc.collect()
    gc.freeze()  # else each fork searches all of this for garbage when pytest ends: half of its time


if __name__ == "__main__":
    sys.exit(main())
