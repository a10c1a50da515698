"""Whether `perfguard tune` ends near the best of all combinations, in a small part of the time of a full grid.

`make proof-tune` (`ARGS='--toggles dtype,optimizer CASE …'`) tunes each case, then measures every combination of the
same toggles against the reference: in rounds, each of all cells in an order of its own, so that a drift of the host
meets all cells alike; each cell of a round is a paired run in fresh processes. At last tune's recipe is compared with
the grid's best cell in paired blocks. Cells that compute something else, or fail, cannot be the best.

A grid of hundreds of cells takes days. `--sample 40` measures as many of them, drawn at random, and every cell that
differs from tune's recipe in one toggle; the whole grid's time is then that of the measured cells, scaled to all.

Ends with 1 where a recipe is not shown to be within 10 % of the best cell, or tune took more than a fifth of the
grid's time. Prints a Markdown table; `-o FILE` writes it as well. It can be ended at any time and started again: every
finished run counts. Takes hours to days by the number of combinations; nothing else should run.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

from perfguard.config import LoadedConfig, load_config
from perfguard.records.plan import FOR_TRIALS
from perfguard.records.tuning import Purpose, Setting, Toggle, Trial, TrialOutcome, TrialVerdict, TriedTrial, Tuning
from perfguard.report.terminal.tuning import setting_text, trial_line
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.session import Request
from perfguard.runner.suites import load_catalog, selected_cases
from perfguard.tuning.case import CaseTarget, case_target
from perfguard.tuning.journal import Journal, open_journal
from perfguard.tuning.tune import tune
from perfguard.units import format_duration, format_effect
from tests.changed_values import replace

CASES = (
    "step.resnet50[image_size=64,batch=2,dtype=fp32,memory_format=contiguous,mode=eager]",
    "step.retinanet_resnext50[image_size=96,classes=91,batch=1,dtype=fp32,memory_format=contiguous,mode=eager]",
    "step.bert[layers=2,hidden=256,sequence=128,batch=4,dtype=fp32,mode=eager]",
    "step.lstm_lm[layers=2,hidden=256,sequence=32,batch=16,dtype=fp32,mode=eager]",
)
"""The paper's four kinds of models in their reference recipes."""
MOST_SLOWER, MOST_TIME = 0.10, 0.2  # Of the recipe against the best cell; of tune against the grid
_KEPT_IN = Path(".perfguard") / "proof-tune"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--toggles", default="", help="only these, in both tune and grid")
    parser.add_argument("--budget", type=float, default=1800.0, help="seconds of tune for each case")
    parser.add_argument("--sample", type=int, metavar="N", help="measure N random cells and the recipe's neighbours")
    parser.add_argument("--rounds", type=int, default=2, help="of the grid")
    parser.add_argument("--blocks", type=int, default=5, help="of a cell in a round")
    parser.add_argument("--cell-s", type=float, default=600.0, help="most seconds of a cell in a round")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    loaded = load_config(Path.cwd(), os.environ, {})
    rows, is_met = [], True
    for case_id in given.cases:
        row, met = _prove(loaded, case_id, given)
        rows.append(row)
        is_met = is_met and met
    head = (
        "case",
        "cells",
        "best cell",
        "tune",
        "tune / best",
        "95 % interval",
        "time of tune",
        "of the grid",
        "share",
    )
    table = "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
    print(table)
    if given.output is not None:
        given.output.write_text(table + "\n", encoding="utf-8")
    sys.exit(0 if is_met else 1)


def _prove(loaded: LoadedConfig, case_id: str, given: argparse.Namespace) -> tuple[Sequence[str], bool]:
    names = [name for name in given.toggles.split(",") if name]
    target = _target(loaded, case_id, names, given.budget)
    found = _tuned(target)
    grid = list(combinations(target.toggles))
    cells = grid if given.sample is None else sampled(grid, target.toggles, found.recipe, given.sample)
    rounds = [_round(_with_blocks(target, given.blocks), cells, number, given.cell_s) for number in range(given.rounds)]
    measured_s = sum(outcome.duration_s for outcomes in rounds for outcome in outcomes.values())
    grid_s = measured_s * len(grid) / len(cells)
    best = best_cell(rounds)
    share = found.measured_s / grid_s
    times = (format_duration(found.measured_s), format_duration(grid_s), f"{share:.0%}")
    if best == found.recipe:
        effect, interval, upper = format_effect(0.0), "the same", 0.0
    else:
        journal = open_journal(target.request.loaded.project / _KEPT_IN / "final", target.scope())
        final = _measured(target, journal, Trial(purpose=Purpose.FINAL, before=best, after=found.recipe), given.cell_s)
        upper = final.upper if final.upper is not None else math.inf
        interval = f"{format_effect(final.lower)} to {format_effect(final.upper)}"
        effect = format_effect(final.log_ratio)
    count = str(len(grid)) if len(cells) == len(grid) else f"{len(cells)} of {len(grid)}"
    row = (f"`{case_id}`", count, setting_text(best), setting_text(found.recipe), effect, interval, *times)
    return row, upper <= math.log1p(MOST_SLOWER) and share <= MOST_TIME


