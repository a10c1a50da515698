"""Which estimator of a block's effect errs least, on runs of a quiet and of a busy host (`make proof-estimators`).

Reads recorded runs whose arms were identical, so that every estimate is an error: the gates of this machine's
calibrations (quiet) and those of `make proof-gates` with a neighbour on half of a CPU (busy). Measures nothing. Writes
`docs/measurements/estimators-<machine_id>.md`.

The rule, stated before looking: another estimator takes the place of the gate's if, on the quiet *and* on the busy
host, its standard error is at most 0.9 times that of the gate's, with a 95 % limit below 1, and its t statistics are
not larger than the gate's by more than a tenth. Several that pass: the one with the smallest larger ratio. Errors
themselves are shown, too; of few runs they tell little.
"""

# ruff: noqa: T201
from __future__ import annotations

import math
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfguard.config import load_config
from perfguard.gate.paired.judging import policy_of
from perfguard.host.probe import probe
from perfguard.records.calibration import DECISION_RULE, LEAST_BLOCKS
from perfguard.records.estimate import Estimate
from perfguard.records.run_data import RunData
from perfguard.runner.run_folder import read_events
from perfguard.stats.paired import FloatArray, block_effect, estimate_paired, trimmed_mean
from perfguard.stats.voiding import void_blocks
from tests.proof.live_gates import PLACE, REPOSITORY, SUITES, calibration_of, read_rows

RESAMPLES = 2_000
MOST = 0.9
LEVEL = 0.95


class Block(Struct, frozen=True):
    """One case in one block: seconds of an iteration, shape `(samples,)`, in pairs."""

    baseline_s: FloatArray
    candidate_s: FloatArray
    baseline_cpu_s: FloatArray
    candidate_cpu_s: FloatArray

    @property
    def pairs(self) -> FloatArray:
        """Log-ratios of neighbouring samples."""
        return np.log(self.candidate_s / self.baseline_s)

    @property
    def cpu_pairs(self) -> FloatArray:
        """The same of CPU seconds."""
        return np.log(self.candidate_cpu_s / self.baseline_cpu_s)

    def by_arm(self, reduce: Callable[[FloatArray], float]) -> float:
        """Log-ratio of one number an arm."""
        return float(np.log(reduce(self.candidate_s) / reduce(self.baseline_s)))


