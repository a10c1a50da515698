"""What the rules about threads, memory, caches, loaders and the compiler say."""

from __future__ import annotations

import pytest

from perfguard.profile.advice import allocator_faults, cache_misses, graph_breaks, input_pipeline, thread_count
from perfguard.profile.op_counts.census import CACHE_MISS
from perfguard.records.machine.fingerprint import Limits, QuotaState
from perfguard.records.steps.findings import Severity
from tests.finding_evidence import LOAD, census, evidence, machine, op, program, python, row, software


def only(module, *items, **more):
    (finding,) = module.RULE.find(evidence(*items, **more))
    return finding


def nothing(module, *items, **more):
    return module.RULE.find(evidence(*items, **more)) == []


def limited(cpus):
    return machine(limits=Limits(quota=QuotaState.LIMITED, quota_cpus=cpus))


def test_more_threads_than_cpus_are_grave():
    finding = only(thread_count, threads=8, cpus=2)
    assert finding.severity is Severity.GRAVE
    assert finding.seen == ("torch computes with 8 threads; they may run on 2 CPUs",)
    assert "env:MKL_NUM_THREADS=2,OMP_NUM_THREADS=2" in finding.trial.command
    assert finding.trial.command.endswith("--env-profile production")


def test_a_quota_counts_as_cpus():
    finding = only(thread_count, threads=8, cpus=8, fingerprint=limited(1.5))
    assert finding.severity is Severity.GRAVE
    assert "quota is 1.5 CPUs" in finding.seen[0]
    assert "OMP_NUM_THREADS=1" in finding.trial.command


def test_a_quota_below_one_cpu_still_takes_a_thread():
    assert "OMP_NUM_THREADS=1" in only(thread_count, threads=2, cpus=2, fingerprint=limited(0.5)).trial.command


def test_cpus_without_a_thread_are_a_hint():
    assert only(thread_count, threads=1, cpus=4).severity is Severity.HINT


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
    assert nothing(thread_count, **known)


def test_faults_are_told_with_what_they_took_elsewhere():
    finding = only(allocator_faults, faults=2_000.0)
    assert finding.seen == ("2,000 minor page faults a step", "at 1.500 µs each, as on one machine, 3 % of the step")
    assert finding.share is None
    assert "MALLOC_TRIM_THRESHOLD_=8589934592" in finding.trial.command
    assert finding.trial.command.endswith("--env-profile production")


@pytest.mark.parametrize(
    "variables",
    [
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=8589934592"},
        {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"},
    ],
)
def test_with_an_allocator_that_keeps_memory_the_program_is_asked(variables):
    finding = only(allocator_faults, faults=10_000.0, software=software(**variables))
    assert finding.severity is Severity.NOTABLE
    assert "reuse large buffers" in finding.trial.change
    assert "env:" not in finding.trial.command


@pytest.mark.parametrize("faults", [None, 0.0, 1_000.0])
def test_few_or_unknown_faults_are_left_alone(faults):
    assert nothing(allocator_faults, faults=faults)


def test_misses_are_counted_over_all_places():
    rows = (
        row("primitive", CACHE_MISS, 2, detail="deconvolution FWD_D"),
        row("primitive", CACHE_MISS, 1, detail="reorder", module="Net.head"),
        row("primitive", "reorder", 9),
        row("op", "aten::add", 9),
    )
    finding = only(cache_misses, census=census(*rows), software=software(ONEDNN_PRIMITIVE_CACHE_CAPACITY="0"))
    assert finding.seen == ("3 a step: deconvolution FWD_D and reorder", "ONEDNN_PRIMITIVE_CACHE_CAPACITY=0")
    assert finding.where == "in forward of Net, at 2 places"
    assert "env:ONEDNN_PRIMITIVE_CACHE_CAPACITY=16384" in finding.trial.command


def test_waiting_for_data_is_told_with_its_time():
    finding = only(input_pipeline, op("stack", 8, phase=LOAD, module=""), python(5, phase=LOAD, module=""))
    (seen,) = finding.seen
    assert seen == (
        "what precedes the model takes 13.00 ms a step, 13 % of it, of which 5.000 ms in no op: files, decoding, or "
        "other Python"
    )
    assert finding.title == "the step waits for its data"
    assert finding.severity is Severity.NOTABLE


def test_python_before_the_model_is_not_taken_for_loading_alone():
    finding = only(input_pipeline, op("stack", 2, phase=LOAD, module=""), python(18, phase=LOAD, module=""))
    assert finding.title == "Python holds the model up, for its data or for something else"


@pytest.mark.parametrize(
    ("workers", "told"),
    [((1,), "1 loader process and 2 threads on 2 CPUs"), ((2, 2), "4 loader processes and 2 threads on 2 CPUs")],
)
def test_loaders_that_take_the_cpus_of_training_are_a_hint(workers, told):
    finding = only(input_pipeline, program=program(loader_workers=workers), threads=2, cpus=2)
    assert finding.seen == (told,)
    assert finding.severity is Severity.HINT


@pytest.mark.parametrize(
    ("workers", "more"),
    [((0,), {"threads": 2, "cpus": 2}), ((2,), {"threads": 2, "cpus": 4}), ((2,), {"threads": 2}), ((2,), {"cpus": 2})],
)
def test_loaders_with_cpus_of_their_own_are_left_alone(workers, more):
    assert nothing(input_pipeline, program=program(loader_workers=workers), **more)


def test_breaks_and_recompilations_are_two_findings_with_their_reasons():
    rows = (
        row("compile", "graph_break", 2, detail="call to print"),
        row("compile", "recompile", 1, detail="size of tensor"),
        row("compile", "frames", 7),
    )
    found = graph_breaks.RULE.find(evidence(census=census(*rows)))
    assert [(finding.title, finding.seen) for finding in found] == [
        ("the compiled graph is broken", ("2 times: call to print",)),
        ("code is compiled more than once", ("1 time: size of tensor",)),
    ]
