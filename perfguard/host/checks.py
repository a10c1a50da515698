"""Sources of noise on a host, one row each: what was seen, why it matters, and the command that fixes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfguard.host.parsers.parsing import parse_count, parse_float
from perfguard.host.parsers.reading import open_tree
from perfguard.host.parsers.software import ALLOCATORS, allocator
from perfguard.records.facts import Fact, fact
from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.machine.fingerprint import CheckResult, CheckStatus, Fingerprint, QuotaState

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
_THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_UNREAD, _ON, _OFF, _NONE = (fact("doctor.unknown"), fact("doctor.on"), fact("doctor.off"), fact("doctor.none"))


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
    why = fact("doctor.why_governor")
    if not state.frequency:
        return _row("governor", _virtual_or_unknown(host), fact("doctor.no_cpufreq"), why)
    governors = {domain.governor for domain in state.frequency}
    observed = fact("doctor.governor", governors=tuple(sorted(governor or "unknown" for governor in governors)))
    if governors == {"performance"}:
        return _row("governor", _OK, observed, why)
    return _row("governor", _UNKNOWN if None in governors else _WARN, observed, why, fact("doctor.fix_governor"))


def _turbo(host: _Host) -> CheckResult:
    turbo = host.fingerprint.state.turbo
    why = fact("doctor.why_turbo")
    if turbo is None:
        return _row("turbo", _virtual_or_unknown(host), _UNREAD, why)
    is_intel = host.fingerprint.state.driver in {"intel_pstate", "intel_cpufreq"}
    file = "intel_pstate/no_turbo" if is_intel else "cpufreq/boost"
    fix = fact("doctor.fix_turbo", value=1 if is_intel else 0, file=file)
    return _row("turbo", _WARN, _ON, why, fix) if turbo else _row("turbo", _OK, _OFF, why)


def _smt(host: _Host) -> CheckResult:
    topology = host.fingerprint.topology
    why = fact("doctor.why_smt")
    if topology.smt is None:
        return _row("smt", _UNKNOWN, _UNREAD, why)
    if not topology.smt:
        return _row("smt", _OK, _OFF, why)
    cores = [cpu.core for cpu in topology.cpus if host.cpus is None or cpu.id in host.cpus]
    if len(cores) == len(set(cores)):
        return _row("smt", _OK, fact("doctor.smt_unused"), why)
    return _row("smt", _WARN, fact("doctor.smt_shared"), why, fact("doctor.fix_smt"))


def _load(host: _Host) -> CheckResult:
    why = fact("doctor.why_load")
    load = host.load if host.load is not None else host.fingerprint.state.load_1min
    online = host.fingerprint.topology.threads_online
    if load is None or online is None:
        return _row("load", _UNKNOWN, _UNREAD, why)
    observed = fact("doctor.load", runnable=load, cpus=online)
    fix = fact("doctor.fix_load")
    if load + host.threads > online + 0.5:
        return _row("load", _FAIL if load > 0.5 else _OK, observed, why, fix if load > 0.5 else None)
    return (
        _row("load", _WARN, observed, why, fix) if load > max(0.5, 0.05 * online) else _row("load", _OK, observed, why)
    )


def _steal(host: _Host) -> CheckResult:
    ratio = host.fingerprint.state.steal_ratio
    why = fact("doctor.why_steal")
    if host.fingerprint.cpu.hypervisor is False and not ratio:
        return _row("steal", _NOT_APPLICABLE, fact("doctor.bare_metal"), why)
    if ratio is None:
        return _row("steal", _UNKNOWN, _UNREAD, why)
    observed = fact("doctor.steal", steal_ratio=ratio)
    fix = fact("doctor.fix_steal")
    if ratio >= _STEAL_WARN_RATIO:
        return _row("steal", _FAIL if ratio >= _STEAL_FAIL_RATIO else _WARN, observed, why, fix)
    return _row("steal", _OK, observed, why)


def _numa_balancing(host: _Host) -> CheckResult:
    why = fact("doctor.why_numa_balancing")
    nodes = [node for node in host.fingerprint.topology.numa_nodes if node.memory_bytes != 0]
    if len(nodes) == 1:
        return _row("numa-balancing", _NOT_APPLICABLE, fact("doctor.one_node"), why)
    balancing = host.fingerprint.state.numa_balancing
    if balancing is None:
        return _row("numa-balancing", _UNKNOWN, _UNREAD, why)
    fix = fact("doctor.fix_numa_balancing")
    return _row("numa-balancing", _WARN, _ON, why, fix) if balancing else _row("numa-balancing", _OK, _OFF, why)


def _thp(host: _Host) -> CheckResult:
    mode = host.fingerprint.state.thp
    why = fact("doctor.why_thp")
    if mode is None:
        return _row("thp", _UNKNOWN, _UNREAD, why)
    observed = fact("doctor.huge_pages", mode=mode)
    if mode == "always":
        return _row("thp", _WARN, observed, why, fact("doctor.fix_thp"))
    return _row("thp", _OK, observed, why)


def _quota(host: _Host) -> CheckResult:
    limits = host.fingerprint.limits
    why = fact("doctor.why_quota")
    if limits.quota is QuotaState.UNKNOWN:
        return _row("cgroup-quota", _UNKNOWN, _UNREAD, why)
    if limits.quota_cpus is None:
        return _row("cgroup-quota", _OK, _NONE, why)
    observed = fact("doctor.quota", quota_cpus=limits.quota_cpus, threads=host.threads)
    fix = fact("doctor.fix_quota", threads=max(1, int(limits.quota_cpus)))
    return _row("cgroup-quota", _FAIL if host.threads > limits.quota_cpus else _WARN, observed, why, fix)


def _swap(host: _Host) -> CheckResult:
    state = host.fingerprint.state
    why = fact("doctor.why_swap")
    if state.swap_bytes is None:
        return _row("swap", _UNKNOWN, _UNREAD, why)
    observed = _NONE
    if state.swap_bytes:
        observed = fact("doctor.swap", used_bytes=state.swap_used_bytes, swap_bytes=state.swap_bytes)
    if state.swap_used_bytes:
        return _row("swap", _WARN, observed, why, fact("doctor.fix_swap"))
    return _row("swap", _OK, observed, why)


def _aslr(host: _Host) -> CheckResult:
    aslr = host.fingerprint.state.aslr
    why = fact("doctor.why_aslr")
    if aslr is None:
        return _row("aslr", _UNKNOWN, _UNREAD, why)
    observed = {0: _OFF, 1: fact("doctor.aslr_partly"), 2: _ON}[aslr]
    fix = fact("doctor.fix_aslr")
    return _row("aslr", _OK, observed, why) if aslr == 2 else _row("aslr", _WARN, observed, why, fix)


def _allocator(host: _Host) -> CheckResult:
    why = fact("doctor.why_allocator")
    preload = host.environment.get("LD_PRELOAD", "")
    named = next((name for mark, name in ALLOCATORS.items() if mark in preload), None)
    software = host.fingerprint.software
    loaded = allocator(software) if software is not None else None
    if named is not None and loaded is not None and named != loaded:
        seen = fact("doctor.allocator_not_loaded", preloaded=named, loaded=loaded)
        return _row("allocator", _FAIL, seen, why, fact("doctor.fix_preload", allocator=named))
    # Without an answer from the interpreter, only LD_PRELOAD could have put another allocator in its place.
    observed = loaded or named or "system"
    if observed != "system":
        return _row("allocator", _OK, fact("doctor.allocator", allocator=observed), why)
    tuned = tuple(name for name in _MALLOC_SETTINGS if name in host.environment)
    if tuned:
        return _row("allocator", _OK, fact("doctor.allocator_tuned", settings=tuned), why)
    return _row("allocator", _WARN, fact("doctor.allocator_untuned"), why, fact("doctor.fix_allocator"))


def _threads(host: _Host) -> CheckResult:
    why = fact("doctor.why_threads")
    mask = host.cpus if host.cpus is not None else host.fingerprint.topology.online
    if mask is None:
        return _row("threads", _UNKNOWN, _UNREAD, why)
    counts = {name: parse_count(host.environment.get(name)) for name in _THREAD_COUNTS}
    too_many = tuple(f"{name}={count}" for name, count in counts.items() if count is not None and count > len(mask))
    binding = tuple(name for name in _BINDING if host.environment.get(name, _UNBOUND[0]).lower() not in _UNBOUND)
    observed = fact(
        "doctor.threads",
        threads=host.threads,
        cpus=len(mask),
        cpu_list=format_cpu_list(mask),
        too_many=too_many,
        binding=binding,
    )
    if host.threads > len(mask) or too_many:
        return _row("threads", _FAIL, observed, why, fact("doctor.fix_threads", cpus=str(len(mask))))
    if binding:
        return _row("threads", _WARN, observed, why, fact("doctor.fix_binding", names=" ".join(binding)))
    return _row("threads", _OK, observed, why)


_CHECKS: tuple[Callable[[_Host], CheckResult], ...] = (
    _threads, _quota, _load, _steal, _governor, _turbo, _smt, _numa_balancing, _thp, _swap, _aslr, _allocator,
)  # fmt: skip


def _virtual_or_unknown(host: _Host) -> CheckStatus:
    return _NOT_APPLICABLE if host.fingerprint.cpu.hypervisor else _UNKNOWN


def _row(name: str, status: CheckStatus, observed: Fact, why: Fact, fix: Fact | None = None) -> CheckResult:
    return CheckResult(id=name, status=status, observed=observed, why=why, fix=fix)
