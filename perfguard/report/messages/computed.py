"""Texts that a template cannot give: choices between values, units that depend on them, lists of pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfguard.records.facts import Fact, Value
from perfguard.report.messages.message import sections
from perfguard.report.messages.template import fill, number
from perfguard.units import format_bytes, format_duration, format_effect, format_ratio, format_seconds, shorten

_NAMED_CASES = 3
_MOST_SHOWN = 100
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


def _cases(fact: Fact) -> str:
    """`2 of 6 cases regressed: step.a (+3.20 %), step.b (+5.10 %)`."""
    ids, effects = fact.values["case_ids"], fact.values["log_ratios"]
    if not isinstance(ids, tuple) or not isinstance(effects, tuple):
        return str(fact.values["outcome"])
    names = [str(name) for name in ids[:_NAMED_CASES]]
    if effects:
        names = [f"{name} ({format_effect(number(effect))})" for name, effect in zip(names, effects, strict=False)]
    more = f" and {len(ids) - _NAMED_CASES} more" if len(ids) > _NAMED_CASES else ""
    return f"{len(ids)} of {fill('{cases:case} {outcome}', fact)}: {', '.join(names)}{more}"


def _signal_change(fact: Fact) -> tuple[str, str]:
    """`1.2 ms → 2.4 ms` and ` (+100.0 %)`; the latter is empty where the baseline has none."""
    unit = next((unit for unit in _FORMATTERS if f"baseline{unit}" in fact.values), "")
    before, after = number(fact.values[f"baseline{unit}"]), number(fact.values[f"candidate{unit}"])
    change = f" ({(after / before - 1) * 100:+.1f} %)" if before else ""
    return f"{_FORMATTERS[unit](before)} → {_FORMATTERS[unit](after)}", change


def _signal_measured(fact: Fact) -> str:
    return "".join(_signal_change(fact)) + fill(" in {blocks:paired block}", fact)


def _signal_regressed(fact: Fact) -> str:
    values, change = _signal_change(fact)
    same = fill("{in_same_time? in the same time|}", fact)
    name = str(fact.values["signal"])
    if name not in _SIGNALS:
        return f"more {name}{same}: {values}{change}"
    return f"more {_SIGNALS[name]}{same}: {values} per iteration{change}"


def _signal_confirmation(fact: Fact) -> str:
    name = str(fact.values["signal"])
    name = _SIGNALS.get(name, name)
    if fact.values["blocks"] is None:
        return f"{name} not confirmed: the run ended before"
    return f"{name} {fill('{confirmed?confirmed|not confirmed} in {blocks:block} with relocated arms', fact)}"


def _different_result(fact: Fact) -> str:
    values = fact.values
    change = values.get("change_percent")
    said = f"{number(change):+.3g} %" if change is not None else "from zero"
    if values.get("is_scattered"):
        said = "other values in most blocks"
    before, after, tolerance = (number(values[name]) for name in ("baseline", "candidate", "tolerance_percent"))
    head = fill("[[{case_id}: ]]results differ: {name}", fact)
    return f"{head} {before:.4g} → {after:.4g} ({said}, tolerance {tolerance:.3g} %)"


def _modes(fact: Fact) -> str:
    within = "within the modes {log_ratio} {log_ratio:interval}"
    return fill(
        "bimodal: slow mode (+{slow_ratio}) in {candidate_share} of the candidate's blocks, {baseline_share} of the "
        f"baseline's (p = {{p:p}}); {'no change within the modes' if fact.values.get('explains_effect') else within}",
        fact,
    )


_SCREENED = "{screens?stored numbers only clear cases; of what is measured again: |}"
_BY_DESIGN = "false-alarm rate: {alpha_ratio} by design, "
_ALARMS = "{false_alarms} of {gates:A/A gate} red, rate at most {bound_ratio} (95 % confidence)"


def _reach(found: Fact) -> str:
    low, high, budget_s = (found.values.get(name) for name in ("low_ratio", "high_ratio", "budget_s"))
    if not (isinstance(low, float) and isinstance(high, float) and isinstance(budget_s, (int, float))):
        return ""
    smallest, largest = ("over 100 %" if effect > 1 else format_ratio(effect) for effect in (low, high))
    span = smallest if smallest == largest else f"{smallest} to {largest} by case"
    return f"; finds slowdowns of {span} in {format_duration(budget_s)} (80 % power, confirmation not included)"


def _calibrated(found: Fact) -> str:
    said = f"{_SCREENED}false-alarm rate: {_ALARMS}{{is_certified?, certified|}}, last calibrated {{latest}}"
    return fill(said, found) + _reach(found)


def _not_yet(found: Fact) -> str:
    said = f"{_SCREENED}{_BY_DESIGN}not verified yet: none of {{gates:A/A gate}} has {{needed_blocks:block}} of a "
    return fill(f"{said}gating case", found) + _reach(found)


def _expired(found: Fact) -> str:
    reason = sections()["error_rate"].get(str(found.values["reason"]))
    why = fill(str(reason.text), found) if reason is not None else str(found.values["reason"])
    before = fill(f". Before: {_ALARMS}", found)
    return fill(f"{_SCREENED}{_BY_DESIGN}", found) + f"calibration expired ({why}) → perfguard calibrate" + before


_EVENTS = {
    "graph_break": "Graph breaks",
    "recompile": "Recompiles",
    "unique_graphs": "Compiled graphs",
    "frames": "Frames seen by the compiler",
}


def _compile(found: Fact) -> str:
    name = _EVENTS.get(str(found.values["event"]), str(found.values["event"]).replace("_", " "))
    is_same = found.values["before"] == found.values["after"]
    counts = "{after}, for other reasons" if is_same else "{before} → {after}"
    return f"{name}: {fill(counts + '[[ ({reasons:names})]]', found)}"


_CAUSES = (
    "[[{stolen_share} of the time stolen by the hypervisor]]",
    "[[{involuntary_switches:involuntary context switch}]]",
    "[[control workload {control_ratio} slower than usual]]",
    "[[{foreign_share} of the measured CPUs taken by other programs]]",
)
_REMEDIES = {
    "times_only": "the baseline holds times only. Record it again: perfguard baseline update",
    "other_seed": "the baseline has seed {baseline_seed:id}, this run {seed:id}. Leave `seed` unset",
    "other_data": "no round used the data of a round of the baseline",
}


def _causes(found: Fact) -> str:
    return ", ".join(filter(None, (fill(cause, found) for cause in _CAUSES)))


def _disturbed(found: Fact) -> str:
    return fill("block {block} {is_voided?voided|disturbed, but kept}: ", found) + _causes(found)


def _unchecked(found: Fact) -> str:
    remedy = _REMEDIES.get(str(found.values.get("cause")), "unknown")
    return fill(f"results not compared of {{case_ids:names}}: {remedy}", found)


def _missing(fact: Fact) -> str:
    events = "event {first} is" if fact.values.get("last") is None else "events {first} to {last} are"
    return fill(f"{events} missing from the recording", fact)


_RECORD_ANEW = "expect a shift, and record a new baseline"
_SETTINGS: Mapping[str, tuple[str, str]] = {
    "fingerprint_schema": ("fingerprint schema", "record the baseline again with this version"),
    "governor": ("governor", "set the same one: sudo cpupower frequency-set -g performance"),
    "frequency_driver": ("frequency driver", "boot with the same one"),
    "turbo": ("turbo", "switch it the same way on both"),
    "frequency_limits_hz": ("frequency limits (Hz)", "set the same: sudo cpupower frequency-set -d MIN -u MAX"),
    "pstate_limits": ("intel_pstate limits (percent)", "write the same min_perf_pct and max_perf_pct"),
    "cpu_quota": ("CPU quota", "give both runs the same CPU limit"),
    "cpuset": ("CPUs of the cpuset", "give both runs the same cpuset"),
    "microcode": ("microcode", _RECORD_ANEW),
    "kernel": ("kernel", _RECORD_ANEW),
    "mitigations": ("mitigations", "boot with the same mitigations= setting"),
    "energy_preference": ("energy preference", "write the same word to energy_performance_preference"),
    "huge_pages": (
        "transparent huge pages",
        "write the same words to /sys/kernel/mm/transparent_hugepage/enabled and defrag",
    ),
    "numa_balancing": ("NUMA balancing", "sudo sysctl -w kernel.numa_balancing=0 on both"),
    "same_page_merging": ("same-page merging", "write the same number to /sys/kernel/mm/ksm/run"),
    "aslr": ("address randomisation", "sudo sysctl -w kernel.randomize_va_space=2 on both"),
    "clock_source": ("clock source", "boot with the same clocksource="),
}
_RUN_SETTINGS = {"cpus": "number of CPUs", "env_profile": "environment profile", "sample_s": "sample length (s)"}
_MACHINE_PARTS = {
    "brand": "CPU model",
    "isa": "usable instruction sets",
    "amx_denied": "AMX denied by the kernel",
    "frequencies_hz": "largest frequencies (Hz, CPUs)",
    "caches": "caches (level, kind, bytes, count, sharing)",
    "nodes": "NUMA nodes (CPUs, memory class, distances)",
    "classes": "core classes (class, cores, CPUs)",
    "threads": "online CPUs",
}


def _shown(value: Value) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = (", ".join(map(str, value)) or "nothing") if isinstance(value, tuple) else str(value)
    return shorten(text, _MOST_SHOWN)


def _against(fact: Fact, name: str) -> str:
    where = f"differs from the {fact.subject.arm}: " if fact.subject.arm else ""
    return f"{where}{name}: {_shown(fact.values['first'])} → {_shown(fact.values['second'])}"


def _other_machine(fact: Fact) -> str:
    part = str(fact.values["part"])
    advice = "; record a baseline on this machine" if fact.values["is_first"] else ""
    return f"another machine: {_against(fact, _MACHINE_PARTS.get(part, part))}{advice}"


def _other_setting(fact: Fact) -> str:
    setting = str(fact.values["setting"])
    name, advice = _SETTINGS.get(setting, (setting, ""))
    return f"{_against(fact, name)}{f'; {advice}' if advice else ''}"


def _other_software(fact: Fact) -> str:
    return f"software: {_against(fact, str(fact.values['part']))}; intended, or install the same"


def _other_run_setting(fact: Fact) -> str:
    values = fact.values
    name = _RUN_SETTINGS.get(str(values["setting"]), values["setting"])
    return f"the {fact.subject.arm} was measured with another {name} ({values['then']}, now {values['now']})"


def _cpus_chosen(fact: Fact) -> str:
    values = fact.values
    node, core_class, quota, left = (values[name] for name in ("numa_node", "core_class", "quota_threads", "left_cpus"))
    asked = " (as asked)" if values["is_node_asked"] else ""
    cores = f" of class {core_class}" if core_class else ""
    pieces = (
        "whole machine" if node is None else f"NUMA node {node}{asked}",
        f"all {values['cores']} cores{cores} and some SMT siblings"
        if values["with_siblings"]
        else f"one thread per core{cores}",
        f"{quota} by the CPU quota" if quota else "",
        f"CPU {left} left to the system" if left else "",
    )
    return ", ".join(filter(None, pieces))


COMPUTED: Mapping[str, Callable[[Fact], str]] = {
    "gate.cases": _cases,
    "signal.measured": _signal_measured,
    "signal.regressed": _signal_regressed,
    "signal.confirmation": _signal_confirmation,
    "result.different": _different_result,
    "result.unchecked": _unchecked,
    "modes.mixed": _modes,
    "rate.calibrated": _calibrated,
    "rate.not_yet": _not_yet,
    "rate.expired": _expired,
    "compile.changed": _compile,
    "recording.events_missing": _missing,
    "host.block_causes": _causes,
    "host.block_disturbed": _disturbed,
    "host.other_machine": _other_machine,
    "host.other_setting": _other_setting,
    "host.other_software": _other_software,
    "host.other_run_setting": _other_run_setting,
    "host.cpus_chosen": _cpus_chosen,
}
"""Functions by code; the catalogue has no template of these."""
