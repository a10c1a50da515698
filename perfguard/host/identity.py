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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perfguard.records.machine.fingerprint import Fingerprint, SoftwareFacts, Topology

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
