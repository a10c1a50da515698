"""The machine's CPUs as a drawing: packages, nodes and cores, with the CPUs that the run is pinned to."""

from __future__ import annotations

from collections.abc import Sequence

from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.machine.fingerprint import CpuSelection, LogicalCpu, Topology
from perfguard.report.messages.catalog import describe
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.spans import Line, Role, Span, line, wrapped
from perfguard.units import format_bytes, format_count

_NUMBERED = 64
"""Up to so many CPUs are drawn with their numbers."""


def draw_topology(topology: Topology, selection: CpuSelection | None, width: int, glyphs: Glyphs) -> list[Line]:
    """One block a NUMA node (or package), one cell a core, each with a sign for every hardware thread.

    Args:
        topology: What the fingerprint says.
        selection: Where the run is pinned; None where that is unknown.
        width: Columns.
        glyphs: What to draw with.
    """
    if not topology.cpus:
        return [line(Span("this machine does not report its cores", Role.MUTED))]
    lines: list[Line] = []
    for title, cpus in _groups(topology):
        lines += wrapped(title, width, Role.TITLE, indent=2)
        lines += _cores(cpus, selection, width, glyphs, with_numbers=len(topology.cpus) <= _NUMBERED)
    return [*lines, *_legend(selection, glyphs, width)]


def _groups(topology: Topology) -> list[tuple[str, list[LogicalCpu]]]:
    """CPUs by NUMA node where nodes are known, else by package."""
    nodes = [node for node in topology.numa_nodes if node.cpus]
    if nodes:
        found = []
        for node in nodes:
            cpus = [cpu for cpu in topology.cpus if cpu.id in set(node.cpus or ())]
            packages = sorted({cpu.package for cpu in cpus if cpu.package is not None})
            where = f"package {', '.join(map(str, packages))} " if packages else ""
            found.append((f"{where}node {node.id}, {format_bytes(node.memory_bytes)}, {_counted(cpus)}", cpus))
        return found
    known = sorted({cpu.package if cpu.package is not None else -1 for cpu in topology.cpus})
    groups = [
        (package, [c for c in topology.cpus if (c.package if c.package is not None else -1) == package])
        for package in known
    ]
    return [(f"package {'unknown' if package < 0 else package}, {_counted(cpus)}", cpus) for package, cpus in groups]


def _counted(cpus: Sequence[LogicalCpu]) -> str:
    cores = len({cpu.core if cpu.core is not None else cpu.id for cpu in cpus})
    return f"{format_count(cores, 'core')}, CPU {format_cpu_list(cpu.id for cpu in cpus)}"


def _cores(
    cpus: Sequence[LogicalCpu], selection: CpuSelection | None, width: int, glyphs: Glyphs, *, with_numbers: bool
) -> list[Line]:
    """Cores side by side, as many as fit in a line."""
    cores: dict[int, list[LogicalCpu]] = {}
    for cpu in cpus:
        cores.setdefault(cpu.core if cpu.core is not None else cpu.id, []).append(cpu)
    digits = len(str(max(cpu.id for cpu in cpus))) if with_numbers else 0
    lines: list[Line] = []
    row: list[Span] = [Span("  ")]
    used = 2
    for threads in cores.values():
        cell = _core(threads, selection, glyphs, digits)
        length = sum(len(span.text) for span in cell) + 1
        if used + length > width and used > 2:
            lines.append(tuple(row))
            row, used = [Span("  ")], 2
        row += [*cell, Span(" ")]
        used += length
    return [*lines, tuple(row)]


def _core(threads: Sequence[LogicalCpu], selection: CpuSelection | None, glyphs: Glyphs, digits: int) -> list[Span]:
    """`[■ 2 □34]`: one core, its threads in it."""
    spans = [Span("[", Role.AXIS)]
    for index, cpu in enumerate(threads):
        sign, role = _sign(cpu.id, selection, glyphs)
        number = f"{cpu.id:>{digits}}" if digits else ""
        spans.append(Span(f"{' ' if index and digits else ''}{sign}{number}", role))
    return [*spans, Span("]", Role.AXIS)]


def _sign(cpu: int, selection: CpuSelection | None, glyphs: Glyphs) -> tuple[str, Role]:
    if selection is not None and cpu in selection.cpus:
        return glyphs.pinned, Role.ACCENT
    if selection is not None and cpu in selection.housekeeping:
        return glyphs.housekeeping, Role.MUTED
    return glyphs.free, Role.PLAIN


def _legend(selection: CpuSelection | None, glyphs: Glyphs, width: int) -> list[Line]:
    if selection is None:
        return wrapped(f"{glyphs.free} a CPU; where the run is pinned is not recorded", width, Role.MUTED, indent=2)
    text = (
        f"{glyphs.pinned} measured on (CPU {format_cpu_list(selection.cpus)})  "
        f"{glyphs.housekeeping} left to the system  {glyphs.free} not used"
    )
    return [
        *wrapped(text, width, Role.MUTED, indent=2),
        *wrapped(describe(selection.reason), width, Role.MUTED, indent=2),
    ]
