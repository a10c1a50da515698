"""Pictures of every screen for the README and the documents: `python -m tests.tui_pictures`, or `make pictures`.

From recorded runs, with a clock that stands still: the same pictures until something looks otherwise.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", TEXTUAL_ANIMATIONS="none")
os.environ.pop("NO_COLOR", None)

from perfguard.host.checks import run_checks
from perfguard.records.history import History, HistoryPoint
from perfguard.records.machine.fingerprint import CheckResult
from perfguard.tui.app import PerfguardApp
from perfguard.tui.launch import TuiOptions
from perfguard.watch.sources.event_sources import ReplaySource, host_of
from perfguard.watch.view.watching import RunWatch
from tests.made_trainings import write_training
from tests.unit.tui.conftest import normalised

REPOSITORY = Path(__file__).parents[1]
RECORDING = REPOSITORY / "tests" / "data" / "runs" / "paired"
PICTURES = REPOSITORY / "docs" / "pictures"
SIZE = (120, 32)
SHOTS = {
    "live": (0.8, ()),
    "compare": (1.0, ("2")),
    "ops": (1.0, ("3")),
    "waterfall": (1.0, ("3", "f")),
    "history": (1.0, ("4")),
    "host": (1.0, ("5",)),
    "log": (1.0, ("6",)),
}
"""Part of the recording that was played, and keys that were pressed."""
FILM = ((0.12, ()), (0.3, ()), (0.5, ()), (0.7, ()), (1.0, ()), (1.0, ("3",)), (1.0, ("3", "f")))
"""The same for each picture of the film in the README: a gate that turns red, and its op."""
_FRAME_S = 2.5


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, (at, keys) in SHOTS.items():
        _write(name, asyncio.run(taken(RECORDING, at, keys)))
    _write("gate", film([asyncio.run(taken(RECORDING, at, keys)) for at, keys in FILM]))
    with tempfile.TemporaryDirectory() as folder:
        _write("training", asyncio.run(taken(write_training(Path(folder), epochs=14), 0.9, ())))


def film(pictures: Sequence[str]) -> str:
    """Pictures of one size as one that moves; the last one where a reader wants no motion."""
    box = re.search(r'viewBox="[^"]+"', pictures[0])[0]
    length_s = _FRAME_S * len(pictures)
    style = (
        f".frame {{ visibility: hidden; animation: show {length_s:g}s step-end infinite }}\n"
        f"@keyframes show {{ 0% {{ visibility: visible }} {100 / len(pictures):g}%, 100% {{ visibility: hidden }} }}\n"
        "@media (prefers-reduced-motion: reduce) { .frame { animation: none } .last { visibility: visible } }\n"
    )
    frames = [
        f'<g class="frame{" last" if number == len(pictures) - 1 else ""}" '
        f'style="animation-delay: {_FRAME_S * number:g}s">{picture.replace("terminal-", f"f{number}-")}</g>'
        for number, picture in enumerate(pictures)
    ]
    return f'<svg {box} xmlns="http://www.w3.org/2000/svg">\n<style>{style}</style>\n{"".join(frames)}</svg>\n'


def recorded_history(runs: int = 30) -> History:
    """The recording's cases over a month of nightly runs: a new torch makes one faster, the last commit slower."""
    draw = random.Random(3)
    medians_s = {"step.resnet[batch=8,dtype=bf16]": 41.1e-3, "kernel.linear": 421e-6, "kernel.optimizer": 1.103e-3}
    points = [
        HistoryPoint(
            run_id=f"run-{index}",
            t_wall=1_790_000_800 - 86400.0 * (runs - 1 - index),
            case_id=case_id,
            median_s=median_s
            * math.exp(draw.gauss(0, 0.003))
            * (1.03 if index < 12 and case_id.startswith("step") else 1.0)
            * (1.063 if index == runs - 1 and case_id.startswith("step") else 1.0),
            spread_ratio=0.004,
            source_id=f"tree-{index}",
            machine_id="example-4c-0123456789",
            stack_id="torch-2.12" if index < 12 else "torch-2.13",
            outcome="regressed" if index == runs - 1 and case_id.startswith("step") else None,
        )
        for index in range(runs)
        for case_id, median_s in medians_s.items()
    ]
    return History(points=tuple(points), baselines_s={"step.resnet[batch=8,dtype=bf16]": 41.12e-3})


def recorded_checks() -> tuple[CheckResult, ...]:
    """The doctor's rows for the recording's machine."""
    fingerprint = host_of(RECORDING)
    assert fingerprint is not None
    environment = {"OMP_NUM_THREADS": "3", "OMP_PROC_BIND": "true"}
    with tempfile.TemporaryDirectory() as folder:
        load = Path(folder) / "proc" / "loadavg"
        load.parent.mkdir()
        load.write_text("0.30 0.20 0.10 1/100 1000\n")
        return run_checks(fingerprint, environment=environment, threads=3, cpus=(1, 2, 3), root=Path(folder))


def _write(name: str, picture: str) -> None:
    (PICTURES / f"{name}.svg").write_text(picture, encoding="utf-8")


async def taken(recording: Path, at: float, keys: tuple[str, ...]) -> str:
    """One picture."""
    source = ReplaySource(recording, clock=lambda: 0.0)
    source.seek(source.length_s * at)
    options = TuiOptions(interval_s=1.0, read_history=recorded_history, read_checks=recorded_checks)
    app = PerfguardApp(RunWatch(source, clock=lambda: 0.0), options, clock=lambda: 0.0, cpu_clock=lambda: 0.0)
    async with app.run_test(size=SIZE) as pilot:
        app.tick()
        for key in ("", *keys):
            await pilot.press(*([key] if key else []))
            await app.workers.wait_for_complete()
            await pilot.pause()
        await pilot.pause()
        return normalised(app.export_screenshot(title="perfguard tui", simplify=True))


if __name__ == "__main__":
    main()
