"""Whether workers forked from one process measure as fresh processes do, and how much time they save.

`make proof-forks`: half an hour, nothing else running; what was measured before an interruption counts. Two identical
arms run the `pr` suite in blocks of two kinds, in turns: blocks whose workers come from a process of their own, and
groups of blocks whose workers are forked from the same one. Prints a Markdown table; `-o FILE` writes it as well. Ends
with 1 where blocks of one process are more alike than blocks of different ones, at the 1 % level over all cases.

The model: the log-ratio of a block is the sum of a part that its processes share and a part of its own. Analysis of
variance between and within groups: Searle, Casella, McCulloch, Variance Components (1992), chapter 3.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scipy.stats import f as f_distribution

from perfguard.config import load_config
from perfguard.host.identity import machine_line
from perfguard.host.probe import probe
from perfguard.records.plan import BlockPlan, Plan
from perfguard.records.run import Arm
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.blocks.measure import Measuring, measure_blocks, plan_block
from perfguard.runner.measuring import aside, calibrate, start_arms
from perfguard.runner.process.starting import ProcessStarter
from perfguard.runner.session import Request, Session, open_session
from perfguard.runner.suites import load_catalog, selected_cases
from perfguard.stats.paired import block_effect
from tests.changed_values import replace

REPOSITORY = Path(__file__).parents[2]
GROUP = 8  # Blocks of one process
_KINDS = ("own", "shared")
_BOTH = (Arm.BASELINE, Arm.CANDIDATE)


def plans(session: Session, kind: str, cases: int) -> Iterator[BlockPlan]:
    """The next group: a hash seed for each block, or one for all of them."""
    first = session.data.next_block
    for index in range(first, first + GROUP):
        plan = plan_block(cases, index=index, seed=session.settings.seed)
        draw = random.Random(f"{session.settings.seed}:{first if kind == 'shared' else index}")
        yield replace(plan, hash_seed=draw.randrange(1, 2**32))


def measure_group(session: Session, starter: ProcessStarter, plan: Plan, kind: str) -> list[dict[str, Any]]:
    """Measure a group; gives a row for each block and case."""
    known = session.data.next_block
    measuring = Measuring(
        starter=starter,
        emit=session.emit,
        should_stop=lambda: session.interrupts.asked,
        settings=replace(plan.settings, budget_s=1e9, max_blocks=GROUP),
        cpus=session.selection.cpus,
        arms=_BOTH,
    )
    with aside(session.selection):
        measure_blocks(plans(session, kind, len(plan.cases)), plan.cases, measuring)
    starter.close()
    found = session.data.paired()
    seconds = {each.block: each.duration_s for each in found.conditions}
    return [
        {
            "kind": kind,
            "group": f"{session.folder.run_id}:{known}",
            "block": each.block,
            "case": each.case_id,
            "log_ratio": block_effect(each.baseline_s, each.candidate_s).log_ratio,
            "median_s": statistics.median(each.baseline_s),
            "block_s": seconds[each.block],
        }
        for each in found.samples
        if each.block >= known
    ]


def measure(journal: Path, groups: int, suite: str) -> None:
    """Add groups of both kinds to the journal until it has enough."""
    loaded = load_config(REPOSITORY, os.environ, {"suite": suite})
    cases = selected_cases(load_catalog(loaded), suite=suite, patterns=())
    request = Request(
        command="compare",
        arguments=("compare",),
        loaded=loaded,
        suite=suite,
        cases=cases,
        budget_s=600.0,
        measure_anyway=True,
        progress=lambda _: None,
    )
    with open_session(request, mode="paired") as session:
        starter, arms = start_arms(session, {arm: parse_arm("dir:.") for arm in _BOTH})
        plan = calibrate(session, starter, arms)
        while (done := len(read(journal)) // (2 * GROUP * len(cases))) < groups and not session.interrupts.asked:
            for kind in random.Random(done).sample(_KINDS, 2):
                rows = measure_group(session, starter, plan, kind)
                with journal.open("a", encoding="utf-8") as out:
                    out.writelines(json.dumps(row) + "\n" for row in rows)
            print(f"{done + 1} of {groups}", file=sys.stderr, flush=True)


def read(journal: Path) -> list[dict[str, Any]]:
    """All rows."""
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()] if journal.exists() else []


def between_and_within(groups: list[list[float]]) -> tuple[float, float]:
    """Mean squares between groups, times their size, and within them."""
    size, means = len(groups[0]), [statistics.fmean(group) for group in groups]
    return size * statistics.variance(means), statistics.fmean(statistics.variance(group) for group in groups)


def summarise(rows: list[dict[str, Any]]) -> tuple[list[str], float]:
    """The table, and the p-value of blocks of one process being alike."""
    values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    medians: dict[tuple[str, str], list[float]] = defaultdict(list)
    block_s: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
    for row in rows:
        values[row["case"], row["kind"]][row["group"]].append(row["log_ratio"])
        medians[row["case"], row["kind"]].append(row["median_s"])
        block_s[row["kind"]][row["group"], row["block"]] = row["block_s"]
    head = ("SD of a block, own process", "SD, shared process", "their ratio", "between processes ÷ within")
    lines = [f"| case | {' | '.join(head)} | time, shared ÷ own |", "|---|--:|--:|--:|--:|--:|"]
    pooled, spreads, levels = [], [], []
    for case in dict.fromkeys(row["case"] for row in rows):
        groups = {kind: [group for group in values[case, kind].values() if len(group) == GROUP] for kind in _KINDS}
        own, shared = (math.sqrt(between_and_within(groups[kind])[1]) for kind in _KINDS)
        between, within = between_and_within(groups["shared"])
        pooled.append(between / within)
        spreads.append(shared / own)
        levels.append(statistics.median(medians[case, "shared"]) / statistics.median(medians[case, "own"]))
        lines.append(
            f"| `{case}` | {own:.2%} | {shared:.2%} | {spreads[-1]:.2f} | {pooled[-1]:.2f} | {levels[-1]:.3f} |"
        )
    number = len(groups["shared"])
    degrees = (len(pooled) * (number - 1), len(pooled) * number * (GROUP - 1))
    ratio = statistics.fmean(pooled)
    p_value = float(f_distribution.sf(ratio, *degrees))
    low, high = ((ratio / float(f_distribution.ppf(q, *degrees)) - 1) / GROUP for q in (0.975, 0.025))
    seconds = {kind: statistics.median(block_s[kind].values()) for kind in _KINDS}
    shared_variance = f"{(ratio - 1) / GROUP:.3f} [{low:.3f}, {high:.3f}]"
    spread, level = statistics.geometric_mean(spreads), statistics.geometric_mean(levels)
    gain = seconds["own"] / seconds["shared"]
    lines += ["", f"{number} groups of {GROUP} blocks of each kind. Over all cases:", ""]
    times = f"{seconds['shared']:.1f} s instead of {seconds['own']:.1f} s, without the start of the shared process"
    alike = f"share {shared_variance} of a block's own variance (0: as independent as others; p = {p_value:.3f})"
    lines.append(f"- Blocks of one process {alike}.")
    lines.append(f"- A block's SD is {spread:.3f} of that with own processes; times are {level:.4f} of theirs.")
    lines.append(f"- A block takes {times}: {gain:.2f} times the blocks, {gain / spread**2:.2f} times the information.")
    return lines, p_value


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make proof-forks", description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--suite", default="pr")
    parser.add_argument("--groups", type=int, default=10, help="groups of each kind")
    parser.add_argument("--summary", action="store_true", help="only print what was measured")
    given = parser.parse_args()
    journal = REPOSITORY / ".perfguard" / f"forks-{given.suite}.jsonl"
    journal.parent.mkdir(exist_ok=True)
    if not given.summary:
        measure(journal, given.groups, given.suite)
    host = probe()
    table, p_value = summarise(read(journal))
    lines = [
        f"Measured on {machine_line(host)} (`{host.machine_id}`), suite `{given.suite}`, identical arms.",
        "",
        *table,
    ]
    print("\n".join(lines))
    if given.output is not None:
        given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(0 if p_value >= 0.01 else 1)


if __name__ == "__main__":
    main()
