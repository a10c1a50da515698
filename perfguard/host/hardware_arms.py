"""Which CPUs a cell of a task gets, by the part of the machine that it is to run on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from perfguard.records.machine.fingerprint import CoreClass, LogicalCpu, Topology
from perfguard.records.tasks import Hardware

_CLASSES = {Hardware.P_CORES: (CoreClass.PERFORMANCE,), Hardware.E_CORES: (CoreClass.EFFICIENCY, CoreClass.LOW_POWER)}


def cpus_on(
    hardware: Hardware, topology: Topology, *, threads: int, selected: Sequence[int], available: frozenset[int]
) -> tuple[int, ...] | None:
    """One CPU for each thread; None where the machine has no such part, or too little of it.

    `selected` are the CPUs of the run, for cells that name no part; `available` are all that may be used.
    """
    cpus = [cpu for cpu in topology.cpus if cpu.id in available]
    found: Sequence[int]
    if hardware in _CLASSES:
        found = (
            _first_of_cores([cpu for cpu in cpus if cpu.core_class in _CLASSES[hardware]]) if topology.hybrid else ()
        )
    elif hardware in (Hardware.ONE_SOCKET, Hardware.TWO_SOCKETS):
        found = _of_sockets(cpus, threads, sockets=1 if hardware is Hardware.ONE_SOCKET else 2)
    elif hardware in (Hardware.SMT, Hardware.NO_SMT):
        found = _of_threads(cpus, is_shared=hardware is Hardware.SMT)
    else:
        found = selected
    return tuple(found[:threads]) if len(found) >= threads else None


def _first_of_cores(cpus: Sequence[LogicalCpu]) -> list[int]:
    return [cpu.id for cpu in cpus if cpu.core in (None, cpu.id)]


def _of_sockets(cpus: Sequence[LogicalCpu], threads: int, *, sockets: int) -> list[int]:
    """Equally many cores of each socket; empty on a machine with one socket, where there is nothing to compare."""
    packages: dict[int, list[int]] = defaultdict(list)
    for cpu in cpus:
        if cpu.package is not None and cpu.core in (None, cpu.id):
            packages[cpu.package].append(cpu.id)
    if len(packages) < 2 or threads % sockets:
        return []
    chosen = sorted(packages.values(), key=len, reverse=True)[:sockets]
    return [cpu for cores in chosen for cpu in cores[: threads // sockets]]


def _of_threads(cpus: Sequence[LogicalCpu], *, is_shared: bool) -> list[int]:
    """All threads of some cores, or one of each core; empty without SMT."""
    cores: dict[int | None, list[int]] = defaultdict(list)
    for cpu in cpus:
        cores[cpu.core].append(cpu.id)
    if not any(len(each) > 1 for each in cores.values()):
        return []
    return [cpu for each in cores.values() for cpu in (each if is_shared else each[:1])]
