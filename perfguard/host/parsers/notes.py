"""What a reader must know beside the fields: what could not be read, and what does not apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfguard.records.machine.fingerprint import Fingerprint


def notes_for(found: Fingerprint) -> tuple[str, ...]:
    """One sentence each, the most important first."""
    return (*_about_cpu(found), *_about_topology(found), *_about_state(found))


def _about_cpu(found: Fingerprint) -> list[str]:
    notes = []
    if found.cpu.vendor is None:
        notes.append("The CPU does not name its vendor: /proc/cpuinfo is missing or not understood.")
    if found.isa.features is None:
        notes.append("No instruction set flags were found, so what the libraries can use is unknown.")
    if found.cpu.architecture in {"aarch64", "arm"}:
        notes.append("Arm CPU: AVX, AMX, MKL, microcode and Intel's turbo switch do not apply.")
    elif found.cpu.architecture not in {"x86_64", None}:
        notes.append(f"Architecture {found.cpu.architecture}: instruction set levels and MKL are not known for it.")
    if found.cpu.vendor in {"AuthenticAMD", "HygonGenuine"}:
        notes.append("AMD CPU: AMX does not apply; MKL's path is known only when measured: mind it in fp32 GEMM.")
    return notes


def _about_topology(found: Fingerprint) -> list[str]:
    topology = found.topology
    notes = []
    if topology.cores is None:
        notes.append("Physical cores are unknown: no sibling lists or core ids were found.")
    if found.cpu.hypervisor:
        notes.append("Virtual machine: packages, caches and SMT are what the hypervisor shows, and may not be real.")
    if found.cpu.architecture == "aarch64" and topology.hybrid:
        notes.append("Arm: P, E and LP-E stand for the fastest, middle and slowest kind of core.")
    empty = [str(node.id) for node in topology.numa_nodes if node.cpus == ()]
    if empty:
        notes.append(f"NUMA nodes without CPUs: {', '.join(empty)} (memory only, or nothing).")
    bare = [str(node.id) for node in topology.numa_nodes if node.cpus and node.memory_bytes == 0]
    if bare:
        notes.append(f"NUMA nodes with CPUs but without memory: {', '.join(bare)}.")
    return notes


def _about_state(found: Fingerprint) -> list[str]:
    if found.state.frequency:
        return []
    return ["No cpufreq: the governor, the driver and frequency limits are unknown or in the host's hands."]
