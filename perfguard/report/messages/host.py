"""What is said of machines: differences, what could not be read, the CPUs of a run, and the checks of `doctor`."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.records.facts import Fact, Value
from perfguard.report.messages.message import Message
from perfguard.units import shorten

_MOST_SHOWN = 100
_RECORD_ANEW = "expect a shift, and record a new baseline"
_SETTINGS: Mapping[str, tuple[str, str]] = {
    "fingerprint_schema": ("fingerprint schema", "record the baseline again with this version"),
    "governor": ("governor", "set the same one: sudo cpupower frequency-set -g performance"),
    "frequency_driver": ("frequency driver", "boot with the same one"),
    "turbo": ("turbo", "switch it the same way on both"),
    "frequency_limits_hz": ("frequency limits (Hz)", "set the same: sudo cpupower frequency-set -d MIN -u MAX"),
    "pstate_limits": ("intel_pstate limits (percent)", "write the same min_perf_pct and max_perf_pct"),
    "cpu_quota": ("CPU quota", "give both runs the same CPU limit"),
    "cpuset": ("CPUs of the cpuset", "give both runs the same cpuset"),
    "microcode": ("microcode", _RECORD_ANEW),
    "kernel": ("kernel", _RECORD_ANEW),
    "mitigations": ("mitigations", "boot with the same mitigations= setting"),
    "energy_preference": ("energy preference", "write the same word to energy_performance_preference"),
    "huge_pages": (
        "transparent huge pages",
        "write the same words to /sys/kernel/mm/transparent_hugepage/enabled and defrag",
    ),
    "numa_balancing": ("NUMA balancing", "sudo sysctl -w kernel.numa_balancing=0 on both"),
    "same_page_merging": ("same-page merging", "write the same number to /sys/kernel/mm/ksm/run"),
    "aslr": ("address randomisation", "sudo sysctl -w kernel.randomize_va_space=2 on both"),
    "clock_source": ("clock source", "boot with the same clocksource="),
}
_RUN_SETTINGS = {"cpus": "number of CPUs", "env_profile": "environment profile", "sample_s": "sample length (s)"}
_MACHINE_PARTS = {
    "brand": "CPU model",
    "isa": "usable instruction sets",
    "amx_denied": "AMX denied by the kernel",
    "frequencies_hz": "largest frequencies (Hz, CPUs)",
    "caches": "caches (level, kind, bytes, count, sharing)",
    "nodes": "NUMA nodes (CPUs, memory class, distances)",
    "classes": "core classes (class, cores, CPUs)",
    "threads": "online CPUs",
}


def _shown(value: Value) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = (", ".join(map(str, value)) or "nothing") if isinstance(value, tuple) else str(value)
    return shorten(text, _MOST_SHOWN)


def _against(fact: Fact, name: str) -> str:
    where = f"differs from the {fact.subject.arm}: " if fact.subject.arm else ""
    return f"{where}{name}: {_shown(fact.values['first'])} → {_shown(fact.values['second'])}"


def _other_machine(fact: Fact) -> str:
    part = str(fact.values["part"])
    advice = "; record a baseline on this machine" if fact.values["is_first"] else ""
    return f"another machine: {_against(fact, _MACHINE_PARTS.get(part, part))}{advice}"


def _other_setting(fact: Fact) -> str:
    setting = str(fact.values["setting"])
    name, advice = _SETTINGS.get(setting, (setting, ""))
    return f"{_against(fact, name)}{f'; {advice}' if advice else ''}"


def _other_software(fact: Fact) -> str:
    return f"software: {_against(fact, str(fact.values['part']))}; intended, or install the same"


def _other_run_setting(fact: Fact) -> str:
    values = fact.values
    name = _RUN_SETTINGS.get(str(values["setting"]), values["setting"])
    return f"the {fact.subject.arm} was measured with another {name} ({values['then']}, now {values['now']})"


def _cpus_chosen(fact: Fact) -> str:
    values = fact.values
    node, core_class, quota, left = (values[name] for name in ("numa_node", "core_class", "quota_threads", "left_cpus"))
    asked = " (as asked)" if values["is_node_asked"] else ""
    cores = f" of class {core_class}" if core_class else ""
    pieces = ["whole machine" if node is None else f"NUMA node {node}{asked}"]
    pieces.append(
        f"all {values['cores']} cores{cores} and some SMT siblings"
        if values["with_siblings"]
        else f"one thread per core{cores}"
    )
    pieces += [f"{quota} by the CPU quota"] if quota else []
    pieces += [f"CPU {left} left to the system"] if left else []
    return ", ".join(pieces)


_COMPARED: Mapping[str, Message] = {
    "host.other_machine": Message(
        text=_other_machine, about="Two fingerprints are of different machines, so their times cannot be compared."
    ),
    "host.other_setting": Message(
        text=_other_setting, about="A setting of the machine differs between two fingerprints."
    ),
    "host.other_software": Message(
        text=_other_software, about="A part of the software stack differs between two fingerprints."
    ),
    "host.unknown_cpu": Message(
        text="the CPU model is unknown on both sides; give fingerprints that have /proc/cpuinfo",
        about="Neither fingerprint says which CPU it is of, so the two may be of different machines.",
    ),
    "host.unknown_cpus": Message(
        text="the online CPUs are unknown on both sides; give fingerprints that have /sys",
        about="Neither fingerprint says how many CPUs there are.",
    ),
    "host.other_run_setting": Message(
        text=_other_run_setting, about="A stored baseline or anchor was measured with another setting of the run."
    ),
    "host.other_stack": Message(
        text="the software has changed since ({then} → {now}); freeze another anchor: perfguard baseline anchor "
        "--replace",
        about="An anchor was measured with another software stack, which moves every case.",
    ),
    "host.unknown_software": Message(
        text="the software stack of the {side} is unknown; ask the interpreter under test",
        about="One of two fingerprints holds no software stack.",
    ),
}
_NOTES: Mapping[str, Message] = {
    "host.no_vendor": Message(
        text="CPU vendor unknown: /proc/cpuinfo is missing or was not understood",
        about="The vendor of the CPU could not be read.",
    ),
    "host.no_isa_flags": Message(
        text="no instruction-set flags found; what the libraries can use is unknown",
        about="The flags of the CPU could not be read.",
    ),
    "host.arm": Message(
        text="Arm CPU: AVX, AMX, MKL, microcode and Intel's turbo switch do not apply",
        about="Some facts do not exist on Arm.",
    ),
    "host.architecture": Message(
        text="architecture {architecture}: instruction-set levels and MKL are not known for it",
        about="Neither x86 nor Arm.",
    ),
    "host.amd": Message(
        text="AMD CPU: AMX does not apply; which code path MKL takes is known only when measured and matters for "
        "fp32 GEMM",
        about="MKL chooses its code path on AMD by itself.",
    ),
    "host.no_cores": Message(
        text="number of physical cores unknown: no sibling lists or core ids found",
        about="The topology could not be read.",
    ),
    "host.virtual": Message(
        text="virtual machine: packages, caches and SMT are what the hypervisor shows",
        about="The topology of a guest may not be that of the hardware.",
    ),
    "host.arm_core_classes": Message(
        text="Arm: P, E and LP-E stand for the fastest, middle and slowest kind of core",
        about="Intel's names of core classes are used for Arm, too.",
    ),
    "host.nodes_without_cpus": Message(
        text="NUMA nodes without CPUs: {nodes}", about="Nodes that hold memory alone, or nothing."
    ),
    "host.nodes_without_memory": Message(
        text="NUMA nodes with CPUs but without memory: {nodes}", about="CPUs whose memory is on other nodes."
    ),
    "host.no_cpufreq": Message(
        text="no cpufreq: governor, driver and frequency limits are unknown or set by the host",
        about="The kernel shows no frequency settings, which is usual in guests.",
    ),
    "host.interpreter_no_answer": Message(
        text="the interpreter gave no readable answer", about="The software stack of an interpreter is unknown."
    ),
    "host.interpreter_not_started": Message(
        text="{interpreter} could not be started: {error}", about="An interpreter could not be asked for its software."
    ),
    "host.interpreter_failed": Message(
        text="{interpreter} ended with status {status}[[: {error}]]",
        about="An interpreter failed when it was asked for its software.",
    ),
    "host.interpreter_problem": Message(
        text="{error}", about="What an interpreter says of its own trouble, such as torch that cannot be imported."
    ),
    "host.cpus_asked": Message(text="as asked with --cpus {cpus}", about="The CPUs of a run were named."),
    "host.cpus_chosen": Message(text=_cpus_chosen, about="How the CPUs of a run were chosen."),
}
_SEEN: Mapping[str, Message] = {
    "doctor.unknown": Message(text="unknown", about="What a check looks at could not be read."),
    "doctor.no_cpufreq": Message(text="unknown: no cpufreq", about="The kernel shows no frequency settings."),
    "doctor.on": Message(text="on", about="A setting is on."),
    "doctor.off": Message(text="off", about="A setting is off."),
    "doctor.none": Message(text="none", about="There is no quota, or no swap."),
    "doctor.governor": Message(text="{governors}", about="Frequency governors in use."),
    "doctor.smt_unused": Message(
        text="on, one thread per core used", about="SMT is on, and no two threads share a core."
    ),
    "doctor.smt_shared": Message(text="on, siblings share cores", about="Threads of the run share cores."),
    "doctor.load": Message(
        text="{runnable} runnable on {cpus} CPUs over the last minute", about="Load of the host before the run."
    ),
    "doctor.bare_metal": Message(text="not a virtual machine", about="Steal does not apply."),
    "doctor.steal": Message(text="{steal_ratio} since boot", about="Time that the hypervisor gave to other guests."),
    "doctor.one_node": Message(text="one node", about="NUMA balancing does not apply."),
    "doctor.huge_pages": Message(text="{mode}", about="Mode of transparent huge pages."),
    "doctor.quota": Message(text="{quota_cpus} CPUs, {threads} threads", about="CPU quota of the control group."),
    "doctor.swap": Message(text="{used_bytes} of {swap_bytes} used", about="Swap in use."),
    "doctor.aslr_partly": Message(text="partly on", about="Address randomisation leaves the heap in place."),
    "doctor.allocator": Message(text="{allocator}", about="The allocator that is preloaded."),
    "doctor.allocator_not_loaded": Message(
        text="LD_PRELOAD names {preloaded}, but {loaded} is loaded", about="The preloaded allocator was not found."
    ),
    "doctor.allocator_tuned": Message(
        text="the C library's, with {settings}", about="The C library's allocator is tuned by variables."
    ),
    "doctor.allocator_untuned": Message(
        text="the C library's, untuned", about="The C library's allocator returns memory to the kernel at each step."
    ),
    "doctor.threads": Message(
        text="{threads:thread} on {cpus:CPU} ({cpu_list})[[; {too_many}]][[; {binding} set]]",
        about="Threads of the run, and the variables that set or bind them.",
    ),
}
_WHY: Mapping[str, Message] = {
    f"doctor.why_{check}": Message(text=text, about=f"Why doctor checks `{check}`.")
    for check, text in {
        "governor": "Other governors change the clock with the load; up to a factor of two.",
        "turbo": "Turbo follows temperature, neighbours and AVX use, so equal code runs at different clocks.",
        "smt": "Hardware threads of one core share its units: a sibling's work is this run's noise.",
        "load": "Whatever else runs takes cycles, cache and memory bandwidth.",
        "steal": "The hypervisor gave this machine's time to another one.",
        "numa_balancing": "The kernel unmaps and moves pages while the run is timed.",
        "thp": "With `always`, whether memory comes in huge pages depends on how fragmented it is at that moment.",
        "quota": "Neither torch nor OpenMP reads quotas: threads above it are stopped for part of every period.",
        "swap": "A page that comes back from swap costs milliseconds inside a step.",
        "aslr": "Random layouts of fresh processes average out; one fixed layout is a bias of a few per cent.",
        "allocator": "The allocator decides how many page faults a step takes; both arms must have the same.",
        "threads": "Threads beyond the CPUs wait for each other; binding variables shrink the mask at import of torch.",
    }.items()
}
_FIXES: Mapping[str, Message] = {
    f"doctor.fix_{name}": Message(text=text, about=f"Fix that doctor prints for `{name}`.")
    for name, text in {
        "governor": "sudo cpupower frequency-set -g performance",
        "turbo": "echo {value} | sudo tee /sys/devices/system/cpu/{file}",
        "smt": "echo off | sudo tee /sys/devices/system/cpu/smt/control",
        "load": "stop other work; find it with: ps -eo pcpu,pid,comm --sort=-pcpu | head",
        "steal": "use a dedicated host or instance; blocks with steal are voided",
        "numa_balancing": "sudo sysctl -w kernel.numa_balancing=0",
        "thp": "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        "quota": "use --threads {threads}, or limit the container by cpuset instead of quota",
        "swap": "sudo swapoff -a",
        "aslr": "sudo sysctl -w kernel.randomize_va_space=2",
        "preload": "ldconfig -p | grep {allocator}   # and put the path it prints into LD_PRELOAD",
        "allocator": "export MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592",
        "threads": "export OMP_NUM_THREADS={cpus} MKL_NUM_THREADS={cpus}",
        "binding": "unset {names}",
    }.items()
}
HOST: Mapping[str, Message] = {**_COMPARED, **_NOTES, **_SEEN, **_WHY, **_FIXES}
