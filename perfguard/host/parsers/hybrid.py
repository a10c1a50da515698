"""Kinds of cores.

What is asked, in this order; the first that answers decides:

1. The kernel's own lists, `/sys/devices/cpu_core`, `cpu_atom`, `cpu_lowpower` (Intel).
2. Arm: the part number of each core, ranked by `cpu_capacity`.
3. Intel: the sizes of the nearest caches. Frequency is no evidence: favoured cores of one kind differ by 5 %
   (Turbo Boost Max), and on Lakefield both kinds differ by only 7 %.
4. Otherwise a gap of at least 20 % between the performance figures of the cores.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from perfguard.host.parsers.parsing import Files, parse_count, parse_size_bytes, read_cpus, read_hz
from perfguard.records.machine.fingerprint import CoreClass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfguard.host.parsers.cpu import Processor

_GAP = 0.8
_KERNEL_LISTS = (
    ("sys/devices/cpu_core/cpus", CoreClass.PERFORMANCE),
    ("sys/devices/cpu_atom/cpus", CoreClass.EFFICIENCY),
    ("sys/devices/cpu_lowpower/cpus", CoreClass.LOW_POWER),
)
_NEAREST = ((1, "Data"), (1, "Instruction"), (2, "Unified"))


class CoreTraits(Struct, frozen=True, kw_only=True):
    """What distinguishes one kind of core from another."""

    part: str | None  # Arm implementer and part number
    near_caches: tuple[int | None, ...]  # Bytes of L1d, L1i and L2
    has_l3: bool | None  # Whether an L3 covers the core; None without any cache information
    capacity: int | None  # `cpu_capacity`, 1024 for the fastest (Arm)
    highest_perf: int | None  # ACPI's abstract performance
    max_frequency_hz: int | None  # Largest frequency

    @property
    def tells(self) -> bool:
        """Whether anything here could show a hybrid CPU."""
        return self.part is not None or any(self.near_caches) or self.speed is not None

    @property
    def speed(self) -> int | None:
        """The best performance figure there is; comparable within one machine."""
        return self.capacity or self.highest_perf or self.max_frequency_hz


def read_traits(files: Files, cpu: int, processor: Processor) -> CoreTraits:
    """The traits of one CPU."""
    folder = f"sys/devices/system/cpu/cpu{cpu}"
    sizes: dict[tuple[int, str], int | None] = {}
    for index in files.names(f"{folder}/cache"):
        level = parse_count(files.text(f"{folder}/cache/{index}/level"))
        kind = (files.text(f"{folder}/cache/{index}/type") or "").strip()
        if level is not None:
            sizes[level, kind] = parse_size_bytes(files.text(f"{folder}/cache/{index}/size"))
    part = processor.get("CPU part")
    return CoreTraits(
        part=f"{processor.get('CPU implementer')}:{part}" if part else None,
        near_caches=tuple(sizes.get(key) for key in _NEAREST),
        has_l3=any(level == 3 for level, _ in sizes) if sizes else None,
        capacity=parse_count(files.text(f"{folder}/cpu_capacity")) or None,
        highest_perf=parse_count(files.text(f"{folder}/acpi_cppc/highest_perf")) or None,
        max_frequency_hz=read_hz(files, f"{folder}/cpufreq/cpuinfo_max_freq"),
    )


def classify_cores(
    files: Files, traits: Mapping[int, CoreTraits], widths: Mapping[int, int], vendor: str | None
) -> dict[int, CoreClass]:
    """The class of each CPU; all performance where nothing shows more than one kind.

    `widths` are hardware threads of the core of each CPU; on trees without a vendor, cache sizes still count.
    """
    classes: dict[int, CoreClass] = {}
    for path, core_class in _KERNEL_LISTS:
        classes.update(dict.fromkeys((read_cpus(files, path) or frozenset()) & traits.keys(), core_class))
    if classes and classes.keys() == traits.keys():
        return classes
    if any(trait.part is not None for trait in traits.values()):
        return _ranked({cpu: trait.part for cpu, trait in traits.items()}, traits, widths)
    if vendor in {"GenuineIntel", None} and any(any(trait.near_caches) for trait in traits.values()):
        kinds = {cpu: trait.near_caches for cpu, trait in traits.items()}
        return _split_low_power(_ranked(kinds, traits, widths, most=2), traits)
    return _by_gap(traits)


def _ranked(
    kinds: Mapping[int, object], traits: Mapping[int, CoreTraits], widths: Mapping[int, int], most: int = 3
) -> dict[int, CoreClass]:
    """Kinds in order of speed: the first is performance, the last of several efficiency or low power."""
    if len({kind for kind in kinds.values() if kind is not None}) < 2 or None in kinds.values():
        return dict.fromkeys(kinds, CoreClass.PERFORMANCE)

    def strength(kind: object) -> tuple[int, int, int]:
        members = [cpu for cpu, found in kinds.items() if found == kind]
        return (
            max(widths.get(cpu, 1) for cpu in members),
            max(traits[cpu].speed or 0 for cpu in members),
            max(traits[cpu].near_caches[0] or 0 for cpu in members),
        )

    order = sorted(set(kinds.values()), key=strength, reverse=True)
    names = {order[0]: CoreClass.PERFORMANCE, **dict.fromkeys(order[1:], CoreClass.EFFICIENCY)}
    if len(order) > 2 and most > 2:
        names[order[-1]] = CoreClass.LOW_POWER
    return {cpu: names[kind] for cpu, kind in kinds.items()}


def _split_low_power(classes: Mapping[int, CoreClass], traits: Mapping[int, CoreTraits]) -> dict[int, CoreClass]:
    """Efficiency cores beyond the L3 are low power ones, where others of their kind have it."""
    efficient = [cpu for cpu, found in classes.items() if found is CoreClass.EFFICIENCY]
    beyond = [cpu for cpu in efficient if traits[cpu].has_l3 is False]
    has_others = any(traits[cpu].has_l3 for cpu in efficient)
    return {**classes, **dict.fromkeys(beyond if has_others else (), CoreClass.LOW_POWER)}


def _by_gap(traits: Mapping[int, CoreTraits]) -> dict[int, CoreClass]:
    speeds = {cpu: trait.speed for cpu, trait in traits.items()}
    known = sorted({speed for speed in speeds.values() if speed is not None}, reverse=True)
    if None in speeds.values() or not known:
        return dict.fromkeys(traits, CoreClass.PERFORMANCE)
    edge = next((low for high, low in pairwise(known) if low <= _GAP * high), 0)
    return {c: CoreClass.EFFICIENCY if (speed or 0) <= edge else CoreClass.PERFORMANCE for c, speed in speeds.items()}
