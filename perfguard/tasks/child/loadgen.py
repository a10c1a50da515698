"""Drives LoadGen: the same code answers queries in performance and in accuracy mode, and stamps each answer."""

from __future__ import annotations

import gc
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import mlperf_loadgen as lg
import numpy as np
import numpy.typing as npt

from perfguard.records.tasks import ComplianceTest, Mode, Scenario, TaskJob
from perfguard.tasks.child.answers import encoded
from perfguard.tasks.child.examples import Inputs
from perfguard.tasks.child.postprocessing import Arrays
from perfguard.tasks.loadgen_logs import LoggedAnswer
from perfguard.tasks.sampled_answers import SAMPLED
from perfguard.tasks.scores import PERCENTILE
from perfguard.tasks.two_clocks import StampedQueries

_SCENARIOS = {
    Scenario.SINGLE_STREAM: lg.TestScenario.SingleStream,
    Scenario.OFFLINE: lg.TestScenario.Offline,
    Scenario.SERVER: lg.TestScenario.Server,
}
_NO_AUDIT = "perfguard-has-no-audit.config"
"""LoadGen takes settings from a file of this name in its working directory; its default name might be there."""
_LOGGED = 64  # Answers that LoadGen logs in TEST01, about
_REPORTS_NS = 1_000_000_000  # How often the driver says that it goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What answers."""

    run: Callable[[Inputs], Arrays]
    inputs: Inputs  # All examples
    batch: int  # Examples at a time, where several come at once
    progress: Callable[[int], None]  # Hears about once a second how many were answered
    failed: Callable[[BaseException], NoReturn]  # Ends the process: LoadGen takes no exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the driver keeps of a measurement."""

    stamps: StampedQueries
    sample: tuple[LoggedAnswer, ...]  # Answers to queries drawn at random; at most `SAMPLED`


def measure(system: System, job: TaskJob, pace_s: float) -> Answered:
    """Let LoadGen send queries until it has enough; its logs are in the job's folder, byte for byte.

    `pace_s` is about how long a query takes.
    """
    driver = _DRIVERS[job.scenario](system)
    sut = lg.ConstructSUT(driver.issue, lambda: None)
    count = len(system.inputs)
    qsl = lg.ConstructQSL(count, min(count, job.task.performance_samples), lambda _: None, lambda _: None)
    log = lg.LogSettings()
    log.log_output.outdir = str(Path(job.logs).absolute())
    log.log_output.copy_summary_to_stdout = False
    log.enable_trace = False
    gc.collect()
    gc.disable()
    driver.returned_ns.append(time.perf_counter_ns())
    try:
        lg.StartTestWithLogSettings(sut, qsl, _settings(job, pace_s), log, _NO_AUDIT)
    finally:
        gc.enable()
        driver.close()
        lg.DestroyQSL(qsl)
        lg.DestroySUT(sut)
    return Answered(
        stamps=StampedQueries(driver.begun_ns, driver.ended_ns, driver.returned_ns),
        sample=tuple(LoggedAnswer(sample=sample, data=answer.tobytes()) for sample, answer in driver.sampled),
    )


def _settings(job: TaskJob, pace_s: float) -> lg.TestSettings:
    found, task, duration, seeds = lg.TestSettings(), job.task, job.duration, job.seeds
    found.scenario = _SCENARIOS[job.scenario]
    found.mode = lg.TestMode.PerformanceOnly if job.mode is Mode.PERFORMANCE else lg.TestMode.AccuracyOnly
    found.min_duration_ms = round(duration.min_s * 1000)
    found.max_duration_ms = round(duration.max_s * 1000)
    found.min_query_count = duration.min_queries
    found.qsl_rng_seed = seeds.qsl
    found.sample_index_rng_seed = seeds.sample_index
    found.schedule_rng_seed = seeds.schedule
    # LoadGen prepares as many queries as fit into the shortest duration at this pace, and says INVALID if they run out:
    # a busy machine may have slowed the warm-up.
    found.single_stream_expected_latency_ns = max(1, round(pace_s / 4 * 1e9))
    found.single_stream_target_latency_percentile = PERCENTILE
    found.offline_expected_qps = 1.0  # so that the one query has `min_query_count` samples
    if job.test is ComplianceTest.SAMPLED:
        found.accuracy_log_sampling_target = _LOGGED
    found.performance_issue_unique = job.test is ComplianceTest.UNIQUE
    found.performance_issue_same = job.test is ComplianceTest.SAME
    if job.scenario is Scenario.SERVER:
        found.server_target_qps = task.server_qps or 0.0
        found.server_target_latency_ns = round((task.server_bound_s or 0.0) * 1e9)
        found.server_target_latency_percentile = PERCENTILE
    return found


