"""Settings and conditions of a host; None always means unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencyDomain:
    """CPUs that share a frequency policy's settings."""

    cpus: tuple[int, ...]
    """Online CPUs, ascending."""
    driver: str | None
    """`intel_pstate`, `amd-pstate-epp`, `acpi-cpufreq`, ..."""
    governor: str | None
    """`performance`, `powersave`, ..."""
    energy_preference: str | None
    """Energy-performance preference, where the driver has one."""
    min_hz: int | None
    """Smallest frequency of the hardware."""
    max_hz: int | None
    """Largest frequency of the hardware."""
    base_hz: int | None
    """Guaranteed frequency without turbo."""
    limit_min_hz: int | None
    """Lower limit that is set."""
    limit_max_hz: int | None
    """Upper limit that is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Settings and conditions that can change without another machine."""

    frequency: tuple[FrequencyDomain, ...] = ()
    """One entry for each set of settings; empty when the kernel controls no frequency."""
    driver: str | None = None
    """The frequency driver, when it is the same everywhere."""
    governor: str | None = None
    """The governor, when it is the same everywhere."""
    turbo: bool | None = None
    """Whether turbo (boost) is allowed."""
    min_perf_percent: int | None = None
    """intel_pstate's lower limit."""
    max_perf_percent: int | None = None
    """intel_pstate's upper limit."""
    smt_control: str | None = None
    """`on`, `off`, `forceoff`, `notsupported`, ..."""
    thp: str | None = None
    """Transparent huge pages: `always`, `madvise` or `never`."""
    thp_defrag: str | None = None
    """When huge pages are assembled."""
    ksm: bool | None = None
    """Whether same-page merging runs."""
    numa_balancing: bool | None = None
    """Whether the kernel migrates pages between nodes."""
    aslr: int | None = None
    """`kernel.randomize_va_space`: 0, 1 or 2."""
    kernel: str | None = None
    """Kernel release."""
    clocksource: str | None = None
    """`tsc`, `kvm-clock`, `hpet`, ..."""
    mitigations: Mapping[str, str] | None = None
    """Vulnerability to mitigation, as the kernel puts it."""
    memory_bytes: int | None = None
    """Usable memory of the machine."""
    swap_bytes: int | None = None
    """Size of swap; 0 without any."""
    swap_used_bytes: int | None = None
    """Swap in use."""
    steal_ratio: float | None = None
    """Stolen over all CPU time since boot."""
    load_1min: float | None = None
    """Load average over one minute."""
