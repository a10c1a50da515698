"""`make proof-change-points`: what the rule for change points finds and what it invents, beside other rules.

Writes docs/measurements/change-points.md. Ends with 1 where the product's rule misses a target. The labelled series are
read from `../shared/data/changepoints`, or from `--labelled`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from perfguard.host.probe import probe
from perfguard.stats.change_points import change_points
from tests.proof.change_points.detectors import DETECTORS
from tests.proof.change_points.scores import MARGIN, f1, labelled_f1, matched
from tests.proof.change_points.series import SETS, Series, drawn_sd, labelled, made, noise, stepped

REPOSITORY = Path(__file__).parents[3]
SEEDS = (101, 102, 103)
COUNT = 40  # Series of a set and seed
WITH_JUMPS = ("steps", "drift", "environments")
STEPS = 400
TARGETS = {"f1": 0.88, "flat": 0.2, "drifting": 0.5, "prompt": 0.95, "online": 1.0, "cpu_s": 0.3}


def scored(detect, seeds, count):
    """By set: F1, false points a thousand, and environment changes that were taken for code."""
    found = {}
    for name in SETS:
        hits = false = missed = points = blamed = environments = 0
        for each in (one for seed in seeds for one in made(name, seed, count)):
            places = detect(each)
            known, right = matched(each.jumps, places)
            hits, missed = hits + len(known), missed + len(each.jumps) - len(known)
            false, points = false + len(places) - len(right), points + len(each.values)
            borders = np.flatnonzero(np.diff(each.environments)) + 1
            environments += len(borders)
            blamed += len(matched(borders, [place for place in places if place not in right])[0])
        rates = {"f1": f1(hits, false, missed), "false": 1000 * false / points}
        found[name] = {**rates, "blamed": blamed, "environments": environments}
    return found


def promptness(detect, sds):
    """Part of the jumps of so many SDs that are found five points after them."""
    rng = np.random.default_rng([17, int(10 * sds)])
    trials = [stepped(rng, sds=sds) for _ in range(STEPS)]
    return sum(bool(matched(each.jumps, detect(each))[0]) for each in trials) / STEPS


def online_alarms(detect, series, points):
    """Alarms a thousand points of flat series that grow: places that were not near an earlier alarm."""
    rng = np.random.default_rng(18)
    alarms = 0
    for _ in range(series):
        logs, known = noise(rng, points, drawn_sd(rng)), []
        for end in range(10, points + 1):
            start = max(0, end - 200)
            for place in detect(Series.flat(logs[start:end])):
                if not any(abs(start + place - other) <= MARGIN for other in known):
                    known.append(start + place)
        alarms += len(known)
    return 1000 * alarms / (series * points)


def cpu_seconds():
    """For 10,000 points with 20 jumps."""
    rng = np.random.default_rng(19)
    logs = noise(rng, 10_000, 0.01) + np.repeat(rng.normal(0, 0.05, 20), 500)
    change_points(logs[:100])
    began = time.process_time()
    change_points(logs)
    return time.process_time() - began


def labelled_scores(folder, rules):
    """F1 on each labelled series, by rule."""
    found = {name: [] for name in rules}
    for values, marked in labelled(folder):
        smallest = values.min()
        series = Series.flat(np.log(values if smallest > 0 else values - smallest + np.ptp(values)))
        for name, detect in rules.items():
            found[name].append(labelled_f1(marked, detect(series)))
    return found


def main():
    """Measure, write, and compare with the targets."""
    parser = argparse.ArgumentParser(prog="make proof-change-points", description=__doc__.splitlines()[0])
    parser.add_argument("--labelled", type=Path, default=REPOSITORY.parent / "shared" / "data" / "changepoints")
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS, help="others write nothing")
    parser.add_argument("--only", nargs="*", choices=DETECTORS, default=list(DETECTORS), help="these rules; likewise")
    options = parser.parse_args()
    rules = {name: DETECTORS[name] for name in dict.fromkeys(("perfguard", *options.only))}
    tables = {name: scored(detect, options.seeds, COUNT) for name, detect in rules.items()}
    prompt = {name: promptness(detect, 5.0) for name, detect in rules.items()}
    online, took_s = online_alarms(DETECTORS["perfguard"], 30, 400), cpu_seconds()
    real = labelled_scores(options.labelled, rules) if options.labelled.is_dir() else {}
    own = tables["perfguard"]
    missed = [
        *(f"F1 of {name}" for name in WITH_JUMPS if own[name]["f1"] < TARGETS["f1"]),
        *(name for name in ("flat", "drifting") if own[name]["false"] > TARGETS[name]),
        *(["environments"] if own["environments"]["blamed"] else []),
        *(["promptness"] if prompt["perfguard"] < TARGETS["prompt"] else []),
        *(["alarms"] if online > TARGETS["online"] else []),
        *(["CPU time"] if took_s > TARGETS["cpu_s"] else []),
    ]
    text = (Path(__file__).parent / "report.md").read_text(encoding="utf-8").format(
        seeds=", ".join(map(str, options.seeds)), count=COUNT, machine=probe().machine_id, margin=MARGIN,
        rows="\n".join(row(name, tables[name], prompt[name], real.get(name)) for name in rules),
        online=online, took_s=took_s, labelled=len(next(iter(real.values()), ())), missed=", ".join(missed) or "none",
    )  # fmt: skip
    if tuple(options.seeds) == SEEDS and len(rules) == len(DETECTORS):
        (REPOSITORY / "docs" / "measurements" / "change-points.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    sys.exit(bool(missed))


def row(name, table, prompt, real):
    """A rule's row."""
    environments = table["environments"]
    cells = (
        name,
        *(f"{table[each]['f1']:.3f}" for each in WITH_JUMPS),
        f"{environments['blamed']} of {environments['environments']}",
        *(f"{table[each]['false']:.2f}" for each in ("flat", "drifting")),
        f"{prompt:.1%}",
        f"{np.mean(real):.3f}" if real else "-",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
