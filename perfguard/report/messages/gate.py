"""Messages of verdicts and gates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from perfguard.records.facts import Fact
from perfguard.report.messages.message import Message
from perfguard.report.messages.template import fill
from perfguard.units import format_bytes, format_effect, format_seconds

_NAMED_CASES = 3
_SAMPLE = "[[{blocks:paired block}]][[{rounds:round} a side]]"
_SIGNALS = {
    "cpu": "CPU time",
    "memory": "peak memory",
    "faults": "page faults",
    "switches": "context switches",
    "energy": "energy",
    "instructions": "instructions",
}
_FORMATTERS: Mapping[str, Callable[[float], str]] = {
    "_s": format_seconds,
    "_bytes": format_bytes,
    "_j": lambda value: f"{value:.4g} J",
    "": lambda value: f"{value:.4g}",
}


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def _cases(fact: Fact) -> str:
    """`2 of 6 cases regressed: step.a (+3.20 %), step.b (+5.10 %)`."""
    ids, effects = fact.values["case_ids"], fact.values["log_ratios"]
    if not isinstance(ids, tuple) or not isinstance(effects, tuple):
        return str(fact.values["outcome"])
    names = [str(name) for name in ids[:_NAMED_CASES]]
    if effects:
        names = [f"{name} ({format_effect(_number(effect))})" for name, effect in zip(names, effects, strict=False)]
    more = f" and {len(ids) - _NAMED_CASES} more" if len(ids) > _NAMED_CASES else ""
    return f"{len(ids)} of {fill('{cases:case} {outcome}', fact)}: {', '.join(names)}{more}"


def _signal_change(fact: Fact) -> tuple[str, str]:
    """`1.2 ms → 2.4 ms` and `+100.0 %`; the latter is empty where the baseline has none."""
    unit = next(unit for unit in _FORMATTERS if f"baseline{unit}" in fact.values)
    before, after = _number(fact.values[f"baseline{unit}"]), _number(fact.values[f"candidate{unit}"])
    formatted = _FORMATTERS[unit]
    change = f"{(after / before - 1) * 100:+.1f} %" if before else ""
    return f"{formatted(before)} → {formatted(after)}", change


def _signal_measured(fact: Fact) -> str:
    values, change = _signal_change(fact)
    return f"{values}{f' ({change})' if change else ''}{fill(' in {blocks:paired block}', fact)}"


def _signal_regressed(fact: Fact) -> str:
    values, change = _signal_change(fact)
    name = _SIGNALS[str(fact.values["signal"])]
    same = " in the same time" if fact.values.get("in_same_time") else ""
    return f"more {name}{same}: {values} per iteration{f' ({change})' if change else ''}"


def _signal_confirmation(fact: Fact) -> str:
    name = _SIGNALS[str(fact.values["signal"])]
    if fact.values["blocks"] is None:
        return f"{name} not confirmed: the run ended before"
    verb = "confirmed" if fact.values["confirmed"] else "not confirmed"
    return f"{name} {verb}{fill(' in {blocks:block} with relocated arms', fact)}"


def _different_result(fact: Fact) -> str:
    change = fact.values.get("change_percent")
    told = f"{_number(change):+.3g} %" if change is not None else "from zero"
    if fact.values.get("is_scattered"):
        told = "other values in most blocks"
    before, after = _number(fact.values["baseline"]), _number(fact.values["candidate"])
    tolerance = f"{_number(fact.values['tolerance_percent']):.3g} %"
    case = fill("[[{case_id}: ]]", fact)
    return f"{case}results differ: {fact.values['name']} {before:.4g} → {after:.4g} ({told}, tolerance {tolerance})"


def _modes(fact: Fact) -> str:
    head = fill(
        "bimodal: slow mode (+{slow_ratio}) in {candidate_share} of the candidate's blocks, {baseline_share} of the "
        "baseline's (p = {p:p})",
        fact,
    )
    inside = "no change within the modes" if fact.values.get("explains_effect") else ""
    return f"{head}; {inside or fill('within the modes {log_ratio} {log_ratio:interval}', fact)}"


GATE: Mapping[str, Message] = {
    "verdict.effect": Message(
        text="{log_ratio:slowdown} {log_ratio:interval} in " + _SAMPLE + "; p = {p:p}[[, corrected for {cases:case}]]",
        about="A slowdown or an improvement beyond the margin was shown.",
    ),
    "verdict.unchanged": Message(
        text="{log_ratio} {log_ratio:interval} in " + _SAMPLE + ": within ±{equivalence_ratio}",
        about="The whole interval lies inside the equivalence margin.",
    ),
    "verdict.undecided": Message(
        text="{log_ratio} {log_ratio:interval} in "
        + _SAMPLE
        + ": neither beyond {margin_ratio} nor within ±{equivalence_ratio}",
        about="The interval is narrow enough, but crosses a limit.",
    ),
    "verdict.too_noisy": Message(
        text="too noisy: smallest detectable change {mde_ratio} ("
        + _SAMPLE
        + ")[[. {target_ratio} needs about {needed_blocks:block}[[, +{more_s:duration}]]]]",
        about="The smallest effect that this run could have seen is larger than the equivalence margin.",
    ),
    "verdict.beyond_margin": Message(
        text="{log_ratio:slowdown} {log_ratio:interval} is beyond {margin_ratio} at {level_ratio} confidence; "
        "a flag needs {needed_level_ratio}",
        about="The interval that is shown lies beyond the margin, but the gate's error rate asks for more.",
    ),
    "verdict.too_few_blocks": Message(
        text="only " + _SAMPLE + "; a verdict needs {needed}[[, +{more_s:duration}]]",
        about="Fewer blocks, or rounds against a stored baseline, than the policy's minimum.",
    ),
    "verdict.demoted": Message(
        text="too noisy to gate: {unit} SD {block_sd_ratio}, limit {limit_ratio}",
        about="A gating case is noisier than `max_block_sd`.",
    ),
    "verdict.not_measured": Message(
        text="same code in both arms, not measured", about="Both arms run the same code, so the case was not measured."
    ),
    "verdict.allowed_effect": Message(
        text="{log_ratio:slowdown} {log_ratio:interval}", about="The slowdown that the allow-list accepts."
    ),
    "verdict.same_code": Message(
        text="same code as the baseline: the machine is what changed",
        about="The candidate imports the files of the baseline's commit.",
    ),
    "confirmation.done": Message(
        text="{confirmed?confirmed|not confirmed} in {blocks:block} with relocated arms: "
        "{log_ratio} {log_ratio:interval}",
        about="What blocks with relocated arms say of a flagged case.",
    ),
    "confirmation.impossible": Message(
        text="could not be confirmed with relocated arms", about="Too few blocks of the confirmation completed."
    ),
    "confirmation.not_measured": Message(
        text="flagged, not confirmed: the run ended before",
        about="The run ended before relocated arms could confirm a flag.",
    ),
    "modes.mixed": Message(text=_modes, about="The blocks of a case fall into a fast and a slow mode."),
    "modes.luck": Message(
        text="the difference is how often the slow mode came up, by chance; more blocks would tell",
        about="The modes explain the effect, and their mix did not change significantly.",
    ),
    "result.different": Message(
        text=_different_result, about="The arms compute different results on the same data (decision 0004)."
    ),
    "arm.intruded": Message(
        text="the {arm} used {cpu_share} of the CPUs while the {other} was timed (limit {limit_share}); stop its "
        "threads and processes after each call",
        about="The waiting arm did not leave the CPUs to the other one, so neither was measured alone.",
    ),
    "allowance.applied": Message(
        text="allowed up to {limit_ratio} until {until}: {why}[[ (strictest of {entries} entries)]]",
        about="An entry of the allow-list accepts the slowdown.",
    ),
    "allowance.exceeded": Message(
        text="more than the {limit_ratio} that the allow-list accepts until {until}",
        about="The slowdown is larger than the entry of the allow-list.",
    ),
    "allowance.only_for_time": Message(
        text="the allow-list's {limit_ratio} until {until} covers time, not other signals",
        about="A signal regressed, which the allow-list does not cover.",
    ),
    "allowance.only_for_same_results": Message(
        text="the allow-list's {limit_ratio} until {until} covers equal results only",
        about="The arms compute different results, which the allow-list does not cover.",
    ),
    "allowance.exceeded_by_signals": Message(
        text="more {signals} than the allow-list's {limit_ratio} until {until}",
        about="The time is covered by the allow-list, other signals are not.",
    ),
    "drift.since_anchor": Message(
        text="{log_ratio} since the anchor of {since}{in_small_steps?, in many small steps|}",
        about="A case drifted from its anchor.",
    ),
    "stored.left_open": Message(
        text="{outcome} by the stored numbers, which were not checked in pairs",
        about="A stored baseline's numbers cannot decide a case by themselves.",
    ),
    "stored.unchecked": Message(
        text="{is_guest?a virtual guest may run on another host today|the machine's state has changed}",
        about="Why stored numbers do not decide, and why pairs could not check them.",
    ),
    "stored.paired_with_commit": Message(
        text="paired with the baseline's commit", about="The stored numbers left the case open, pairs decide it."
    ),
    "stored.same_code": Message(
        text="same code as the baseline in {same} of {cases:case}, so only the machine can have changed"
        "[[; {others} more unchanged or faster]]",
        about="Cases that stored numbers left open run the baseline's own files.",
    ),
    "signal.measured": Message(text=_signal_measured, about="A signal beside wall time in both arms."),
    "signal.zero": Message(text="reads 0 in an arm: no ratio", about="A signal reads 0, so that a ratio says nothing."),
    "signal.too_few_blocks": Message(
        text="only {blocks:block}; needs {needed}", about="Too few blocks hold the signal for a test."
    ),
    "signal.regressed": Message(text=_signal_regressed, about="The candidate uses more of a gating signal."),
    "signal.confirmation": Message(text=_signal_confirmation, about="What blocks with relocated arms say of a signal."),
    "case.not_measured": Message(text="nothing was measured", about="A case has no measurement."),
    "case.not_in_baseline": Message(text="not in the baseline[[: {error}]]", about="The baseline has no such case."),
    "case.not_in_stored_baseline": Message(
        text="not in the stored baseline; `perfguard baseline update` records it",
        about="The stored baseline does not hold the case.",
    ),
    "case.all_blocks_voided": Message(
        text="all {blocks:block} voided: the host was disturbed", about="The arm-blind rule voided every block."
    ),
    "case.no_common_block": Message(text="no block has samples of both arms", about="No block can be compared."),
    "case.no_block": Message(text="no block completed", about="The run ended before a block of the case did."),
    "case.unusable_times": Message(text="{error}", about="The measurements cannot be used."),
    "gate.passed": Message(
        text="{unchanged} of {cases:case} unchanged within ±{equivalence_ratio}[[; faster: {faster:names}]]"
        "[[; slower but allowed: {allowed:names}]]",
        about="Every gating case is unchanged, faster or allowed.",
    ),
    "gate.cases": Message(text=_cases, about="Gating cases that share an outcome which does not pass."),
    "gate.host_unstable": Message(
        text="{disturbed} of {blocks:block} disturbed; at most {voided} may be voided",
        about="More blocks were disturbed than the policy allows to void.",
    ),
    "gate.no_gating_case": Message(
        text="no gating case is left: none gates, or all are too noisy", about="Nothing can decide the gate."
    ),
    "arms.identical": Message(
        text="same code: both arms run the same files, packages and settings"
        "[[; the times alone would have said {measured_outcome}]]",
        about="Both arms hash identical, so the gate passes whatever the times say.",
    ),
    "run.interrupted": Message(text="interrupted; {blocks:block} kept", about="The user ended the run."),
    "run.unfinished": Message(text="the run ended before it could conclude", about="A recording has no end."),
    "run.measured": Message(text="{cases:case} measured", about="One arm was measured, nothing was compared."),
    "run.cases_failed": Message(text="{failed} of {cases:case} failed", about="Cases of a one-arm run failed."),
    "bisect.nothing_judged": Message(text="nothing was judged", about="A gate of a bisection compared nothing."),
    "bisect.same_files": Message(
        text="same code as the good revision", about="A commit runs the files of the good revision."
    ),
    "bisect.same_tree": Message(
        text="same tree as the good revision", about="A commit has the tree of the good revision."
    ),
    "bisect.not_measurable": Message(text="{error}", about="A commit cannot be measured."),
    "bisect.unexplained": Message(
        text="{case_id}: {culprit_log_ratio} here, {total_log_ratio} in total; "
        "{slower_later?later commits slow it further, bisect again from this one|later commits win part of it back}",
        about="The culprit explains another effect than the whole span has.",
    ),
}
