"""How much faster optimized recipes of training steps are, toggle by toggle, against the reference recipes.

`make proof-recipes` (`ARGS='--only RetinaNet --minutes 40'`) compares each recipe with its reference, and each toggle
on top of the ones before it, in paired blocks of fresh processes on one CPU; RetinaNet's whole recipe without BF16, too
(`ONEDNN_MAX_CPU_ISA=AVX512_CORE` in both arms). Then it projects RetinaNet's recipe (`perfguard profile --project`) and
trains it for 200 steps with five seeds beside the reference. A run goes on where the last one stopped: the journal is
`.perfguard/recipes/`. `docs/measurements/recipes-<machine_id>.md` gets the figures, and the package's
`profile/advice/gains.json` each toggle's gain, which advice quotes. About an hour; nothing else should run.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

from perfguard.host.probe import probe
from perfguard.records.machine.fingerprint import Fingerprint
from tests.changed_values import replace
from tests.proof.optimized_recipes import learning
from tests.proof.optimized_recipes.comparisons import REPOSITORY, Compared, Journal, arm, perfguard
from tests.proof.optimized_recipes.recipes import BF16, RECIPES, Recipe, target_of

CAP = "AVX512_CORE"  # Without BF16 and AMX
FOLDER = REPOSITORY / ".perfguard" / "recipes"
GAINS = REPOSITORY / "perfguard" / "profile" / "advice" / "gains.json"
BUDGET_S = 300.0  # Of one comparison


def main() -> int:
    """Measure what is missing, then write what is known."""
    parser = argparse.ArgumentParser(prog="make proof-recipes", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="recipes whose names begin so")
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing more after so many")
    options = parser.parse_args()
    fingerprint = probe()
    journal = Journal(FOLDER / f"{fingerprint.machine_id}.jsonl")
    until = time.monotonic() + 60 * options.minutes
    text = [f"# Optimized recipes on `{fingerprint.machine_id}`", ""]
    measured: list[Compared] = []
    is_reached = True
    for recipe, cap in _plans(fingerprint):
        if not recipe.name.startswith(options.only):
            continue
        rows = []
        for before, after in _pairs(recipe)[: 1 if cap else None]:  # with a cap the whole alone
            if time.monotonic() > until:
                return _later()
            rows.append(journal.compare(recipe.case_id, before, after, cap=cap, budget_s=BUDGET_S))
            print(f"{recipe.name}: {arm(before, cap)} against {arm(after, cap)}: {_times(rows[-1])}")
        measured += rows
        text += _waterfall(recipe, rows, cap)
        if recipe.name == RECIPES[0].name:
            target = target_of(fingerprint.isa, is_capped=bool(cap))
            is_reached &= rows[0].speedup >= target
            text += [f"Target: at least {target:g} times as fast.", ""]
    if time.monotonic() > until:
        return _later()
    if RECIPES[0].name.startswith(options.only):
        recipe, _ = _plans(fingerprint)[0]
        text += ["## Learning", "", *_learned(fingerprint), "", "## Projection", "", *_projected(recipe), ""]
    path = REPOSITORY / "docs" / "measurements" / f"recipes-{fingerprint.machine_id}.md"
    path.write_text("\n".join(text))
    _keep_gains(fingerprint, measured)
    print(f"written to {path.relative_to(REPOSITORY)} and {GAINS.relative_to(REPOSITORY)}")
    return 0 if is_reached else 1


def _later() -> int:
    print("time is over; run it again to go on")
    return 0


def _plans(fingerprint: Fingerprint) -> list[tuple[Recipe, str]]:
    """Recipes with the cap of both arms: all of them, and RetinaNet's without BF16."""
    capped = [replace(recipe, toggles=tuple(each for each in recipe.toggles if each != BF16)) for recipe in RECIPES]
    if not fingerprint.isa.bf16:
        return [(recipe, "") for recipe in capped]
    return [*((recipe, "") for recipe in RECIPES), (capped[0], CAP)]


