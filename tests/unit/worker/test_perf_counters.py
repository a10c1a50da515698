"""The plumbing of perf_event_open, proved with software events, which need no hardware counter."""

from __future__ import annotations

import mmap
import os
import threading
import time

import pytest

from perfguard.worker.timing.signals import (
    HARDWARE,
    PAGE_FAULTS,
    TASK_CLOCK,
    CounterReading,
    Meters,
    PerfCounter,
    PerfEvent,
    events_between,
)

PAGES = 500


def opened(event):
    counter = PerfCounter(event)
    if counter.problem and "perf_event_paranoid" in counter.problem:
        pytest.skip(counter.problem)
    assert counter.problem is None
    return counter


def touch_pages():
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1


def test_what_this_thread_does_is_counted():
    counter = opened(PAGE_FAULTS)
    before = counter.read()
    touch_pages()
    assert (events_between(before, counter.read()) or 0) >= PAGES
    os.close(counter._fd)


def test_threads_that_start_later_are_counted_while_they_live():
    counter = opened(PAGE_FAULTS)
    before = counter.read()
    touched, counted = threading.Event(), threading.Event()

    def work():
        touch_pages()
        touched.set()
        counted.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert touched.wait(60)
    found = events_between(before, counter.read())
    counted.set()
    thread.join()
    assert (found or 0) >= PAGES
    os.close(counter._fd)


def test_the_task_clock_lies_between_the_threads_cpu_time_and_the_time_that_passed():
    counter = opened(TASK_CLOCK)
    began_ns, before, cpu_before_ns = time.monotonic_ns(), counter.read(), time.thread_time_ns()
    while time.thread_time_ns() - cpu_before_ns < 20_000_000:
        pass
    cpu_ns = time.thread_time_ns() - cpu_before_ns
    counted_ns = events_between(before, counter.read()) or 0
    passed_ns = time.monotonic_ns() - began_ns
    # Interrupts and what the hypervisor stole count for the task clock and not for the thread; the clocks' rates
    # differ by what time synchronisation changes one of them, and by how well the kernel knows the other.
    assert 0.99 * cpu_ns <= counted_ns <= 1.01 * passed_ns
    os.close(counter._fd)


def test_an_event_that_the_machine_lacks_is_a_reason():
    counter = PerfCounter(PerfEvent(HARDWARE, 999))
    assert counter.problem
    assert counter.read() is None


@pytest.mark.parametrize("number", [1, 13])
def test_a_kernel_that_refuses_is_quoted_with_its_setting(tmp_path, monkeypatch, number):
    import ctypes

    class Call:
        def __call__(self, *_):
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: type("Library", (), {"syscall": Call()})())
    monkeypatch.setattr(ctypes, "get_errno", lambda: number)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/perf_event_paranoid").write_text("4\n")
    assert "kernel.perf_event_paranoid is 4" in (PerfCounter(TASK_CLOCK, root=tmp_path).problem or "")


def test_a_machine_whose_system_call_is_unknown_is_a_reason(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "vax")
    assert PerfCounter(TASK_CLOCK).problem == "perfguard does not know how to open a counter on vax"


def test_a_counter_that_a_benchmark_closed_gives_no_value():
    counter = opened(TASK_CLOCK)
    descriptor = counter._fd
    os.close(counter._fd)
    counter._fd = descriptor
    assert counter.read() is None


def test_a_shared_counter_is_scaled_up_to_the_whole_time():
    before = CounterReading(value=100, enabled_ns=0, running_ns=0)
    assert events_between(before, CounterReading(value=600, enabled_ns=1000, running_ns=250)) == 2000
    assert events_between(before, CounterReading(value=600, enabled_ns=1000, running_ns=1000)) == 500


def test_a_counter_that_never_ran_counted_nothing():
    before = CounterReading(value=100, enabled_ns=0, running_ns=0)
    assert events_between(before, CounterReading(value=100, enabled_ns=1000, running_ns=0)) is None
    assert events_between(None, before) is None


def test_meters_name_what_they_lack(tmp_path):
    missing = Meters(root=tmp_path, event=TASK_CLOCK).missing
    assert missing["memory"].startswith("the peak of memory cannot be reset")
    assert missing["energy"].startswith("no RAPL counter can be read")


def test_a_status_without_a_peak_is_a_missing_signal(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Name:\tpython\nVmRSS:\t 12 kB\n")
    meters = Meters(root=tmp_path, event=TASK_CLOCK)
    assert "VmHWM" in meters.missing["memory"]
    used = meters.between(meters.start(), meters.stop(), iterations=1)
    assert used["peak_memory_bytes"] is None
    assert used["energy_j"] is None


@pytest.mark.parametrize(("text", "waited_s"), [("5 70 3\n", 0.0), ("", None), ("5", None), ("5 x 3", None)])
def test_the_wait_for_a_cpu_is_told_where_the_kernel_counts_it(tmp_path, text, waited_s):
    (tmp_path / "proc/thread-self").mkdir(parents=True)
    (tmp_path / "proc/thread-self/schedstat").write_text(text)
    meters = Meters(root=tmp_path, event=TASK_CLOCK)
    assert meters.between(meters.start(), meters.stop(), iterations=1)["waited_s"] == waited_s
