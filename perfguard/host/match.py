"""Whether the timings of two fingerprints may be compared, with what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from perfguard.host.identity import machine_facts, stack_facts
from perfguard.records.facts import Fact, Value, fact
from perfguard.records.machine.fingerprint import Compatibility, CompatibilityLevel, Fingerprint, SoftwareFacts

_EQUAL, _COMPARABLE, _NOT = (CompatibilityLevel.EQUAL, CompatibilityLevel.COMPARABLE, CompatibilityLevel.INCOMPARABLE)

Difference = tuple[CompatibilityLevel, Fact]
"""How much a difference matters, and what it is."""


class _Rule(NamedTuple):
    name: str
    level: CompatibilityLevel
    value: Callable[[Fingerprint], object]


_STATE_RULES = (
    _Rule("fingerprint_schema", _NOT, lambda found: found.schema_version),
    _Rule("governor", _NOT, lambda found: found.state.governor),
    _Rule("frequency_driver", _NOT, lambda found: found.state.driver),
    _Rule("turbo", _NOT, lambda found: found.state.turbo),
    _Rule(
        "frequency_limits_hz",
        _NOT,
        lambda found: _distinct((d.limit_min_hz, d.limit_max_hz) for d in found.state.frequency),
    ),
    _Rule("pstate_limits", _NOT, lambda found: [found.state.min_perf_percent, found.state.max_perf_percent]),
    _Rule("cpu_quota", _NOT, lambda found: found.limits.quota_cpus),
    _Rule("cpuset", _NOT, lambda found: found.limits.allowed_cpus),
    _Rule("microcode", _COMPARABLE, lambda found: found.cpu.microcode),
    _Rule("kernel", _COMPARABLE, lambda found: found.state.kernel),
    _Rule("mitigations", _COMPARABLE, lambda found: found.state.mitigations),
    _Rule(
        "energy_preference", _COMPARABLE, lambda found: _distinct(d.energy_preference for d in found.state.frequency)
    ),
    _Rule("huge_pages", _COMPARABLE, lambda found: [found.state.thp, found.state.thp_defrag]),
    _Rule("numa_balancing", _COMPARABLE, lambda found: found.state.numa_balancing),
    _Rule("same_page_merging", _COMPARABLE, lambda found: found.state.ksm),
    _Rule("aslr", _COMPARABLE, lambda found: found.state.aslr),
    _Rule("clock_source", _COMPARABLE, lambda found: found.state.clocksource),
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
        yield _NOT, fact("host.unknown_cpu")
    if a.topology.threads_online is None and b.topology.threads_online is None:
        yield _NOT, fact("host.unknown_cpus")


def _machine(a: Fingerprint, b: Fingerprint) -> Iterator[Difference]:
    """What makes them different machines; then their settings are of no interest."""
    left, right = machine_facts(a), machine_facts(b)
    differing = [name for name, value in left.items() if value != right[name]]
    for name in differing:
        first, second = _only_changed(left[name], right[name])
        yield _NOT, fact("host.other_machine", part=name, first=first, second=second, is_first=name == differing[0])


def _states(a: Fingerprint, b: Fingerprint) -> Iterator[Difference]:
    for rule in _STATE_RULES:
        left, right = rule.value(a), rule.value(b)
        if left != right:
            first, second = _only_changed(left, right)
            yield rule.level, fact("host.other_setting", setting=rule.name, first=first, second=second)


def _stack(a: SoftwareFacts | None, b: SoftwareFacts | None) -> Iterator[Difference]:
    if a is None and b is None:
        return
    if a is None or b is None:
        yield _COMPARABLE, fact("host.unknown_software", side="first" if a is None else "second")
        return
    left, right = stack_facts(a), stack_facts(b)
    for name, value in left.items():
        if value != right[name]:
            first, second = _only_changed(value, right[name])
            yield _COMPARABLE, fact("host.other_software", part=name, first=first, second=second)


def _distinct(values: Iterable[object]) -> list[str]:
    return sorted({_word(value) for value in values})


def _only_changed(left: object, right: object) -> tuple[Value, Value]:
    """Of mappings and lists of features, only what differs is worth a line."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        names = sorted(name for name in {*left, *right} if left.get(name) != right.get(name))
        return tuple(f"{n}={left.get(n)}" for n in names), tuple(f"{n}={right.get(n)}" for n in names)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return (
            tuple(_word(item) for item in left if item not in right),
            tuple(_word(item) for item in right if item not in left),
        )
    return _value(left), _value(right)


def _value(value: object) -> Value:
    if isinstance(value, (list, tuple)):
        return tuple(_word(item) for item in value)
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def _word(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_word(item) for item in value)
    return "?" if value is None else str(value)
