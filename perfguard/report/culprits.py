"""Changes and culprits as lines, alike in every output: headline, place, cost."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from perfguard.records.facts import Fact, fact
from perfguard.records.steps.ops import PYTHON_OP, Attribution, Culprit, OpCountChange, StepBalance
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.messages.catalog import describe
from perfguard.units import format_change, format_count, format_share, format_signed_seconds, shorten

MOST_SHOWN = 3  # Culprits in any output
_ENOUGH_EXPLAINED = 0.8  # Part of the step's difference after which no more culprits are shown
_WORTH_SHOWING = 0.05  # Part of the step's difference that a further culprit must have
_PLACE = re.compile(r"(?P<file>[^:]+\.py):(?P<line>\d{1,7})")
_SAYS_WHERE = ("optimizer.", "ops.moved")  # Beginnings of codes whose headline names the place


class CulpritLine(NamedTuple):
    """One culprit as it is shown."""

    headline: str  # `Attention no longer fused: flash_attention → bmm + masked_fill_`
    place: str  # `train/gpt.py:22`, or `forward of Net.layer3` where no line is known; may be empty
    cost: str  # `+0.99 ms · 37 %`; empty for a change that was only counted

    @property
    def details(self) -> str:
        """`train/gpt.py:22 · +0.99 ms · 37 %`."""
        return " · ".join(filter(None, (self.place, self.cost)))


def culprit_lines(attribution: Attribution) -> list[CulpritLine]:
    """What made the step slower or faster, largest part first, at most three; else the worst changed op count."""
    counted = attribution.op_count_changes[:1]
    return [_line(culprit) for culprit in _worth_showing(attribution)] or [
        CulpritLine(describe(change.fact), place_of(change.fact), "") for change in counted
    ]


def culprit_texts(attribution: Attribution) -> list[str]:
    """The same in one line each: `Adam no longer fused: … (train.py:88 · +0.99 ms · 37 %)`."""
    return [
        f"{line.headline} ({line.details})" if line.details else line.headline for line in culprit_lines(attribution)
    ]


def step_text(attribution: Attribution) -> str:
    """`step +6.2 % [+5.1 %, +7.4 %]`, and whether it is within the noise."""
    balance = attribution.balance
    if balance.baseline_s <= 0:
        return f"step {format_signed_seconds(balance.delta_s)}"
    said = format_change(balance.delta_s / balance.baseline_s)
    if math.isfinite(balance.lower_s) and math.isfinite(balance.upper_s):
        lower, upper = (format_change(end / balance.baseline_s) for end in (balance.lower_s, balance.upper_s))
        said += f" [{lower}, {upper}]"
    if balance.is_in_doubt:
        return f"step {said}, within the noise"
    return f"step {said}" if attribution.culprits or attribution.op_count_changes else f"step {said}, no culprit found"


def change_text(change: OpCountChange) -> str:
    """`3 extra copies in forward of Net.head`."""
    values = change.fact.values
    place = "" if change.fact.code.startswith(_SAYS_WHERE) else place_of(change.fact)
    text = describe(change.fact) + (f" in {place}" if place else "")
    upgrade = f" (torch {values['torch_before']} → {values['torch_after']})" if "torch_before" in values else ""
    return f"{text}{upgrade}"


def beyond_culprits(changes: Sequence[OpCountChange], attribution: Attribution | None) -> list[OpCountChange]:
    """Changed op counts that no culprit shows already."""
    culprits = _worth_showing(attribution) if attribution is not None else []
    shown = [(culprit.fact.code, culprit.fact.values) for culprit in culprits]
    return [change for change in changes if (change.fact.code, change.fact.values) not in shown]


def place_of(change: Fact) -> str:
    """`train.py:88`; else `forward and backward of ResNet.layer3, 4 places`, `Adam` for an optimizer."""
    if change.subject.place:
        return change.subject.place
    phases, places = change.values.get("phases"), change.values.get("places")
    module = change.subject.op or ""
    names = " and ".join(map(str, phases)) if isinstance(phases, tuple) else ""
    text = module if names == "optimizer" and module else " of ".join(filter(None, (names, module)))
    return f"{text}, {format_count(places, 'place')}" if isinstance(places, int) and places > 1 else text


def place_of_culprit(culprit: Culprit) -> str:
    """The same of a culprit; its phases where an older recording has no more."""
    if culprit.fact.code == "python.time" and not culprit.fact.subject.place:
        return culprit.fact.subject.op or ""  # the headline has the phases
    return place_of(culprit.fact) or " and ".join(phase.value for phase in culprit.phases or (culprit.phase,))


def line_in_tree(attribution: Attribution | None) -> tuple[str | None, int | None]:
    """File and line of the first culprit that has one in the project's tree, or else of its first op that has one."""
    if attribution is None:
        return None, None
    sources = {delta.key: delta.source for delta in attribution.deltas}
    places = [culprit.fact.subject.place for culprit in attribution.culprits]
    for place in (*places, *(sources.get(key) for culprit in attribution.culprits for key in culprit.ops)):
        found = _PLACE.fullmatch(place or "")
        if found is None:
            continue
        path = PurePosixPath(found["file"])
        if not path.is_absolute() and ".." not in path.parts:
            return found["file"], int(found["line"])
    return None, None


