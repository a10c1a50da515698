"""Two identities: what makes timings comparable, and what software ran.

Left out of both on purpose: serial numbers (`ppin`, DMI), addresses, host names; whatever differs between
two boots or two moments of the same machine (current frequency, load, memory to the byte, order of files).
Microcode and kernel are left out too: `match` names them, because they change while the machine stays. It says whether
the timings of two fingerprints may be compared, with what differs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from perfguard.records.facts import Fact, Value, fact
from perfguard.records.machine.fingerprint import Compatibility, CompatibilityLevel, Fingerprint, SoftwareFacts

_HASH_DIGITS = 8
_KERNEL_SHARE = 1.12
# The runner sets these for each run, and torch the last one once its compiler is imported; they make no other stack.
_RUN_PINS = (
    *("THREADS", "AFFINITY", "PROC_BIND", "PLACES", "PYTHONHASHSEED", "GOMP_CPU_AFFINITY"),
    "TORCHINDUCTOR_CACHE_DIR",
)


_EQUAL, _COMPARABLE, _NOT = (CompatibilityLevel.EQUAL, CompatibilityLevel.COMPARABLE, CompatibilityLevel.INCOMPARABLE)

_Difference = tuple[CompatibilityLevel, Fact]  # How much a difference matters, and what it is
_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}


def machine_id(found: Fingerprint) -> str:
    """`intel-sapphirerapids-2s112c-1f2e3d4c`: readable, and equal for machines whose timings compare."""
    cpu, topology = found.cpu, found.topology
    vendor = _VENDORS.get(cpu.vendor or "", _slug(cpu.vendor))
    packages, cores = ("?" if count is None else count for count in (topology.packages, topology.cores))
    name = [vendor, _slug(cpu.microarchitecture), *(["vm"] if cpu.hypervisor else []), f"{packages}s{cores}c"]
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
    frequencies = Counter(place.max_frequency_hz for place in topology.cpus)
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
        "frequencies_hz": sorted(map(list, frequencies.items()), key=lambda pair: pair[0] or 0),
        "caches": [[each.level, each.kind, each.size_bytes, each.instances, each.shared_by] for each in found.caches],
        # Memory says how many channels are filled. A guest's says nothing of that, and grows and shrinks while it runs:
        # one was seen with 6.5 GB, 40 minutes later with 16 and then with 24.
        "nodes": [
            [
                None if node.cpus is None else len(node.cpus),
                None if cpu.hypervisor else _rounded_memory(node.memory_bytes),
                node.distances,
            ]
            for node in topology.numa_nodes
        ],
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


def _rounded_memory(size: int | None) -> int | None:
    """A power of two, with 12 % room for what firmware and the kernel keep, which differs between boots."""
    return int(size * _KERNEL_SHARE).bit_length() if size is not None else None


def _names(files: Iterable[str] | None) -> list[str] | None:
    return None if files is None else sorted(files)


def _digest(facts: Mapping[str, object]) -> str:
    canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:_HASH_DIGITS]


def _slug(text: str | None, keep: str = "") -> str:
    allowed = re.escape(keep)
    slug = re.sub(rf"[^a-z0-9_{allowed}]+", "-", (text or "").lower()).strip("-")
    return slug[:40] or "unknown"


def machine_line(fingerprint: Fingerprint) -> str:
    """One line for people: brand, microarchitecture, cores. The only place that makes it; results keep it."""
    cpu, topology = fingerprint.cpu, fingerprint.topology
    called = cpu.resembles or cpu.microarchitecture
    name = f" ({called})" if called else ""
    cores = f", {topology.cores} cores" if topology.cores else ""
    nodes = f", {len(topology.numa_nodes)} NUMA nodes" if len(topology.numa_nodes) > 1 else ""
    guest = f", {cpu.hypervisor_name or 'virtual'} guest" if cpu.hypervisor else ""
    return f"{cpu.brand or 'unknown CPU'}{name}{cores}{nodes}{guest}"


_SETTINGS: dict[str, tuple[CompatibilityLevel, Callable[[Fingerprint], object]]] = {
    "fingerprint_schema": (_NOT, attrgetter("schema_version")),
    "governor": (_NOT, attrgetter("state.governor")),
    "frequency_driver": (_NOT, attrgetter("state.driver")),
    "turbo": (_NOT, attrgetter("state.turbo")),
    "frequency_limits_hz": (_NOT, lambda f: _distinct((d.limit_min_hz, d.limit_max_hz) for d in f.state.frequency)),
    "pstate_limits": (_NOT, lambda f: [f.state.min_perf_percent, f.state.max_perf_percent]),
    "cpu_quota": (_NOT, attrgetter("limits.quota_cpus")),
    "cpuset": (_NOT, attrgetter("limits.allowed_cpus")),
    "microcode": (_COMPARABLE, attrgetter("cpu.microcode")),
    "kernel": (_COMPARABLE, attrgetter("state.kernel")),
    "mitigations": (_COMPARABLE, attrgetter("state.mitigations")),
    "energy_preference": (_COMPARABLE, lambda f: _distinct(d.energy_preference for d in f.state.frequency)),
    "huge_pages": (_COMPARABLE, lambda f: [f.state.thp, f.state.thp_defrag]),
    "numa_balancing": (_COMPARABLE, attrgetter("state.numa_balancing")),
    "same_page_merging": (_COMPARABLE, attrgetter("state.ksm")),
    "aslr": (_COMPARABLE, attrgetter("state.aslr")),
    "clock_source": (_COMPARABLE, attrgetter("state.clocksource")),
}


def match(a: Fingerprint, b: Fingerprint) -> Compatibility:
    """How the timings of two fingerprints relate.

    - *equal*: nothing that is known to matter differs.
    - *comparable*: the same machine in the same speed settings, but something differs that shifts timings by
      little, or is what is being compared (the software stack).
    - *incomparable*: another machine, another speed setting or another limit, or a machine that is not known.
    """
    found = [*_other_machine(a, b)] or [*_other_settings(a, b), *_other_stack(a.software, b.software)]
    found.sort(key=lambda difference: difference[0] is not _NOT)
    return Compatibility(level=found[0][0] if found else _EQUAL, reasons=tuple(reason for _, reason in found))


def _other_machine(a: Fingerprint, b: Fingerprint) -> Iterator[_Difference]:
    """What makes them different machines; then their settings are of no interest."""
    # Two machines that do not say what they are may look the same and be different.
    if a.cpu.vendor is None and b.cpu.vendor is None:
        yield _NOT, fact("host.unknown_cpu")
    if a.topology.threads_online is None and b.topology.threads_online is None:
        yield _NOT, fact("host.unknown_cpus")
    left, right = machine_facts(a), machine_facts(b)
    differing = [name for name, value in left.items() if value != right[name]]
    for name in differing:
        first, second = _only_changed(left[name], right[name])
        yield _NOT, fact("host.other_machine", part=name, first=first, second=second, is_first=name == differing[0])


def _other_settings(a: Fingerprint, b: Fingerprint) -> Iterator[_Difference]:
    for name, (level, value) in _SETTINGS.items():
        if value(a) != value(b):
            first, second = _only_changed(value(a), value(b))
            yield level, fact("host.other_setting", setting=name, first=first, second=second)


def _other_stack(a: SoftwareFacts | None, b: SoftwareFacts | None) -> Iterator[_Difference]:
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
        first, second = ([i for i in one if i not in other] for one, other in ((left, right), (right, left)))
        return _value(first), _value(second)
    return _value(left), _value(right)


def _value(value: object) -> Value:
    if isinstance(value, (list, tuple)):
        return tuple(_word(item) for item in value)
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def _word(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_word(item) for item in value)
    return "?" if value is None else str(value)