def _target(loaded: LoadedConfig, case_id: str, names: Sequence[str], budget_s: float) -> CaseTarget:
    catalog = load_catalog(loaded)
    (case,) = selected_cases(catalog, suite=loaded.config.suite, patterns=(case_id,))
    request = Request(
        command="tune",
        arguments=("tune", case_id),
        loaded=loaded,
        suite=case_id,
        cases=(case,),
        budget_s=budget_s,
        patterns=(case_id,),
        gate=FOR_TRIALS,
    )
    return case_target(request, parse_arm("dir:."), catalog.benchmarks, names)


def _tuned(target: CaseTarget) -> Tuning:
    found = tune(target, open_journal(target.journals, target.scope()), target.request.budget_s, on_trial=_show)
    if found.exit_code == 130:
        sys.exit(130)
    return found


def combinations(toggles: Sequence[Toggle]) -> Iterator[Setting]:
    """All settings but the reference."""
    axes = [(None, *toggle.values) for toggle in toggles]
    for values in itertools.product(*axes):
        cell = tuple((toggle.name, value) for toggle, value in zip(toggles, values, strict=True) if value is not None)
        if cell:
            yield tuple(sorted(cell))


def sampled(grid: Sequence[Setting], toggles: Sequence[Toggle], recipe: Setting, number: int) -> list[Setting]:
    """Cells drawn at random, the recipe, and all that differ from it in one toggle."""
    near = {recipe}
    for toggle in toggles:
        rest = tuple(pair for pair in recipe if pair[0] != toggle.name)
        near |= {rest, *(tuple(sorted((*rest, (toggle.name, value)))) for value in toggle.values)}
    drawn = set(random.Random(0).sample(list(grid), min(number, len(grid))))
    return [cell for cell in grid if cell in drawn | near]


def best_cell(rounds: Sequence[dict[Setting, TrialOutcome]]) -> Setting:
    """The cell with the lowest mean effect over the rounds; the reference where none is faster."""
    refused = (TrialVerdict.DIFFERENT, TrialVerdict.FAILED)
    effects: dict[Setting, float] = {(): 0.0}
    for cell in rounds[0]:
        outcomes = [outcomes[cell] for outcomes in rounds]
        known = [each.log_ratio for each in outcomes if each.log_ratio is not None and each.verdict not in refused]
        if len(known) == len(outcomes):
            effects[cell] = mean(known)
    return min(effects, key=lambda cell: effects[cell])


def _round(target: CaseTarget, cells: Sequence[Setting], number: int, cell_s: float) -> dict[Setting, TrialOutcome]:
    """Every cell against the reference once, in an order of this round's own."""
    journal = open_journal(target.request.loaded.project / _KEPT_IN / f"round-{number}", target.scope())
    order = random.Random(number).sample(list(cells), len(cells))
    return {
        cell: _measured(target, journal, Trial(purpose=Purpose.ADD, before=(), after=cell), cell_s) for cell in order
    }


def _with_blocks(target: CaseTarget, blocks: int) -> CaseTarget:
    loaded = target.request.loaded
    config = replace(loaded.config, max_blocks=min(blocks, loaded.config.max_blocks))
    return replace(target, request=replace(target.request, loaded=replace(loaded, config=config)))


def _measured(target: CaseTarget, journal: Journal, trial: Trial, budget_s: float) -> TrialOutcome:
    known = journal.known(trial, budget_s)
    if known is not None:
        return known.outcome
    tried = TriedTrial(trial=trial, outcome=target.measure(trial, budget_s), budget_s=budget_s)
    if tried.outcome.is_kept:
        journal.keep(tried)
    _show(tried)
    return tried.outcome


def _show(tried: TriedTrial) -> None:
    print(f"· {trial_line(tried)}", file=sys.stderr)


if __name__ == "__main__":
    main()
