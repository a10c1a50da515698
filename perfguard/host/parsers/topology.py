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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfguard.host.parsers.hybrid import CoreTraits, classify_cores, read_traits
from perfguard.host.parsers.numa import read_nodes
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
from perfguard.records.machine.fingerprint import Cache, CoreClass, CoreClassGroup, Cpu, LogicalCpu, Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perfguard.host.parsers.cpu import Processor


CPU_ROOT = "sys/devices/system/cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one CPU sits."""

    package: int | None
    """Physical package."""
    die: int | None
    """Die within the package."""
    core: tuple[int, ...] | None
    """Online CPUs of the same core, ascending."""


def online_cpus(files: Files, processors: Mapping[int, Processor]) -> tuple[int, ...] | None:
    """Online CPUs, ascending; None when nothing tells."""
    listed = read_cpus(files, f"{CPU_ROOT}/online")
    if listed:
        return tuple(sorted(listed))
    present = _cpu_folders(files)
    with_topology = tuple(cpu for cpu in present if files.names(f"{CPU_ROOT}/cpu{cpu}/topology"))
    if with_topology:
        return with_topology
    return tuple(sorted(processors)) or None


def read_topology(
    files: Files, online: tuple[int, ...] | None, processors: Mapping[int, Processor], cpu: Cpu
) -> Topology:
    """Everything about places, counted over the online CPUs."""
    cpus = online or ()
    places = _places(files, cpus, processors)
    traits = {number: read_traits(files, number, processors.get(number, {})) for number in cpus}
    classes = _class_of_cpus(files, places, traits, cpu.vendor)
    packages = {place.package for place in places.values()}
    dies = {(place.package, place.die) for place in places.values()}
    cores = {place.core for place in places.values()}
    possible = read_cpus(files, f"{CPU_ROOT}/possible") or None
    hybrid = len(set(classes.values())) > 1 if _hybrid_is_known(traits, cpu) else None
    return Topology(
        packages=len(packages) if packages and None not in packages else None,
        dies=len(dies) if dies and all(None not in die for die in dies) else None,
        cores=len(cores) if cores and None not in cores else None,
        threads_online=len(cpus) or None,
        smt=_smt(files, cores),
        hybrid=hybrid,
        core_classes=_groups(places, classes),
        cpus=tuple(_logical_cpu(n, places[n], classes[n], traits[n]) for n in cpus),
        online=online,
        offline=_offline(files, possible, online),
        possible=_sorted(possible),
        isolated=_sorted(read_cpus(files, f"{CPU_ROOT}/isolated")),
        nohz_full=_sorted(read_cpus(files, f"{CPU_ROOT}/nohz_full")),
        numa_nodes=read_nodes(files, online, cpu),
    )


def _places(files: Files, online: tuple[int, ...], processors: Mapping[int, Processor]) -> dict[int, Place]:
    online_set = frozenset(online)
    raw = {cpu: _place(files, cpu, online_set) for cpu in online}
    if any(place.core is None for place in raw.values()):
        raw = _with_cores_from_ids(files, raw, processors)
    return {
        cpu: place if place.package is not None else _with_package(place, processors.get(cpu, {}))
        for cpu, place in raw.items()
    }


def _place(files: Files, cpu: int, online: frozenset[int]) -> Place:
    folder = f"{CPU_ROOT}/cpu{cpu}/topology"
    return Place(
        package=parse_count(files.text(f"{folder}/physical_package_id")),
        die=_die(files.text(f"{folder}/die_id")),
        core=_siblings(files, folder, cpu, online),
    )


def _die(text: str | None) -> int | None:
    """The kernel writes -1 where the platform has no dies below the package: then there is one."""
    die = parse_int(text)
    return 0 if die == -1 else parse_count(text)


def _siblings(files: Files, folder: str, cpu: int, online: frozenset[int]) -> tuple[int, ...] | None:
    for name in ("core_cpus", "thread_siblings"):
        cpus = read_cpus_or_mask(files, f"{folder}/{name}_list", f"{folder}/{name}")
        if cpus and cpu in cpus:
            return tuple(sorted(cpus & online))
    return None


def _with_cores_from_ids(
    files: Files, places: Mapping[int, Place], processors: Mapping[int, Processor]
) -> dict[int, Place]:
    """Cores by (package, die, core id) where siblings are not listed; unknown stays unknown."""
    keys: dict[int, tuple[int, int | None, int]] = {}
    for cpu, place in places.items():
        info = processors.get(cpu, {})
        package = place.package if place.package is not None else parse_count(info.get("physical id"))
        core = parse_count(files.text(f"{CPU_ROOT}/cpu{cpu}/topology/core_id"))
        core = core if core is not None else parse_count(info.get("core id"))
        if package is not None and core is not None:
            keys[cpu] = (package, place.die, core)
    members: dict[tuple[int, int | None, int], list[int]] = {}
    for cpu, key in keys.items():
        members.setdefault(key, []).append(cpu)
    return {
        cpu: place
        if place.core is not None or cpu not in keys
        else Place(package=place.package, die=place.die, core=tuple(sorted(members[keys[cpu]])))
        for cpu, place in places.items()
    }


