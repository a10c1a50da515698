"""Each signal beside wall time, from a real worker whose benchmark moves that signal and nothing else by design."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

import perfguard
from perfguard.gate.rules.compare import compare_paired
from perfguard.gate.rules.policy import decide_cases
from perfguard.gate.rules.signals import SignalPolicy, judge_signals, missing_signals
from perfguard.records.events import SampleTimed
from perfguard.records.plan import CasePlan, MeasureSettings
from perfguard.records.run import Arm, Signal
from perfguard.records.run_data import RunData
from perfguard.records.verdict import Outcome, Policy
from perfguard.runner.process.arm_worker import ArmWorker
from tests.busy_neighbours import busy_neighbours
from tests.changed_values import replace
from tests.real_workers import BOTH, greeted, measure, plain_case, starter_in

LOOPS, SAMPLES = 4, 3
SETTINGS = MeasureSettings(sample_s=0.002, samples=SAMPLES, warmups=1, budget_s=60, max_blocks=1)
MIB = 1024 * 1024
SOURCE = """
import mmap, os, threading, time

MIB = 1024 * 1024


def idle():
    return lambda: 1.0


def burning():
    def call():
        until = time.thread_time_ns() + 5_000_000
        while time.thread_time_ns() < until:
            pass
        return 1.0
    return call


def sleeping():
    def call():
        for _ in range(20):
            time.sleep(0.0001)
        return 1.0
    return call


def faulting():
    def call():
        with mmap.mmap(-1, 200 * mmap.PAGESIZE) as memory:
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                memory.madvise(mmap.MADV_NOHUGEPAGE)
            for page in range(200):
                memory[page * mmap.PAGESIZE] = 1
        return 1.0
    return call


def helped():
    def burn():
        until = time.thread_time_ns() + 4_000_000
        while time.thread_time_ns() < until:
            pass
    def call():
        helper = threading.Thread(target=burn) if "BURN" in os.environ else None
        if helper is not None:
            helper.start()
        time.sleep(0.02)
        if helper is not None:
            helper.join()
        return 1.0
    return call


def growing():
    def call():
        with mmap.mmap(-1, 64 * MIB) as memory:
            memory.write(bytes(64 * MIB))
        return 1.0
    return call
