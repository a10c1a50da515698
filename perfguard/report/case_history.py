"""Cases over the recorded runs, and where host or software changed between them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from perfguard.records.case_names import short_names
from perfguard.records.facts import Fact
from perfguard.records.history import History, HistoryPoint
from perfguard.report.messages.catalog import describe


class CaseHistory(Struct, frozen=True, kw_only=True):
    """One case in all recorded runs."""

    case_id: str  # The case
    title: str  # The shortest name that distinguishes it from the other cases
    points: tuple[HistoryPoint, ...]  # Sorted by time; never empty
    baseline_s: float | None  # Median of its stored baseline; None without one
    baseline_machine_id: str | None = None  # The machine that the stored baseline is of

    @property
    def latest(self) -> HistoryPoint:
        """Its newest run."""
        return self.points[-1]

    @property
    def reference(self) -> str | None:
        """What the newest run is compared with: `stored baseline`, else `run before`; None with neither.

        Both are of the newest run's machine: a time of another one says nothing of a change.
        """
        return self._reference[0] if self._reference else None

    @property
    def log_ratio(self) -> float | None:
        """The newest run against `reference`; None without one."""
        return math.log(self.latest.median_s / self._reference[1]) if self._reference else None

    @property
    def _reference(self) -> tuple[str, float] | None:
        latest = self.latest
        if self.baseline_s and latest.machine_id is not None and latest.machine_id == self.baseline_machine_id:
            name, value_s = "stored baseline", self.baseline_s
        else:
            before = (point.median_s for point in self.points[-2::-1] if point.machine_id == latest.machine_id)
            name, value_s = "run before", next(before, 0.0)
        return (name, value_s) if value_s > 0 and latest.median_s > 0 else None


def histories_of(history: History) -> tuple[CaseHistory, ...]:
    """One entry a case, in the order in which cases first appear."""
    points: dict[str, list[HistoryPoint]] = {}
    for point in history.points:
        points.setdefault(point.case_id, []).append(point)
    names = short_names(points)
    return tuple(
        CaseHistory(
            case_id=case_id,
            title=names[case_id],
            points=tuple(found),
            baseline_s=history.baselines_s.get(case_id),
            baseline_machine_id=history.machine_id,
        )
        for case_id, found in points.items()
    )


def changes_before(points: Sequence[HistoryPoint]) -> list[str]:
    """What changed from the run before: `H` the host, `S` the software, `HS` both; one text a point."""
    changes = [
        "H" * (now.machine_id != before.machine_id) + "S" * (now.stack_id != before.stack_id)
        for before, now in pairwise(points)
    ]
    return [""] * bool(points) + changes


def changes_text(points: Sequence[HistoryPoint]) -> str:
    """`host changed 2 times, software changed once`; empty where both stayed."""
    letters = "".join(changes_before(points))
    counts = (("host", letters.count("H")), ("software", letters.count("S")))
    return ", ".join(
        f"{name} changed {'once' if number == 1 else f'{number} times'}" for name, number in counts if number
    )


def unread_runs(problems: Mapping[str, Fact]) -> tuple[str, ...]:
    """One line for each run that could not be read whole, from what is wrong by run."""
    return tuple(f"run {run_id}: {describe(problem)}" for run_id, problem in problems.items())


_TREE = re.compile(r"[0-9a-f]{40,64}")


def short_source(source_id: str | None, commit: str | None) -> str:
    """`6f076dd97fd2+31bc70`: a commit, and the beginning of a hash of what was changed since then; `-` for None.

    `source_id` is git's id of a tree and, after a plus, that hash. Without a commit it is `tree 6f076dd97fd2`.
    """
    if not source_id:
        return "-"
    tree, plus, changes = source_id.partition("+")
    if commit is not None:
        return f"{commit[:12]}{plus}{changes[:6]}"
    return f"tree {tree[:12]}{plus}{changes[:6]}" if _TREE.fullmatch(tree) else source_id
