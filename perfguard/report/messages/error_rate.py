"""Messages on error rates, calibrations and plans."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.records.facts import Fact
from perfguard.report.messages.message import Message
from perfguard.report.messages.template import fill
from perfguard.units import format_duration, format_ratio

_BY_DESIGN = "false-alarm rate: {alpha_ratio} by design, "
_ALARMS = "{false_alarms} of {gates:A/A gate} red, rate at most {bound_ratio} (95 % confidence)"
_LARGEST = 1.0


def _reach(found: Fact) -> str:
    low, high, budget_s = (found.values.get(name) for name in ("low_ratio", "high_ratio", "budget_s"))
    if not (isinstance(low, float) and isinstance(high, float) and isinstance(budget_s, (int, float))):
        return ""
    smallest, largest = ("over 100 %" if effect > _LARGEST else format_ratio(effect) for effect in (low, high))
    span = smallest if smallest == largest else f"{smallest} to {largest} by case"
    return f"; finds slowdowns of {span} in {format_duration(budget_s)} (80 % power, confirmation not included)"


def _calibrated(found: Fact) -> str:
    certified = ", certified" if found.values.get("is_certified") else ""
    text = f"false-alarm rate: {_ALARMS}{certified}, last calibrated {{latest}}"
    return _screened(found) + fill(text, found) + _reach(found)


def _not_yet(found: Fact) -> str:
    text = f"{_BY_DESIGN}not verified yet: none of {{gates:A/A gate}} has {{needed_blocks:block}} of a gating case"
    return _screened(found) + fill(text, found) + _reach(found)


def _expired(found: Fact) -> str:
    reason = ERROR_RATE.get(str(found.values["reason"]))
    why = fill(str(reason.text), found) if reason is not None else str(found.values["reason"])
    expired = f"calibration expired ({why}) → perfguard calibrate. "
    return _screened(found) + fill(_BY_DESIGN, found) + expired + fill(f"Before: {_ALARMS}", found)


def _screened(found: Fact) -> str:
    return "stored numbers only clear cases; of what is measured again: " if found.values.get("screens") else ""


ERROR_RATE: Mapping[str, Message] = {
    "rate.not_calibrated": Message(
        text=f"{_BY_DESIGN}not verified on this machine → perfguard calibrate",
        about="No A/A gates of this machine are stored.",
    ),
    "rate.of_selection": Message(
        text=f"{_BY_DESIGN}not verified for cases selected by name; calibrations are of suites",
        about="The gate's cases were selected by `--case`.",
    ),
    "rate.unreadable": Message(
        text=f"{_BY_DESIGN}not verified: {{error}}", about="The stored calibration cannot be read."
    ),
    "rate.not_yet": Message(text=_not_yet, about="A/A gates are stored, but none reached a verdict."),
    "rate.expired": Message(
        text=_expired, about="The calibration is of another machine, software or rule, or too old."
    ),
    "rate.calibrated": Message(text=_calibrated, about="The false-alarm rate was measured on this machine."),
    "calibration.absent": Message(text="not calibrated", about="No A/A gate is stored."),
    "calibration.valid": Message(text="{gates:A/A gate} on this machine", about="The calibration holds."),
    "calibration.changed": Message(
        text="{what} {before} → {after}", about="What changed since the calibration: machine, software, CPUs, rule."
    ),
    "calibration.level_changed": Message(
        text="{what} {before_ratio} → {after_ratio}", about="The gate's level or margin changed since the calibration."
    ),
    "calibration.old": Message(
        text="latest A/A gate is {days:day} old, limit {limit}", about="The calibration is too old to hold."
    ),
    "calibration.from_the_future": Message(
        text="latest A/A gate is dated {date}; a clock is wrong", about="The calibration is newer than now."
    ),
    "calibration.replaced": Message(
        text="the {gates:stored A/A gate} no longer hold and are replaced; git keeps what was committed",
        about="`calibrate` starts afresh; the next note says why.",
    ),
    "calibration.of_other_cases": Message(
        text="{gates:stored A/A gate} measured other cases than the suite has now, and do not count",
        about="The suite changed since the calibration.",
    ),
    "plan.unreadable": Message(text="plan not used: {error}", about="The stored plan cannot be read."),
    "plan.unused": Message(
        text="plan of {date} not used: made for {what} {planned}, now {now}. Plan again: perfguard plan --write",
        about="The stored plan is of another number of CPUs or environment profile.",
    ),
    "plan.from_calibration": Message(text=f"calibration: {_ALARMS}", about="What a plan was made from."),
    "plan.from_run": Message(
        text="run {run_id} alone (calibration of this machine: {status})", about="A plan made without a calibration."
    ),
    "plan.never_measured": Message(
        text="[[{case_id}: ]]never measured on this machine → perfguard calibrate",
        about="A plan cannot know the case's noise.",
    ),
    "plan.noise_unknown": Message(
        text="[[{case_id}: ]]too few blocks to know its noise → perfguard calibrate",
        about="A plan cannot know the case's noise.",
    ),
    "plan.below_floor": Message(
        text="[[{case_id}: ]][[advisory by the plan of {date}: ]]identical arms differ by up to {floor_ratio}, "
        "so {detect_ratio} cannot be detected",
        about="The placebo floor of a case is above the planned effect.",
    ),
    "plan.too_noisy": Message(
        text="[[{case_id}: ]][[advisory by the plan of {date}: ]]too noisy for {detect_ratio} "
        "(block SD {block_sd_ratio})",
        about="No number of blocks detects the planned effect.",
    ),
    "plan.enough": Message(
        text="{detect_ratio} with {power_share} power needs {blocks:block}",
        about="What a planned case that gates needs.",
    ),
    "plan.beyond_max_blocks": Message(
        text="[[{case_id}: ]][[advisory by the plan of {date}: ]]{detect_ratio} with {power_share} power needs "
        "{blocks:block}, max_blocks is {max_blocks}",
        about="A case needs more blocks than the project allows.",
    ),
    "plan.beyond_budget": Message(
        text="[[{case_id}: ]][[advisory by the plan of {date}: ]]{detect_ratio} with {power_share} power needs "
        "{blocks:block}, {budget_s:duration} holds {within}",
        about="A case needs more blocks than the budget holds.",
    ),
}
"""Every code of error rates, calibrations and plans."""
