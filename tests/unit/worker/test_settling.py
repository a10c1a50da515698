"""Waiting until a process leaves the CPUs alone, on a clock of the test's own."""

from __future__ import annotations

import threading
import time

import pytest

from perfguard.worker.timing import samples as settling
from perfguard.worker.timing.samples import settle, threads_used_s


class Threads:
    """Threads that use a share of a CPU until a moment."""

    def __init__(self, *, share=1.0, until_s=0.0):
        self.now_s = self.used_s = 0.0
        self.share, self.until_s = share, until_s

    def sleep(self, seconds):
        self.used_s += self.share * max(0.0, min(self.now_s + seconds, self.until_s) - self.now_s)
        self.now_s += seconds

    def settle(self):
        settle(clock=lambda: self.now_s, cpu_clock=lambda: self.used_s, sleep=self.sleep)
        return self.now_s


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch):
    monkeypatch.setattr(settling.os, "sched_getaffinity", lambda _: {0, 1})


def test_threads_that_spin_are_waited_for():
    assert Threads(until_s=0.014).settle() == pytest.approx(0.015)


def test_threads_that_sleep_cost_one_look():
    assert Threads().settle() == pytest.approx(0.001)


def test_a_thread_that_only_wakes_now_and_then_is_not_waited_for():
    assert Threads(share=0.05, until_s=9.0).settle() == pytest.approx(0.001)


def test_what_never_stops_is_given_up():
    assert Threads(until_s=9.0).settle() == pytest.approx(0.1, abs=0.0015)


def test_a_single_cpu_costs_nothing(monkeypatch):
    monkeypatch.setattr(settling.os, "sched_getaffinity", lambda _: {1})
    assert Threads(until_s=9.0).settle() == 0.0


def test_the_clocks_of_all_threads_add_up():
    used, ready, done = [], threading.Event(), threading.Event()

    def work():
        while time.thread_time() < 0.02:
            pass
        used.append(time.thread_time())
        ready.set()
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    own = time.thread_time()
    assert threads_used_s() >= own + used[0]
    done.set()
    thread.join()
