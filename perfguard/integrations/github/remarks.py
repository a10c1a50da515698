"""A gate's verdicts as annotations: at the line to blame where one is known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from perfguard.integrations.github.workflow_commands import MOST_ANNOTATIONS, Annotation, Level
from perfguard.records.result import RunResult
from perfguard.records.spec import Gating
from perfguard.records.steps.ops import Attribution, OpKey
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.culprits import culprit_texts
from perfguard.report.messages.catalog import describe_all

_LEVELS = {
    Outcome.REGRESSED: Level.ERROR,
    Outcome.FAILED: Level.ERROR,
    Outcome.DIFFERENT: Level.ERROR,
    Outcome.INCONCLUSIVE: Level.WARNING,
    Outcome.INCOMPARABLE: Level.WARNING,
    Outcome.NO_BASELINE: Level.WARNING,
    Outcome.ALLOWED: Level.NOTICE,
}
_PLACE = re.compile(r"(?P<file>[^:]+\.py):(?P<line>\d{1,7})")


def annotations_of(result: RunResult) -> tuple[Annotation, ...]:
    """An annotation for each case that is not in order, at most ten of a kind, regressions first."""
    if result.gate is None:
        return ()
    blamed = {attribution.case_id: attribution for attribution in result.attributions}
    ranked = sorted(result.gate.verdicts, key=lambda v: (v.gating is Gating.ADVISORY, list(Outcome).index(v.outcome)))
    # Identical arms pass by construction; what noise hid of them is nothing to warn of.
    told = _LEVELS.keys() - ({Outcome.INCONCLUSIVE} if result.gate.identical else set())
    remarks = [_remark(v, blamed.get(v.case_id)) for v in ranked if v.outcome in told]
    return tuple(remark for level in Level for remark in [r for r in remarks if r.level is level][:MOST_ANNOTATIONS])


def _remark(verdict: Verdict, attribution: Attribution | None) -> Annotation:
    level = _LEVELS[verdict.outcome]
    if verdict.gating is Gating.ADVISORY and level is Level.ERROR:
        level = Level.WARNING
    file, line = _place(attribution)
    return Annotation(
        level=level,
        title=f"perfguard: {verdict.case_id} {verdict.outcome.value}",
        message="\n".join([describe_all(verdict.reasons), *(culprit_texts(attribution) if attribution else ())]),
        file=file,
        line=line,
    )


def _place(attribution: Attribution | None) -> tuple[str | None, int | None]:
    """The line of the first culprit's first op that has one."""
    if attribution is None:
        return None, None
    sources = {delta.key: delta.source for delta in attribution.deltas}
    for source in _in_order(attribution, sources):
        found = _PLACE.fullmatch(source or "")
        if found and not _leads_outside(found["file"]):
            return found["file"], int(found["line"])
    return None, None


def _in_order(attribution: Attribution, sources: dict[OpKey, str | None]) -> Iterable[str | None]:
    return (sources.get(key) for culprit in attribution.culprits for key in culprit.ops)


def _leads_outside(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts
