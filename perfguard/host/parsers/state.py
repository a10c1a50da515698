"""Settings and conditions of the host that change without another machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perfguard.host.parsers.parsing import (
    Files,
    parse_choice,
    parse_count,
    parse_float,
    parse_switch,
    parse_words,
    read_hz,
)
from perfguard.records.machine.fingerprint import FrequencyDomain, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CPU_ROOT = "sys/devices/system/cpu"
_PSTATE = f"{_CPU_ROOT}/intel_pstate"
_MAX_MITIGATIONS = 200


def read_state(files: Files, online: Sequence[int]) -> State:
    """All settings; each is None where its file says nothing."""
    frequency = read_frequency(files, online)
    balancing = parse_count(files.text("proc/sys/kernel/numa_balancing"))
    aslr = parse_count(files.text("proc/sys/kernel/randomize_va_space"))
    no_turbo = parse_switch(files.text(f"{_PSTATE}/no_turbo"))
    memory = files.text("proc/meminfo")
    swap, free = parse_meminfo(memory, "SwapTotal"), parse_meminfo(memory, "SwapFree")
    return State(
        frequency=frequency,
        driver=_same(domain.driver for domain in frequency),
        governor=_same(domain.governor for domain in frequency),
        turbo=parse_switch(files.text(f"{_CPU_ROOT}/cpufreq/boost")) if no_turbo is None else not no_turbo,
        min_perf_percent=parse_count(files.text(f"{_PSTATE}/min_perf_pct")),
        max_perf_percent=parse_count(files.text(f"{_PSTATE}/max_perf_pct")),
        smt_control=parse_choice(files.text(f"{_CPU_ROOT}/smt/control")),
        thp=parse_choice(files.text("sys/kernel/mm/transparent_hugepage/enabled")),
        thp_defrag=parse_choice(files.text("sys/kernel/mm/transparent_hugepage/defrag")),
        ksm=parse_switch(files.text("sys/kernel/mm/ksm/run")),
        numa_balancing=None if balancing is None else balancing > 0,
        aslr=aslr if aslr in {0, 1, 2} else None,
        kernel=parse_kernel(files.text("proc/sys/kernel/osrelease"), files.text("proc/version")),
        clocksource=parse_choice(files.text("sys/devices/system/clocksource/clocksource0/current_clocksource")),
        mitigations=_mitigations(files),
        memory_bytes=parse_meminfo(memory, "MemTotal"),
        swap_bytes=swap,
        swap_used_bytes=None if swap is None or free is None else max(0, swap - free),
        steal_ratio=parse_steal(files.text("proc/stat")),
        load_1min=parse_float((files.text("proc/loadavg") or "").partition(" ")[0]),
    )


def read_frequency(files: Files, online: Sequence[int]) -> tuple[FrequencyDomain, ...]:
    """CPUs grouped by equal frequency settings, in order of their lowest CPU."""
    groups: dict[FrequencyDomain, list[int]] = {}
    for cpu in online:
        folder = f"{_CPU_ROOT}/cpu{cpu}/cpufreq"
        if not files.names(folder):
            continue
        settings = FrequencyDomain(
            cpus=(),
            driver=parse_choice(files.text(f"{folder}/scaling_driver")),
            governor=parse_choice(files.text(f"{folder}/scaling_governor")),
            energy_preference=parse_choice(files.text(f"{folder}/energy_performance_preference")),
            min_hz=read_hz(files, f"{folder}/cpuinfo_min_freq"),
            max_hz=read_hz(files, f"{folder}/cpuinfo_max_freq"),
            base_hz=read_hz(files, f"{folder}/base_frequency"),
            limit_min_hz=read_hz(files, f"{folder}/scaling_min_freq"),
            limit_max_hz=read_hz(files, f"{folder}/scaling_max_freq"),
        )
        groups.setdefault(settings, []).append(cpu)
    return tuple(replace(settings, cpus=tuple(cpus)) for settings, cpus in groups.items())


def parse_meminfo(text: str | None, key: str) -> int | None:
    """Bytes of one line of `/proc/meminfo`."""
    match = re.search(rf"^{key}:\s+([0-9]{{1,15}}) kB$", text or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def parse_steal(text: str | None) -> float | None:
    """Stolen time over all CPU time since boot, from the first line of `/proc/stat`."""
    name, *numbers = (text or "").partition("\n")[0].split()[:9] or [""]
    ticks = [tick for word in numbers if (tick := parse_count(word)) is not None]
    return ticks[-1] / sum(ticks) if name == "cpu" and len(ticks) == 8 and any(ticks) else None


def parse_kernel(release: str | None, version: str | None) -> str | None:
    """Kernel release; from `Linux version X ...` where the release itself was not recorded."""
    words = parse_words(release)
    if words is not None:
        return words if re.fullmatch(r"[\w.+~-]+", words) else None
    match = re.match(r"Linux version ([\w.+~-]{1,200})", version or "")
    return match[1] if match else None


def _mitigations(files: Files) -> dict[str, str] | None:
    folder = f"{_CPU_ROOT}/vulnerabilities"
    names = [name for name in files.names(folder)[:_MAX_MITIGATIONS] if re.fullmatch(r"[a-z0-9_]{1,64}", name)]
    found = {name: words for name in names if (words := parse_words(files.text(f"{folder}/{name}"))) is not None}
    return found or None


def _same(values: Iterable[str | None]) -> str | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None