def _lower_half(values: FloatArray) -> float:
    return float(np.sort(values)[: (values.size + 1) // 2].mean())


RULE = "mean of pairs, a fifth trimmed at each end (the gate's)"
ESTIMATORS: Mapping[str, Callable[[Block], float]] = {
    RULE: lambda block: trimmed_mean(block.pairs)[0],
    "median of pairs": lambda block: float(np.median(block.pairs)),
    "minimum of each arm": lambda block: block.by_arm(np.min),
    "lower half of each arm": lambda block: block.by_arm(_lower_half),
    "lower quartile of each arm": lambda block: block.by_arm(lambda values: float(np.quantile(values, 0.25))),
    "median of each arm": lambda block: block.by_arm(np.median),
    "CPU seconds": lambda block: trimmed_mean(block.cpu_pairs)[0],
    "wall and CPU seconds, half each": lambda block: trimmed_mean((block.pairs + block.cpu_pairs) / 2)[0],
}
NO_WEIGHTS = "the gate's, all blocks weighted alike"
Run = Mapping[str, Sequence[Block]]  # By case
Estimates = dict[str, Estimate]  # By case
Values = dict[str, list[list[float]]]  # By estimator, run and case


def main() -> None:
    """Read the runs, and write what they say."""
    machine = probe()
    runs = {"quiet": _quiet_runs(machine.machine_id), "busy": _busy_runs(machine.machine_id)}
    lines = [
        "# Estimators of a block's effect",
        "",
        f"Made by `make proof-estimators` on `{machine.machine_id}`, rule {DECISION_RULE}: the rule by which one is",
        "chosen, and the estimators, are in `tests/proof/block_estimators.py`. Identical arms: estimates are errors.",
        "Error: root mean square over runs and cases, in units of the case's standard error, over that of the gate's.",
        "Standard error: geometric mean over runs and cases of its ratio to the gate's.",
    ]
    for host, ids in runs.items():
        found = [read for read in map(_read, ids) if read]
        lines += ["", f"## {host.capitalize()} host: {len(found)} runs", "", *_table(found)]
    path = PLACE / f"estimators-{machine.machine_id}.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def _quiet_runs(machine_id: str) -> list[str]:
    found = (calibration_of(machine_id, suite) for suite in SUITES)
    return [gate.run_id for each in found if each for gate in each.gates]


def _busy_runs(machine_id: str) -> list[str]:
    return [row["run"] for row in read_rows(machine_id) if row["has_neighbour"] and "run" in row]


def _read(run_id: str) -> Run | None:
    """Blocks that count of each case that has enough for a verdict; None where the run's folder is gone."""
    folder = REPOSITORY / ".perfguard" / "runs" / run_id
    if not folder.is_dir():
        return None
    data = RunData.of(read_events(folder / "events.jsonl"))
    voided = void_blocks(data.paired().conditions, policy_of(load_config(REPOSITORY, os.environ, {}).config)).blocks
    cpu = {(each.case_id, each.block): each for each in data.signals() if each.signal == "cpu"}
    found: dict[str, list[Block]] = defaultdict(list)
    for entry in data.paired().samples:
        signal = cpu.get((entry.case_id, entry.block))
        if entry.block in voided or signal is None or None in (*signal.baseline, *signal.candidate):
            continue
        size = min(map(len, (entry.baseline_s, entry.candidate_s, signal.baseline, signal.candidate)))
        arms = (entry.baseline_s, entry.candidate_s, signal.baseline, signal.candidate)
        found[entry.case_id].append(Block(*(np.asarray(arm[:size], dtype=float) for arm in arms)))
    return {case: blocks for case, blocks in found.items() if len(blocks) >= LEAST_BLOCKS}


def _table(runs: Sequence[Run]) -> list[str]:
    """An estimator a row, the best first."""
    if not runs:
        return ["No run is here."]
    found = {name: [_estimates(run, name) for run in runs] for name in (*ESTIMATORS, NO_WEIGHTS)}
    draws = random.Random(0)
    samples = [draws.choices(range(len(runs)), k=len(runs)) for _ in range(RESAMPLES)]
    errors, t_values = _errors(found)
    rows = []
    for name, estimates in found.items():
        sizes = [_log_ratios(own, rule) for own, rule in zip(estimates, found[RULE], strict=True)]
        size, (_, largest), size_text = _interval(lambda chosen, own=sizes: math.exp(_mean(_at(own, chosen))), samples)
        own_errors = errors[name]
        _, _, error_text = _interval(
            lambda chosen, own=own_errors: _rms(_at(own, chosen)) / _rms(_at(errors[RULE], chosen)), samples
        )
        t_rms = _rms(t_values[name])
        passes = size <= MOST and largest < 1 and t_rms <= 1.1 * _rms(t_values[RULE])
        text = f"| {name} | {size_text} | {error_text} | {t_rms:.2f} | {'yes' if passes else 'no'} |"
        rows.append((size, text))
    head = "| estimator | standard error [95 %] | error [95 %] | t, root mean square | passes |"
    return [head, "|---|--:|--:|--:|---|", *(text for _, text in sorted(rows))]


def _interval(
    statistic: Callable[[Sequence[int]], float], samples: Sequence[Sequence[int]]
) -> tuple[float, tuple[float, float], str]:
    """A statistic of the runs, and its 95 % interval by drawing runs again."""
    value = statistic(range(len(samples[0])))
    low, high = np.quantile([statistic(chosen) for chosen in samples], (0.025, 0.975))
    return value, (float(low), float(high)), f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _at(values: Sequence[Sequence[float]], chosen: Sequence[int]) -> list[Sequence[float]]:
    return [values[run] for run in chosen]


def _mean(values: Sequence[Sequence[float]]) -> float:
    return statistics.fmean(value for run in values for value in run)


def _log_ratios(estimates: Estimates, of_rule: Estimates) -> list[float]:
    """Log-ratios of standard errors, by case."""
    return [math.log(estimates[case].standard_error / of_rule[case].standard_error) for case in estimates]


def _errors(found: Mapping[str, Sequence[Estimates]]) -> tuple[Values, Values]:
    """Estimates in units of the case's standard error by the gate's estimator, and t statistics."""
    by_case: dict[str, list[float]] = defaultdict(list)
    for run in found[RULE]:
        for case, estimate in run.items():
            by_case[case].append(estimate.standard_error)
    unit = {case: statistics.median(own) for case, own in by_case.items()}
    errors = {
        name: [[estimate.log_ratio / unit[case] for case, estimate in run.items()] for run in own]
        for name, own in found.items()
    }
    t_values = {
        name: [[estimate.log_ratio / estimate.standard_error for estimate in run.values()] for run in own]
        for name, own in found.items()
    }
    return errors, t_values


def _estimates(run: Run, name: str) -> Estimates:
    """What the gate would say of each case with this estimator of a block; weights are the gate's."""
    estimator, found = ESTIMATORS.get(name, ESTIMATORS[RULE]), {}
    for case, blocks in run.items():
        weights = [block_effect(tuple(block.baseline_s), tuple(block.candidate_s)).variance for block in blocks]
        values = [estimator(block) for block in blocks]
        found[case] = estimate_paired(values, LEVEL, None if name == NO_WEIGHTS else weights)
    return found


def _rms(values: Sequence[Sequence[float]]) -> float:
    return math.sqrt(statistics.fmean(value**2 for run in values for value in run))


if __name__ == "__main__":
    main()
