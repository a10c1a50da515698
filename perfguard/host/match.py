"""Whether the timings of two fingerprints may be compared, with reasons that a person can act on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from perfguard.host.identity import machine_facts, stack_facts
from perfguard.records.machine.fingerprint import (
    Compatibility,
    CompatibilityLevel,
    Fingerprint,
    SoftwareFacts,
)

_EQUAL, _COMPARABLE, _NOT = (
    CompatibilityLevel.EQUAL,
    CompatibilityLevel.COMPARABLE,
    CompatibilityLevel.INCOMPARABLE,
)
_MAX_SHOWN = 100

Difference = tuple[CompatibilityLevel, str]
"""How much a difference matters, and the sentence about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    name: str
    level: CompatibilityLevel
    value: Callable[[Fingerprint], object]
    advice: str


_MACHINE_NAMES = {
    "brand": "CPU model",
    "isa": "usable instruction sets",
    "amx_denied": "AMX denied by the kernel",
    "frequencies_hz": "largest frequencies (Hz, CPUs)",
    "caches": "caches (level, kind, bytes, count, sharing)",
    "nodes": "NUMA nodes (CPUs, memory class, distances)",
    "classes": "core classes (class, cores, CPUs)",
    "threads": "online CPUs",
}

_STATE_RULES = (
    _Rule(
        name="fingerprint schema",
        level=_NOT,
        value=lambda found: found.schema_version,
        advice="record the baseline again with this version",
    ),
    _Rule(
        name="governor",
        level=_NOT,
        value=lambda found: found.state.governor,
        advice="set the same one: sudo cpupower frequency-set -g performance",
    ),
    _Rule(
        name="frequency driver",
        level=_NOT,
        value=lambda found: found.state.driver,
        advice="boot with the same one",
    ),
    _Rule(
        name="turbo",
        level=_NOT,
        value=lambda found: found.state.turbo,
        advice="switch it the same way on both",
    ),
    _Rule(
        name="frequency limits (Hz)",
        level=_NOT,
        value=lambda found: _distinct((d.limit_min_hz, d.limit_max_hz) for d in found.state.frequency),
        advice="set the same: sudo cpupower frequency-set -d MIN -u MAX",
    ),
    _Rule(
        name="intel_pstate limits (percent)",
        level=_NOT,
        value=lambda found: [found.state.min_perf_percent, found.state.max_perf_percent],
        advice="write the same min_perf_pct and max_perf_pct",
    ),
    _Rule(
        name="CPU quota",
        level=_NOT,
        value=lambda found: found.limits.quota_cpus,
        advice="give both runs the same CPU limit",
    ),
    _Rule(
        name="CPUs of the cpuset",
        level=_NOT,
        value=lambda found: found.limits.allowed_cpus,
        advice="give both runs the same cpuset",
    ),
    _Rule(
        name="microcode",
        level=_COMPARABLE,
        value=lambda found: found.cpu.microcode,
        advice="expect a shift, and record a new baseline",
    ),
    _Rule(
        name="kernel",
        level=_COMPARABLE,
        value=lambda found: found.state.kernel,
        advice="expect a shift, and record a new baseline",
    ),
    _Rule(
        name="mitigations",
        level=_COMPARABLE,
        value=lambda found: found.state.mitigations,
        advice="boot with the same mitigations= setting",
    ),
    _Rule(
        name="energy preference",
        level=_COMPARABLE,
        value=lambda found: _distinct(d.energy_preference for d in found.state.frequency),
        advice="write the same word to energy_performance_preference",
    ),
    _Rule(
        name="transparent huge pages",
        level=_COMPARABLE,
        value=lambda found: [found.state.thp, found.state.thp_defrag],
        advice="write the same words to /sys/kernel/mm/transparent_hugepage/enabled and defrag",
    ),
    _Rule(
        name="NUMA balancing",
        level=_COMPARABLE,
        value=lambda found: found.state.numa_balancing,
        advice="sudo sysctl -w kernel.numa_balancing=0 on both",
    ),
    _Rule(
        name="same-page merging",
        level=_COMPARABLE,
        value=lambda found: found.state.ksm,
        advice="write the same number to /sys/kernel/mm/ksm/run",
    ),
    _Rule(
        name="address randomisation",
        level=_COMPARABLE,
        value=lambda found: found.state.aslr,
        advice="sudo sysctl -w kernel.randomize_va_space=2 on both",
    ),
    _Rule(
        name="clock source",
        level=_COMPARABLE,
        value=lambda found: found.state.clocksource,
        advice="boot with the same clocksource=",
    ),
)


