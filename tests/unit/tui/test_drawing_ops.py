"""Waterfall, flame graph and topology."""

from __future__ import annotations

import pytest

from perfguard.records.facts import fact
from perfguard.records.machine.fingerprint import CoreClass, CpuSelection, LogicalCpu, NumaNode, Topology
from perfguard.report.culprits import parts_of
from perfguard.report.messages.catalog import describe
from perfguard.report.op_tree import Frame, frames_of, tree_of
from perfguard.tui.drawing.host import draw_topology
from perfguard.tui.drawing.spans import ASCII, UNICODE, Role, Span, plain, width_of
from perfguard.tui.drawing.steps import plot_flame, plot_waterfall
from tests.changed_values import replace
from tests.tui_runs import an_attribution, some_deltas


def text(lines) -> str:
    return "\n".join(plain(content) for content in lines)


ATTRIBUTION = an_attribution("c", some_deltas())


def test_the_parts_of_a_waterfall_add_up_to_the_difference() -> None:
    assert sum(part.value_s for part in parts_of(ATTRIBUTION)) == pytest.approx(ATTRIBUTION.balance.delta_s, rel=1e-2)


def test_a_part_is_named_by_its_culprit_s_headline() -> None:
    (first, *_) = ATTRIBUTION.culprits
    name = parts_of(ATTRIBUTION)[0].name.rstrip("…")
    assert name
    assert describe(first.fact).startswith(name)


def test_a_waterfall_begins_with_the_baseline_and_ends_with_the_candidate() -> None:
    lines = text(plot_waterfall(ATTRIBUTION, 80, 12, ASCII)).splitlines()
    assert lines[0].startswith("baseline")
    assert lines[-1].startswith("candidate")
    assert lines[1].startswith("convolution_backward")
    assert "#" in lines[1]
    assert "=" not in lines[0]
    ends = lines[-2].rindex("#"), lines[-1].rindex("=")
    assert abs(ends[0] - ends[1]) <= 1  # both are where the candidate's step ends


def test_parts_that_do_not_fit_are_summed_up() -> None:
    lines = text(plot_waterfall(ATTRIBUTION, 80, 4, ASCII)).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("further parts")


def test_a_step_that_did_not_change_has_a_waterfall() -> None:
    balance = replace(
        ATTRIBUTION.balance, candidate_s=ATTRIBUTION.balance.baseline_s, delta_s=0.0, ops_s=0.0, python_s=0.0,
        unexplained_s=0.0,
    )  # fmt: skip
    lines = plot_waterfall(replace(ATTRIBUTION, balance=balance, culprits=()), 80, 12, UNICODE)
    assert len(lines) == 2


def test_wider_frames_took_longer() -> None:
    root = Frame(
        name="step",
        value_s=1.0,
        delta_s=0.1,
        below=(Frame(name="slow", value_s=0.75, delta_s=0.1), Frame(name="quick", value_s=0.25, delta_s=-0.05)),
    )
    lines = text(plot_flame(root, 40, 4)).splitlines()
    assert lines[1].startswith("+step")
    assert lines[2].index("-quick") == 30
    assert lines[2].startswith("+slow")
    filled = {span.text.strip(): span.role for span in plot_flame(root, 40, 4)[2] if span.text.strip()}
    assert filled == {"+slow": Role.SLOWER_FRAME, "-quick": Role.FASTER_FRAME}
    assert plot_flame(root, 40, 4)[2][1] == Span(" ")  # between both


def test_a_whole_step_is_drawn_down_to_its_ops() -> None:
    drawn = text(plot_flame(frames_of(tree_of(some_deltas()), "step"), 120, 8))
    assert "backward" in drawn
    assert "optimizer" in drawn


def test_an_empty_step_has_no_frames() -> None:
    assert "too little room" in text(plot_flame(Frame(name="step", value_s=0.0, delta_s=0.0), 80, 8))


def a_topology(cores: int = 4, threads: int = 2) -> Topology:
    cpus = tuple(
        LogicalCpu(id=core + thread * cores, core=core, package=0, die=0, core_class=CoreClass.PERFORMANCE)
        for thread in range(threads)
        for core in range(cores)
    )
    node = NumaNode(id=0, cpus=tuple(cpu.id for cpu in cpus), memory_bytes=64 * 1024**3, distances=(10,))
    return Topology(packages=1, cores=cores, threads_online=len(cpus), smt=threads > 1, cpus=cpus, numa_nodes=(node,))


SELECTION = CpuSelection(
    cpus=(1, 2, 3),
    threads=3,
    housekeeping=(0, 4),
    numa_node=0,
    bind_memory_node=0,
    reason=fact("host.cpus_asked", cpus="1-3"),
)


def test_pinned_cpus_are_marked_and_counted() -> None:
    drawn = text(draw_topology(a_topology(), SELECTION, 60, ASCII))
    assert "[h0 h4] [#1 .5] [#2 .6] [#3 .7]" in drawn
    assert "CPU 1-3" in drawn
    assert "package 0 node 0, 64.0 GiB, 4 cores, CPU 0-7" in drawn


def test_many_cpus_are_drawn_without_numbers() -> None:
    lines = draw_topology(a_topology(cores=128), SELECTION, 60, UNICODE)
    assert text(lines).count("[") == 128
    assert max(width_of(content) for content in lines) <= 60


def test_a_machine_without_nodes_is_drawn_by_packages() -> None:
    assert "package 0, 4 cores" in text(draw_topology(replace(a_topology(), numa_nodes=()), None, 60, UNICODE))


def test_a_machine_that_tells_nothing_is_said_in_words() -> None:
    assert "does not report its cores" in text(draw_topology(Topology(), None, 60, UNICODE))
