from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perfguard.errors import UsageError
from perfguard.host.placement import select_cpus
from perfguard.records.machine.fingerprint import (
    CoreClass,
    Cpu,
    CpuSelection,
    Fingerprint,
    Isa,
    Limits,
    LogicalCpu,
    NumaNode,
    QuotaState,
    State,
    Topology,
)
from tests.changed_values import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

P, E, LP = CoreClass.PERFORMANCE, CoreClass.EFFICIENCY, CoreClass.LOW_POWER


def _node(number: int, cpus: Sequence[int], memory_bytes: int | None = 1 << 30) -> NumaNode:
    return NumaNode(id=number, cpus=tuple(cpus), memory_bytes=memory_bytes, distances=None)


def _machine(
    cores: Sequence[int], nodes: Sequence[NumaNode] = (), classes: Sequence[CoreClass] | None = None
) -> Fingerprint:
    """`cores[n]` is the lowest CPU of the core of CPU n."""
    kinds = classes or [P] * len(cores)
    cpus = tuple(
        LogicalCpu(id=cpu, core=core, package=0, die=0, core_class=kind)
        for cpu, (core, kind) in enumerate(zip(cores, kinds, strict=True))
    )
    topology = Topology(cpus=cpus, online=tuple(range(len(cores))), numa_nodes=tuple(nodes), threads_online=len(cores))
    return Fingerprint(
        machine_id="m",
        stack_id=None,
        cpu=Cpu(),
        isa=Isa(),
        topology=topology,
        caches=(),
        limits=Limits(),
        state=State(),
    )


def _select(machine: Fingerprint, **options: object) -> CpuSelection:
    everything = frozenset(machine.topology.online or ())
    arguments = {"cpus": None, "threads": None, "numa": None, "available": everything} | options
    return select_cpus(machine, **arguments)  # type: ignore[arg-type]


ADJACENT = _machine([0, 0, 2, 2, 4, 4, 6, 6])
HALVES = _machine([0, 1, 2, 3, 0, 1, 2, 3])
SNC = _machine([0, 1, 2, 3, 4, 5, 6, 7], [_node(0, [0, 2, 4, 6]), _node(1, [1, 3, 5, 7]), _node(4, [], 1 << 40)])
HYBRID = _machine([0, 0, 2, 2, 4, 5, 6, 7], classes=[P, P, P, P, E, E, LP, LP])


def test_adjacent_siblings_are_one_core() -> None:
    chosen = _select(ADJACENT)
    assert (chosen.cpus, chosen.housekeeping, chosen.threads) == ((2, 4, 6), (0, 1), 3)


def test_siblings_at_half_are_one_core() -> None:
    chosen = _select(HALVES)
    assert (chosen.cpus, chosen.housekeeping) == ((1, 2, 3), (0, 4))


def test_a_run_stays_on_one_node_and_binds_its_memory() -> None:
    chosen = _select(SNC)
    assert (chosen.cpus, chosen.numa_node, chosen.bind_memory_node) == ((2, 4, 6), 0, 0)


def test_the_node_with_the_most_usable_cpus_is_taken() -> None:
    chosen = _select(SNC, available=frozenset({0, 1, 3, 5}))
    assert (chosen.cpus, chosen.numa_node) == ((3, 5), 1)


def test_more_threads_than_a_node_has_cpus_run_on_all_nodes() -> None:
    assert _select(SNC, threads=4).numa_node == 0
    chosen = _select(SNC, threads=6)
    assert (chosen.cpus, chosen.housekeeping) == ((1, 2, 3, 4, 5, 6), (0,))
    assert (chosen.numa_node, chosen.bind_memory_node) == (None, None)
    with pytest.raises(UsageError, match="--threads 9 is more than the 8 CPUs to run on: the machine has 0-7"):
        _select(SNC, threads=9)
    with pytest.raises(UsageError, match="--threads 6 is more than the 4 CPUs to run on: NUMA node 0 has 0,2,4,6"):
        _select(SNC, threads=6, numa=0)


def test_a_node_without_memory_is_taken_last() -> None:
    machine = _machine([0, 1, 2, 3, 4], [_node(0, [0, 1, 2], memory_bytes=0), _node(1, [3, 4])])
    assert _select(machine).numa_node == 1


def test_memory_is_not_bound_on_a_machine_with_one_node_or_to_a_forbidden_one() -> None:
    assert _select(_machine([0, 1], [_node(0, [0, 1])])).bind_memory_node is None
    forbidden = replace(SNC, limits=Limits(allowed_nodes=(1,)))
    assert _select(forbidden, numa=0).bind_memory_node is None


def test_another_node_can_be_asked_for() -> None:
    assert _select(SNC, numa=1).cpus == (3, 5, 7)


@pytest.mark.parametrize("numa", [4, 9])
def test_a_node_without_cpus_or_that_is_absent_is_refused_by_name(numa: int) -> None:
    with pytest.raises(UsageError, match=f"--numa {numa}"):
        _select(SNC, numa=numa)


