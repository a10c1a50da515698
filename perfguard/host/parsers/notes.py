"""What a reader must know beside the fields: what could not be read, and what does not apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfguard.records.facts import Fact, fact

if TYPE_CHECKING:
    from perfguard.records.machine.fingerprint import Fingerprint


def notes_for(found: Fingerprint) -> tuple[Fact, ...]:
    """The most important first."""
    return (*_about_cpu(found), *_about_topology(found), *_about_state(found))


def _about_cpu(found: Fingerprint) -> list[Fact]:
    notes = []
    if found.cpu.vendor is None:
        notes.append(fact("host.no_vendor"))
    if found.isa.features is None:
        notes.append(fact("host.no_isa_flags"))
    if found.cpu.architecture in {"aarch64", "arm"}:
        notes.append(fact("host.arm"))
    elif found.cpu.architecture not in {"x86_64", None}:
        notes.append(fact("host.architecture", architecture=found.cpu.architecture))
    if found.cpu.vendor in {"AuthenticAMD", "HygonGenuine"}:
        notes.append(fact("host.amd"))
    return notes


def _about_topology(found: Fingerprint) -> list[Fact]:
    topology = found.topology
    notes = []
    if topology.cores is None:
        notes.append(fact("host.no_cores"))
    if found.cpu.hypervisor:
        notes.append(fact("host.virtual"))
    if found.cpu.architecture == "aarch64" and topology.hybrid:
        notes.append(fact("host.arm_core_classes"))
    empty = tuple(node.id for node in topology.numa_nodes if node.cpus == ())
    if empty:
        notes.append(fact("host.nodes_without_cpus", nodes=empty))
    bare = tuple(node.id for node in topology.numa_nodes if node.cpus and node.memory_bytes == 0)
    if bare:
        notes.append(fact("host.nodes_without_memory", nodes=bare))
    return notes


def _about_state(found: Fingerprint) -> list[Fact]:
    return [] if found.state.frequency else [fact("host.no_cpufreq")]
