"""Two identities: what makes timings comparable, and what software ran.

Left out of both on purpose: serial numbers (`ppin`, DMI), addresses, host names; whatever differs between
two boots or two moments of the same machine (current frequency, load, memory to the byte, order of files).
Microcode and kernel are left out too: `match` names them, because they change while the machine stays.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from perfguard.records.facts import Fact, Value, fact
from perfguard.records.machine.fingerprint import (
    Compatibility,
    CompatibilityLevel,
    Fingerprint,
    SoftwareFacts,
    Topology,
)

_HASH_DIGITS = 8
_KERNEL_SHARE = 1.12
_RUN_PINS = ("THREADS", "AFFINITY", "PROC_BIND", "PLACES", "PYTHONHASHSEED", "GOMP_CPU_AFFINITY")
"""Variables that the runner sets for each run; they do not make another stack."""

_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}


def machine_id(found: Fingerprint) -> str:
    """`intel-sapphirerapids-2s112c-1f2e3d4c`: readable, and equal for machines whose timings compare."""
    cpu, topology = found.cpu, found.topology
    vendor = _VENDORS.get(cpu.vendor or "", _slug(cpu.vendor))
    shape = f"{_number(topology.packages)}s{_number(topology.cores)}c"
    name = [vendor, _slug(cpu.microarchitecture), *(["vm"] if cpu.hypervisor else []), shape]
    return "-".join([*name, _digest(machine_facts(found))])


def stack_id(software: SoftwareFacts | None) -> str | None:
    """`torch2.13.0-py3.11-1f2e3d4c`; None when no interpreter was asked."""
    if software is None:
        return None
    torch = f"torch{software.torch_version.partition('+')[0]}" if software.torch_version else "notorch"
    python = ".".join((software.python_version or "unknown").split(".")[:2])
    return "-".join([_slug(torch, keep="."), f"py{_slug(python, keep='.')}", _digest(stack_facts(software))])


def machine_facts(found: Fingerprint) -> dict[str, object]:
    """What the machine id is a hash of."""
    cpu, isa, topology = found.cpu, found.isa, found.topology
    return {
        "vendor": cpu.vendor,
        "brand": cpu.brand,
        "family": cpu.family,
        "model": cpu.model,
        "stepping": cpu.stepping,
        "microarchitecture": cpu.microarchitecture,
        "hypervisor": cpu.hypervisor,
        "isa": isa.features,
        "amx_denied": isa.amx_permission.value == "denied",
        "packages": topology.packages,
        "dies": topology.dies,
        "cores": topology.cores,
        "threads": topology.threads_online,
        "smt": topology.smt,
        "classes": [[group.core_class.value, group.cores, len(group.cpus)] for group in topology.core_classes],
        "frequencies_hz": _tally(cpu.max_frequency_hz for cpu in topology.cpus),
        "caches": [
            [cache.level, cache.kind, cache.size_bytes, cache.instances, cache.shared_by] for cache in found.caches
        ],
        "nodes": _node_shapes(topology, with_memory=not cpu.hypervisor),
    }


def stack_facts(software: SoftwareFacts) -> dict[str, object]:
    """What the stack id is a hash of; thread counts and pins belong to the run."""
    return {
        "python": [software.python_implementation, software.python_version],
        "glibc": software.glibc_version,
        "torch": [software.torch_version, software.torch_git_version, software.torch_debug, software.torch_cxx11_abi],
        "isa": [software.aten_isa, software.onednn_isa, software.mkl_isa],
        "libraries": [software.onednn_version, software.mkl_version, software.ipex_version, software.numpy_version],
        "openmp": _names(software.openmp_runtimes),
        "malloc": _names(software.malloc_libraries),
        "settings": [
            software.flushes_denormals,
            software.float32_matmul_precision,
            software.onednn_enabled,
            software.deterministic,
        ],
        "environment": stack_environment(software.environment),
    }


def stack_environment(environment: Mapping[str, str] | None) -> dict[str, str] | None:
    """The variables that make another stack; those the runner pins are left out."""
    if environment is None:
        return None
    return {name: value for name, value in environment.items() if not any(pin in name for pin in _RUN_PINS)}


def _node_shapes(topology: Topology, *, with_memory: bool) -> list[list[object]]:
    """CPUs, rough memory and distances of each node.

    Memory says how many channels are filled. A guest's says nothing of that, and grows and shrinks while it runs: one
    was seen with 6.5 GB, 40 minutes later with 16 and then with 24.
    """
    return [
        [
            len(node.cpus) if node.cpus is not None else None,
            _rounded_memory(node.memory_bytes) if with_memory else None,
            node.distances,
        ]
        for node in topology.numa_nodes
    ]


def _rounded_memory(size: int | None) -> int | None:
    """A power of two, with 12 % room for what firmware and the kernel keep, which differs between boots."""
    return int(size * _KERNEL_SHARE).bit_length() if size is not None else None


def _tally(values: Iterable[int | None]) -> list[list[int | None]]:
    return sorted(([value, count] for value, count in Counter(values).items()), key=lambda pair: pair[0] or 0)


def _names(files: Iterable[str] | None) -> list[str] | None:
    return None if files is None else sorted(files)


def _digest(facts: Mapping[str, object]) -> str:
    canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:_HASH_DIGITS]


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _slug(text: str | None, keep: str = "") -> str:
    allowed = re.escape(keep)
    slug = re.sub(rf"[^a-z0-9_{allowed}]+", "-", (text or "").lower()).strip("-")
    return slug[:40] or "unknown"


def machine_line(fingerprint: Fingerprint) -> str:
    """One line for people: brand, microarchitecture, cores. The only place that makes it; results keep it."""
    cpu, topology = fingerprint.cpu, fingerprint.topology
    brand = cpu.brand or "unknown CPU"
    called = cpu.resembles or cpu.microarchitecture
    name = f" ({called})" if called else ""
    cores = f", {topology.cores} cores" if topology.cores else ""
    nodes = f", {len(topology.numa_nodes)} NUMA nodes" if len(topology.numa_nodes) > 1 else ""
    guest = f", {cpu.hypervisor_name or 'virtual'} guest" if cpu.hypervisor else ""
    return f"{brand}{name}{cores}{nodes}{guest}"


_EQUAL, _COMPARABLE, _NOT = (CompatibilityLevel.EQUAL, CompatibilityLevel.COMPARABLE, CompatibilityLevel.INCOMPARABLE)

Difference = tuple[CompatibilityLevel, Fact]  # How much a difference matters, and what it is


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