def test_classes_of_cores_are_never_mixed() -> None:
    assert _select(HYBRID).cpus == (2,)
    assert _select(HYBRID, available=frozenset(range(4, 8))).cpus == (5,)
    low = _select(HYBRID, available=frozenset({6, 7}))
    assert (low.cpus, low.core_classes) == ((7,), (LP,))
    assert low.reason.values["core_class"] == "LP-E"


def test_named_cpus_may_mix_classes() -> None:
    assert _select(HYBRID, cpus="0,4").core_classes == (P, E)


def test_a_single_core_is_used_and_none_is_left() -> None:
    chosen = _select(_machine([0, 0]))
    assert (chosen.cpus, chosen.housekeeping) == ((0,), ())


def test_fewer_threads_shrink_the_mask() -> None:
    chosen = _select(ADJACENT, threads=2)
    assert (chosen.cpus, chosen.threads) == ((2, 4), 2)


def test_as_many_threads_as_cores_leave_no_core_to_the_system() -> None:
    chosen = _select(ADJACENT, threads=4)
    assert (chosen.cpus, chosen.housekeeping) == ((0, 2, 4, 6), ())


def test_siblings_are_used_only_when_more_threads_than_cores_are_asked_for() -> None:
    chosen = _select(ADJACENT, threads=5)
    assert chosen.cpus == (0, 1, 2, 4, 6)
    assert chosen.reason.values["with_siblings"] is True


def test_more_threads_than_cpus_are_refused() -> None:
    with pytest.raises(UsageError, match="--threads 9 is more than the 8 CPUs"):
        _select(ADJACENT, threads=9)
    with pytest.raises(UsageError, match="--threads 0"):
        _select(ADJACENT, threads=0)


def test_named_cpus_win_and_are_not_thinned() -> None:
    chosen = _select(ADJACENT, cpus="0-1,6")
    assert (chosen.cpus, chosen.threads, chosen.housekeeping) == ((0, 1, 6), 3, ())
    assert _select(ADJACENT, cpus="0-1,6", threads=2).cpus == (0, 1)


def test_cpus_over_several_nodes_bind_no_memory() -> None:
    chosen = _select(SNC, cpus="0-1")
    assert (chosen.numa_node, chosen.bind_memory_node) == (None, None)


@pytest.mark.parametrize("text", ["", "x", "3-1", "0-99999999999"])
def test_nonsense_lists_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a list of CPUs"):
        _select(ADJACENT, cpus=text)


def test_an_offline_cpu_is_named() -> None:
    with pytest.raises(UsageError, match=r"CPUs 8-9 are offline or absent; choose from 0-7"):
        _select(ADJACENT, cpus="1,8-9")


def test_a_cpu_outside_the_cpuset_or_the_affinity_is_named() -> None:
    confined = replace(ADJACENT, limits=Limits(allowed_cpus=(0, 1, 2, 3)))
    with pytest.raises(UsageError, match=r"CPU 6 is not allowed by the cpuset"):
        _select(confined, cpus="2,6")
    with pytest.raises(UsageError, match=r"CPU 2 is not in this process's affinity mask"):
        _select(ADJACENT, cpus="2", available=frozenset({0, 1}))


def test_only_allowed_cpus_are_chosen() -> None:
    confined = replace(ADJACENT, limits=Limits(allowed_cpus=(3, 4, 5)))
    assert _select(confined).cpus == (4,)
    with pytest.raises(UsageError, match="No CPU can be used"):
        _select(confined, available=frozenset({0}))


@pytest.mark.parametrize(("quota", "cpus"), [(2.9, (2, 4)), (0.5, (2,)), (64.0, (2, 4, 6))])
def test_the_quota_is_rounded_down(quota: float, cpus: tuple[int, ...]) -> None:
    limited = replace(ADJACENT, limits=Limits(quota=QuotaState.LIMITED, quota_cpus=quota))
    assert _select(limited).cpus == cpus


def test_asking_for_more_than_the_quota_is_refused() -> None:
    limited = replace(ADJACENT, limits=Limits(quota=QuotaState.LIMITED, quota_cpus=2.0))
    with pytest.raises(UsageError, match="quota allows 2 CPUs"):
        _select(limited, threads=3)
    with pytest.raises(UsageError, match="quota allows 2 CPUs"):
        _select(limited, cpus="0,2,4")
    assert _select(limited, cpus="0,2,4", threads=2).cpus == (0, 2)


def test_named_cpus_off_the_named_node_are_refused() -> None:
    with pytest.raises(UsageError, match="1 not on NUMA node 0"):
        _select(SNC, cpus="0-1", numa=0)


def test_an_unknown_machine_falls_back_to_the_affinity() -> None:
    unknown = replace(ADJACENT, topology=Topology())
    chosen = _select(unknown, available=frozenset({3, 5, 9}))
    assert (chosen.cpus, chosen.housekeeping, chosen.numa_node) == ((5, 9), (3,), None)
