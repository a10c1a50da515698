"""The cases of a scaling table, and the CPUs that they need."""

from __future__ import annotations

import os

import pytest

from perfguard.benchmarks.catalog import BENCHMARKS, SUITES
from perfguard.benchmarks.selection import select
from perfguard.config import Config, LoadedConfig
from perfguard.errors import NothingSelectedError, UsageError
from perfguard.host.placement import sockets_of
from perfguard.records.spec import Catalog
from perfguard.runner.scaling import Axes, require_room, spread_request
from perfguard.runner.session import Request, choose_cpus
from tests.changed_values import replace
from tests.unit.runner.test_placement import ADJACENT, _machine, _node

BERT = "step.bert[layers=2,hidden=128,sequence=128,batch=4,dtype=fp32,mode=eager"
TWO = _machine([0, 1], [_node(0, [0, 1])])
TWO_NODES = _machine([0, 1, 2, 3], [_node(0, [0, 1]), _node(1, [2, 3])])


def cases_of(*patterns):
    return select(Catalog(benchmarks=BENCHMARKS, suites=SUITES), patterns)


@pytest.fixture
def spread(monkeypatch, tmp_path):
    def make(machine, *patterns, ranks, threads=(), **config):
        available = set(machine.topology.online)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: available)
        request = Request(
            command="run",
            arguments=(),
            loaded=LoadedConfig(config=Config(**config), origins={}, project=tmp_path),
            suite="",
            cases=cases_of(*(patterns or [f"{BERT}]"])),
            budget_s=60.0,
            fingerprint=machine,
        )
        return spread_request(request, Axes(ranks=ranks, threads=threads))

    return make


def options_of(request):
    return [case.id.removeprefix(BERT + ",").rstrip("]") for case in request.cases]


def test_each_number_of_ranks_is_a_case_with_and_without_an_exchange(spread):
    request = spread(TWO, ranks=(1, 2))
    assert options_of(request) == ["threads=1", "threads=1,ranks=2", "threads=1,ranks=2,parallel=plain"]
    assert choose_cpus(request.loaded, TWO).cpus == (0, 1)


def test_cells_of_both_axes_that_do_not_fit_are_left_empty(spread):
    request = spread(TWO, ranks=(1, 2), threads=(1, 2))
    assert [text for text in options_of(request) if "parallel" not in text] == [
        "threads=1",
        "threads=1,ranks=2",
        "threads=2",
    ]


def test_without_threads_the_most_ranks_share_the_cpus(spread):
    request = spread(_machine(range(9)), ranks=(1, 2, 4))
    assert {text.partition(",")[0] for text in options_of(request)} == {"threads=2"}
    assert len(choose_cpus(request.loaded, _machine(range(9))).cpus) == 8


@pytest.mark.parametrize(
    ("machine", "ranks", "threads", "config"),
    [
        (TWO, (1, 3), (), {}),
        (TWO, (1, 2), (1, 4), {}),
        (TWO, (2,), (2,), {}),
        (TWO_NODES, (2,), (), {"cpus": "0"}),
        (TWO_NODES, (1,), (3,), {"cpus": "0-3"}),
        (ADJACENT, (8,), (1,), {}),
    ],
)
def test_a_number_that_fits_in_no_cell_is_refused(spread, machine, ranks, threads, config):
    with pytest.raises(UsageError):
        spread(machine, ranks=ranks, threads=threads, **config)


def test_named_cpus_are_kept_whole(spread):
    request = spread(TWO_NODES, ranks=(1, 2), cpus="0-3")
    assert choose_cpus(request.loaded, TWO_NODES).cpus == (0, 1, 2, 3)
    assert {text.partition(",")[0] for text in options_of(request)} == {"threads=2"}


def test_cases_without_ranks_are_left_out_and_named(spread):
    request = spread(TWO, f"{BERT}]", "kernel.copy[rows=512,dtype=fp32,phase=forward]", ranks=(2,))
    assert {case.benchmark for case in request.cases} == {"step.bert"}
    (note,) = request.notes
    assert (note.code, note.values["case_ids"]) == (
        "ranks.left_out",
        ("kernel.copy[rows=512,dtype=fp32,phase=forward]",),
    )
    with pytest.raises(NothingSelectedError):
        spread(TWO, "kernel.copy", ranks=(2,))


def test_options_of_the_case_itself_stay_and_its_ranks_are_replaced(spread):
    request = spread(TWO, f"{BERT},optimizer=fused,ranks=7]", ranks=(2,))
    assert options_of(request)[0] == "optimizer=fused,threads=1,ranks=2"


def test_a_case_and_an_arm_must_find_room():
    sockets = sockets_of(TWO, (0, 1))
    (two,) = cases_of(f"{BERT},ranks=2]")
    require_room([two], {}, sockets)
    require_room(cases_of("kernel.copy"), {"ranks": "4"}, sockets)
    for cases, of_arm in (([two], {"threads": "2"}), (cases_of(f"{BERT}]"), {"ranks": "4"})):
        with pytest.raises(UsageError, match=r"step\.bert"):
            require_room(cases, of_arm, sockets)


def test_sockets_part_nodes_and_packages_and_keep_siblings_together():
    assert sockets_of(ADJACENT, (0, 1, 2, 3)) == (((0, 1), (2, 3)),)
    assert sockets_of(TWO_NODES, range(4)) == (((0,), (1,)), ((2,), (3,)))
    cpus = tuple(replace(cpu, package=cpu.id) for cpu in TWO.topology.cpus)
    packages = replace(TWO, topology=replace(TWO.topology, cpus=cpus, numa_nodes=()))
    assert sockets_of(packages, (0, 1)) == (((0,),), ((1,),))
    unknown = replace(TWO, topology=replace(TWO.topology, cpus=(), numa_nodes=()))
    assert sockets_of(unknown, (3, 5)) == (((3,), (5,)),)
