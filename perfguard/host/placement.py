"""Which CPUs a run is pinned to: as many threads as CPUs, always, and one thread a core by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perfguard.errors import UsageError
from perfguard.records.facts import Fact, fact
from perfguard.records.machine.cpuset import format_cpu_list, parse_cpu_list
from perfguard.records.machine.fingerprint import CoreClass, CpuSelection, Fingerprint, NumaNode, QuotaState
from perfguard.records.ranks import Sockets

if TYPE_CHECKING:
    from collections.abc import Iterable

_CLASS_ORDER = tuple(CoreClass)


def select_cpus(
    fingerprint: Fingerprint, *, cpus: str | None, threads: int | None, numa: int | None, available: frozenset[int]
) -> CpuSelection:
    """Choose the CPUs of a run.

    `cpus` is a CPU list that is taken as it stands, `0-3,8`. Without it: one NUMA node, the fastest class of cores, one
    CPU of each, one core left to the system. Fewer `threads` than CPUs shrink the mask; more than a node has run on all
    nodes, unless `numa` asks for one. `available` is this process's affinity, read before torch was ever imported.

    Raises:
        UsageError: A CPU is offline or not allowed, a node has none, or more threads are asked for than CPUs.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads}: at least one thread is needed.")
    usable = _usable(fingerprint, available)
    node = _node(fingerprint, numa, usable)
    if cpus is not None:
        return _explicit(fingerprint, cpus, threads, node if numa is not None else None, available)
    if numa is None and node is not None and (threads or 0) > len(usable & frozenset(node.cpus or ())):
        node = None
    return _automatic(fingerprint, threads, node, usable, is_asked_for=numa is not None)


def sockets_of(fingerprint: Fingerprint, cpus: Iterable[int]) -> Sockets:
    """CPUs by core, and cores by socket, or NUMA node where a socket has several; what is unknown counts as one."""
    places = {cpu.id: cpu for cpu in fingerprint.topology.cpus}
    nodes = {cpu: node.id for node in fingerprint.topology.numa_nodes for cpu in node.cpus or ()}
    sockets: dict[tuple[int | None, int | None], list[tuple[int, ...]]] = {}
    for core in _cores(fingerprint, frozenset(cpus)):
        package = places[core.cpus[0]].package if core.cpus[0] in places else None
        sockets.setdefault((package, nodes.get(core.cpus[0])), []).append(core.cpus)
    return tuple(map(tuple, sockets.values()))


class _Core(NamedTuple):
    core_class: CoreClass
    cpus: tuple[int, ...]


def _usable(fingerprint: Fingerprint, available: frozenset[int]) -> frozenset[int]:
    online, allowed = fingerprint.topology.online, fingerprint.limits.allowed_cpus
    usable = available & frozenset(online if online is not None else available)
    usable &= frozenset(allowed if allowed is not None else usable)
    if not usable:
        raise UsageError(
            f"No CPU can be used: online {_shown(online)}, allowed by the cpuset {_shown(allowed)}, "
            f"allowed to this process {_shown(available)}."
        )
    return usable


def _explicit(
    fingerprint: Fingerprint, text: str, threads: int | None, node: NumaNode | None, available: frozenset[int]
) -> CpuSelection:
    asked = parse_cpu_list(text)
    if not asked:
        raise UsageError(f"--cpus {text!r} is not a list of CPUs; write it like 0-3,8.")
    _refuse_unusable(fingerprint, asked, available)
    if node is not None and not asked <= set(node.cpus or ()):
        outside = format_cpu_list(asked - set(node.cpus or ()))
        raise UsageError(f"--cpus {text}: {outside} not on NUMA node {node.id}, which has {_shown(node.cpus)}.")
    chosen = _shrink(tuple(sorted(asked)), threads, f"--cpus {text} has")
    limit = _quota(fingerprint)
    if limit is not None and len(chosen) > limit:
        raise UsageError(
            f"--cpus {text}: the CPU quota allows {fingerprint.limits.quota_cpus:g} CPUs, "
            f"and {len(chosen)} threads would be throttled; add --threads {limit} or raise the quota."
        )
    return _selection(fingerprint, chosen, housekeeping=(), reason=fact("host.cpus_asked", cpus=text))


def _refuse_unusable(fingerprint: Fingerprint, asked: frozenset[int], available: frozenset[int]) -> None:
    online, allowed = fingerprint.topology.online, fingerprint.limits.allowed_cpus
    for problem, good in (
        ("offline or absent", online),
        ("not allowed by the cpuset of this control group", allowed),
        ("not in this process's affinity mask", available),
    ):
        bad = asked - frozenset(good) if good is not None else frozenset[int]()
        if bad:
            noun, verb = ("CPU", "is") if len(bad) == 1 else ("CPUs", "are")
            raise UsageError(f"{noun} {format_cpu_list(bad)} {verb} {problem}; choose from {_shown(good)}.")


