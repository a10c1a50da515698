"""The machine: its CPUs as a drawing, with those that the run is pinned to, and the fingerprint in words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.machine.fingerprint import CpuSelection, Fingerprint, LogicalCpu, Topology
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.fingerprint import render_fingerprint
from perfguard.tui.drawing.spans import EMPTY, Glyphs, Line, Role, Span, labelled, line, wrapped
from perfguard.units import format_bytes, format_count

_LABELS = 18  # Columns of the labels in the fingerprint's text
_NUMBERED = 64  # Up to so many CPUs are drawn with their numbers


def host_lines(
    found: Fingerprint | None, selection: CpuSelection | None, width: int, glyphs: Glyphs, *, now: str = ""
) -> list[Line]:
    """Topology first, then all facts; `now` is what the machine is doing this moment, in words."""
    if found is None:
        return wrapped("the machine is written down once the arms were looked at", width, Role.MUTED)
    lines = [*wrapped(now, width, Role.ACCENT), EMPTY] if now else []
    lines += [*draw_topology(found.topology, selection, width, glyphs), EMPTY]
    for text in render_fingerprint(found).splitlines():
        lines += _fact(text, width)
    return lines


def _fact(text: str, width: int) -> list[Line]:
    """A line of the fingerprint: titles and notes as they are, labels and values apart."""
    label, value = text[:_LABELS].strip(), text[_LABELS:].strip()
    if not label:
        return [EMPTY]
    if not value or text[_LABELS - 1] != " ":
        return wrapped(text.strip(), width, Role.PLAIN if text.startswith(" ") else Role.TITLE, indent=2)
    return labelled(label, value, max(width, _LABELS + 8), _LABELS)


def draw_topology(topology: Topology, selection: CpuSelection | None, width: int, glyphs: Glyphs) -> list[Line]:
    """One block a NUMA node (or package), one cell a core, each with a sign for every hardware thread.

    `selection` says where the run is pinned; None where that is unknown.
    """
    if not topology.cpus:
        return [line(Span("this machine does not report its cores", Role.MUTED))]
    lines: list[Line] = []
    for title, cpus in _groups(topology):
        lines += wrapped(title, width, Role.TITLE, indent=2)
        lines += _cores(cpus, selection, width, glyphs, with_numbers=len(topology.cpus) <= _NUMBERED)
    if selection is None:
        legend = [f"{glyphs.free} a CPU; where the run is pinned is not recorded"]
    else:
        signs = (
            f"{glyphs.pinned} measured on (CPU {format_cpu_list(selection.cpus)})  "
            f"{glyphs.housekeeping} left to the system  {glyphs.free} not used"
        )
        legend = [signs, describe(selection.reason)]
    return [*lines, *(content for text in legend for content in wrapped(text, width, Role.MUTED, indent=2))]


def _groups(topology: Topology) -> list[tuple[str, list[LogicalCpu]]]:
    """CPUs by NUMA node where nodes are known, else by package."""
    found = []
    for node in topology.numa_nodes:
        if node.cpus:
            cpus = [cpu for cpu in topology.cpus if cpu.id in node.cpus]
            packages = sorted({cpu.package for cpu in cpus if cpu.package is not None})
            where = f"package {', '.join(map(str, packages))} " if packages else ""
            found.append((f"{where}node {node.id}, {format_bytes(node.memory_bytes)}", cpus))
    if not found:
        for package, members in groupby(sorted(topology.cpus, key=_package_of), _package_of):
            found.append((f"package {'unknown' if package < 0 else package}", list(members)))
    return [(f"{title}, {_counted(cpus)}", cpus) for title, cpus in found]


def _package_of(cpu: LogicalCpu) -> int:
    return -1 if cpu.package is None else cpu.package


def _core_of(cpu: LogicalCpu) -> int:
    return cpu.id if cpu.core is None else cpu.core


def _counted(cpus: Sequence[LogicalCpu]) -> str:
    return f"{format_count(len(set(map(_core_of, cpus))), 'core')}, CPU {format_cpu_list(cpu.id for cpu in cpus)}"


def _cores(
    cpus: Sequence[LogicalCpu], selection: CpuSelection | None, width: int, glyphs: Glyphs, *, with_numbers: bool
) -> list[Line]:
    """Cores side by side, as many as fit in a line."""
    cores: dict[int, list[LogicalCpu]] = {}
    for cpu in cpus:
        cores.setdefault(_core_of(cpu), []).append(cpu)
    digits = len(str(max(cpu.id for cpu in cpus))) if with_numbers else 0
    rows: list[list[Span]] = [[]]
    used = 2
    for threads in cores.values():
        cell = _core(threads, selection, glyphs, digits)
        length = sum(len(span.text) for span in cell)
        if used + length > width and rows[-1]:
            rows.append([])
            used = 2
        rows[-1] += cell
        used += length
    return [(Span("  "), *row) for row in rows]


def _core(threads: Sequence[LogicalCpu], selection: CpuSelection | None, glyphs: Glyphs, digits: int) -> list[Span]:
    """`[■ 2 □34] `: one core, its threads in it."""
    spans = [Span("[", Role.AXIS)]
    for index, cpu in enumerate(threads):
        sign, role = glyphs.free, Role.PLAIN
        if selection is not None and cpu.id in selection.cpus:
            sign, role = glyphs.pinned, Role.ACCENT
        elif selection is not None and cpu.id in selection.housekeeping:
            sign, role = glyphs.housekeeping, Role.MUTED
        number = f"{cpu.id:>{digits}}" if digits else ""
        spans.append(Span(f"{' ' if index and digits else ''}{sign}{number}", role))
    return [*spans, Span("]", Role.AXIS), Span(" ")]
