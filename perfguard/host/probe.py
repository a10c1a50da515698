"""One machine, read: everything else here is called from this place."""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfguard.host.identity import machine_id, stack_id
from perfguard.host.parsers.cgroup import read_limits
from perfguard.host.parsers.cpu import parse_cpuinfo, processors_by_id, read_cpu
from perfguard.host.parsers.isa import measured_isa, read_isa
from perfguard.host.parsers.reading import open_tree
from perfguard.host.parsers.state import read_state
from perfguard.host.parsers.topology import online_cpus, read_caches, read_topology
from perfguard.records.facts import Fact, fact
from perfguard.records.machine.fingerprint import AmxPermission, Fingerprint, SoftwareFacts

if TYPE_CHECKING:
    from perfguard.host.parsers.parsing import Files


_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


def amx_permission() -> AmxPermission:
    """Ask the kernel to let this process use AMX tiles. Source: Linux Documentation/arch/x86/xstate.rst."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return AmxPermission.NOT_APPLICABLE
    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return AmxPermission.NOT_ASKED
    arguments = (ctypes.c_long(number) for number in (_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA))
    return AmxPermission.GRANTED if syscall(*arguments) == 0 else AmxPermission.DENIED


def fill_from_host(found: Fingerprint) -> Fingerprint:
    """Fill what the files left unknown, and only that."""
    cpu, topology, state = found.cpu, found.topology, found.state
    if cpu.brand is None:
        cpu = replace(cpu, brand=_brand())
    if topology.threads_online is None or topology.cores is None:
        topology = replace(
            topology,
            threads_online=topology.threads_online or _count(logical=True),
            cores=topology.cores or _count(logical=False),
        )
    if state.memory_bytes is None:
        state = replace(state, memory_bytes=_memory())
    if state.kernel is None:
        state = replace(state, kernel=os.uname().release)
    return replace(found, cpu=cpu, topology=topology, state=state)


def _brand() -> str | None:
    """py-cpuinfo's brand; it starts processes and takes a second, so it is asked last."""
    with suppress(Exception):  # it raises whatever its many sources raise
        import cpuinfo

        brand = cpuinfo.get_cpu_info().get("brand_raw")
        return " ".join(str(brand).split())[:256] if brand else None
    return None


def _count(*, logical: bool) -> int | None:
    with suppress(Exception):
        import psutil

        count = psutil.cpu_count(logical=logical)
        return int(count) if count else None
    return None


def _memory() -> int | None:
    with suppress(Exception):
        import psutil

        return int(psutil.virtual_memory().total)
    return None


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
