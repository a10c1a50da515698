"""Real worker processes and everything a benchmark can do to them. No torch: the benchmarks are plain Python."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

import perfguard
from perfguard.errors import MeasurementError
from perfguard.model.events import BlockFinished, CaseFailed, CaseFinished, Noted, SliceTimed
from perfguard.model.plan import ArmSpec, CasePlan, EnvProfile, MeasureSettings
from perfguard.model.run import Arm
from perfguard.model.spec import Case, Phase
from perfguard.pipeline.measuring import needs_torch
from perfguard.runner.arm_worker import ArmWorker, CaseRefused
from perfguard.runner.arms import ArmSettings, resolve_arm
from perfguard.runner.calibrate import Calibration, calibrate_arm
from perfguard.runner.measure import Measuring, measure_blocks
from perfguard.runner.process import WorkerFailure
from perfguard.runner.schedule import plan_block, plan_blocks
from perfguard.runner.starter import ProcessStarter
from perfguard.store.pyperf_files import join_suites, write_suite

GOOD = """
def good():
    return lambda: float(sum(range(1000)))
"""
SETTINGS = MeasureSettings(slice_s=0.002, slices=2, warmups=1, budget_s=60, max_blocks=2)
IMPATIENT = MeasureSettings(slice_s=0.002, slices=2, budget_s=60, max_blocks=2, setup_timeout_s=3, slice_timeout_s=2)
BOTH = (Arm.BASELINE, Arm.CANDIDATE)


def case(name, phase=Phase.FORWARD):
    return Case(benchmark=name, target=f"bench.py:{name}", phase=phase, tags=("no-torch",))


class Rig:
    """Workers of two arms on the same directory."""

    def __init__(self, place, source, settings=SETTINGS):
        self.tree, self.folder, self.settings = place / "tree", place / "run", settings
        for folder in (self.tree, self.folder / "raw", self.folder / "logs"):
            folder.mkdir(parents=True)
        (self.tree / "bench.py").write_text(textwrap.dedent(source))
        self.cpus = (max(os.sched_getaffinity(0)),)
        arm_settings = ArmSettings(
            project=self.tree,
            workshop=self.folder / "arms",
            interpreter=None,
            setup=None,
            profile=EnvProfile.STABLE,
            threads=1,
        )
        spec = ArmSpec(text="dir:.", directory=".")
        self.arms = {role: resolve_arm(spec, role, arm_settings, os.environ) for role in BOTH}
        self.starter = ProcessStarter(
            arms=self.arms,
            environments={role: dict(arm.environment) for role, arm in self.arms.items()},
            settings=settings,
            cpus=self.cpus,
            memory_node=None,
            folder=self.folder,
            canary_bundle=self.arms[Arm.CANDIDATE].bundle,
        )

    @contextlib.contextmanager
    def worker(self, *, calibrate=False):
        worker = ArmWorker(
            Arm.CANDIDATE,
            self.starter.start(Arm.CANDIDATE, plan_block(1, index=0, seed=1), calibrate=calibrate),
            self.settings,
        )
        try:
            worker.hello({"import_torch": False}, cpus=self.cpus)
            yield worker
        finally:
            worker.close()

    def measure(self, *names, arms=BOTH):
        events = []
        plans = [CasePlan(case=case(name), inner_loops=2, iteration_s=0.001) for name in names]
        measuring = Measuring(
            starter=self.starter,
            emit=events.append,
            should_stop=lambda: False,
            settings=self.settings,
            cpus=self.cpus,
            arms=arms,
            needs_torch=needs_torch([plan.case for plan in plans]),
        )
        finished = measure_blocks(plan_blocks(len(plans), seed=1), plans, measuring)
        assert finished == sum(isinstance(event, BlockFinished) for event in events)
        return events

    def survivors(self):
        return survivors(self.folder.parent)


def survivors(place):
    """Live processes whose command line or environment names a path below `place`."""
    found = []
    for process in psutil.process_iter():
        try:
            said = " ".join(process.cmdline()) + " ".join(process.environ().values())
            if str(place) in said and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.fixture
def rig(tmp_path):
    rigs = []

    def make(source, settings=SETTINGS):
        rigs.append(Rig(tmp_path, textwrap.dedent(source) + GOOD, settings))
        return rigs[-1]

    yield make
    for made in rigs:
        for process in made.survivors():
            process.kill()


def failures(events):
    return {event.case_id: event for event in events if isinstance(event, CaseFailed)}


def completed(events):
    return [event.case_id for event in events if isinstance(event, CaseFinished)]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def bad(): raise ValueError('no data')", "ValueError: no data"),
        ("def bad(): return lambda: 1 / 0", "ZeroDivisionError: division by zero"),
        ("def bad(): return None", "returns nothing; it must return the function to time"),
        ("def bad(): return 3", "returns int; it must return the function to time"),
        ("def bad(): return lambda: None", "returns nothing, so its result cannot be checked"),
        ("def bad(): return lambda: 'loss'", "returns str; return the loss as a tensor or a float"),
        ("def bad(): return lambda: float('nan')", "computes nan"),
        ("def bad(): return lambda: float('-inf')", "computes -inf"),
        ("def bad(): return iter([1.0, 2.0]).__next__", "changes its result between calls (1, then 2)"),
        ("state = []\ndef bad():\n state.append(0)\n n = float(len(state))\n return lambda: n", "between set-ups"),
        ("import os\ndef bad(): return lambda: float(os.urandom(6)[0] * 256 + os.urandom(6)[1])", "changes its"),
        ("import sys\ndef bad(): sys.exit(4)", "SystemExit"),
        ("def bad(n): return lambda: n", "TypeError"),
        ("class bad:\n def __init__(self): self.x = 1", "returns bad; it must return the function to time"),
        ("import absent_dependency\ndef bad(): return lambda: 1.0", "No module named 'absent_dependency'"),
        ("def bad(:", "SyntaxError"),
    ],
)
def test_an_unsound_benchmark_is_refused_with_its_reason(rig, source, said):
    with rig(source).worker() as worker, pytest.raises(CaseRefused) as refused:
        worker.prepare(case("bad"), seed=1, check=True)
    assert said in refused.value.reason
    assert not refused.value.missing


def test_the_worker_lives_on_after_refusing_a_case(rig):
    with rig("def bad(): raise ValueError('no data')").worker() as worker:
        with pytest.raises(CaseRefused):
            worker.prepare(case("bad"), seed=1, check=True)
        assert worker.prepare(case("good"), seed=1, check=True).digest == sum(range(1000))


def test_a_benchmark_that_the_tree_does_not_hold_is_missing(rig):
    with rig("").worker() as worker, pytest.raises(CaseRefused) as refused:
        worker.prepare(case("absent"), seed=1, check=True)
    assert refused.value.missing


def test_a_case_that_raises_while_it_is_timed_is_dropped_alone(rig):
    made = rig(
        """
        calls = []
        def bad():
            def call():
                calls.append(0)
                if len(calls) > 4:
                    raise OSError("disk gone")
                return 1.0
            return call
        """
    )
    events = made.measure("bad", "good")
    assert failures(events)["bad"].reason == "OSError: disk gone"
    assert completed(events) == ["good", "good"]


def test_a_result_that_turns_into_nan_while_it_is_timed_fails_the_case(rig):
    made = rig(
        """
        calls = []
        def bad():
            def call():
                calls.append(0)
                return 1.0 if len(calls) < 4 else float("nan")
            return call
        """
    )
    events = made.measure("bad", "good")
    assert "computes nan" in failures(events)["bad"].reason
    assert completed(events) == ["good", "good"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("os._exit(3)", "the worker ended by itself with exit code 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the worker crashed with SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed (signal 9); out of memory is the usual reason"),
        ("os.closerange(3, 256)", "the worker ended by itself"),
        ("rubbish()", "the worker wrote rubbish into its control pipe"),
        ("os.sched_setaffinity(0, other_cpus())", "moved its process to CPUs"),
    ],
)
@pytest.mark.parametrize("moment", ["in the set-up", "in a slice"])
def test_a_case_that_breaks_its_worker_is_dropped_and_the_next_block_goes_on(rig, fault, said, moment):
    if "affinity" in fault and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs a second CPU to move to")
    call_number = 1 if moment == "in the set-up" else 5
    made = rig(
        f"""
        import os, signal
        calls = []

        def rubbish():
            for descriptor in range(3, 256):
                try:
                    os.write(descriptor, b"\\0\\xff rubbish")
                except OSError:
                    pass

        def other_cpus():
            return set(range(os.cpu_count())) - os.sched_getaffinity(0)

        def bad():
            def call():
                calls.append(0)
                if len(calls) == {call_number}:
                    {fault}
                return 1.0
            return call
        """,
        IMPATIENT,
    )
    events = made.measure("bad", "good")
    assert said in failures(events)["bad"].reason
    assert list(failures(events)) == ["bad"]
    assert "good" in completed(events)
    assert made.survivors() == []


def test_a_benchmark_that_stops_the_clock_does_not_stop_ours(rig):
    """The clock is bound before the code under test is imported; halving or freezing `time`'s own changes nothing."""
    made = rig(
        """
        import time
        def bad():
            time.perf_counter = lambda: 0.0
            return lambda: float(sum(range(1000)))
        """
    )
    events = made.measure("bad", "good")
    assert failures(events) == {}
    assert set(completed(events)) == {"bad", "good"}