def _pairs(recipe: Recipe) -> list[tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]]:
    """The whole recipe against the reference, then each toggle on top of those before it."""
    steps = [(recipe.prefix(count), recipe.prefix(count + 1)) for count in range(len(recipe.toggles))]
    return [((), recipe.toggles), *steps]


def _times(row: Compared) -> str:
    refused = "" if row.outcome != "different" else ", refused: it computes something else"
    return f"{row.speedup:.2f} [{row.lower:.2f}, {row.upper:.2f}]{refused}"


def _waterfall(recipe: Recipe, rows: Sequence[Compared], cap: str) -> list[str]:
    whole, *steps = rows
    where = f", `ONEDNN_MAX_CPU_ISA={cap}` in both arms" if cap else ""
    product = 1.0
    lines = [
        f"## {recipe.name}",
        "",
        f"`{recipe.case_id}`{where}, one CPU, torch {whole.torch}.",
        "",
        "| toggle, on top of those above | times as fast | step before, ms | after, ms | blocks |",
        "|---|--:|--:|--:|--:|",
    ]
    for (name, value), row in zip(recipe.toggles, steps, strict=False):
        product *= row.speedup
        lines.append(
            f"| `{name}={value}` | {_times(row)} | {row.before_s * 1e3:.1f} | {row.after_s * 1e3:.1f} | {row.blocks} |"
        )
    lines.append(
        f"| **all, against the reference** | **{_times(whole)}** | {whole.before_s * 1e3:.1f} | "
        f"{whole.after_s * 1e3:.1f} | {whole.blocks} |"
    )
    return [*lines, "", *([f"The product of the toggles is {product:.2f}.", ""] if steps else [])]


def _learned(fingerprint: Fingerprint) -> list[str]:
    reference, optimized = learning.curves(FOLDER / f"{fingerprint.machine_id}-learning.json")
    rows, inside, points = learning.table(reference, optimized)
    about = (
        f"{learning.STEPS} steps on new generated images each, {learning.SEEDS} seeds; mean loss of {learning.WINDOW} "
        "steps. The spread is the 95 % prediction interval for one more seed of the reference."
    )
    return [
        about,
        "",
        *rows,
        "",
        f"{inside} of {points} lie within the spread; {0.95 * points:.0f} are expected if both learn alike.",
    ]


def _projected(recipe: Recipe) -> list[str]:
    candidate = ("--candidate", arm(recipe.toggles, ""))
    result = perfguard("profile", recipe.case_id, *candidate, "--project", "--threads", "1")
    lines = []
    for case in result["cases"]:
        for kind in ("ops", "primitives"):
            found = (case.get("projection") or {}).get(kind)
            if found:
                kernel, step = (_percent(found[name]) for name in ("kernel_ratio", "framework_ratio"))
                covered = found["covered_s"] / found["step_s"]
                lines.append(
                    f"- against {kind} alone: replayed ones reach {kernel} of their speed alone, and the step takes "
                    f"{found['step_s'] * 1e3:.0f} ms, {step} of which is the projection; {covered:.0%} was replayed"
                )
    return lines or ["- not available"]


def _percent(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio:.1%}"


def _keep_gains(fingerprint: Fingerprint, rows: Sequence[Compared]) -> None:
    """Replace this machine's measurements of single toggles in the package's file."""
    known = json.loads(GAINS.read_text()) if GAINS.exists() else []
    mine = [
        {
            "toggle": f"{row.after[-1][0]}={row.after[-1][1]}",
            "on_top_of": [f"{name}={value}" for name, value in row.before],
            "case_id": row.case_id,
            "machine_id": fingerprint.machine_id,
            "torch": row.torch,
            "speedup": round(row.speedup, 4),
            "lower": round(row.lower, 4),
            "upper": round(row.upper, 4),
        }
        for row in rows
        if len(row.after) == len(row.before) + 1 and not row.cap and row.outcome != "different"
    ]
    others = [gain for gain in known if gain["machine_id"] != fingerprint.machine_id]
    GAINS.write_text(json.dumps([*others, *mine], indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