"""


@pytest.fixture
def starter(tmp_path):
    return starter_in(tmp_path, SETTINGS, arms=BOTH, files={"bench.py": SOURCE})


_blocks = itertools.count()


def started(starter):
    """A worker, and what it says at hello."""
    return greeted(starter, ArmWorker, {"import_torch": False}, calibrate=False, block=next(_blocks))


def samples_of(starter, name, loops=LOOPS):
    with started(starter) as (worker, _):
        worker.prepare(plain_case(name), seed=1, check=False)
        worker.open(plain_case(name), inner_loops=loops, spin_s=0.0)
        found = []
        while worker.is_waiting:
            found.append(worker.sample(block=0, case_id=name))
        return found


def test_cpu_seconds_are_those_of_an_iteration(starter):
    assert all(timed.cpu_s >= 0.005 for timed in samples_of(starter, "burning"))
    assert median(timed.cpu_s for timed in samples_of(starter, "idle")) < 0.001


def test_a_neighbour_on_the_same_cpus_shows_as_waiting(starter):
    loops = 10 * LOOPS  # The scheduler lets a process that has waited for its turn go first for some milliseconds
    with busy_neighbours():
        waited_s = [timed.waited_s for timed in samples_of(starter, "burning", loops)]
    if None in waited_s:
        pytest.skip("this kernel does not count how long threads wait for a CPU")
    # Whoever shares a CPU fairly with one neighbour gets half of it.
    assert sum(waited_s) >= 0.2 * SAMPLES * loops * 0.005


def test_waiting_shows_as_voluntary_switches(starter):
    # A sleep whose end has come before the process gets to it, because another one had the CPU, is no switch.
    assert median(timed.voluntary_switches for timed in samples_of(starter, "sleeping")) >= 15 * LOOPS
    assert median(timed.voluntary_switches for timed in samples_of(starter, "idle")) < 20


def test_fresh_memory_shows_as_page_faults_of_the_sample(starter):
    assert all(timed.minor_faults >= 200 * LOOPS for timed in samples_of(starter, "faulting"))
    assert median(timed.minor_faults for timed in samples_of(starter, "idle")) < 100


def test_the_peak_of_memory_is_that_of_the_sample_and_not_of_the_process(starter):
    with started(starter) as (worker, ready):
        if "memory" in ready["missing_signals"]:
            pytest.skip(ready["missing_signals"]["memory"])
        peaks = {}
        for name in ("growing", "idle"):
            worker.prepare(plain_case(name), seed=1, check=False)
            worker.open(plain_case(name), inner_loops=LOOPS, spin_s=0.0)
            peaks[name] = []
            while worker.is_waiting:
                peaks[name].append(worker.sample(block=0, case_id=name).peak_memory_bytes)
    # `idle` ran later in the same process, whose own peak never falls by itself.
    assert min(peaks["growing"]) - max(peaks["idle"]) >= 60 * MIB


@pytest.mark.parametrize("signal", ["energy", "instructions"])
def test_a_signal_is_either_measured_or_missing_with_its_reason(starter, signal):
    with started(starter) as (_, ready):
        reason = ready["missing_signals"].get(signal)
    field = "energy_j" if signal == "energy" else "instructions"
    values = [getattr(timed, field) for timed in samples_of(starter, "burning")]
    if reason is None:
        assert all(value > 0 for value in values)
    else:
        assert len(reason) > 20
        assert values == [None] * len(values)


def test_signals_reach_the_data_of_a_run(starter):
    plan = CasePlan(case=plain_case("faulting"), inner_loops=LOOPS, iteration_s=0.001)
    _, events = measure(starter, [plan])
    found = {entry.signal: entry for entry in RunData.of(events).signals()}
    assert {event.iterations for event in events if isinstance(event, SampleTimed)} == {LOOPS}
    assert len(found[Signal.CPU].baseline) == SAMPLES
    assert all(200 <= value < 400 for value in (*found[Signal.FAULTS].baseline, *found[Signal.FAULTS].candidate))


def test_a_case_has_its_share_of_the_samples(starter):
    share = CasePlan(case=plain_case("faulting"), inner_loops=1, iteration_s=0.001, sample_share=2.0)
    _, events = measure(starter, [share, CasePlan(case=plain_case("burning"), inner_loops=1, iteration_s=0.001)])
    timed = Counter((e.case_id, e.arm) for e in events if isinstance(e, SampleTimed) and not e.warmup and e.block == 0)
    assert set(timed.values()) == {SAMPLES, 2 * SAMPLES}
    assert timed["faulting", Arm.CANDIDATE] == timed["faulting", Arm.BASELINE] == 2 * SAMPLES


def test_cores_burnt_behind_the_same_wall_time_fail_a_case(starter):
    starter.environments[Arm.CANDIDATE]["BURN"] = "1"
    plan = CasePlan(case=plain_case("helped"), inner_loops=1, iteration_s=0.02)
    _, events = measure(replace(starter, settings=replace(SETTINGS, max_blocks=6)), [plan])
    data, policy = RunData.of(events), Policy()
    verdicts = decide_cases(compare_paired(data.paired(), [plan.case], policy), policy)
    (judged,) = judge_signals(data.signals(), verdicts, SignalPolicy())
    found = {finding.signal: finding for finding in judged.signals}
    assert judged.outcome is Outcome.REGRESSED
    assert found["cpu"].outcome is Outcome.REGRESSED
    assert found["cpu"].candidate - found["cpu"].baseline >= 0.004


def test_what_a_worker_lacks_is_named_by_signal(starter):
    with started(starter) as (_, ready):
        found = missing_signals({Arm.CANDIDATE: ready["missing_signals"]})
    assert (
        {fact.values["signal"] for fact in found}
        == set(ready["missing_signals"])
        <= {signal.value for signal in Signal}
    )


@pytest.mark.torch
@pytest.mark.two_cpus
def test_a_counter_opened_before_torch_counts_its_openmp_threads(tmp_path):
    """What the worker relies on for instructions, shown with a clock that needs no hardware counter."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs for two threads")
    script = """
    from perfguard.worker.timing.signals import TASK_CLOCK, PerfCounter, events_between

    counter = PerfCounter(TASK_CLOCK)
    if counter.problem:
        print("refused", counter.problem)
        raise SystemExit
    import time, torch
    torch.set_num_threads(2)
    a = torch.randn(600, 600)
    (a @ a).sum()
    began_ns, before = time.monotonic_ns(), counter.read()
    mine_ns, all_ns = time.thread_time_ns(), time.process_time_ns()
    for _ in range(60):
        a @ a
    mine_ns, all_ns = time.thread_time_ns() - mine_ns, time.process_time_ns() - all_ns
    found = events_between(before, counter.read())
    print(found, mine_ns, all_ns, time.monotonic_ns() - began_ns)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(Path(perfguard.__file__).parent.parent), "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    if done.stdout.startswith("refused"):
        pytest.skip(done.stdout)
    counted_ns, this_thread_ns, all_threads_ns, passed_ns = map(float, done.stdout.split())
    if all_threads_ns < 1.3 * this_thread_ns:
        pytest.skip("this torch used one thread")
    # It holds all threads' time, not this thread's alone; what the hypervisor stole meanwhile is in it as well.
    assert 0.95 * all_threads_ns <= counted_ns <= 2 * 1.01 * passed_ns
