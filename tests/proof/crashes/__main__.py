"""Kill, suspend, and starve perfguard at random moments, and look at what is kept and what is left.

`make proof-crashes`: half an hour; other programs may run. Two small projects take turns at: kills of a gate, of one of
its processes, of `baseline update`, and of `show`, `report` and `watch`; a disk that is full from some write on; a wall
clock that jumps by a day; processes that are stopped for a while. After each fault:

- a command that lives ends with a documented exit code, and prints no traceback;
- every block that was in the events before the fault is found by `show`;
- a stored baseline is the one from before or a whole new one;
- once the next run has ended there is no process, worktree, folder of an arm, lock or shared memory left.

Prints a Markdown table; `-o FILE` writes it as well. Ends with 1 where anything was lost or left.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from perfguard.errors import ExitCode
from perfguard.host.identity import machine_line
from perfguard.host.probe import probe
from tests.conftest import Project, fill, project_in
from tests.tiny_projects import UPDATE, baseline_of, wait_for

CODES = {int(code) for code in ExitCode}
GATE = ("compare", "--measure-anyway", "--max-blocks", "3", "--samples", "2", "--no-progress", "--format", "json")
STORED = ("gate", "--baseline", "stored", "--max-blocks", "3", "--samples", "2", "--no-progress", "--format", "json")
_RESULTS = 150  # Last writes of a command, after the bundles of its arms: half of the faults happen there
READERS = (("show",), ("report", "-o", "report.html"), ("watch",), ("baseline", "show"))
SOURCE = Path(__file__).with_name("faults.c")


@dataclass
class Found:
    """Faults by kind, and what was wrong afterwards."""

    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Bench:
    """A project that faults happen to."""

    def __init__(self, place: Path, library: Path, seed: int) -> None:
        self.project: Project = project_in(place)
        self.project.path.mkdir(parents=True)
        fill(self.project)
        self.library, self.draw, self.found = library, random.Random(seed), Found()
        self.durations_s: dict[tuple[str, ...], float] = {}
        self._finish(UPDATE)
        self.project.commit("baseline")
        for command in (GATE, STORED, UPDATE):
            self._finish(command)
        self.project.git("checkout", "-q", "--", "baselines")

    def _finish(self, command: tuple[str, ...], **variables: str) -> tuple[int, str]:
        began = time.monotonic()
        done = self.project.run(*command, **variables)
        self.durations_s.setdefault(command, time.monotonic() - began)
        return done.returncode, done.stderr

    def _start(self, command: tuple[str, ...]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "perfguard", *command],
            cwd=self.project.path,
            env=self.project.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _wrong(self, kind: str, what: str) -> None:
        self.found.wrong.append(f"{kind}: {what}")

    def _ended(self, kind: str, code: int, stderr: str) -> None:
        if code not in CODES:
            self._wrong(kind, f"exit code {code}: {stderr[-300:]}")
        if "Traceback" in stderr or "internal error" in stderr:
            self._wrong(kind, stderr[-600:])

    def kill(self, command: tuple[str, ...], kind: str) -> None:
        """Kill the command, at any moment of its life."""
        stored = self._stored()
        process = self._start(command)
        time.sleep(self.draw.uniform(0.0, self.durations_s[command]))
        seen = self._blocks()
        process.kill()
        process.communicate()
        self._look(kind, seen, stored)

    def kill_worker(self, kind: str) -> None:
        """Kill one of the processes that a gate has started, and let it go on."""
        stored = self._stored()
        process = self._start(GATE)
        time.sleep(self.draw.uniform(0.3, self.durations_s[GATE]))
        started = _children(process.pid)
        if started:
            _signal(self.draw.choice(started), signal.SIGKILL)
        self._finish_and_look(process, kind, stored)

    def kill_reader(self, kind: str) -> None:
        """Kill a reader while a gate goes on, which it must not disturb."""
        stored = self._stored()
        process = self._start(GATE)
        wait_for(lambda: bool(self._blocks()) or process.poll() is not None)
        reader = self._start(self.draw.choice(READERS))
        time.sleep(self.draw.uniform(0.0, 1.5))
        reader.kill()
        reader.communicate()
        self._finish_and_look(process, kind, stored)

    def suspend(self, kind: str) -> None:
        """Stop the gate or one of its processes for some seconds."""
        stored = self._stored()
        process = self._start(GATE)
        time.sleep(self.draw.uniform(0.3, self.durations_s[GATE]))
        chosen = self.draw.choice([process.pid, *_children(process.pid)])
        _signal(chosen, signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.5, 4.0))
        _signal(chosen, signal.SIGCONT)
        self._finish_and_look(process, kind, stored)

    def jump(self, kind: str) -> None:
        """Have the wall clock jump by a day, either way."""
        stored = self._stored()
        code, stderr = self._finish(
            self.draw.choice([GATE, STORED]),
            LD_PRELOAD=str(self.library),
            FAULT_JUMP_S=self.draw.choice(["86400", "-86400"]),
            FAULT_JUMP_AFTER=str(self.draw.randrange(400)),
        )
        self._ended(kind, code, stderr)
        self._look(kind, self._blocks(), stored)

    def fill_disk(self, command: tuple[str, ...], write: int, kind: str) -> None:
        """Have every write of a command to the project fail from one on."""
        stored = self._stored()
        code, stderr = self._finish(
            command, LD_PRELOAD=str(self.library), FAULT_FOLDER=str(self.project.path), FAULT_WRITE=str(write)
        )
        self._ended(kind, code, stderr)
        if code == 0:
            self._wrong(kind, f"write {write} of {command[0]} failed, and it ended with 0")
        self._look(kind, self._blocks(), stored)

    def writes(self, command: tuple[str, ...]) -> int:
        """How often a command writes to the project."""
        counted = self.project.path.parent / "count"
        self._finish(
            command, LD_PRELOAD=str(self.library), FAULT_FOLDER=str(self.project.path), FAULT_COUNT=str(counted)
        )
        return max(int(file.read_text()) for file in counted.parent.glob(f"{counted.name}.*"))

    def _finish_and_look(self, process: subprocess.Popen[str], kind: str, stored: dict[str, bytes]) -> None:
        stderr = process.communicate()[1]
        self._ended(kind, process.returncode, stderr)
        self._look(kind, self._blocks(), stored)

    def _blocks(self) -> list[int]:
        """Blocks that the events of the latest run call finished."""
        runs = self.project.path / ".perfguard" / "runs"
        if not runs.is_dir() or not any(runs.iterdir()):
            return []
        events = self.project.latest_run() / "events.jsonl"
        lines = events.read_bytes().splitlines() if events.exists() else []
        found = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("event") == "block_finished":
                found.append(event["block"])
        return found

    def _stored(self) -> dict[str, bytes]:
        place = baseline_of(self.project)
        return {str(file): file.read_bytes() for file in sorted(place.rglob("*")) if file.is_file()}

    def _look(self, kind: str, seen: list[int], stored: dict[str, bytes]) -> None:
        self.found.faults[kind] += 1
        if not wait_for(lambda: not self.project.workers(), seconds=20):
            self._wrong(kind, f"left running: {[process.cmdline()[:6] for process in self.project.workers()]}")
            for process in self.project.workers():
                process.kill()
        if not set(seen) <= set(self._blocks()):
            self._wrong(kind, f"blocks {seen} were finished, {self._blocks()} are found")
        if self._stored() != stored:
            shown = self.project.run("baseline", "show")
            if shown.returncode != 0:
                self._wrong(kind, f"the baseline is broken: {shown.stderr[-300:]}")
            self.project.git("checkout", "-q", "--", "baselines")
        if seen:
            shown = self.project.run("show", "--format", "json")
            self._ended(f"{kind}, then show", shown.returncode, shown.stderr)
            result = json.loads(shown.stdout) if shown.stdout else {}
            # A gate against a stored baseline also has rounds and blocks of other stages.
            total = result.get("gate", {}).get("blocks_total", 0) if result.get("command") == "compare" else len(seen)
            if not result or total < len(seen):
                self._wrong(kind, f"{len(seen)} blocks were finished, show judges {total}: {shown.stderr[-200:]}")
        self._look_after_the_next(kind)

    def _look_after_the_next(self, kind: str) -> None:
        again = self.project.run(*GATE, "--max-blocks", "1", "-c", "tiny.sum")
        if again.returncode not in (0, 1, 3) or "another perfguard" in again.stderr:
            self._wrong(kind, f"the next run ended with {again.returncode}: {again.stderr[-300:]}")
        left = [*(self.project.path / ".perfguard" / "runs").glob("*/arms*/"), *Path("/dev/shm").glob("perfguard*")]
        left += [Path(line) for line in self.project.git("worktree", "list").splitlines()[1:]]
        if left:
            self._wrong(kind, f"left behind: {sorted(map(str, left))[:5]}")


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def trials(bench: Bench, kills: int, disk: int) -> Iterator[Callable[[], None]]:
    """All faults of one project, in an order of their own."""
    each = kills // 4
    faults: list[Callable[[], None]] = []
    for _ in range(each):
        faults.append(lambda: bench.kill(bench.draw.choice([GATE, STORED]), "kill of a gate"))
        faults.append(lambda: bench.kill_worker("kill of a gate's process"))
        faults.append(lambda: bench.kill(UPDATE, "kill of `baseline update`"))
        faults.append(lambda: bench.kill_reader("kill of a reader"))
    for _ in range(max(1, each // 5)):
        faults.append(lambda: bench.suspend("a process stopped for seconds"))
        faults.append(lambda: bench.jump("a wall clock that jumps"))
    for command in (GATE, UPDATE):
        writes = bench.writes(command)
        early, late = range(1, max(2, writes - _RESULTS)), range(max(1, writes - _RESULTS), writes + 1)
        for number in range(disk):
            write = bench.draw.choice(early if number % 2 else late)
            kind = f"a full disk under `{' '.join(command[: 1 if command is GATE else 2])}`"
            faults.append(lambda command=command, write=write, kind=kind: bench.fill_disk(command, write, kind))
    bench.draw.shuffle(faults)
    yield from faults


def work(place: Path, library: Path, seed: int, kills: int, disk: int) -> Found:
    """All faults of one project."""
    bench = Bench(place, library, seed)
    for number, fault in enumerate(trials(bench, kills, disk)):
        fault()
        print(f"{place.name} {number + 1}: {len(bench.found.wrong)} wrong", file=sys.stderr, flush=True)
    return bench.found


def table(found: Found, seconds: float) -> str:
    """The result in Markdown."""
    lines = [f"{machine_line(probe())}; {seconds / 60:.0f} minutes.", "", "| fault | times | lost, left, or not said |",
             "|---|--:|--:|"]  # fmt: skip
    for kind, times in sorted(found.faults.items()):
        lines.append(f"| {kind} | {times} | {sum(entry.startswith(kind) for entry in found.wrong)} |")
    return "\n".join([*lines, "", *(f"- {entry}" for entry in found.wrong)]).rstrip() + "\n"


def main() -> int:
    """Run all faults, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--disk", type=int, default=60, help="writes of each command that fail in turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crashes") as folder:
        library = Path(folder) / "faults.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
        with ThreadPoolExecutor(2) as pool:
            jobs = [
                pool.submit(work, Path(folder) / name, library, asked.seed + number, asked.kills // 2, asked.disk // 2)
                for number, name in enumerate(("first", "second"))
            ]
            found = Found()
            for job in jobs:
                found.faults.update(job.result().faults)
                found.wrong += job.result().wrong
    text = table(found, time.monotonic() - began)
    print(text)
    if asked.output is not None:
        asked.output.write_text(text, encoding="utf-8")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
