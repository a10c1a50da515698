"""Sources of noise on a host, one row each: what was seen, why it matters, and the command that fixes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfguard.host.parsers.parsing import parse_count, parse_float
from perfguard.host.parsers.reading import open_tree
from perfguard.host.parsers.software import ALLOCATORS, allocator
from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.machine.fingerprint import CheckResult, CheckStatus, Fingerprint, QuotaState
from perfguard.units import format_bytes, format_count, format_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_OK, _WARN, _FAIL = CheckStatus.OK, CheckStatus.WARN, CheckStatus.FAIL
_UNKNOWN, _NOT_APPLICABLE = CheckStatus.UNKNOWN, CheckStatus.NOT_APPLICABLE
_STEAL_WARN_RATIO = 0.001
_STEAL_FAIL_RATIO = 0.01
_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_UNBOUND = ("disabled", "none", "false")
"""Values of binding variables that bind nothing."""
_MALLOC_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
_MALLOC_FIX = "export MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592"
_THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    fingerprint: Fingerprint
    environment: Mapping[str, str]
    threads: int
    cpus: tuple[int, ...] | None
    load: float | None


def run_checks(
    fingerprint: Fingerprint,
    *,
    environment: Mapping[str, str],
    threads: int | None,
    cpus: Iterable[int] | None,
    root: Path = Path("/"),
) -> tuple[CheckResult, ...]:
    """All checks, in the order a person would fix them.

    Args:
        fingerprint: The host.
        environment: Variables that the workers will see.
        threads: Threads of a run; None for one a CPU of the mask.
        cpus: The mask of a run; None where none was chosen, then all online CPUs count.
        root: The machine, for the load of this moment.
    """
    mask = None if cpus is None else tuple(sorted(set(cpus)))
    with open_tree(root) as tree:
        load = parse_float((tree.text("proc/loadavg") or "").partition(" ")[0])
    width = len(mask) if mask is not None else fingerprint.topology.threads_online or 1
    host = _Host(fingerprint=fingerprint, environment=environment, threads=threads or width, cpus=mask, load=load)
    return tuple(check(host) for check in _CHECKS)


def _governor(host: _Host) -> CheckResult:
    state = host.fingerprint.state
    why = "Other governors change the clock with the load; up to a factor of two."
    if not state.frequency:
        return _row("governor", _virtual_or_unknown(host), "unknown: no cpufreq", why)
    governors = {domain.governor for domain in state.frequency}
    observed = ", ".join(sorted(governor or "unknown" for governor in governors))
    if governors == {"performance"}:
        return _row("governor", _OK, observed, why)
    return _row(
        "governor",
        _UNKNOWN if None in governors else _WARN,
        observed,
        why,
        "sudo cpupower frequency-set -g performance",
    )


def _turbo(host: _Host) -> CheckResult:
    turbo = host.fingerprint.state.turbo
    why = "Turbo follows temperature, neighbours and AVX use, so equal code runs at different clocks."
    if turbo is None:
        return _row("turbo", _virtual_or_unknown(host), "unknown", why)
    fix = "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost"
    if host.fingerprint.state.driver in {"intel_pstate", "intel_cpufreq"}:
        fix = "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"
    return _row("turbo", _WARN, "on", why, fix) if turbo else _row("turbo", _OK, "off", why)


def _smt(host: _Host) -> CheckResult:
    topology = host.fingerprint.topology
    why = "Hardware threads of one core share its units: a sibling's work is this run's noise."
    if topology.smt is None:
        return _row("smt", _UNKNOWN, "unknown", why)
    if not topology.smt:
        return _row("smt", _OK, "off", why)
    cores = [cpu.core for cpu in topology.cpus if host.cpus is None or cpu.id in host.cpus]
    if len(cores) == len(set(cores)):
        return _row("smt", _OK, "on, one thread a core is used", why)
    return _row(
        "smt",
        _WARN,
        "on, and siblings share cores",
        why,
        "echo off | sudo tee /sys/devices/system/cpu/smt/control",
    )


def _load(host: _Host) -> CheckResult:
    why = "Whatever else runs takes cycles, cache and memory bandwidth."
    load = host.load if host.load is not None else host.fingerprint.state.load_1min
    online = host.fingerprint.topology.threads_online
    if load is None or online is None:
        return _row("load", _UNKNOWN, "unknown", why)
    observed = f"{load:.2f} runnable on {online} CPUs over the last minute"
    fix = "stop other work; find it with: ps -eo pcpu,pid,comm --sort=-pcpu | head"
    if load + host.threads > online + 0.5:
        return _row("load", _FAIL if load > 0.5 else _OK, observed, why, fix if load > 0.5 else "")
    return (
        _row("load", _WARN, observed, why, fix) if load > max(0.5, 0.05 * online) else _row("load", _OK, observed, why)
    )


def _steal(host: _Host) -> CheckResult:
    ratio = host.fingerprint.state.steal_ratio
    why = "The hypervisor gave this machine's time to another one."
    if host.fingerprint.cpu.hypervisor is False and not ratio:
        return _row("steal", _NOT_APPLICABLE, "not a virtual machine", why)
    if ratio is None:
        return _row("steal", _UNKNOWN, "unknown", why)
    observed = f"{format_ratio(ratio)} since boot"
    fix = "use a dedicated host or instance; the tool voids blocks with steal"
    if ratio >= _STEAL_WARN_RATIO:
        return _row("steal", _FAIL if ratio >= _STEAL_FAIL_RATIO else _WARN, observed, why, fix)
    return _row("steal", _OK, observed, why)


def _numa_balancing(host: _Host) -> CheckResult:
    why = "The kernel unmaps and moves pages while the run is timed."
    nodes = [node for node in host.fingerprint.topology.numa_nodes if node.memory_bytes != 0]
    if len(nodes) == 1:
        return _row("numa-balancing", _NOT_APPLICABLE, "one node", why)
    balancing = host.fingerprint.state.numa_balancing
    if balancing is None:
        return _row("numa-balancing", _UNKNOWN, "unknown", why)
    fix = "sudo sysctl -w kernel.numa_balancing=0"
    return _row("numa-balancing", _WARN, "on", why, fix) if balancing else _row("numa-balancing", _OK, "off", why)


def _thp(host: _Host) -> CheckResult:
    mode = host.fingerprint.state.thp
    why = "With always, whether memory comes in huge pages depends on how fragmented it is at that moment."
    if mode is None:
        return _row("thp", _UNKNOWN, "unknown", why)
    fix = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    return _row("thp", _WARN, mode, why, fix) if mode == "always" else _row("thp", _OK, mode, why)


def _quota(host: _Host) -> CheckResult:
    limits = host.fingerprint.limits
    why = "Neither torch nor OpenMP reads quotas: threads above it are stopped for part of every period."
    if limits.quota is QuotaState.UNKNOWN:
        return _row("cgroup-quota", _UNKNOWN, "unknown", why)
    if limits.quota_cpus is None:
        return _row("cgroup-quota", _OK, "none", why)
    observed = f"{limits.quota_cpus:g} CPUs, {host.threads} threads"
    fix = f"use --threads {max(1, int(limits.quota_cpus))}, or limit the container by cpuset instead of quota"
    return _row("cgroup-quota", _FAIL if host.threads > limits.quota_cpus else _WARN, observed, why, fix)


def _swap(host: _Host) -> CheckResult:
    state = host.fingerprint.state
    why = "A page that comes back from swap costs milliseconds inside a step."
    if state.swap_bytes is None:
        return _row("swap", _UNKNOWN, "unknown", why)
    observed = (
        f"{format_bytes(state.swap_used_bytes)} of {format_bytes(state.swap_bytes)} used"
        if state.swap_bytes
        else "none"
    )
    return (
        _row("swap", _WARN, observed, why, "sudo swapoff -a")
        if state.swap_used_bytes
        else _row("swap", _OK, observed, why)
    )


def _aslr(host: _Host) -> CheckResult:
    aslr = host.fingerprint.state.aslr
    why = "Random layouts of fresh processes average out; one fixed layout is a bias of a few per cent."
    if aslr is None:
        return _row("aslr", _UNKNOWN, "unknown", why)
    observed = {0: "off", 1: "partly on", 2: "on"}[aslr]
    fix = "sudo sysctl -w kernel.randomize_va_space=2"
    return _row("aslr", _OK, observed, why) if aslr == 2 else _row("aslr", _WARN, observed, why, fix)


def _allocator(host: _Host) -> CheckResult:
    why = "The allocator decides how many page faults a step takes; both arms must have the same."
    preload = host.environment.get("LD_PRELOAD", "")
    named = next((name for mark, name in ALLOCATORS.items() if mark in preload), None)
    software = host.fingerprint.software
    loaded = allocator(software) if software is not None else None
    if named is not None and loaded is not None and named != loaded:
        fix = f"ldconfig -p | grep {named}   # and put the path it prints into LD_PRELOAD"
        return _row("allocator", _FAIL, f"LD_PRELOAD names {named}, but {loaded} is loaded", why, fix)
    # Without an answer from the interpreter, only LD_PRELOAD could have put another allocator in its place.
    observed = loaded or named or "system"
    if observed != "system":
        return _row("allocator", _OK, observed, why)
    tuned = [name for name in _MALLOC_SETTINGS if name in host.environment]
    if tuned:
        return _row("allocator", _OK, f"the C library's, with {', '.join(tuned)}", why)
    return _row("allocator", _WARN, "the C library's, as it comes", why, _MALLOC_FIX)


def _threads(host: _Host) -> CheckResult:
    why = "Threads beyond the CPUs wait for each other; binding variables shrink the mask at import of torch."
    mask = host.cpus if host.cpus is not None else host.fingerprint.topology.online
    if mask is None:
        return _row("threads", _UNKNOWN, "unknown", why)
    observed = f"{format_count(host.threads, 'thread')} on {format_count(len(mask), 'CPU')} ({format_cpu_list(mask)})"
    counts = {name: parse_count(host.environment.get(name)) for name in _THREAD_COUNTS}
    too_many = [f"{name}={count}" for name, count in counts.items() if count is not None and count > len(mask)]
    if host.threads > len(mask) or too_many:
        observed = f"{observed}; {', '.join(too_many)}" if too_many else observed
        return _row("threads", _FAIL, observed, why, f"export OMP_NUM_THREADS={len(mask)} MKL_NUM_THREADS={len(mask)}")
    binding = [name for name in _BINDING if host.environment.get(name, _UNBOUND[0]).lower() not in _UNBOUND]
    if binding:
        return _row("threads", _WARN, f"{observed}; {', '.join(binding)} set", why, f"unset {' '.join(binding)}")
    return _row("threads", _OK, observed, why)


_CHECKS: tuple[Callable[[_Host], CheckResult], ...] = (
    _threads, _quota, _load, _steal, _governor, _turbo, _smt, _numa_balancing, _thp, _swap, _aslr, _allocator,
)  # fmt: skip


def _virtual_or_unknown(host: _Host) -> CheckStatus:
    return _NOT_APPLICABLE if host.fingerprint.cpu.hypervisor else _UNKNOWN


def _row(name: str, status: CheckStatus, observed: str, why: str, fix: str = "") -> CheckResult:
    return CheckResult(id=name, status=status, observed=observed, why=why, fix=fix)
