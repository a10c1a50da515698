from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.worker.profiling import ceilings
from perfguard.worker.profiling.ceilings import (
    answer,
    free_memory_bytes,
    is_beyond_caches,
    last_level_cache_bytes,
    measure_gemms,
    measure_streams,
    stream_array_bytes,
)

MIB = 1024**2


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with two last-level caches, each of two CPUs."""

    def cache(cpu, index, **values):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
        folder.mkdir(parents=True)
        for name, value in values.items():
            (folder / name).write_text(f"{value}\n")

    for cpu in range(4):
        cache(cpu, 0, type="Data", level=1, shared_cpu_list=cpu, size="48K")
        cache(cpu, 1, type="Instruction", level=1, shared_cpu_list=cpu, size="32K")
        cache(cpu, 2, type="Unified", level=2, shared_cpu_list=cpu, size="2048K")
        cache(cpu, 3, type="Unified", level=3, shared_cpu_list=f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}", size="32768K")

    def pin(*cpus):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cpus))
        return tmp_path

    return pin


def test_last_level_caches_of_the_pinned_cpus_are_added_up_once_each(machine):
    assert last_level_cache_bytes(machine(0, 1)) == 32 * MIB
    assert last_level_cache_bytes(machine(1, 2)) == 64 * MIB
    assert last_level_cache_bytes(machine(0, 1, 2, 3)) == 64 * MIB


def test_a_machine_that_tells_nothing_of_its_caches_has_unknown_ones(machine, tmp_path):
    machine(0)
    assert last_level_cache_bytes(tmp_path / "absent") == 0


def test_a_cache_without_a_size_is_passed_over(machine, tmp_path):
    root = machine(0)
    (root / "sys/devices/system/cpu/cpu0/cache/index3/size").unlink()
    assert last_level_cache_bytes(root) == 2 * MIB


def test_free_memory_is_what_the_kernel_says(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  9 kB\nMemAvailable:    2048 kB\n")
    assert free_memory_bytes(tmp_path) == 2 * MIB
    (tmp_path / "proc/meminfo").write_text("MemTotal:  9 kB\n")
    assert free_memory_bytes(tmp_path) == 1024 * MIB


@given(st.integers(0, 2**34), st.integers(2**27, 2**42))
def test_arrays_are_beyond_the_caches_wherever_memory_allows(cache_bytes, free_bytes):
    array_bytes = stream_array_bytes(cache_bytes, free_bytes)
    assert array_bytes * 3 <= free_bytes / 2
    assert array_bytes % 4 == 0
    assert array_bytes > 0
    if free_bytes >= 64 * max(cache_bytes, 64 * MIB):
        assert is_beyond_caches(array_bytes, cache_bytes)


@pytest.fixture
def scripted(monkeypatch):
    """Calls take what the test says instead of being timed."""

    def take(*times_s):
        left = list(times_s)
        monkeypatch.setattr(ceilings, "_fastest", lambda call, budget_s: (call(), left.pop(0))[1])

    return take


@pytest.mark.torch
class TestWithTorch:
    def test_operations_a_second_follow_from_size_and_time(self, torch, scripted):
        scripted(0.001, 0.002)
        found = list(measure_gemms(["fp32"], sizes=(8, 16)))
        assert [gemm.size for gemm in found] == [8, 16]
        assert [gemm.flops_per_s for gemm in found] == [2 * 8**3 / 0.001, 2 * 16**3 / 0.002]

    def test_sizes_that_would_take_too_long_are_left_out(self, torch, scripted):
        scripted(0.1, 0.1, 0.1, 0.1)
        found = list(measure_gemms(["bf16", "fp64"], sizes=(8, 16, 64)))
        # 0.1 s at 8 is 0.8 s at 16: neither it nor what is larger is tried.
        assert [(gemm.dtype, gemm.size) for gemm in found] == [("bf16", 8), ("fp64", 8)]

    def test_bytes_a_second_count_what_is_read_and_written(self, torch, scripted):
        scripted(0.5, 0.5)
        copy, triad = measure_streams(4000)
        assert (copy.kernel, copy.bytes_per_s) == ("copy", 2 * 4000 / 0.5)
        assert (triad.kernel, triad.bytes_per_s) == ("triad", 3 * 4000 / 0.5)

    def test_an_unknown_dtype_is_refused(self, torch):
        with pytest.raises(KeyError, match="fp8"):
            list(measure_gemms(["fp8"], sizes=(8,)))

    def test_the_answer_holds_what_was_measured_on_what(self, torch, monkeypatch):
        monkeypatch.setattr(ceilings, "_GEMM_BUDGET_S", 0.01)
        monkeypatch.setattr(ceilings, "_STREAM_BUDGET_S", 0.01)
        monkeypatch.setattr(ceilings, "_SMALLEST_ARRAY_BYTES", MIB)
        monkeypatch.setattr(ceilings, "GEMM_SIZES", (32,))
        told = answer({"dtypes": ["fp32"], "cache_bytes": 1024})
        assert {gemm["dtype"] for gemm in told["gemms"]} == {"fp32"}
        assert [stream["kernel"] for stream in told["streams"]] == ["copy", "triad"]
        assert all(entry["call_s"] > 0 for entry in (*told["gemms"], *told["streams"]))
        assert told["is_beyond_caches"]
        assert told["threads"] >= 1
        assert told["affinity"] == sorted(os.sched_getaffinity(0))