class _QueryDriver:
    """Answers each query when it comes, in the thread that brings it."""

    def __init__(self, system: System) -> None:
        self.begun_ns: list[int] = []  # As in `StampedQueries`, in order of the answers
        self.ended_ns: list[int] = []
        self.returned_ns: list[int] = []
        self.sampled: list[tuple[int, npt.NDArray[np.float32]]] = []  # Examples and answers
        self._draw = random.Random()  # noqa: S311 - a sample, no secret
        self._system, self._answered, self._reported_ns = system, 0, time.perf_counter_ns()

    def issue(self, samples: list[lg.QuerySample]) -> None:
        """Answer a query of one sample, or one of all samples in batches."""
        for first in range(0, len(samples), self._system.batch):
            self.answer(samples[first : first + self._system.batch], time.perf_counter_ns())

    def answer(self, samples: Sequence[lg.QuerySample], begun_ns: int) -> None:
        """Compute and report."""
        system = self._system
        try:
            first = samples[0].index
            batch = system.inputs[first : first + 1] if len(samples) == 1 else system.inputs[[s.index for s in samples]]
            answers = encoded(system.run(batch))
            # The arrays live until LoadGen has copied them.
            responses = [
                lg.QuerySampleResponse(sample.id, answer.__array_interface__["data"][0], answer.nbytes)
                for sample, answer in zip(samples, answers, strict=True)
            ]
        except BaseException as error:  # noqa: BLE001 - an exception that reaches LoadGen ends in a crash
            system.failed(error)
        ended_ns = time.perf_counter_ns()
        lg.QuerySamplesComplete(responses)
        self.returned_ns.append(time.perf_counter_ns())
        self.begun_ns.append(begun_ns)
        self.ended_ns.append(ended_ns)
        for sample, found in zip(samples, answers, strict=True):
            self._keep(sample.index, found)
        if ended_ns - self._reported_ns > _REPORTS_NS:
            self._reported_ns = ended_ns
            system.progress(self._answered)

    def _keep(self, sample: int, answer: npt.NDArray[np.float32]) -> None:
        """Keep each answer of the measurement with the same probability. Source: Vitter 1985, algorithm R."""
        self._answered += 1
        if len(self.sampled) < SAMPLED:
            self.sampled.append((sample, answer.copy()))
        elif (place := int(self._draw.random() * self._answered)) < SAMPLED:
            self.sampled[place] = sample, answer.copy()

    def close(self) -> None:
        """End what was started."""


class _Server(_QueryDriver):
    """Answers queries in the order in which they come, in a thread of its own: LoadGen goes on sending meanwhile."""

    def __init__(self, system: System) -> None:
        super().__init__(system)
        self._waiting: queue.SimpleQueue[tuple[list[lg.QuerySample], int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def issue(self, samples: list[lg.QuerySample]) -> None:
        """Put a query in line."""
        self._waiting.put((samples, time.perf_counter_ns()))

    def close(self) -> None:
        """End the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (query := self._waiting.get()) is not None:
            self.answer(*query)


_DRIVERS: dict[Scenario, type[_QueryDriver]] = {
    Scenario.SINGLE_STREAM: _QueryDriver,
    Scenario.OFFLINE: _QueryDriver,
    Scenario.SERVER: _Server,
}
