from __future__ import annotations

import gc
import gzip
import json
import os
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.records.protocol import LINE_PREFIX, STEP_WINDOW, StepKind
from perfguard.worker.cases import PreparedCase
from perfguard.worker.profiling import library_logs
from perfguard.worker.profiling.compile_events import CompileEvents
from perfguard.worker.profiling.library_logs import LibraryLogs
from perfguard.worker.profiling.profiler import (
    SETTLING_STEPS,
    UNKNOWN_SHARE,
    CaseProfiler,
    ForeignProfilerError,
    StepProfiler,
    share_inside,
)
from perfguard.worker.results import UnsoundCaseError

HEADER = (
    b"onednn_verbose,v1,1.5,info,oneDNN v3.12.0\nonednn_verbose,v1,1.5,primitive,info,template:operation,exec_time\n"
)
MKL_HEADER = b"MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240605 for Intel(R) 64 architecture\n"
EXECUTED = b"onednn_verbose,v1,2.5,primitive,exec,cpu,convolution,brg:avx2,forward,,,,mb1,0.1\n"
MULTIPLIED = b"MKL_VERBOSE SGEMM(N,N,8,8,8) 1.23us CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:1\n"


def empty_op(duration_us):
    return {"name": "aten::resolve_conj", "ts": 1.0, "dur": duration_us}


def test_what_empty_ops_show_is_their_own_share_of_the_cost():
    events = [*(empty_op(duration) for duration in (0.1, 0.3, 9.0)), {"name": "aten::add", "ts": 1, "dur": 5.0}]
    assert share_inside(events, 1.5e-6) == pytest.approx(0.2)


@pytest.mark.parametrize(("events", "event_s"), [([], 1e-6), ([empty_op(0.1)], 0.0)])
def test_without_a_measurement_the_share_is_the_default(events, event_s):
    assert share_inside(events, event_s) == UNKNOWN_SHARE


@given(st.lists(st.floats(0, 5), min_size=1, max_size=20), st.floats(1e-9, 1e-3))
def test_the_share_lies_between_nothing_and_all(durations_us, event_s):
    assert 0 <= share_inside([empty_op(duration) for duration in durations_us], event_s) <= 1


@pytest.fixture
def dynamo(monkeypatch):
    fake = SimpleNamespace(
        counters={"frames": {"total": 3}, "stats": {"unique_graphs": 2}, "graph_break": {"old": 1}}, metrics=[]
    )
    fake.get_compilation_metrics = lambda: list(fake.metrics)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", fake)
    return fake


def test_compile_events_are_what_has_happened_since(dynamo):
    known = SimpleNamespace(recompile_reason="before")
    dynamo.metrics = [known]
    events = CompileEvents()
    assert events.so_far() == {}
    dynamo.counters["frames"]["total"] += 2
    dynamo.counters["graph_break"]["Call to `print`\n  Explanation: at 0x7f00"] = 1
    dynamo.metrics = [known, SimpleNamespace(recompile_reason="L['self'] is 140234567890123"), SimpleNamespace()]
    assert events.so_far() == {"frames": 2, "graph_break: Call to `print`": 1, "recompile: L['self'] is *": 1}


def test_nothing_is_compiled_where_dynamo_was_never_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert CompileEvents().so_far() == {}