@pytest.mark.parametrize("call_number", [1, 3, 5])
def test_a_case_that_hangs_is_killed_after_its_time_and_dropped(rig, call_number):
    made = rig(
        f"""
        import time
        calls = []
        def bad():
            def call():
                calls.append(0)
                if len(calls) == {call_number}:
                    time.sleep(600)
                return 1.0
            return call
        """,
        IMPATIENT,
    )
    events = made.measure("bad", "good", arms=(Arm.CANDIDATE,))
    assert "gave no answer in" in failures(events)["bad"].reason
    assert "good" in completed(events)
    assert made.survivors() == []


def test_a_worker_that_ignores_everything_is_killed_when_it_is_closed(rig):
    made = rig(
        """
        import atexit, signal, time
        def bad():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            atexit.register(time.sleep, 600)
            return lambda: 1.0
        """
    )
    with made.worker() as worker:
        worker.prepare(case("bad"), seed=1, check=False)
    assert made.survivors() == []


def test_what_a_benchmark_prints_goes_to_the_log_and_disturbs_nothing(rig):
    made = rig(
        """
        import os, sys
        def bad():
            def call():
                print("loud", '{"reply":"slice"}')
                print("louder", file=sys.stderr)
                os.write(1, b"\\xff\\xfe\\0 raw")
                return 1.0
            return call
        """
    )
    events = made.measure("bad", "good")
    assert failures(events) == {}
    assert sorted(completed(events)) == ["bad", "bad", "good", "good"]
    log = (made.folder / "logs" / "0000-b.log").read_bytes()
    assert b"loud" in log
    assert b"\xff\xfe\0 raw" in log


