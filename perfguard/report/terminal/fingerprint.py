"""A fingerprint as text for a terminal: what a person wants to see first, grouped and aligned."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from perfguard.host.parsers.software import allocator
from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.machine.fingerprint import (
    AmxPermission,
    Cache,
    EffectiveIsa,
    Fingerprint,
    IsaSource,
    MemoryKind,
    QuotaState,
    SoftwareFacts,
)
from perfguard.report.messages.catalog import describe
from perfguard.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

UNKNOWN = "unknown"
_LABEL_WIDTH = 15
_MAX_NODES = 16
_Row = tuple[str, str]
_T = TypeVar("_T")


def render_fingerprint(found: Fingerprint) -> str:
    """Lines of `label  value` in groups, ending in a newline. Unknown facts read `unknown`."""
    groups: tuple[tuple[str, Iterable[_Row]], ...] = (
        ("", (("machine", found.machine_id), ("stack", found.stack_id or UNKNOWN))),
        ("CPU", _cpu(found)),
        ("Instruction sets", _isa(found)),
        ("Topology", _topology(found)),
        ("Limits", _limits(found)),
        ("State", _state(found)),
        ("Software", _software(found.software)),
    )
    blocks = ["\n".join(_block(title, rows)) for title, rows in groups]
    if found.notes:
        blocks.append("\n".join(("Notes", *(f"  - {describe(note)}" for note in found.notes))))
    return "\n\n".join(blocks) + "\n"


def _cpu(found: Fingerprint) -> Iterator[_Row]:
    cpu = found.cpu
    yield "brand", _text(cpu.brand)
    yield "vendor", _text(cpu.vendor)
    yield "model", f"family {_text(cpu.family)}, model {_text(cpu.model)}, stepping {_text(cpu.stepping)}"
    without = f" without {', '.join(cpu.hidden_flags)}" if cpu.hidden_flags else ""
    resembles = f" ({cpu.resembles}{without})" if cpu.resembles else ""
    yield "architecture", f"{_text(cpu.architecture)}, {_text(cpu.microarchitecture)}{resembles}"
    yield "microcode", _text(cpu.microcode)
    yield "hypervisor", cpu.hypervisor_name or _switch(cpu.hypervisor, yes="yes (which one is unknown)", no="none")


def _isa(found: Fingerprint) -> Iterator[_Row]:
    isa = found.isa
    named = (
        ("AVX2", isa.avx2), ("AVX-512", isa.avx512),
        ("VNNI", isa.vnni), ("BF16", isa.bf16), ("FP16", isa.fp16),
        ("AMX-INT8", isa.amx_int8), ("AMX-BF16", isa.amx_bf16), ("AMX-FP16", isa.amx_fp16),
    )  # fmt: skip
    yield "usable", _listed(name for name, has in named if has) if isa.features is not None else UNKNOWN
    yield ("not usable", _listed(name for name, has in named if has is False) if isa.features is not None else UNKNOWN)
    if isa.amx_permission in {AmxPermission.GRANTED, AmxPermission.DENIED}:
        yield "AMX permission", isa.amx_permission.value
    yield "ATen", _level(isa.aten)
    yield "oneDNN", _level(isa.onednn)
    yield "MKL", _level(isa.mkl)


def _topology(found: Fingerprint) -> Iterator[_Row]:
    topology = found.topology
    yield "packages", _text(topology.packages)
    yield "cores", _text(topology.cores)
    yield "threads", f"{_text(topology.threads_online)} online, SMT {_switch(topology.smt)}"
    yield "hybrid", _switch(topology.hybrid, yes="yes", no="no")
    if topology.hybrid:
        for group in topology.core_classes:
            yield (f"{group.core_class.value} cores", f"{_text(group.cores)} (CPUs {format_cpu_list(group.cpus)})")
    yield "online", _cpus(topology.online)
    if topology.offline:
        yield "offline", _cpus(topology.offline)
    if topology.isolated:
        yield "isolated", _cpus(topology.isolated)
    yield "caches", ", ".join(_cache(cache) for cache in found.caches) or UNKNOWN
    yield "memory", _size(found.state.memory_bytes)
    for node in topology.numa_nodes[:_MAX_NODES]:
        kind = f" {node.memory_kind.value.upper()}" if node.memory_kind is not MemoryKind.UNKNOWN else ""
        yield f"node {node.id}", f"CPUs {_cpus(node.cpus)}, {_size(node.memory_bytes)}{kind}"
    if not topology.numa_nodes:
        yield "NUMA nodes", UNKNOWN
    elif len(topology.numa_nodes) > _MAX_NODES:
        yield "more nodes", str(len(topology.numa_nodes) - _MAX_NODES)


def _limits(found: Fingerprint) -> Iterator[_Row]:
    limits = found.limits
    yield "cpuset", _cpus(limits.allowed_cpus)
    quota = f"{limits.quota_cpus:g} CPUs" if limits.quota_cpus is not None else UNKNOWN
    yield "CPU quota", "none" if limits.quota is QuotaState.UNLIMITED else quota
    if limits.memory_bytes is not None:
        yield "memory limit", format_bytes(limits.memory_bytes)


def _state(found: Fingerprint) -> Iterator[_Row]:
    state = found.state
    yield "governor", ", ".join(sorted({domain.governor or UNKNOWN for domain in state.frequency})) or UNKNOWN
    yield "driver", ", ".join(sorted({domain.driver or UNKNOWN for domain in state.frequency})) or UNKNOWN
    for domain in state.frequency:
        span = f"{_ghz(domain.min_hz)} to {_ghz(domain.max_hz)}"
        yield "frequency", f"{span}, base {_ghz(domain.base_hz)} (CPUs {format_cpu_list(domain.cpus)})"
    yield "turbo", _switch(state.turbo)
    yield "huge pages", _text(state.thp)
    yield "NUMA balancing", _switch(state.numa_balancing)
    yield "ASLR", {None: UNKNOWN, 0: "off", 1: "partly on", 2: "on"}[state.aslr]
    yield "kernel", _text(state.kernel)


def _software(software: SoftwareFacts | None) -> Iterator[_Row]:
    if software is None:
        yield "interpreter", "not asked"
        return
    yield "Python", f"{_text(software.python_implementation)} {_text(software.python_version)}"
    yield "torch", _text(software.torch_version)
    yield "oneDNN", _text(software.onednn_version)
    yield "MKL", _text(software.mkl_version)
    yield "IPEX", software.ipex_version or "not installed"
    yield "OpenMP", _text(software.openmp_runtimes, _listed)
    yield "allocator", _text(allocator(software))
    yield "C library", _text(software.glibc_version)
    for name, value in (software.environment or {}).items():
        yield "environment", f"{name}={value}"
    if software.problem:
        yield "problem", describe(software.problem)


def _block(title: str, rows: Iterable[_Row]) -> Iterator[str]:
    indent = "  " if title else ""
    if title:
        yield title
    for label, value in rows:
        yield f"{indent}{label.ljust(_LABEL_WIDTH + (0 if title else 2))} {value}"


def _cache(cache: Cache) -> str:
    name = f"L{cache.level}{ {'data': 'd', 'instruction': 'i'}.get(cache.kind, '') }"
    return f"{name} {_text(cache.instances)} x {_size(cache.size_bytes)}"


def _level(level: EffectiveIsa | None) -> str:
    if level is None:
        return UNKNOWN
    return f"{level.level} ({'measured' if level.source is IsaSource.MEASURED else 'from the flags'})"


def _ghz(value: int | None) -> str:
    return _text(value, lambda hz: f"{hz / 1e9:.2f} GHz")


def _size(value: int | None) -> str:
    return _text(value, format_bytes)


def _cpus(cpus: tuple[int, ...] | None) -> str:
    return _text(cpus, lambda known: format_cpu_list(known) or "none")


def _switch(value: bool | None, *, yes: str = "on", no: str = "off") -> str:  # noqa: FBT001 - a value
    return _text(value, lambda known: yes if known else no)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _text(value: _T | None, form: Callable[[_T], str] = str) -> str:
    return UNKNOWN if value is None else form(value)
