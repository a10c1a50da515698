"""Counts every case of the catalogue twice: `python -m tests.proof.op_counts_of_catalogue [--minutes N]`.

Each case is written to a journal once two fresh workers have counted it; a run goes on where the last one stopped.
Nothing is left out, nothing is repeated. Times mean nothing here, so other work may run beside it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.host.probe import probe
from perfguard.records.spec import Case, expand
from perfguard.units import format_count
from tests.counted_cases import Counted, count_cases, differences, is_countable

REPOSITORY = Path(__file__).parents[3]
FOLDER = REPOSITORY / ".perfguard" / "census"
COMPILED = "mode=compile"


def main() -> None:
    """Count what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing more after so many")
    parser.add_argument("--only", choices=("eager", "compiled"), help="leave the others for later; compiled are slow")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    journal = FOLDER / f"{probe().machine_id}.jsonl"
    until = time.monotonic() + 60 * options.minutes
    for cases in groups():
        if options.only not in (None, "compiled" if cases and COMPILED in cases[0].id else "eager"):
            continue
        left = missing(cases, journal)
        while left and time.monotonic() < until:
            count_twice(left, journal)
            before, left = left, missing(cases, journal)
            if len(left) == len(before):  # a worker died before the first case was done
                note(journal, left[0], {"problem": "the worker ended without a word"})
                left = left[1:]
    write(rows_of(journal))


def groups() -> Iterator[list[Case]]:
    """Cases that share two workers: all eager ones of a benchmark; compiled ones, at last, each by itself."""
    cases = [[case for case in expand(spec) if is_countable(case)] for spec in BENCHMARKS]
    yield from ([case for case in found if COMPILED not in case.id] for found in cases)
    yield from ([case] for found in cases for case in found if COMPILED in case.id)


def missing(cases: Sequence[Case], journal: Path) -> list[Case]:
    """Those that the journal does not hold."""
    done = {row["case_id"] for row in rows_of(journal)}
    return [case for case in cases if case.id not in done]


def count_twice(cases: Sequence[Case], journal: Path) -> None:
    """Count cases in two fresh workers and write down those that both reached."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perfguard-census-") as scratch:
        first, second = (count_cases(cases, Path(scratch) / name) for name in ("first", "second"))
    seconds = (time.monotonic() - started) / len(cases)
    for case in cases:
        row = outcome(case, first, second)
        if row is not None:
            note(journal, case, {**row, "seconds": round(seconds, 2)})


def outcome(case: Case, first: Counted, second: Counted) -> dict[str, Any] | None:
    """What two workers say of a case; None where one did not reach it."""
    problem = first.problems.get(case.id) or second.problems.get(case.id)
    if problem is not None:
        return {"problem": problem}
    if case.id not in first.op_counts or case.id not in second.op_counts:
        return None
    before, after = first.op_counts[case.id], second.op_counts[case.id]
    return {
        "rows": len(before.rows),
        "counted": sum(row.count for row in before.rows),
        "differences": differences(before, after),
        "torch": before.torch,
        "isa_class": before.isa_class,
    }


def note(journal: Path, case: Case, row: dict[str, Any]) -> None:
    """Append a case to the journal."""
    line = {"case_id": case.id, "machine_id": probe().machine_id, **row}
    with journal.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{case.id}: {verdict(line)}", flush=True)  # noqa: T201


def verdict(row: dict[str, Any]) -> str:
    """`the same 112 rows`, or what is wrong."""
    if "problem" in row:
        return f"not counted: {row['problem']}"
    told = row["differences"]
    return f"differs: {'; '.join(told)}" if told else f"the same {format_count(row['rows'], 'row')}"


def rows_of(journal: Path) -> list[dict[str, Any]]:
    """The cases so far."""
    if not journal.exists():
        return []
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]


def write(rows: Sequence[dict[str, Any]]) -> None:
    """`docs/measurements/op counts-<machine_id>.{md,json}`."""
    if not rows:
        return
    machine_id = rows[0]["machine_id"]
    stem = REPOSITORY / "docs" / "measurements" / f"census-{machine_id}"
    stem.with_suffix(".json").write_text(json.dumps(list(rows), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    left = sum(len(expand(spec)) for spec in BENCHMARKS) - len(rows)
    counted = [row for row in rows if "problem" not in row]
    alike = sum(not row["differences"] for row in counted)
    known = next(iter(counted), {})
    stack = f"torch {known.get('torch')}, {known.get('isa_class')}"
    lines = [
        "# Whether two fresh workers count the same census",
        "",
        f"Made by `make proof-census` on `{machine_id}`, one CPU ({stack}).",
        "One steady step of each case in each of two processes; every row is compared, allocated bytes to the byte.",
        f"{alike} of {len(rows)} cases count the same; "
        + (f"{left} more are still to be counted." if left else "these are all."),
        "",
        "| benchmark | cases | the same | rows, fewest to most | largest count of a step |",
        "|---|--:|--:|--:|--:|",
        *table(rows),
    ]
    odd = [row for row in rows if row.get("problem") or row.get("differences")]
    if odd:
        lines += ["", "| case | |", "|---|---|", *(f"| `{row['case_id']}` | {verdict(row)} |" for row in odd)]
    stem.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A row for each benchmark, compiled cases apart."""
    by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        compiled = ", compiled" if COMPILED in row["case_id"] else ""
        by_name[row["case_id"].partition("[")[0] + compiled].append(row)
    for name, found in by_name.items():
        counted = [row for row in found if "problem" not in row]
        sizes = sorted(row["rows"] for row in counted) or [0]
        alike = sum(not row["differences"] for row in counted)
        most = max((row["counted"] for row in counted), default=0)
        yield f"| {name} | {len(found)} | {alike} | {sizes[0]} to {sizes[-1]} | {most:,} |"


if __name__ == "__main__":
    main()
