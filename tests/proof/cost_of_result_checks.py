"""What it costs to check results while cases are timed: at most 0.5 % of their samples' time.

`make proof-result-checks`: ten minutes, nothing else running. A gate of this repository's last commit against itself
measures a suite in paired blocks. In each block one sample of each case and arm gets new inputs, and its result is
compared (docs/security.md, "The work"). The cost is the time of the parent's calls beyond the timed stretch, of a
checked sample less that of the others, over the time of all samples of a block. Prints a Markdown table; `-o FILE`
writes it as well. Ends with 1 where the cases together cost more.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfguard.cli import main as perfguard
from perfguard.host.identity import machine_line
from perfguard.host.probe import probe
from perfguard.runner.process.arm_worker import ArmWorker

LIMIT = 0.005


@dataclass
class Spent:
    """Seconds of the samples of one case, by block and arm."""

    timed_s: dict[tuple[int, str], float] = field(default_factory=lambda: defaultdict(float))
    plain_s: list[float] = field(default_factory=list)  # Beyond the timed stretch
    checked_s: list[float] = field(default_factory=list)  # The same of samples whose result was checked

    @property
    def check_s(self) -> float:
        """What one check takes: the typical one, so that a disturbed sample does not count."""
        return statistics.median(self.checked_s) - statistics.median(self.plain_s)

    @property
    def ratio(self) -> float:
        """The cost over the time of all samples; an arm has one check in a block."""
        return self.check_s / statistics.median(self.timed_s.values())


@contextlib.contextmanager
def recorded() -> Iterator[dict[str, Spent]]:
    """What the cases of gates in this process spend, by case id."""
    spent: dict[str, Spent] = defaultdict(Spent)

    def wrapped(method: Callable[..., Any], *, is_checked: bool) -> Callable[..., Any]:
        @functools.wraps(method)
        def called(worker: ArmWorker, **given: Any) -> Any:
            began_s = time.monotonic()
            found = method(worker, **given)
            taken_s = time.monotonic() - began_s
            timed = found.timed if is_checked else found
            of = spent[given["case_id"]]
            stretch_s = timed.elapsed_s or timed.value_s * timed.iterations
            of.timed_s[given["block"], worker.arm.value] += stretch_s
            (of.checked_s if is_checked else of.plain_s).append(taken_s - stretch_s)
            return found

        return called

    kept = ArmWorker.sample, ArmWorker.checked_sample
    ArmWorker.sample = wrapped(kept[0], is_checked=False)  # type: ignore[method-assign]
    ArmWorker.checked_sample = wrapped(kept[1], is_checked=True)  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        ArmWorker.sample, ArmWorker.checked_sample = kept  # type: ignore[method-assign]


def page(spent: dict[str, Spent], *, suite: str, blocks: int) -> str:
    """The table."""
    machine = probe()
    how = f"Suite `{suite}`, {blocks} blocks, identical code. Rerun: `make proof-result-checks`."
    lines = [
        "# What it costs to check results while cases are timed",
        "",
        f"`{machine.machine_id}`: {machine_line(machine)}. {how}",
        "",
        "| case | samples of a block and arm | one check | cost |",
        "|---|---|---|---|",
        *(
            f"| {case_id} | {statistics.median(of.timed_s.values()) * 1e3:.0f} ms | {of.check_s * 1e3:.2f} ms "
            f"| {of.ratio:.2%} |"
            for case_id, of in spent.items()
        ),
        "",
        f"All cases together: {together(spent):.2%}; the limit is {LIMIT:.1%}.",
        "",
    ]
    return "\n".join(lines)


def together(spent: dict[str, Spent]) -> float:
    """Cost of all cases over the time of all their samples."""
    timed_s = sum(statistics.median(of.timed_s.values()) for of in spent.values())
    return sum(of.check_s for of in spent.values()) / timed_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.cost_of_result_checks", description=__doc__)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--suite", default="quick")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    command = ["compare", "--baseline", "git:HEAD", "--candidate", "git:HEAD", "--measure-anyway", "--no-ops", "-q",
               "--suite", options.suite, "--max-blocks", str(options.blocks), "--budget", "3600"]  # fmt: skip
    with recorded() as spent, contextlib.suppress(SystemExit):
        perfguard(command)
    if not spent:
        sys.exit("nothing was measured")
    text = page(spent, suite=options.suite, blocks=options.blocks)
    print(text)
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    sys.exit(together(spent) > LIMIT)


if __name__ == "__main__":
    main()
