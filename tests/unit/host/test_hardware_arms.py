"""Parts of a machine as arms: which CPUs a cell gets on machines with sockets, kinds of cores and SMT."""

from __future__ import annotations

import pytest

from perfguard.host.hardware_arms import cpus_on
from perfguard.records.machine.fingerprint import CoreClass, LogicalCpu, Topology
from perfguard.records.tasks import Hardware


def cpu(number, core=None, package=0, core_class=CoreClass.PERFORMANCE):
    own = number if core is None else core
    return LogicalCpu(id=number, core=own, package=package, die=0, core_class=core_class)


SMALL = Topology(cpus=(cpu(0), cpu(1)), hybrid=False)
TWO_SOCKETS = Topology(cpus=tuple(cpu(number, package=number // 4) for number in range(8)), hybrid=False)
SMT = Topology(cpus=tuple(cpu(number, core=number % 4) for number in range(8)), hybrid=False)
HYBRID = Topology(
    cpus=(
        cpu(0), cpu(1, core=0), cpu(2), cpu(3, core=2),
        *(cpu(number, core_class=CoreClass.EFFICIENCY) for number in (4, 5, 6, 7)),
    ),
    hybrid=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("hardware", "topology", "threads", "cpus"),
    [
        (Hardware.DEFAULT, SMALL, 1, (1,)),
        (Hardware.LOADED, SMALL, 1, (1,)),
        (Hardware.CUDA, SMALL, 1, (1,)),
        (Hardware.P_CORES, HYBRID, 2, (0, 2)),
        (Hardware.P_CORES, HYBRID, 3, None),
        (Hardware.E_CORES, HYBRID, 4, (4, 5, 6, 7)),
        (Hardware.E_CORES, SMALL, 1, None),
        (Hardware.P_CORES, SMALL, 1, None),
        (Hardware.ONE_SOCKET, TWO_SOCKETS, 4, (0, 1, 2, 3)),
        (Hardware.TWO_SOCKETS, TWO_SOCKETS, 4, (0, 1, 4, 5)),
        (Hardware.TWO_SOCKETS, TWO_SOCKETS, 3, None),
        (Hardware.ONE_SOCKET, SMALL, 1, None),
        (Hardware.TWO_SOCKETS, SMALL, 2, None),
        (Hardware.SMT, SMT, 4, (0, 4, 1, 5)),
        (Hardware.NO_SMT, SMT, 4, (0, 1, 2, 3)),
        (Hardware.NO_SMT, SMT, 5, None),
        (Hardware.SMT, SMALL, 2, None),
    ],
)
def test_each_thread_has_a_cpu_of_the_part_or_there_is_none(hardware, topology, threads, cpus):
    available = frozenset(each.id for each in topology.cpus)
    assert cpus_on(hardware, topology, threads=threads, selected=(1,), available=available) == cpus


def test_cpus_that_may_not_be_used_are_left_out():
    found = cpus_on(Hardware.E_CORES, HYBRID, threads=2, selected=(), available=frozenset({0, 5, 7}))
    assert found == (5, 7)
