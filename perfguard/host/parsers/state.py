"""Settings and conditions of the host that change without another machine."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

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
    return State(
        frequency=frequency,
        driver=_same(domain.driver for domain in frequency),
        governor=_same(domain.governor for domain in frequency),
        turbo=_turbo(files),
        min_perf_percent=parse_count(files.text(f"{_PSTATE}/min_perf_pct")),
        max_perf_percent=parse_count(files.text(f"{_PSTATE}/max_perf_pct")),
        smt_control=parse_choice(files.text(f"{_CPU_ROOT}/smt/control")),
        thp=parse_choice(files.text("sys/kernel/mm/transparent_hugepage/enabled")),
        thp_defrag=parse_choice(files.text("sys/kernel/mm/transparent_hugepage/defrag")),
        ksm=parse_switch(files.text("sys/kernel/mm/ksm/run")),
        numa_balancing=_above_zero(files.text("proc/sys/kernel/numa_balancing")),
        aslr=_in_range(parse_count(files.text("proc/sys/kernel/randomize_va_space")), 2),
        kernel=parse_kernel(files.text("proc/sys/kernel/osrelease"), files.text("proc/version")),
        clocksource=parse_choice(files.text("sys/devices/system/clocksource/clocksource0/current_clocksource")),
        mitigations=_mitigations(files),
        memory_bytes=parse_meminfo(files.text("proc/meminfo"), "MemTotal"),
        swap_bytes=parse_meminfo(files.text("proc/meminfo"), "SwapTotal"),
        swap_used_bytes=_swap_used(files.text("proc/meminfo")),
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
    return tuple(_with_cpus(settings, cpus) for settings, cpus in groups.items())


def parse_meminfo(text: str | None, key: str) -> int | None:
    """Bytes of one line of `/proc/meminfo`."""
    match = re.search(rf"^{key}:\s+([0-9]{{1,15}}) kB$", text or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def parse_steal(text: str | None) -> float | None:
    """Stolen time over all CPU time since boot, from the first line of `/proc/stat`."""
    words = (text or "").partition("\n")[0].split()
    if not words or words[0] != "cpu" or len(words) < 9:
        return None
    ticks = [parse_count(word) for word in words[1:9]]
    total = sum(tick for tick in ticks if tick is not None)
    steal = ticks[7]
    return steal / total if steal is not None and None not in ticks and total > 0 else None


def parse_kernel(release: str | None, version: str | None) -> str | None:
    """Kernel release; from `Linux version X ...` where the release itself was not recorded."""
    words = parse_words(release)
    if words is not None:
        return words if re.fullmatch(r"[\w.+~-]+", words) else None
    match = re.match(r"Linux version ([\w.+~-]{1,200})", version or "")
    return match[1] if match else None


def _turbo(files: Files) -> bool | None:
    disabled = parse_switch(files.text(f"{_PSTATE}/no_turbo"))
    if disabled is not None:
        return not disabled
    return parse_switch(files.text(f"{_CPU_ROOT}/cpufreq/boost"))


def _mitigations(files: Files) -> dict[str, str] | None:
    folder = f"{_CPU_ROOT}/vulnerabilities"
    names = [name for name in files.names(folder)[:_MAX_MITIGATIONS] if re.fullmatch(r"[a-z0-9_]{1,64}", name)]
    found = {name: words for name in names if (words := parse_words(files.text(f"{folder}/{name}"))) is not None}
    return found or None


def _swap_used(text: str | None) -> int | None:
    total, free = parse_meminfo(text, "SwapTotal"), parse_meminfo(text, "SwapFree")
    return max(0, total - free) if total is not None and free is not None else None


def _with_cpus(settings: FrequencyDomain, cpus: Sequence[int]) -> FrequencyDomain:
    return replace(settings, cpus=tuple(cpus))


def _same(values: Iterable[str | None]) -> str | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _above_zero(text: str | None) -> bool | None:
    value = parse_count(text)
    return None if value is None else value > 0


def _in_range(value: int | None, largest: int) -> int | None:
    return value if value is not None and value <= largest else None