def _automatic(
    fingerprint: Fingerprint, threads: int | None, node: NumaNode | None, usable: frozenset[int], *, is_asked_for: bool
) -> CpuSelection:
    on_node = usable & frozenset(node.cpus or ()) if node is not None else usable
    found = _cores(fingerprint, on_node)
    # Classes are never mixed: threads would wait for the slowest core.
    best = min((core.core_class for core in found), key=_CLASS_ORDER.index)
    cores = [core for core in found if core.core_class is best]
    # The lowest core takes most interrupts.
    left = None if len(cores) < 2 or (threads or 0) >= len(cores) else cores[0]
    used = [core for core in cores if core is not left]
    siblings = [cpu for core in used for cpu in core.cpus[1:]] if (threads or 0) > len(cores) else []
    ranked = (*(core.cpus[0] for core in used), *siblings)
    limit = _quota(fingerprint)
    asked = threads if threads is not None or limit is None else min(limit, len(ranked))
    chosen = _shrink(ranked, asked, "the machine has" if node is None else f"NUMA node {node.id} has")
    if limit is not None and len(chosen) > limit:
        raise UsageError(
            f"--threads {threads}: the CPU quota allows {fingerprint.limits.quota_cpus:g} CPUs; "
            f"ask for at most {limit} or raise the quota."
        )
    housekeeping = left.cpus if left is not None else ()
    reason = fact(
        "host.cpus_chosen",
        numa_node=None if node is None else node.id,
        is_node_asked=is_asked_for,
        cores=len(cores),
        core_class=None if cores[0].core_class is CoreClass.PERFORMANCE else cores[0].core_class.value,
        with_siblings=len(chosen) > len(cores),
        quota_threads=asked if threads is None and asked is not None and asked < len(ranked) else None,
        left_cpus=format_cpu_list(housekeeping),
    )
    return _selection(fingerprint, chosen, housekeeping=housekeeping, reason=reason)


def _cores(fingerprint: Fingerprint, usable: frozenset[int]) -> list[_Core]:
    """Cores with their usable CPUs; CPUs without a known core stand for one each."""
    places = {cpu.id: cpu for cpu in fingerprint.topology.cpus}
    members: dict[int, list[int]] = {}
    for cpu in sorted(usable):
        core = places[cpu].core if cpu in places else None
        members.setdefault(cpu if core is None else core, []).append(cpu)
    classes = {cpu: place.core_class for cpu, place in places.items()}
    return [_Core(classes.get(cpus[0], CoreClass.PERFORMANCE), tuple(cpus)) for cpus in sorted(members.values())]


def _shrink(cpus: tuple[int, ...], threads: int | None, owner: str) -> tuple[int, ...]:
    if threads is not None and threads > len(cpus):
        raise UsageError(
            f"--threads {threads} is more than the {len(cpus)} CPUs to run on: {owner} {_shown(cpus)}; "
            f"ask for at most {len(cpus)}, or name CPUs with --cpus."
        )
    return tuple(sorted(cpus[:threads]))


def _quota(fingerprint: Fingerprint) -> int | None:
    """Whole CPUs of the quota; a fraction of one still runs one thread."""
    limits = fingerprint.limits
    if limits.quota is not QuotaState.LIMITED or limits.quota_cpus is None:
        return None
    return max(1, int(limits.quota_cpus))


def _node(fingerprint: Fingerprint, numa: int | None, usable: frozenset[int]) -> NumaNode | None:
    nodes = fingerprint.topology.numa_nodes
    if numa is None:
        # Those with memory first, most CPUs, lowest number.
        counts = {node: len(usable & frozenset(node.cpus or ())) for node in nodes}
        ranks = {(node.memory_bytes != 0, count, -node.id): node for node, count in counts.items() if count}
        return ranks[max(ranks)] if ranks else None
    asked = next((node for node in nodes if node.id == numa), None)
    if asked is None:
        known = ", ".join(str(node.id) for node in nodes) or "none"
        raise UsageError(f"--numa {numa}: there is no such NUMA node; known: {known}.")
    if not usable & frozenset(asked.cpus or ()):
        raise UsageError(f"--numa {numa}: the node has no CPU that can be used here; it has {_shown(asked.cpus)}.")
    return asked


def _selection(
    fingerprint: Fingerprint, chosen: tuple[int, ...], *, housekeeping: tuple[int, ...], reason: Fact
) -> CpuSelection:
    holding = [node for node in fingerprint.topology.numa_nodes if set(chosen) & set(node.cpus or ())]
    node = holding[0] if len(holding) == 1 and set(chosen) <= set(holding[0].cpus or ()) else None
    classes = {cpu.core_class for cpu in fingerprint.topology.cpus if cpu.id in chosen}
    several = len(fingerprint.topology.numa_nodes) > 1
    allowed = fingerprint.limits.allowed_nodes
    may_bind = node is not None and several and node.memory_bytes != 0 and (allowed is None or node.id in allowed)
    return CpuSelection(
        cpus=chosen,
        threads=len(chosen),
        housekeeping=housekeeping,
        numa_node=node.id if node is not None else None,
        bind_memory_node=node.id if node is not None and may_bind else None,
        core_classes=tuple(found for found in CoreClass if found in classes),
        reason=reason,
    )


def _shown(cpus: Iterable[int] | None) -> str:
    return "unknown" if cpus is None else format_cpu_list(cpus) or "none"