def test_dynamo_that_is_loaded_later_is_counted_from_its_beginning(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    events = CompileEvents()
    loaded = SimpleNamespace(counters={"frames": {"total": 1}, "stats": {"unique_graphs": 1}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", loaded)
    assert events.so_far() == {"frames": 1, "unique_graphs": 1}


@pytest.fixture
def libraries(monkeypatch):
    """Two libraries that print their header once in the life of the process; MKL may be missing."""
    state = SimpleNamespace(printed=False, is_on=False, has_mkl=True)

    @contextmanager
    def onednn():
        state.is_on = True
        try:
            yield
        finally:
            state.is_on = False

    @contextmanager
    def mkl():
        if not state.has_mkl:
            raise RuntimeError("built without it")
        yield

    monkeypatch.setattr(library_logs, "_switches", lambda: iter([("onednn", onednn), ("mkl", mkl)]))
    return state


def test_every_log_begins_with_the_header_that_is_printed_once(libraries, tmp_path):
    logs = LibraryLogs()
    with logs.into(tmp_path / "first") as names:
        os.write(1, b"loss 0.5\n" + HEADER + MKL_HEADER + EXECUTED + MULTIPLIED)
    with logs.into(tmp_path / "second"):
        os.write(1, EXECUTED + MULTIPLIED)
    assert names == ("onednn", "mkl")
    assert (tmp_path / "first").read_bytes() == b"loss 0.5\n" + HEADER + MKL_HEADER + EXECUTED + MULTIPLIED
    assert (tmp_path / "second").read_bytes() == HEADER + MKL_HEADER + EXECUTED + MULTIPLIED


def test_a_library_that_was_built_without_a_log_is_left_out(libraries, tmp_path):
    libraries.has_mkl = False
    with LibraryLogs().into(tmp_path / "log") as names:
        assert libraries.is_on
    assert names == ("onednn",)
    assert not libraries.is_on


def test_a_step_that_raises_turns_the_logs_off(libraries, tmp_path):
    with pytest.raises(ValueError, match="diverged"), LibraryLogs().into(tmp_path / "log"):
        raise ValueError("diverged")
    assert not libraries.is_on


@pytest.fixture
def steps(torch):
    made = StepProfiler()
    yield made
    made.end()


def prepared(call, case_id="tiny"):
    return PreparedCase(case_id, (call,), 1.0)


@pytest.fixture
def training(torch):
    """A training step of a small model, and how often it was called."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data, labels = torch.randn(16, 8), torch.randint(0, 4, (16,))
    loss_of = torch.nn.CrossEntropyLoss()

    def step():
        step.calls += 1
        optimizer.zero_grad()
        loss = loss_of(model(data), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step.calls = 0
    return step


def events_of(path):
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def names_of(path):
    """The names of all events, in their order."""
    events = [event for event in events_of(path) if event.get("ph") == "X"]
    return [event["name"] for event in sorted(events, key=lambda event: event["ts"])]


def ops_of(path):
    """The ops in the step's window, with their sizes, in their order."""
    events = [event for event in events_of(path) if event.get("ph") == "X" and "dur" in event]
    (window,) = [event for event in events if event["name"] == STEP_WINDOW]
    end = window["ts"] + window["dur"]
    inside = [event for event in events if window["ts"] <= event["ts"] < end and event.get("cat") == "cpu_op"]
    inside.sort(key=lambda event: (event["ts"], -event["dur"]))
    return [(event["name"], str(event.get("args", {}).get("Input Dims"))) for event in inside]


def allocations_of(path):
    """Bytes of what was allocated in the step's window, in its order; what is freed there was often made before."""
    events = events_of(path)
    (window,) = [event for event in events if event["name"] == STEP_WINDOW and "dur" in event]
    taken = [event for event in events if event["name"] == "[memory]" and event["args"]["Bytes"] > 0]
    end = window["ts"] + window["dur"]
    return [event["args"]["Bytes"] for event in taken if window["ts"] <= event["ts"] < end]


@pytest.mark.torch
class TestProfilingACase:
    def test_a_bare_step_tells_its_clocks_and_no_cost(self, steps, training):
        measured = CaseProfiler(steps).profile(prepared(training), StepKind.BARE, trace=None, log=None)
        assert measured["kind"] == "bare"
        assert 0 < measured["thread_s"] <= 1.5 * measured["wall_s"]
        assert measured["process_s"] > 0
        assert measured["event_s"] is measured["own_share"] is measured["module_s"] is None
        assert measured["affinity"] == sorted(os.sched_getaffinity(0))

    def test_a_traced_step_holds_the_window_the_modules_and_the_optimizer(self, steps, training, tmp_path):
        trace = tmp_path / "step.json.gz"
        measured = CaseProfiler(steps).profile(prepared(training), StepKind.TRACE, trace=trace, log=None)
        names = [name for name, _ in ops_of(trace)]
        assert {"module:Sequential", "module:Sequential.0", "module:CrossEntropyLoss"} <= set(names)
        assert "Optimizer.step#SGD.step" in {event.get("name") for event in events_of(trace)}
        assert ("aten::linear", "[[16, 8], [16, 8], [16]]") in ops_of(trace)
        assert measured["event_s"] > 0
        assert 0 < measured["own_share"] < 1
        assert measured["module_s"] > 0
        assert [path.name for path in tmp_path.iterdir()] == ["step.json.gz"]

    def test_the_window_is_about_as_long_as_the_step_that_is_told(self, steps, training, tmp_path):
        trace = tmp_path / "step.json.gz"
        measured = CaseProfiler(steps).profile(prepared(training), StepKind.TRACE, trace=trace, log=None)
        (window,) = [event for event in events_of(trace) if event.get("name") == STEP_WINDOW and "dur" in event]
        assert window["dur"] * 1e-6 >= measured["wall_s"] * 0.9

    def test_two_joined_steps_execute_the_same(self, steps, training, tmp_path):
        profiler, case = CaseProfiler(steps), prepared(training)
        for name in ("first", "second"):
            profiler.profile(case, StepKind.JOINED, trace=tmp_path / f"{name}.json.gz", log=tmp_path / f"{name}.log")
        assert ops_of(tmp_path / "first.json.gz") == ops_of(tmp_path / "second.json.gz")
        allocated = [allocations_of(tmp_path / f"{name}.json.gz") for name in ("first", "second")]
        assert allocated[0]
        assert allocated[0] == allocated[1]

    def test_a_joined_step_writes_the_log_of_a_convolution(self, torch, steps, tmp_path):
        if not torch.backends.mkldnn.is_available():
            pytest.skip("this torch has no oneDNN")
        convolution, image = torch.nn.Conv2d(32, 32, 3), torch.ones(4, 32, 32, 32)
        case, log = prepared(lambda: convolution(image).mean().detach()), tmp_path / "step.log"
        measured = CaseProfiler(steps).profile(case, StepKind.JOINED, trace=tmp_path / "step.json", log=log)
        executed = [line for line in log.read_text().splitlines() if ",exec,cpu,convolution," in line]
        assert len(executed) == 1
        assert "onednn" in measured["logs"]
        assert json.loads((tmp_path / "step.json").read_text())["traceEvents"]

    def test_a_where_step_marks_the_lines_that_run(self, steps, training, tmp_path):
        trace = tmp_path / "step.json.gz"
        CaseProfiler(steps).profile(prepared(training), StepKind.WHERE, trace=trace, log=None)
        first = training.__code__.co_firstlineno
        marked = [name for name in names_of(trace) if name.startswith(LINE_PREFIX) and "test_profiling.py" in name]
        # Before and behind them is the line above.
        assert [int(name.rpartition(":")[2]) - first for name in marked][1:-1] == [1, 2, 3, 4, 5, 6]

    def test_a_where_step_executes_what_a_traced_one_does(self, steps, training, tmp_path):
        profiler, found = CaseProfiler(steps), []
        for kind in (StepKind.TRACE, StepKind.WHERE, StepKind.TRACE, StepKind.WHERE):
            profiler.profile(prepared(training), kind, trace=tmp_path / "step.json.gz", log=None)
            ops = ops_of(tmp_path / "step.json.gz")
            found.append([op for op in ops if not op[0].startswith(LINE_PREFIX)])
            assert (found[-1] == ops) is (kind is StepKind.TRACE)
        assert found[0] == found[1] == found[2] == found[3]

    def test_a_where_step_of_compiled_code_runs_compiled_and_compiles_nothing(self, torch, steps, tmp_path):
        @torch.compile(backend="eager")
        def forward(data):
            hidden = data.sin()
            torch._dynamo.graph_break()
            return hidden.cos()

        def call():
            return forward(torch.ones(4, 8)).mean().detach()

        line = call.__code__.co_firstlineno + 1
        profiler, found = CaseProfiler(steps), []
        for kind in (StepKind.TRACE, StepKind.WHERE):
            measured = profiler.profile(prepared(call), kind, trace=tmp_path / "step.json.gz", log=None)
            assert measured["compile_events"] == {}
            found.append([op for op in ops_of(tmp_path / "step.json.gz") if not op[0].startswith(LINE_PREFIX)])
        assert found[0] == found[1]
        assert any("Torch-Compiled Region" in name for name, _ in found[1])
        marked = {name.rpartition(":")[2] for name in names_of(tmp_path / "step.json.gz") if LINE_PREFIX in name}
        assert str(line) in marked
        assert not marked & {str(number) for number in range(line - 7, line - 1)}

    def test_a_case_settles_once_with_hooks_and_once_without(self, steps, training, tmp_path):
        profiler, case = CaseProfiler(steps), prepared(training)
        calls = []
        for kind in (StepKind.BARE, StepKind.TRACE, StepKind.BARE, StepKind.WHERE):
            profiler.profile(case, kind, trace=tmp_path / "step.json.gz", log=None)
            calls.append(training.calls)
        each = 2  # the step and the untimed call right before it
        settled = (SETTLING_STEPS, 2 * SETTLING_STEPS, 2 * SETTLING_STEPS, 2 * SETTLING_STEPS)
        assert calls == [calls_before + each * number for number, calls_before in enumerate(settled, 1)]

    def test_bare_steps_run_without_hooks(self, torch, steps, tmp_path):
        seen = []

        def call():
            seen.append(bool(torch.nn.modules.module._global_forward_hooks))
            return 1.0

        profiler = CaseProfiler(steps)
        profiler.profile(prepared(call), StepKind.TRACE, trace=None, log=None)
        profiler.profile(prepared(call), StepKind.BARE, trace=None, log=None)
        assert seen == [True] * (SETTLING_STEPS + 2) + [False] * (SETTLING_STEPS + 2)

    def test_no_collection_falls_into_a_step(self, steps):
        seen = []
        CaseProfiler(steps).profile(
            prepared(lambda: seen.append(gc.isenabled()) or 1.0), StepKind.BARE, trace=None, log=None
        )
        assert seen[-1] is False
        assert gc.isenabled()

    @pytest.mark.parametrize("kind", StepKind)
    def test_a_case_that_raises_leaves_nothing_running(self, steps, training, tmp_path, kind):
        calls = []

        def call():
            calls.append(0)
            if len(calls) > SETTLING_STEPS:
                raise ValueError("diverged")
            return 1.0

        paths = {"trace": tmp_path / "step.json.gz", "log": tmp_path / "step.log"}
        with pytest.raises(ValueError, match="diverged"):
            CaseProfiler(steps).profile(prepared(call), kind, **paths)
        assert not steps.is_open
        assert gc.isenabled()
        measured = CaseProfiler(steps).profile(prepared(training), kind, **paths)
        assert measured["kind"] == kind.value

    def test_a_result_that_is_not_finite_fails_the_step(self, steps):
        with pytest.raises(UnsoundCaseError, match="computes nan"):
            CaseProfiler(steps).profile(prepared(lambda: float("nan")), StepKind.BARE, trace=None, log=None)

    def test_a_trace_that_cannot_be_written_is_an_error(self, steps, training, tmp_path):
        with pytest.raises(OSError, match="could not be written"):
            CaseProfiler(steps).profile(
                prepared(training), StepKind.TRACE, trace=tmp_path / "absent" / "step.json.gz", log=None
            )

    def test_results_do_not_depend_on_how_a_step_is_looked_at(self, torch, steps, tmp_path):
        def losses(kinds):
            torch.manual_seed(3)
            model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
            optimizer, data, found = torch.optim.Adam(model.parameters()), torch.randn(4, 8), []

            def call():
                optimizer.zero_grad()
                loss = model(data).square().mean()
                loss.backward()
                optimizer.step()
                found.append(float(loss.detach()))
                return found[-1]

            profiler = CaseProfiler(steps)
            for kind in kinds:
                profiler.profile(prepared(call), kind, trace=tmp_path / "step.json.gz", log=tmp_path / "step.log")
            return found

        bare = losses([StepKind.BARE] * 6)
        looked_at = losses([StepKind.TRACE, StepKind.JOINED, StepKind.WHERE])
        assert looked_at == bare[: len(looked_at)]


@pytest.mark.parametrize("kind", [StepKind.BARE, StepKind.TRACE])
def test_a_program_that_runs_a_profiler_itself_is_refused_and_keeps_it(kind, tmp_path):
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        with pytest.raises(ForeignProfilerError, match="switch it off"):
            StepProfiler().start(kind, trace=tmp_path / "trace.json")
        torch.ones(2).add(1)
    assert any(event.name == "aten::add" for event in own.events())


def test_a_step_that_was_never_started_cannot_be_finished():
    with pytest.raises(RuntimeError, match="no step has been started"):
        StepProfiler().finish()
