"""Runs of the measuring loop with scripted workers in place of processes."""

from __future__ import annotations

from perfguard.records.events import CaseFinished
from perfguard.records.plan import CasePlan, MeasureSettings
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.runner.blocks.measure import Measuring, measure_blocks, plan_blocks
from tests.worker_replies import REFUSAL, QueuedReplies, ready

CPUS = (2, 3)
SAMPLES, WARMUPS = 3, 2
BOTH = (Arm.BASELINE, Arm.CANDIDATE)


class FakeWorker(QueuedReplies):
    """Answers as a worker does; a fault happens at the command that it is keyed by."""

    is_varied = True  # Whether the benchmark has a `vary`

    def on_look(self, case):
        """The result of a timed call."""
        return 2.5

    def __init__(self, faults=(), on_slice=lambda case: 0.001):
        super().__init__()
        self.faults = dict(faults)
        self.on_slice = on_slice
        self.sent = []
        self._case, self._left = None, 0
        self._is_looked_at = False

    def send(self, do, **fields):
        assert not self.is_closed
        self.sent.append((do, fields))
        case = fields.get("case", {}).get("id", self._case)
        fault = self.faults.get((do, case))
        if fault is not None:
            self.replies.append(fault)
            return
        getattr(self, f"_{do}")(case, fields)

    def _hello(self, case, fields):
        self.replies.append(ready(CPUS))

    def _prepare(self, case, fields):
        self.replies.append({"reply": "prepared", "digest": 1.5, "affinity": list(CPUS)})

    def _bench(self, case, fields):
        self._case, self._left = case, SAMPLES + WARMUPS
        self.replies.append({"reply": "waiting"})

    def _go(self, case, fields):
        self._left -= 1
        self.replies.append(
            {
                "reply": "sample",
                "value_s": self.on_slice(case),
                "cpu_s": 0.001,
                "minor_faults": 0,
                "involuntary_switches": 1,
                "iterations": 4,
                "affinity": list(CPUS),
            }
        )
        if not self._is_looked_at:
            self._hand_back()

    def _hand_back(self):
        self.replies.append({"reply": "waiting" if self._left else "benched"})

    def _vary(self, case, fields):
        self._is_looked_at = True
        self.replies.append({"reply": "varied", "is_varied": self.is_varied})

    def _look(self, case, fields):
        self._is_looked_at = False
        self.replies.append({"reply": "looked", "checks": {"timed_result": self.on_look(case)}})
        self._hand_back()

    def _skip(self, case, fields):
        self.replies.append({"reply": "failed", "reason": "the parent took the case back", "detail": ""})


class FakeControl(FakeWorker):
    def __init__(self):
        super().__init__()
        self.replies = [{"reply": "ready"}]

    def _go(self, case, fields):
        self.replies.append({"reply": "sample", "value_s": 0.002})


class FakeStarter:
    """Hands out fake workers; `faults` are by block and arm."""

    def __init__(self, faults=None, control=None, on_slice=lambda case: 0.001):
        self.faults, self.on_slice = faults or {}, on_slice
        self.control = control or FakeControl()
        self.workers = {}

    def start(self, arm, block, settings):
        assert settings is not None
        fault = self.faults.get((block.index, arm), {})
        if isinstance(fault, BaseException):
            raise fault
        self.workers[block.index, arm] = FakeWorker(fault, self.on_slice)
        return self.workers[block.index, arm]

    def start_control(self):
        if isinstance(self.control, BaseException):
            raise self.control
        return self.control


def refusal(reason="ValueError: no", kind="error"):
    return {**REFUSAL, "reason": reason, "kind": kind}


def plan_of(name):
    case = Case(benchmark=name, target=f"bench.py:{name}")
    return CasePlan(case=case, inner_loops=4, iteration_s=0.001, spin_s=(0.0, 0.5))


class Run:
    def __init__(
        self, starter, names=("x", "y", "z"), *, blocks=2, arms=BOTH, stop=None, emit=None, budget_s=1e9, least_blocks=0
    ):
        self.starter, self.events = starter, []
        self.plans = [plan_of(name) for name in names]
        settings = MeasureSettings(samples=SAMPLES, warmups=WARMUPS, max_blocks=blocks, budget_s=budget_s)
        self.measuring = Measuring(
            starter=starter,
            emit=lambda event: (self.events.append(event), emit(event) if emit else None),
            should_stop=lambda: bool(stop and stop(self.events)),
            settings=settings,
            cpus=CPUS,
            arms=arms,
            least_blocks=least_blocks,
        )

    def go(self):
        try:
            self.finished = measure_blocks(plan_blocks(len(self.plans), seed=5), self.plans, self.measuring)
        finally:
            self.all_closed = all(worker.is_closed for worker in self.starter.workers.values())
        return self

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def completed(self):
        return [(event.block, event.case_id) for event in self.of(CaseFinished)]
