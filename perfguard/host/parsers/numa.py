"""NUMA nodes: their CPUs, memory and distances, and what the memory is where the machine says so."""

from __future__ import annotations

import re

from perfguard.host.parsers.parsing import Files, parse_count, read_cpus_or_mask
from perfguard.records.machine.cpuset import MAX_CPUS
from perfguard.records.machine.fingerprint import Cpu, MemoryKind, NumaNode

NODE_ROOT = "sys/devices/system/node"
_DAX_ROOT = "sys/bus/dax/devices"
_DAX_PLACES = (("/ndbus", MemoryKind.PMEM), ("/cxl", MemoryKind.CXL), ("/decoder", MemoryKind.CXL))
_ACCESS = ("access0", "access1")
_HBM_FACTOR = 1.5
_XEON_PHI_MODELS = (0x57, 0x85)


def read_nodes(files: Files, online: tuple[int, ...] | None, cpu: Cpu) -> tuple[NumaNode, ...]:
    """All nodes, ascending. Ids may have gaps, and nodes may have no CPUs or no memory."""
    ids = _node_ids(files)
    cpus = {node: _node_cpus(files, node, online) for node in ids}
    memory = {node: parse_node_memory(files.text(f"{NODE_ROOT}/node{node}/meminfo")) for node in ids}
    kinds = _memory_kinds(files, cpus, memory, package_hbm=_has_package_hbm(cpu))
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


def _has_package_hbm(cpu: Cpu) -> bool:
    """Xeon Phi and Xeon Max carry HBM, which in flat mode shows as nodes without CPUs."""
    phi = cpu.family == 6 and cpu.model in _XEON_PHI_MODELS
    return cpu.vendor == "GenuineIntel" and (phi or "Xeon(R) CPU Max" in (cpu.brand or ""))


def _node_ids(files: Files) -> tuple[int, ...]:
    matches = (re.fullmatch(r"node(\d{1,5})", name) for name in files.names(NODE_ROOT))
    return tuple(sorted(node for match in matches if match and (node := int(match[1])) < MAX_CPUS))


def _node_cpus(files: Files, node: int, online: tuple[int, ...] | None) -> tuple[int, ...] | None:
    folder = f"{NODE_ROOT}/node{node}"
    listed = read_cpus_or_mask(files, f"{folder}/cpulist", f"{folder}/cpumap")
    if listed is None:
        links = (re.fullmatch(r"cpu(\d{1,5})", name) for name in files.names(folder))
        listed = frozenset(int(link[1]) for link in links if link) or None
    if listed is None:
        return None
    return tuple(sorted(listed if online is None else listed & set(online)))


def _distances(text: str | None, nodes: int) -> tuple[int, ...] | None:
    """Only a row of as many numbers as there are nodes can be distinguished."""
    values = [parse_count(word) for word in (text or "").split()]
    known = tuple(value for value in values if value is not None)
    return known if known and len(known) == len(values) == nodes else None


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
    """MB/s from the nearest initiator, as firmware tells it (HMAT)."""
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
