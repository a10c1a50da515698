"""One machine, read: everything else here is called from this place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfguard.host.identity import machine_id, stack_id
from perfguard.host.parsers.caches import read_caches
from perfguard.host.parsers.cgroup import read_limits
from perfguard.host.parsers.cpu import parse_cpuinfo, processors_by_id, read_cpu
from perfguard.host.parsers.isa import measured_isa, read_isa
from perfguard.host.parsers.live import amx_permission, fill_from_host
from perfguard.host.parsers.reading import open_tree
from perfguard.host.parsers.state import read_state
from perfguard.host.parsers.topology import online_cpus, read_topology
from perfguard.records.facts import Fact, fact
from perfguard.records.machine.fingerprint import AmxPermission, Fingerprint, SoftwareFacts

if TYPE_CHECKING:
    from perfguard.host.parsers.parsing import Files


def probe(root: Path = Path("/"), *, software: SoftwareFacts | None = None) -> Fingerprint:
    """The fingerprint of the machine at a root.

    Args:
        root: `/` for this machine; else a recorded one, a folder or tarball, and then nothing of this machine
            enters the answer.
        software: What the interpreter under test said of itself.

    Raises:
        FingerprintError: The root holds no machine.
        UsageError: The root does not exist, or holds several machines.
    """
    with open_tree(root) as tree:
        permission = amx_permission() if tree.live else AmxPermission.NOT_ASKED
        found = read_fingerprint(tree, software=software, permission=permission)
        return _with_ids(fill_from_host(found)) if tree.live else found


def with_software(found: Fingerprint, software: SoftwareFacts) -> Fingerprint:
    """A fingerprint completed by what the interpreter under test said of itself."""
    return _with_ids(replace(found, software=software, isa=measured_isa(found.isa, software)))


def read_fingerprint(
    files: Files, *, software: SoftwareFacts | None = None, permission: AmxPermission = AmxPermission.NOT_ASKED
) -> Fingerprint:
    """The fingerprint that the files tell."""
    processors = parse_cpuinfo(files.text("proc/cpuinfo"))
    numbered = processors_by_id(processors)
    online = online_cpus(files, numbered)
    cpu = read_cpu(files, processors, online or ())
    found = Fingerprint(
        machine_id="",
        stack_id=None,
        cpu=cpu,
        isa=read_isa(cpu, processors, software=software, permission=permission),
        topology=read_topology(files, online, numbered, cpu),
        caches=read_caches(files, online or ()),
        limits=read_limits(files),
        state=read_state(files, online or ()),
        software=software,
    )
    return _with_ids(replace(found, notes=notes_for(found)))


def _with_ids(found: Fingerprint) -> Fingerprint:
    return replace(found, machine_id=machine_id(found), stack_id=stack_id(found.software))


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
