"""The timed region. Everything that is not the benchmark itself stays outside it."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from perfguard.records.protocol import Message
from perfguard.worker.cases import PreparedCase
from perfguard.worker.pipes import Control
from perfguard.worker.ranks.group import RankedCall
from perfguard.worker.results import TimedLook, UnsoundCaseError
from perfguard.worker.timing.signals import Meters

_LOOK_S = 0.001
_BUSY_RATIO = 0.1  # Of one CPU, while the calling thread sleeps: a thread that spins takes all of one
_MOST_S = 0.1  # Whatever is still busy then does not stop by itself; the parent sees it, too
_CLOCK, _CLOCK_OF, _SLEEP = time.perf_counter, time.clock_gettime, time.sleep
"""Bound before any code under test is imported, which may replace those in `time`."""
_CPUCLOCK_OF_THREAD = 6
"""Clock of one thread, in what the kernel calls its identity. That of the process would do if it did not know of
threads that are running what they had used at their last tick, 4 ms or more ago. Source: pthread_getcpuclockid(3)."""


def threads_used_s() -> float:
    """CPU seconds of all threads that this process has now."""
    used_s = 0.0
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - after every sample, so no paths are made
        try:
            used_s += _CLOCK_OF((~int(thread) << 3) | _CPUCLOCK_OF_THREAD)
        except OSError:  # it has ended
            continue
    return used_s


def settle(
    *,
    clock: Callable[[], float] = _CLOCK,
    cpu_clock: Callable[[], float] = threads_used_s,
    sleep: Callable[[float], None] = _SLEEP,
) -> None:
    """Sleep until the other threads of this process do, too, or a tenth of a second has passed.

    On a single CPU nothing can spin beside the thread that works, and no time is spent.
    """
    if len(os.sched_getaffinity(0)) == 1:
        return
    until = clock() + _MOST_S
    while True:
        began_s, used_s = clock(), cpu_clock()
        sleep(_LOOK_S)
        now_s = clock()
        if cpu_clock() - used_s < _BUSY_RATIO * (now_s - began_s) or now_s >= until:
            return


_REWARMING_CALLS = 2
"""Calls of each instance after all cases are set up and before its first sample; constant, so that the arms do
alike."""


class HandedBackError(Exception):
    """The parent took the case back (or went away) while a sample waited."""

    is_plain = True


class Renewed:
    """A call whose state is made again before each call, outside the timed region."""

    __slots__ = ("call", "most", "renew")

    def __init__(self, call: Callable[[], object], renew: Callable[[], None], *, most: int) -> None:
        """`most` bounds the calls of a sample, since making the state can take far longer than the call itself."""
        self.call = call
        self.renew = renew
        self.most = most

    def __call__(self) -> object:
        """A renewal and a call, for where nothing is timed."""
        self.renew()
        return self.call()


class SampleTimer:
    """pyperf's time function: waits for the baton, times one sample, hands the baton back."""

    def __init__(
        self, control: Control, case: PreparedCase, meters: Meters, *, inner_loops: int, spin_s: float
    ) -> None:
        self._control = control
        self._meters = meters
        self._case = case
        self._inner_loops = inner_loops
        self._spin_s = spin_s
        self._samples = 0
        self.last_result: object = None
        # The set-ups of other cases have taken the memory that this one had freed: the first calls fault pages in
        # (BERT step: 42 and 37 ms, then 28). That belongs to no sample.
        for call in case.calls:
            for _ in range(_REWARMING_CALLS):
                self.last_result = call()
        # torch brings 165,000 objects; frozen, they no longer cost 0.1 s in the collection before each sample.
        gc.collect()
        gc.freeze()
        settle()

    def __call__(self, loops: int) -> float:
        """Seconds for `loops` times the inner loops; pyperf divides by both.

        Between `go` and `sample` nothing runs but the timed calls and the meters: the parent's clock runs, too.
        """
        iterations = loops * self._inner_loops
        call = self._case.calls[self._samples % len(self._case.calls)]
        self._samples += 1
        own_signals(call)  # those of calls before this sample
        gc.collect()
        gc.disable()
        self._control.send("waiting", case=self._case.id)
        look = None
        command = self._control.receive()
        if command is not None and command["do"] == "vary":
            look = TimedLook(call, seed=command["seed"], case_id=self._case.id)
            self._control.send("varied", is_varied=look.is_varied)
            command = self._control.receive()
        self._require(command, "go")
        if isinstance(call, Renewed):
            measured, used = self._time_renewed(call, min(iterations, call.most))
        elif isinstance(call, RankedCall):
            seconds, result, used = call.time(iterations, spin_s=self._spin_s)
            measured = Elapsed(seconds, result, iterations)
        else:
            measured, used = self._time(call, iterations, of=iterations)
        self.last_result = measured.result
        value_s = measured.seconds / measured.iterations
        used |= {"affinity": sorted(os.sched_getaffinity(0))}
        if own := own_signals(call):
            used["cpu_s"] += own.pop("cpu_s", 0.0)
            used["own"] = own
        is_renewed = isinstance(call, Renewed)
        self._control.send(
            "sample", case=self._case.id, iterations=measured.iterations, value_s=value_s, is_renewed=is_renewed, **used
        )
        if look is not None:
            command = self._require(self._control.receive(), "look")
            self._control.send("looked", checks=self._case.look(look, measured.result, seed=command["seed"]))
        gc.enable()
        settle()
        return value_s * iterations

    def _require(self, command: Message | None, due: str) -> Message:
        if command is None or command["do"] != due:
            gc.enable()
            raise HandedBackError("the parent took the case back")
        return command

    def _time(self, call: Callable[[], object], iterations: int, *, of: int) -> tuple[Elapsed, dict[str, Any]]:
        """Time some iterations of the `of` that the sample has; what they used is for one of those."""
        before = self._meters.start()
        elapsed = time_iterations(call, iterations, self._spin_s)
        after = self._meters.stop()
        return elapsed, self._meters.between(before, after, iterations=of)

    def _time_renewed(self, call: Renewed, iterations: int) -> tuple[Elapsed, dict[str, Any]]:
        """Time one call after the other, each behind a renewal that no clock and no meter sees.

        Of all calls, the reply has the highest peak of memory and the sum of every other signal.
        """
        seconds, used, result = 0.0, dict[str, Any](), None
        for _ in range(iterations):
            call.renew()
            elapsed, more = self._time(call.call, 1, of=iterations)
            seconds, result = seconds + elapsed.seconds, elapsed.result
            for name, value in more.items():
                known = used.get(name)
                if known is None or value is None:
                    used[name] = value if known is None else known
                else:
                    used[name] = max(known, value) if name == "peak_memory_bytes" else known + value
        return Elapsed(seconds, result, iterations), used


def own_signals(call: object) -> dict[str, float]:
    """What the attribute `signals` of a benchmark's call says of one of the calls since it was last asked.

    Raises UnsoundCaseError: a value is no finite number.
    """
    signals = getattr(call, "signals", None)
    found = {} if signals is None else {str(name): float(value) for name, value in signals().items()}
    for name, value in found.items():
        if not math.isfinite(value):
            raise UnsoundCaseError(f"the benchmark's own signal {name!r} is {value}; leave out what is unknown")
    return found


class Elapsed(NamedTuple):
    """A timed stretch."""

    seconds: float
    result: object  # Of its last call
    iterations: int  # How many calls there were


def time_iterations(call: Callable[[], object], iterations: int, spin_s: float) -> Elapsed:
    """Time `iterations` calls, each followed by a spin of `spin_s` seconds.

    Both arms run the same code with their own `spin_s`, which is zero except where a slowdown is injected on purpose.
    """
    clock = _CLOCK
    result: object = None
    started = clock()
    for _ in range(iterations):
        result = call()
        if spin_s:
            until = clock() + spin_s
            while clock() < until:
                pass
    return Elapsed(clock() - started, result, iterations)