@pytest.mark.parametrize(
    "how",
    [
        "os.fork() or time.sleep(600)",
        "subprocess.Popen(['sleep', '600'])",
        "subprocess.Popen(['sleep', '600'], start_new_session=True)",
    ],
)
def test_a_child_that_a_benchmark_leaves_behind_is_gone_when_the_worker_is(rig, how):
    made = rig(
        f"""
        import os, subprocess, time, warnings
        def bad():
            warnings.simplefilter("ignore")
            started = []
            def call():
                if not started:
                    started.append({how})
                return 1.0
            return call
        """
    )
    events = made.measure("bad", "good")
    assert failures(events) == {}
    assert made.survivors() == []


def test_a_crash_is_noticed_although_a_child_of_the_worker_holds_its_pipes(rig):
    """With the pipe's end as the only sign, the parent would wait for the whole timeout."""
    made = rig(
        """
        import os, time
        def bad():
            if os.fork() == 0:
                time.sleep(600)
            os._exit(7)
        """
    )
    with made.worker() as worker, pytest.raises(WorkerFailure, match="ended by itself with exit code 7"):
        worker.prepare(case("bad"), seed=1, check=False)
    assert made.survivors() == []


def test_a_benchmark_that_deletes_its_directory_fails_whatever_lay_there(rig):
    made = rig(
        """
        import os, shutil
        def bad():
            shutil.rmtree(os.path.realpath(os.getcwd()))
            return lambda: 1.0
        """
    )
    events = made.measure("bad", "good")
    assert failures(events).keys() == {"bad", "good"}
    assert made.survivors() == []


def test_an_interpreter_that_cannot_run_the_worker_is_an_error_with_its_words(rig, tmp_path):
    made = rig("")
    (tmp_path / "tree" / "python").write_text(
        f'#!/bin/sh\n[ "$2" = -c ] && exec {sys.executable} "$@"\necho this python is broken >&2\nexit 9\n'
    )
    (tmp_path / "tree" / "python").chmod(0o755)
    spec = ArmSpec(text="python:./python", interpreter="./python")
    arm_settings = ArmSettings(
        project=made.tree,
        workshop=tmp_path / "again",
        interpreter=None,
        setup=None,
        profile=EnvProfile.STABLE,
        threads=1,
    )
    made.starter.arms[Arm.CANDIDATE] = resolve_arm(spec, Arm.CANDIDATE, arm_settings, os.environ)
    with pytest.raises(MeasurementError, match="(?s)ended by itself with exit code 9.*this python is broken"):
        made.measure("good")


def test_a_canary_that_cannot_start_is_only_noted(rig, tmp_path):
    made = rig("")
    object.__setattr__(made.starter, "canary_bundle", str(tmp_path / "absent"))
    events = made.measure("good")
    assert completed(events) == ["good", "good"]
    assert any(isinstance(event, Noted) and event.text.startswith("no canary") for event in events)