def contradiction(verdict: Verdict, balance: StepBalance) -> Fact | None:
    """That the profiled steps, which are few, contradict the verdict."""
    was_faster = math.isfinite(balance.upper_s) and balance.upper_s < 0
    was_slower = math.isfinite(balance.lower_s) and balance.lower_s > 0
    if (verdict.outcome is Outcome.REGRESSED and was_faster) or (verdict.outcome is Outcome.IMPROVED and was_slower):
        return fact("ops.went_the_other_way")
    if verdict.outcome is Outcome.UNCHANGED and (was_faster or was_slower):
        return fact("ops.differ_in_few_steps")
    return None


def _worth_showing(attribution: Attribution) -> list[Culprit]:
    """The first, and more until most of the step is explained."""
    total_s = sum(abs(culprit.delta_s) for culprit in attribution.culprits)
    shown: list[Culprit] = []
    explained = 0.0
    for culprit in attribution.culprits:
        if len(shown) == MOST_SHOWN or (shown and explained >= _ENOUGH_EXPLAINED):
            break
        share = culprit.share
        if not math.isfinite(share):
            share = 0.0 if culprit.is_within_noise or not total_s else abs(culprit.delta_s) / total_s
        if not shown or share >= _WORTH_SHOWING:
            shown.append(culprit)
            explained += share
    return shown


def _line(culprit: Culprit) -> CulpritLine:
    cost = format_signed_seconds(culprit.delta_s)
    if culprit.is_within_noise:
        cost = f"{cost}, within the noise"
    elif math.isfinite(culprit.share):
        cost = f"{cost} · {format_share(culprit.share)}"
    return CulpritLine(describe(culprit.fact), place_of_culprit(culprit), cost)


_SHOWN_CULPRITS = 6
_LONGEST_NAME = 48


class Part(NamedTuple):
    """One part of the difference."""

    name: str
    value_s: float


def parts_of(attribution: Attribution) -> list[Part]:
    """Parts that add up to the balance: the largest culprits, then the rest by kind; parts of nothing are left out."""
    balance = attribution.balance
    shown = [culprit for culprit in attribution.culprits if not culprit.is_within_noise][:_SHOWN_CULPRITS]
    parts = [Part(shorten(describe(culprit.fact), _LONGEST_NAME), culprit.delta_s) for culprit in shown]
    in_python = sum(c.delta_s for c in shown if c.ops and all(key.op == PYTHON_OP for key in c.ops))
    in_ops = sum(c.delta_s for c in shown) - in_python
    parts += [
        Part("other ops" if in_ops else "ops", balance.ops_s - in_ops),
        Part("other Python" if in_python else "Python", balance.python_s - in_python),
        Part("idle", balance.idle_s),
        Part("unexplained", balance.unexplained_s),
    ]
    smallest = abs(balance.delta_s) * 1e-3
    return [part for part in parts if math.isfinite(part.value_s) and abs(part.value_s) > smallest]
