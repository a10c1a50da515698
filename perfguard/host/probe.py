"""One machine, read: everything else here is called from this place."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perfguard.host.identity import machine_id, stack_id
from perfguard.host.parsers.cgroup import read_limits
from perfguard.host.parsers.cpu import parse_cpuinfo, processors_by_id, read_cpu
from perfguard.host.parsers.isa import measured_isa, read_isa
from perfguard.host.parsers.parsing import parse_words
from perfguard.host.parsers.reading import open_tree
from perfguard.host.parsers.software import decode_software
from perfguard.host.parsers.state import read_state
from perfguard.host.parsers.topology import online_cpus, read_caches, read_topology
from perfguard.records.facts import Fact, fact
from perfguard.records.machine.fingerprint import AmxPermission, Fingerprint, SoftwareFacts

if TYPE_CHECKING:
    from perfguard.host.parsers.parsing import Files

_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18
_REPORTER = Path(__file__).parents[1] / "worker" / "torch_env.py"
_RUN_REPORTER = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
_MAX_ERROR = 250
_TIMEOUT_S = 180.0


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
    threads, cores, memory_bytes = topology.threads_online, topology.cores, state.memory_bytes
    with suppress(Exception):
        if None in {threads, cores, memory_bytes}:
            import psutil

            threads = threads or psutil.cpu_count(logical=True)
            cores = cores or psutil.cpu_count(logical=False)
            memory_bytes = psutil.virtual_memory().total if memory_bytes is None else memory_bytes
    topology = replace(topology, threads_online=threads, cores=cores)
    state = replace(state, memory_bytes=memory_bytes, kernel=state.kernel or os.uname().release)
    return replace(found, cpu=cpu, topology=topology, state=state)


def _brand() -> str | None:
    """py-cpuinfo's brand; it starts processes and takes a second, so it is asked last."""
    with suppress(Exception):  # it raises whatever its many sources raise
        import cpuinfo

        brand = cpuinfo.get_cpu_info().get("brand_raw")
        return " ".join(str(brand).split())[:256] if brand else None
    return None


def probe(root: Path = Path("/"), *, software: SoftwareFacts | None = None) -> Fingerprint:
    """The fingerprint of the machine at a root, `/` for this one, with what the interpreter under test said of itself.

    Of a recorded machine, a folder or tarball, nothing of this machine enters the answer.

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
    return _with_ids(replace(found, notes=_notes(found)))


def _with_ids(found: Fingerprint) -> Fingerprint:
    return replace(found, machine_id=machine_id(found), stack_id=stack_id(found.software))


def _notes(found: Fingerprint) -> tuple[Fact, ...]:
    """The most important first."""
    cpu, topology = found.cpu, found.topology
    is_arm, other = cpu.architecture in {"aarch64", "arm"}, fact("host.architecture", architecture=cpu.architecture)
    empty = tuple(node.id for node in topology.numa_nodes if node.cpus == ())
    bare = tuple(node.id for node in topology.numa_nodes if node.cpus and node.memory_bytes == 0)
    notes = (
        (cpu.vendor is None, fact("host.no_vendor")),
        (found.isa.features is None, fact("host.no_isa_flags")),
        (is_arm, fact("host.arm")),
        (not is_arm and cpu.architecture not in {"x86_64", None}, other),
        (cpu.vendor in {"AuthenticAMD", "HygonGenuine"}, fact("host.amd")),
        (topology.cores is None, fact("host.no_cores")),
        (cpu.hypervisor, fact("host.virtual")),
        (cpu.architecture == "aarch64" and topology.hybrid, fact("host.arm_core_classes")),
        (empty, fact("host.nodes_without_cpus", nodes=empty)),
        (bare, fact("host.nodes_without_memory", nodes=bare)),
        (not found.state.frequency, fact("host.no_cpufreq")),
    )
    return tuple(note for applies, note in notes if applies)


def query_software(
    python: Path, *, environment: Mapping[str, str] | None = None, timeout_s: float = _TIMEOUT_S
) -> SoftwareFacts:
    """What an interpreter, which needs torch but not perfguard, says of itself in a process of its own.

    `environment` is its whole environment, None this process's own. `problem` of the answer says why it is empty when
    the interpreter could not be asked.
    """
    command = (str(python), "-c", _RUN_REPORTER, str(_REPORTER))
    try:
        done = subprocess.run(
            command,
            env=None if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        problem = fact("host.interpreter_not_started", interpreter=str(python), error=parse_words(str(error)))
        return SoftwareFacts(problem=problem)
    try:
        answer: object = json.loads(done.stdout.decode("utf-8", errors="replace").strip().rpartition("\n")[2])
    except (ValueError, RecursionError):
        tail = done.stderr.decode("utf-8", errors="replace").strip().rpartition("\n")[2]
        said = parse_words(tail[:_MAX_ERROR])
        problem = fact("host.interpreter_failed", interpreter=str(python), status=done.returncode, error=said)
        return SoftwareFacts(problem=problem)
    return decode_software(answer)