def _with_package(place: Place, processor: Processor) -> Place:
    return Place(package=parse_count(processor.get("physical id")), die=place.die, core=place.core)


def _class_of_cpus(
    files: Files, places: Mapping[int, Place], traits: Mapping[int, CoreTraits], vendor: str | None
) -> dict[int, CoreClass]:
    widths = {cpu: len(place.core or (cpu,)) for cpu, place in places.items()}
    return classify_cores(files, traits, widths, vendor)


def _hybrid_is_known(traits: Mapping[int, CoreTraits], cpu: Cpu) -> bool:
    """Xeons have one kind of core each, so for them no further evidence is needed."""
    return bool(traits) and ("Xeon" in (cpu.brand or "") or all(trait.tells for trait in traits.values()))


def _groups(places: Mapping[int, Place], classes: Mapping[int, CoreClass]) -> tuple[CoreClassGroup, ...]:
    groups = []
    for core_class in CoreClass:
        cpus = tuple(sorted(cpu for cpu, found in classes.items() if found is core_class))
        cores = {places[cpu].core for cpu in cpus}
        if cpus:
            count = len(cores) if None not in cores else None
            groups.append(CoreClassGroup(core_class=core_class, cores=count, cpus=cpus))
    return tuple(groups)


def _logical_cpu(cpu: int, place: Place, core_class: CoreClass, traits: CoreTraits) -> LogicalCpu:
    return LogicalCpu(
        id=cpu,
        core=min(place.core) if place.core else None,
        package=place.package,
        die=place.die,
        core_class=core_class,
        max_frequency_hz=traits.max_frequency_hz,
    )


def _smt(files: Files, cores: Iterable[tuple[int, ...] | None]) -> bool | None:
    widths = [len(core) if core is not None else None for core in cores]
    if any(width is not None and width > 1 for width in widths):
        return True
    if widths and None not in widths:
        return False
    return parse_switch(files.text(f"{CPU_ROOT}/smt/active"))


def _offline(files: Files, possible: frozenset[int] | None, online: tuple[int, ...] | None) -> tuple[int, ...] | None:
    listed = read_cpus(files, f"{CPU_ROOT}/offline")
    if listed is not None:
        return _sorted(listed)
    return tuple(sorted(possible - set(online))) if possible is not None and online is not None else None


def _cpu_folders(files: Files) -> tuple[int, ...]:
    names = (re.fullmatch(r"cpu(\d{1,5})", name) for name in files.names(CPU_ROOT))
    return tuple(sorted(cpu for match in names if match and (cpu := int(match[1])) < MAX_CPUS))


def _sorted(cpus: Iterable[int] | None) -> tuple[int, ...] | None:
    return None if cpus is None else tuple(sorted(cpus))


_KINDS = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_MAX_LEVEL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    level: int
    kind: str
    size_bytes: int | None
    shared_by: int | None


def read_caches(files: Files, online: Sequence[int]) -> tuple[Cache, ...]:
    """Caches of the online CPUs, nearest and largest first; equal ones counted together."""
    members = frozenset(online)
    seen: set[tuple[int, str, frozenset[int]]] = set()
    counts: Counter[_Kind] = Counter()
    for cpu in online:
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache"
        for index in files.names(folder):
            _count(files, f"{folder}/{index}", members, seen, counts)
    found = [
        Cache(
            level=kind.level,
            kind=kind.kind,
            size_bytes=kind.size_bytes,
            instances=count if kind.shared_by is not None else None,
            shared_by=kind.shared_by,
        )
        for kind, count in counts.items()
    ]
    return tuple(
        sorted(found, key=lambda cache: (cache.level, cache.kind, -(cache.size_bytes or 0), -(cache.shared_by or 0)))
    )


def _count(
    files: Files,
    folder: str,
    online: frozenset[int],
    seen: set[tuple[int, str, frozenset[int]]],
    counts: Counter[_Kind],
) -> None:
    level = parse_count(files.text(f"{folder}/level"))
    if level is None or not 0 < level <= _MAX_LEVEL:
        return
    kind = _KINDS.get((files.text(f"{folder}/type") or "").strip(), "unknown")
    sharing = read_cpus_or_mask(files, f"{folder}/shared_cpu_list", f"{folder}/shared_cpu_map")
    sharers = (sharing or frozenset()) & online
    if sharers and (level, kind, sharers) in seen:
        return
    seen.add((level, kind, sharers))
    size = parse_size_bytes(files.text(f"{folder}/size"))
    counts[_Kind(level=level, kind=kind, size_bytes=size, shared_by=len(sharers) or None)] += 1