def test_calibration_names_the_case_that_took_the_worker_down_and_measures_the_others(rig):
    made = rig("import os\ndef bad(): os._exit(5)\ndef worse(): os.abort()")
    calibration = Calibration(
        starter=made.starter,
        settings=made.settings,
        cpus=made.cpus,
        needs_torch=False,
        should_stop=lambda: False,
        progress=lambda _: None,
    )
    arm = made.arms[Arm.BASELINE]
    cases = [case(name) for name in ("bad", "good", "worse")]
    report = calibrate_arm(Arm.BASELINE, cases, calibration, roots=arm.code_roots, foreign_roots=())
    assert {name: failure.reason for name, failure in report.failed.items()} == {
        "bad": "the worker ended by itself with exit code 5",
        "worse": "the worker crashed with SIGABRT",
    }
    assert 0 < report.iteration_s["good"] < 1
    assert [module["path"] for module in report.attested["modules"]] == ["bench.py"]


def test_the_raw_files_are_pyperfs_and_hold_every_slice(rig):
    made = rig("")
    events = made.measure("good")
    for arm, code in ((Arm.BASELINE, "a"), (Arm.CANDIDATE, "b")):
        suite = join_suites((made.folder / "raw").glob(f"*-{code}.json"), skipped=pytest.fail)
        write_suite(suite, made.folder / f"{arm.value}.json")
        (benchmark,) = suite.get_benchmarks()
        assert benchmark.get_name() == "good"
        timed = [event for event in events if isinstance(event, SliceTimed) and event.arm is arm and not event.warmup]
        assert len(timed) == 4
        assert benchmark.get_values() == pytest.approx([event.value_s for event in timed], rel=1e-9)
        assert {run.get_metadata()["perfguard_arm"] for run in benchmark.get_runs()} == {arm.value}
    for arguments in (("stats", "candidate.json"), ("compare_to", "baseline.json", "candidate.json")):
        done = subprocess.run(
            [sys.executable, "-m", "pyperf", *arguments], cwd=made.folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_no_worker_survives_a_parent_that_was_killed(rig, tmp_path):
    made = rig("import time\ndef bad():\n    return lambda: time.sleep(600) or 1.0\n")
    arm = made.arms[Arm.CANDIDATE]
    launch = {
        "arguments": [arm.interpreter, str(Path(arm.bundle) / "start.py"), "perfguard.worker", "--worker", "-q"],
        "environment": dict(arm.environment),
        "directory": str(made.tree),
        "cpus": list(made.cpus),
        "log": str(made.folder / "logs" / "driver.log"),
    }
    driver = tmp_path / "driver.py"
    driver.write_text(
        textwrap.dedent(
            f"""
            import json, os, pathlib, sys, time
            sys.path.insert(0, {str(Path(perfguard.__file__).parent.parent)!r})
            from perfguard.runner.process import Launch, WorkerProcess

            fields = json.loads(sys.argv[1])
            fields["arguments"], fields["cpus"] = tuple(fields["arguments"]), tuple(fields["cpus"])
            fields["log"] = pathlib.Path(fields["log"])
            worker = WorkerProcess(Launch(memory_node=None, **fields))
            worker.send("hello", protocol=1, job={{"import_torch": False}})
            worker.receive(60)
            worker.send("prepare", case={{"id": "bad", "target": "bench.py:bad", "parameters": {{}},
                                          "phase": "forward"}}, seed=1)
            print(worker.pid, flush=True)
            time.sleep(600)
            """
        )
    )
    parent = subprocess.Popen([sys.executable, str(driver), json.dumps(launch)], stdout=subprocess.PIPE, text=True)
    worker = psutil.Process(int(parent.stdout.readline()))
    assert worker.is_running()
    parent.kill()
    parent.communicate(timeout=30)
    until = time.monotonic() + 30
    while made.survivors() and time.monotonic() < until:
        time.sleep(0.05)
    assert made.survivors() == []


def test_what_a_benchmark_computes_is_recorded_for_both_arms(rig):
    made = rig(
        """
        def bad():
            def call():
                return 2.5
            call.check = lambda: {"gradient_norm": 7}
            return call
        """
    )
    finished = [event for event in made.measure("bad", "good") if isinstance(event, CaseFinished)]
    by_case = {event.case_id: (event.baseline_checks, event.candidate_checks) for event in finished}
    assert by_case["bad"] == ({"result": 2.5, "gradient_norm": 7.0},) * 2
    assert by_case["good"] == ({"result": float(sum(range(1000)))},) * 2


def test_a_check_that_raises_refuses_its_case(rig):
    made = rig("def bad():\n call = lambda: 1.0\n call.check = lambda: 1 / 0\n return call")
    assert failures(made.measure("bad", "good"))["bad"].reason == "ZeroDivisionError: division by zero"