def match(a: Fingerprint, b: Fingerprint) -> Compatibility:
    """How the timings of two fingerprints relate.

    - *equal*: nothing that is known to matter differs.
    - *comparable*: the same machine in the same speed settings, but something differs that shifts timings by
      little, or is what is being compared (the software stack).
    - *incomparable*: another machine, another speed setting or another limit, or a machine that is not known.
    """
    found = [*_unknown(a, b), *_machine(a, b)] or [*_states(a, b), *_stack(a.software, b.software)]
    present = {level for level, _ in found}
    return Compatibility(
        level=next((level for level in (_NOT, _COMPARABLE) if level in present), _EQUAL),
        reasons=tuple(reason for level in (_NOT, _COMPARABLE) for at, reason in found if at is level),
    )


def _unknown(a: Fingerprint, b: Fingerprint) -> Iterator[Difference]:
    """Two machines that do not say what they are may look the same and be different."""
    if a.cpu.vendor is None and b.cpu.vendor is None:
        yield _NOT, "the CPU model is unknown on both sides; give fingerprints that have /proc/cpuinfo"
    if a.topology.threads_online is None and b.topology.threads_online is None:
        yield _NOT, "the online CPUs are unknown on both sides; give fingerprints that have /sys"


def _machine(a: Fingerprint, b: Fingerprint) -> Iterator[Difference]:
    """What makes them different machines; then their settings are of no interest."""
    left, right = machine_facts(a), machine_facts(b)
    differing = [name for name, value in left.items() if value != right[name]]
    for name in differing:
        sentence = _sentence(_MACHINE_NAMES.get(name, name), left[name], right[name])
        advice = "; record a baseline on this machine" if name == differing[0] else ""
        yield _NOT, f"another machine: {sentence}{advice}"


def _states(a: Fingerprint, b: Fingerprint) -> Iterator[Difference]:
    for rule in _STATE_RULES:
        left, right = rule.value(a), rule.value(b)
        if left != right:
            yield rule.level, f"{_sentence(rule.name, left, right)}; {rule.advice}"


def _stack(a: SoftwareFacts | None, b: SoftwareFacts | None) -> Iterator[Difference]:
    if a is None and b is None:
        return
    if a is None or b is None:
        side = "first" if a is None else "second"
        yield _COMPARABLE, f"the software stack of the {side} is unknown; ask the interpreter under test"
        return
    left, right = stack_facts(a), stack_facts(b)
    for name, value in left.items():
        if value != right[name]:
            sentence = _sentence(name, value, right[name])
            yield _COMPARABLE, f"software: {sentence}; intended, or install the same"


def _sentence(name: str, left: object, right: object) -> str:
    shown_left, shown_right = _only_changed(left, right)
    return f"{name}: {_show(shown_left)} against {_show(shown_right)}"


def _distinct(values: Iterable[object]) -> list[str]:
    return sorted({_show(value) for value in values})


def _only_changed(left: object, right: object) -> tuple[object, object]:
    """Of mappings and lists of features, only what differs is worth a line."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        names = sorted(name for name in {*left, *right} if left.get(name) != right.get(name))
        return tuple(f"{n}={left.get(n)}" for n in names), tuple(f"{n}={right.get(n)}" for n in names)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return (
            tuple(item for item in left if item not in right),
            tuple(item for item in right if item not in left),
        )
    return left, right


def _show(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = (", ".join(map(_show, value)) or "nothing") if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
