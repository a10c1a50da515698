"""What the rules about threads, memory, caches, loaders and the compiler say."""

from __future__ import annotations

import pytest

from perfguard.profile.op_counts.steady import CACHE_MISS
from perfguard.records.facts import Severity
from perfguard.records.machine.fingerprint import Limits, QuotaState
from tests.finding_evidence import (
    LOAD,
    all_of,
    counts,
    machine,
    nothing,
    only,
    op,
    place_of,
    program,
    python,
    row,
    software,
    told,
)


def limited(cpus):
    return machine(limits=Limits(quota=QuotaState.LIMITED, quota_cpus=cpus))


def test_more_threads_than_cpus_are_grave():
    finding = only("threads", threads=8, cpus=2)
    assert finding.severity is Severity.GRAVE
    assert finding.code == "advice.threads"
    assert told(finding, "threads", "cpus", "quota_cpus", "wanted") == (8, 2, None, 2)
    assert "env:MKL_NUM_THREADS=2,OMP_NUM_THREADS=2" in finding.command
    assert finding.command.endswith("--env-profile production")


def test_a_quota_counts_as_cpus():
    finding = only("threads", threads=8, cpus=8, fingerprint=limited(1.5))
    assert finding.severity is Severity.GRAVE
    assert told(finding, "quota_cpus", "wanted") == (1.5, 1)
    assert "OMP_NUM_THREADS=1" in finding.command


def test_a_quota_below_one_cpu_still_takes_a_thread():
    assert "OMP_NUM_THREADS=1" in only("threads", threads=2, cpus=2, fingerprint=limited(0.5)).command


def test_cpus_without_a_thread_are_a_hint():
    finding = only("threads", threads=1, cpus=4)
    assert (finding.code, finding.severity) == ("advice.idle_cpus", Severity.INFO)


@pytest.mark.parametrize(
    "known",
    [
        {"threads": 4, "cpus": 4},
        {"threads": 4},
        {"cpus": 4},
        {"threads": 2, "cpus": 8, "fingerprint": limited(2.0)},
        {"threads": 2, "cpus": 2, "fingerprint": limited(1.5)},
        {"threads": 0, "cpus": 2},
    ],
)
def test_as_many_threads_as_cpus_or_unknown_ones_are_left_alone(known):
    assert nothing("threads", **known)


def test_faults_are_told_with_what_they_took_elsewhere():
    finding = only("allocator_faults", faults=2_000.0)
    assert told(finding, "faults", "fault_s", "part_share") == (2_000, 1.5e-6, 0.03)
    assert finding.share is None
    assert "MALLOC_TRIM_THRESHOLD_=8589934592" in finding.command
    assert finding.command.endswith("--env-profile production")


@pytest.mark.parametrize(
    "variables",
    [
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=8589934592"},
        {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"},
    ],
)
def test_with_an_allocator_that_keeps_memory_the_program_is_asked(variables):
    finding = only("allocator_faults", faults=10_000.0, software=software(**variables))
    assert finding.severity is Severity.NOTABLE
    assert told(finding, "variables") == ()
    assert "env:" not in finding.command


@pytest.mark.parametrize("faults", [None, 0.0, 1_000.0])
def test_few_or_unknown_faults_are_left_alone(faults):
    assert nothing("allocator_faults", faults=faults)


def test_misses_are_counted_over_all_places():
    rows = (
        row("primitive", CACHE_MISS, 2, detail="deconvolution FWD_D"),
        row("primitive", CACHE_MISS, 1, detail="reorder", module="Net.head"),
        row("primitive", "reorder", 9),
        row("op", "aten::add", 9),
    )
    finding = only(
        "primitive_cache_misses", op_counts=counts(*rows), software=software(ONEDNN_PRIMITIVE_CACHE_CAPACITY="0")
    )
    assert told(finding, "misses", "problems") == (3, ("deconvolution FWD_D", "reorder"))
    assert told(finding, "variables") == ("ONEDNN_PRIMITIVE_CACHE_CAPACITY=0",)
    assert place_of(finding) == ("forward", "Net", 2, None)
    assert "env:ONEDNN_PRIMITIVE_CACHE_CAPACITY=16384" in finding.command


def test_waiting_for_data_is_told_with_its_time():
    finding = only("input_pipeline", op("stack", 8, phase=LOAD, module=""), python(5, phase=LOAD, module=""))
    assert finding.code == "advice.input_pipeline"
    assert told(finding, "time_s", "python_s") == (0.013, 0.005)
    assert finding.severity is Severity.NOTABLE


def test_python_before_the_model_is_not_taken_for_loading_alone():
    finding = only("input_pipeline", op("stack", 2, phase=LOAD, module=""), python(18, phase=LOAD, module=""))
    assert finding.code == "advice.python_before_model"


@pytest.mark.parametrize(("workers", "loaders"), [((1,), 1), ((2, 2), 4)])
def test_loaders_that_take_the_cpus_of_training_are_a_hint(workers, loaders):
    finding = only("input_pipeline", program=program(loader_workers=workers), threads=2, cpus=2)
    assert finding.code == "advice.loader_workers"
    assert told(finding, "loaders", "threads", "cpus") == (loaders, 2, 2)
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize(
    ("workers", "more"),
    [((0,), {"threads": 2, "cpus": 2}), ((2,), {"threads": 2, "cpus": 4}), ((2,), {"threads": 2}), ((2,), {"cpus": 2})],
)
def test_loaders_with_cpus_of_their_own_are_left_alone(workers, more):
    assert nothing("input_pipeline", program=program(loader_workers=workers), **more)


def test_breaks_and_recompilations_are_two_findings_with_their_reasons():
    rows = (
        row("compile", "graph_break", 2, detail="call to print"),
        row("compile", "recompile", 1, detail="size of tensor"),
        row("compile", "frames", 7),
    )
    found = all_of("graph_breaks", op_counts=counts(*rows))
    assert [(finding.code, *told(finding, "times", "reasons")) for finding in found] == [
        ("advice.graph_breaks", 2, ("call to print",)),
        ("advice.recompiles", 1, ("size of tensor",)),
    ]
