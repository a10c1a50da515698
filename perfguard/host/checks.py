"""Sources of noise on a host, one row each: what was seen, why it matters, and the command that fixes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perfguard.host.parsers.parsing import parse_count, parse_float
from perfguard.host.parsers.reading import open_tree
from perfguard.host.parsers.software import ALLOCATORS, allocator
from perfguard.records.facts import Fact, Value, fact
from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.machine.fingerprint import CheckResult, CheckStatus, Fingerprint, QuotaState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_OK, _WARN, _FAIL = CheckStatus.OK, CheckStatus.WARN, CheckStatus.FAIL
_UNKNOWN, _NOT_APPLICABLE = CheckStatus.UNKNOWN, CheckStatus.NOT_APPLICABLE
_STEAL_WARN_RATIO = 0.001
_STEAL_FAIL_RATIO = 0.01
_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_UNBOUND = ("disabled", "none", "false")  # Values of binding variables that bind nothing
_MALLOC_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
_THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_UNREAD, _ON, _OFF, _NONE = (fact("doctor.unknown"), fact("doctor.on"), fact("doctor.off"), fact("doctor.none"))

_Seen = tuple[CheckStatus, Fact, Fact | None]  # How good it is, what was observed, how to fix it


class _Host(NamedTuple):
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
    """All checks of a run on a host, in the order a person would fix them.

    `environment` is what the workers will see, `cpus` the mask (None: all online CPUs), `threads` None for one a CPU of
    it. `root` is the machine, for the load of this moment.
    """
    mask = None if cpus is None else tuple(sorted(set(cpus)))
    with open_tree(root) as tree:
        load = parse_float((tree.text("proc/loadavg") or "").partition(" ")[0])
    width = len(mask) if mask is not None else fingerprint.topology.threads_online or 1
    host = _Host(fingerprint, environment, threads=threads or width, cpus=mask, load=load)
    results = []
    for name, (why, check) in _CHECKS.items():
        status, observed, fix = check(host)
        results.append(CheckResult(id=name, status=status, observed=observed, why=why, fix=fix))
    return tuple(results)


def _governor(host: _Host) -> _Seen:
    state = host.fingerprint.state
    if not state.frequency:
        return _virtual_or_unknown(host), fact("doctor.no_cpufreq"), None
    governors = {domain.governor for domain in state.frequency}
    observed = fact("doctor.governor", governors=tuple(sorted(governor or "unknown" for governor in governors)))
    if governors == {"performance"}:
        return _OK, observed, None
    return _UNKNOWN if None in governors else _WARN, observed, fact("doctor.fix_governor")


def _turbo(host: _Host) -> _Seen:
    turbo = host.fingerprint.state.turbo
    if turbo is None:
        return _virtual_or_unknown(host), _UNREAD, None
    is_intel = host.fingerprint.state.driver in {"intel_pstate", "intel_cpufreq"}
    file = "intel_pstate/no_turbo" if is_intel else "cpufreq/boost"
    return _off_is_good(turbo, fact("doctor.fix_turbo", value=1 if is_intel else 0, file=file))


def _smt(host: _Host) -> _Seen:
    topology = host.fingerprint.topology
    cores = [cpu.core for cpu in topology.cpus if host.cpus is None or cpu.id in host.cpus]
    if not topology.smt:
        return _off_is_good(topology.smt, None)
    if len(cores) == len(set(cores)):
        return _OK, fact("doctor.smt_unused"), None
    return _WARN, fact("doctor.smt_shared"), fact("doctor.fix_smt")


def _load(host: _Host) -> _Seen:
    load = host.load if host.load is not None else host.fingerprint.state.load_1min
    online = host.fingerprint.topology.threads_online
    if load is None or online is None:
        return _UNKNOWN, _UNREAD, None
    is_full, observed = load + host.threads > online + 0.5, fact("doctor.load", runnable=load, cpus=online)
    if load <= 0.5 or (not is_full and load <= 0.05 * online):
        return _OK, observed, None
    return _FAIL if is_full else _WARN, observed, fact("doctor.fix_load")


def _steal(host: _Host) -> _Seen:
    ratio = host.fingerprint.state.steal_ratio
    if host.fingerprint.cpu.hypervisor is False and not ratio:
        return _NOT_APPLICABLE, fact("doctor.bare_metal"), None
    if ratio is None:
        return _UNKNOWN, _UNREAD, None
    observed = fact("doctor.steal", steal_ratio=ratio)
    if ratio >= _STEAL_WARN_RATIO:
        return _FAIL if ratio >= _STEAL_FAIL_RATIO else _WARN, observed, fact("doctor.fix_steal")
    return _OK, observed, None


def _numa_balancing(host: _Host) -> _Seen:
    nodes = [node for node in host.fingerprint.topology.numa_nodes if node.memory_bytes != 0]
    if len(nodes) == 1:
        return _NOT_APPLICABLE, fact("doctor.one_node"), None
    return _off_is_good(host.fingerprint.state.numa_balancing, fact("doctor.fix_numa_balancing"))


def _thp(host: _Host) -> _Seen:
    mode = host.fingerprint.state.thp
    if mode is None:
        return _UNKNOWN, _UNREAD, None
    observed = fact("doctor.huge_pages", mode=mode)
    return (_WARN, observed, fact("doctor.fix_thp")) if mode == "always" else (_OK, observed, None)


def _quota(host: _Host) -> _Seen:
    limits = host.fingerprint.limits
    if limits.quota is QuotaState.UNKNOWN:
        return _UNKNOWN, _UNREAD, None
    if limits.quota_cpus is None:
        return _OK, _NONE, None
    observed = fact("doctor.quota", quota_cpus=limits.quota_cpus, threads=host.threads)
    fix = fact("doctor.fix_quota", threads=max(1, int(limits.quota_cpus)))
    return _FAIL if host.threads > limits.quota_cpus else _WARN, observed, fix


def _swap(host: _Host) -> _Seen:
    state = host.fingerprint.state
    if state.swap_bytes is None:
        return _UNKNOWN, _UNREAD, None
    if not state.swap_bytes:
        return _OK, _NONE, None
    observed = fact("doctor.swap", used_bytes=state.swap_used_bytes, swap_bytes=state.swap_bytes)
    return (_WARN, observed, fact("doctor.fix_swap")) if state.swap_used_bytes else (_OK, observed, None)


def _aslr(host: _Host) -> _Seen:
    aslr = host.fingerprint.state.aslr
    if aslr is None:
        return _UNKNOWN, _UNREAD, None
    observed = {0: _OFF, 1: fact("doctor.aslr_partly"), 2: _ON}[aslr]
    return (_OK, observed, None) if aslr == 2 else (_WARN, observed, fact("doctor.fix_aslr"))


def _allocator(host: _Host) -> _Seen:
    preload = host.environment.get("LD_PRELOAD", "")
    named = next((name for name in ALLOCATORS if name in preload), None)
    software = host.fingerprint.software
    loaded = allocator(software) if software is not None else None
    if named is not None and loaded is not None and named != loaded:
        seen = fact("doctor.allocator_not_loaded", preloaded=named, loaded=loaded)
        return _FAIL, seen, fact("doctor.fix_preload", allocator=named)
    # Without an answer from the interpreter, only LD_PRELOAD could have put another allocator in its place.
    observed = loaded or named or "system"
    if observed != "system":
        return _OK, fact("doctor.allocator", allocator=observed), None
    tuned = tuple(name for name in _MALLOC_SETTINGS if name in host.environment)
    if tuned:
        return _OK, fact("doctor.allocator_tuned", settings=tuned), None
    return _WARN, fact("doctor.allocator_untuned"), fact("doctor.fix_allocator")


def _threads(host: _Host) -> _Seen:
    mask = host.cpus if host.cpus is not None else host.fingerprint.topology.online
    if mask is None:
        return _UNKNOWN, _UNREAD, None
    counts = {name: parse_count(host.environment.get(name)) for name in _THREAD_COUNTS}
    too_many = tuple(f"{name}={count}" for name, count in counts.items() if count is not None and count > len(mask))
    binding = tuple(name for name in _BINDING if host.environment.get(name, _UNBOUND[0]).lower() not in _UNBOUND)
    use: dict[str, Value] = {"threads": host.threads, "cpus": len(mask), "cpu_list": format_cpu_list(mask)}
    observed = fact("doctor.threads", use, too_many=too_many, binding=binding)
    if host.threads > len(mask) or too_many:
        return _FAIL, observed, fact("doctor.fix_threads", cpus=str(len(mask)))
    if binding:
        return _WARN, observed, fact("doctor.fix_binding", names=" ".join(binding))
    return _OK, observed, None


_CHECKS: dict[str, tuple[Fact, Callable[[_Host], _Seen]]] = {
    "threads": (fact("doctor.why_threads"), _threads),
    "cgroup-quota": (fact("doctor.why_quota"), _quota),
    "load": (fact("doctor.why_load"), _load),
    "steal": (fact("doctor.why_steal"), _steal),
    "governor": (fact("doctor.why_governor"), _governor),
    "turbo": (fact("doctor.why_turbo"), _turbo),
    "smt": (fact("doctor.why_smt"), _smt),
    "numa-balancing": (fact("doctor.why_numa_balancing"), _numa_balancing),
    "thp": (fact("doctor.why_thp"), _thp),
    "swap": (fact("doctor.why_swap"), _swap),
    "aslr": (fact("doctor.why_aslr"), _aslr),
    "allocator": (fact("doctor.why_allocator"), _allocator),
}


def _off_is_good(is_on: bool | None, fix: Fact | None) -> _Seen:  # noqa: FBT001 - what was observed
    if is_on is None:
        return _UNKNOWN, _UNREAD, None
    return (_WARN, _ON, fix) if is_on else (_OK, _OFF, None)


def _virtual_or_unknown(host: _Host) -> CheckStatus:
    return _NOT_APPLICABLE if host.fingerprint.cpu.hypervisor else _UNKNOWN
