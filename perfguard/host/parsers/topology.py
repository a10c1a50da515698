"""Packages, dies, cores and threads, from `/sys/devices/system/cpu`; `/proc/cpuinfo` where that says nothing.

What is read and what is not:
- The package is `physical_package_id`, never `core_siblings`: some kernels split packages there.
- The core is `core_cpus_list` or `thread_siblings_list`: CPU numbers alone say nothing about siblings.
- The online set is the kernel's `online` file, else the CPUs that have a topology; cpuinfo's list comes
  last, which on a recorded machine may hold CPUs that are off.
"""

from __future__ import annotations

import re
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from perfguard.host.parsers.hybrid import classify_cores, read_traits
from perfguard.host.parsers.parsing import (
    Files,
    parse_count,
    parse_int,
    parse_size_bytes,
    parse_switch,
    read_cpus,
    read_cpus_or_mask,
)
from perfguard.records.machine.cpuset import MAX_CPUS
from perfguard.records.machine.fingerprint import (
    Cache,
    CoreClass,
    CoreClassGroup,
    Cpu,
    LogicalCpu,
    MemoryKind,
    NumaNode,
    Topology,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perfguard.host.parsers.cpu import Processor

CPU_ROOT = "sys/devices/system/cpu"
_KINDS = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_MAX_LEVEL = 8
NODE_ROOT = "sys/devices/system/node"
_DAX_ROOT = "sys/bus/dax/devices"
_DAX_PLACES = (("/ndbus", MemoryKind.PMEM), ("/cxl", MemoryKind.CXL), ("/decoder", MemoryKind.CXL))
_ACCESS = ("access0", "access1")
_HBM_FACTOR = 1.5
_XEON_PHI_MODELS = (0x57, 0x85)


class CpuPlace(NamedTuple):
    """Where one CPU sits."""

    package: int | None
    die: int | None  # Die within the package
    core: tuple[int, ...] | None  # Online CPUs of the same core, ascending


def online_cpus(files: Files, processors: Mapping[int, Processor]) -> tuple[int, ...] | None:
    """Online CPUs, ascending; None when unknown."""
    if listed := read_cpus(files, f"{CPU_ROOT}/online"):
        return tuple(sorted(listed))
    present = _numbers(files.names(CPU_ROOT), "cpu")
    with_topology = tuple(cpu for cpu in present if files.names(f"{CPU_ROOT}/cpu{cpu}/topology"))
    return with_topology or tuple(sorted(processors)) or None


def read_topology(
    files: Files, online: tuple[int, ...] | None, processors: Mapping[int, Processor], cpu: Cpu
) -> Topology:
    """Everything about places, counted over the online CPUs."""
    cpus = online or ()
    places = _places(files, cpus, processors)
    traits = {number: read_traits(files, number, processors.get(number, {})) for number in cpus}
    widths = {number: len(place.core or (number,)) for number, place in places.items()}
    classes = classify_cores(files, traits, widths, cpu.vendor)
    packages = {place.package for place in places.values()}
    dies = {(place.package, place.die) for place in places.values()}
    cores = {place.core for place in places.values()}
    possible = read_cpus(files, f"{CPU_ROOT}/possible") or None
    # Xeons have one kind of core each, so for them no further evidence is needed.
    is_known = bool(traits) and ("Xeon" in (cpu.brand or "") or all(trait.tells for trait in traits.values()))
    return Topology(
        packages=len(packages) if packages and None not in packages else None,
        dies=len(dies) if dies and all(None not in die for die in dies) else None,
        cores=len(cores) if cores and None not in cores else None,
        threads_online=len(cpus) or None,
        smt=_smt(files, cores),
        hybrid=len(set(classes.values())) > 1 if is_known else None,
        core_classes=_groups(places, classes),
        cpus=tuple(
            LogicalCpu(
                id=number,
                core=min(place.core) if place.core else None,
                package=place.package,
                die=place.die,
                core_class=classes[number],
                max_frequency_hz=traits[number].max_frequency_hz,
            )
            for number, place in places.items()
        ),
        online=online,
        offline=_offline(files, possible, online),
        possible=_sorted(possible),
        isolated=_sorted(read_cpus(files, f"{CPU_ROOT}/isolated")),
        nohz_full=_sorted(read_cpus(files, f"{CPU_ROOT}/nohz_full")),
        numa_nodes=read_nodes(files, online, cpu),
    )


def _places(files: Files, online: tuple[int, ...], processors: Mapping[int, Processor]) -> dict[int, CpuPlace]:
    places = {}
    for cpu in online:
        folder = f"{CPU_ROOT}/cpu{cpu}/topology"
        package = parse_count(files.text(f"{folder}/physical_package_id"))
        die = parse_int(files.text(f"{folder}/die_id"))
        places[cpu] = CpuPlace(
            package=parse_count(processors.get(cpu, {}).get("physical id")) if package is None else package,
            # The kernel writes -1 where the platform has no dies below the package: then there is one.
            die=0 if die == -1 else die if die is not None and die >= 0 else None,
            core=_siblings(files, folder, cpu, frozenset(online)),
        )
    if any(place.core is None for place in places.values()):
        return _with_cores_from_ids(files, places, processors)
    return places


def _siblings(files: Files, folder: str, cpu: int, online: frozenset[int]) -> tuple[int, ...] | None:
    for name in ("core_cpus", "thread_siblings"):
        cpus = read_cpus_or_mask(files, f"{folder}/{name}_list", f"{folder}/{name}")
        if cpus and cpu in cpus:
            return tuple(sorted(cpus & online))
    return None


def _with_cores_from_ids(
    files: Files, places: Mapping[int, CpuPlace], processors: Mapping[int, Processor]
) -> dict[int, CpuPlace]:
    """Cores by (package, die, core id) where siblings are not listed; unknown stays unknown."""
    members: dict[tuple[int, int | None, int], list[int]] = {}
    for cpu, place in places.items():
        core = parse_count(files.text(f"{CPU_ROOT}/cpu{cpu}/topology/core_id"))
        core = core if core is not None else parse_count(processors.get(cpu, {}).get("core id"))
        if place.package is not None and core is not None:
            members.setdefault((place.package, place.die, core), []).append(cpu)
    cores = {cpu: tuple(sorted(cpus)) for cpus in members.values() for cpu in cpus}
    return {cpu: place._replace(core=place.core or cores.get(cpu)) for cpu, place in places.items()}


def _groups(places: Mapping[int, CpuPlace], classes: Mapping[int, CoreClass]) -> tuple[CoreClassGroup, ...]:
    groups = []
    for core_class in CoreClass:
        cpus = tuple(sorted(cpu for cpu, found in classes.items() if found is core_class))
        cores = {places[cpu].core for cpu in cpus}
        if cpus:
            count = len(cores) if None not in cores else None
            groups.append(CoreClassGroup(core_class=core_class, cores=count, cpus=cpus))
    return tuple(groups)


def _smt(files: Files, cores: Iterable[tuple[int, ...] | None]) -> bool | None:
    widths = {None if core is None else len(core) for core in cores}
    if widths - {None, 1}:
        return True
    if widths == {1}:
        return False
    return parse_switch(files.text(f"{CPU_ROOT}/smt/active"))


def _offline(files: Files, possible: frozenset[int] | None, online: tuple[int, ...] | None) -> tuple[int, ...] | None:
    listed = read_cpus(files, f"{CPU_ROOT}/offline")
    if listed is not None:
        return _sorted(listed)
    return tuple(sorted(possible - set(online))) if possible is not None and online is not None else None


def _numbers(names: Iterable[str], prefix: str) -> tuple[int, ...]:
    """Numbers behind a prefix, ascending; other names are left out."""
    matches = (re.fullmatch(rf"{prefix}(\d{{1,5}})", name) for name in names)
    return tuple(sorted(number for match in matches if match and (number := int(match[1])) < MAX_CPUS))


def _sorted(cpus: Iterable[int] | None) -> tuple[int, ...] | None:
    return None if cpus is None else tuple(sorted(cpus))


def read_caches(files: Files, online: Sequence[int]) -> tuple[Cache, ...]:
    """Caches of the online CPUs, nearest and largest first; equal ones counted together."""
    roots = [f"{CPU_ROOT}/cpu{cpu}/cache" for cpu in online]
    seen: set[tuple[int, str, frozenset[int]]] = set()
    counts: Counter[Cache] = Counter()
    for folder in (f"{root}/{index}" for root in roots for index in files.names(root)):
        level = parse_count(files.text(f"{folder}/level"))
        if level is None or not 0 < level <= _MAX_LEVEL:
            continue
        kind = _KINDS.get((files.text(f"{folder}/type") or "").strip(), "unknown")
        sharing = read_cpus_or_mask(files, f"{folder}/shared_cpu_list", f"{folder}/shared_cpu_map")
        sharers = (sharing or frozenset()) & frozenset(online)
        if not sharers or (level, kind, sharers) not in seen:
            seen.add((level, kind, sharers))
            size, shared_by = parse_size_bytes(files.text(f"{folder}/size")), len(sharers) or None
            counts[Cache(level=level, kind=kind, size_bytes=size, instances=None, shared_by=shared_by)] += 1
    found = [replace(cache, instances=count if cache.shared_by else None) for cache, count in counts.items()]
    order = attrgetter("level", "kind")
    return tuple(sorted(found, key=lambda cache: (*order(cache), -(cache.size_bytes or 0), -(cache.shared_by or 0))))


def read_nodes(files: Files, online: tuple[int, ...] | None, cpu: Cpu) -> tuple[NumaNode, ...]:
    """All nodes, ascending. Ids may have gaps, and nodes may have no CPUs or no memory."""
    ids = _numbers(files.names(NODE_ROOT), "node")
    cpus = {node: _node_cpus(files, node, online) for node in ids}
    memory = {node: parse_node_memory(files.text(f"{NODE_ROOT}/node{node}/meminfo")) for node in ids}
    # Xeon Phi and Xeon Max carry HBM, which in flat mode shows as nodes without CPUs.
    is_hbm_model = (cpu.family == 6 and cpu.model in _XEON_PHI_MODELS) or "Xeon(R) CPU Max" in (cpu.brand or "")
    kinds = _memory_kinds(files, cpus, memory, package_hbm=cpu.vendor == "GenuineIntel" and is_hbm_model)
    return tuple(
        NumaNode(
            id=node,
            cpus=cpus[node],
            memory_bytes=memory[node],
            distances=_distances(files.text(f"{NODE_ROOT}/node{node}/distance"), len(ids)),
            memory_kind=kinds[node],
        )
        for node in ids
    )


def parse_node_memory(text: str | None) -> int | None:
    """Bytes from a node's `meminfo`."""
    match = re.search(r"\bMemTotal:\s+(\d{1,15}) kB", text or "")
    return int(match[1]) * 1024 if match and match[1].isascii() else None


def _node_cpus(files: Files, node: int, online: tuple[int, ...] | None) -> tuple[int, ...] | None:
    folder = f"{NODE_ROOT}/node{node}"
    listed = read_cpus_or_mask(files, f"{folder}/cpulist", f"{folder}/cpumap")
    if listed is None:
        listed = frozenset(_numbers(files.names(folder), "cpu")) or None
    if listed is None or online is None:
        return _sorted(listed)
    return tuple(sorted(listed & set(online)))


def _distances(text: str | None, nodes: int) -> tuple[int, ...] | None:
    """Only a row of as many numbers as there are nodes makes sense."""
    words = (text or "").split()
    known = tuple(value for word in words if (value := parse_count(word)) is not None)
    return known if known and len(known) == len(words) == nodes else None


def _memory_kinds(
    files: Files, cpus: dict[int, tuple[int, ...] | None], memory: dict[int, int | None], *, package_hbm: bool
) -> dict[int, MemoryKind]:
    devices = _dax_nodes(files)
    dram_speed = min((speed for node in cpus if cpus[node] and (speed := _bandwidth(files, node))), default=None)
    kinds = {}
    for node, members in cpus.items():
        speed = _bandwidth(files, node)
        fast = speed is not None and dram_speed is not None and speed > _HBM_FACTOR * dram_speed
        kind = devices.get(node, MemoryKind.UNKNOWN)
        if kind is MemoryKind.UNKNOWN and (fast or (package_hbm and not members and node not in devices)):
            kind = MemoryKind.HBM
        elif members and memory[node] != 0 and not (package_hbm and len(cpus) == 1):
            kind = MemoryKind.DRAM
        kinds[node] = kind
    return kinds


def _bandwidth(files: Files, node: int) -> int | None:
    """MB/s from the nearest initiator, as firmware reports it (HMAT)."""
    folder = f"{NODE_ROOT}/node{node}"
    found = (parse_count(files.text(f"{folder}/{access}/initiators/read_bandwidth")) for access in _ACCESS)
    return next((speed for speed in found if speed is not None), None)


def _dax_nodes(files: Files) -> dict[int, MemoryKind]:
    """Nodes made of devices: persistent memory, memory behind CXL, or soft-reserved memory of any kind."""
    kinds: dict[int, MemoryKind] = {}
    for name in files.names(_DAX_ROOT):
        node = parse_count(files.text(f"{_DAX_ROOT}/{name}/target_node"))
        place = files.place(f"{_DAX_ROOT}/{name}") or ""
        if node is not None:
            kinds[node] = next((kind for mark, kind in _DAX_PLACES if mark in place), MemoryKind.UNKNOWN)
    return kinds
