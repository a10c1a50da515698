from __future__ import annotations

import os
import sys
import textwrap
import threading

import pytest

from perfguard.records.protocol import StepKind
from perfguard.worker.profiling.profiler import SETTLING_STEPS
from perfguard.worker.profiling.script_settings import ScriptSettings
from perfguard.worker.profiling.scripts import (
    ScriptEnded,
    StepBoundaries,
    profile_script,
    profile_whole_script,
    run_script,
)


@pytest.fixture
def script(tmp_path):
    """Writes a script and gives its path."""

    def write(source, name="train.py"):
        path = tmp_path / "code" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return str(path)

    return write


class TestRunning:
    def test_a_script_finds_its_arguments_and_the_files_beside_it(self, script, tmp_path):
        script("VALUE = 7", "beside_the_script.py")
        path = script(
            """
            import sys, beside_the_script
            from pathlib import Path
            assert __name__ == "__main__" and sys.modules["__main__"].__file__ == __file__
            Path(sys.argv[1]).write_text(f"{sys.argv[0]} {sys.argv[2:]} {beside_the_script.VALUE}")
            """
        )
        argv, import_path = sys.argv, sys.path[:]
        said = tmp_path / "said"
        assert run_script(path, [str(said), "--lr", "0.1"]).exit_code == 0
        assert said.read_text() == f"{path} ['--lr', '0.1'] 7"
        assert (sys.argv, sys.path) == (argv, import_path)

    def test_what_a_script_forks_ends_with_the_script(self, script, tmp_path):
        """It must never answer in the worker's place."""
        path = script(
            """
            import os, sys
            child = os.fork()
            if child == 0:
                sys.exit(7)
            _, status = os.waitpid(child, 0)
            sys.exit(100 + os.waitstatus_to_exitcode(status))
            """
        )
        process = os.getpid()
        found = run_script(path, [])
        assert os.getpid() == process
        assert found.exit_code == 107

    def test_a_script_that_is_linked_looks_where_it_really_lies(self, script, tmp_path):
        script("VALUE = 8", "beside_the_target.py")
        link = tmp_path / "linked.py"
        link.symlink_to(script("import beside_the_target"))
        assert run_script(str(link), []).problem is None

    @pytest.mark.parametrize(
        ("source", "code"),
        [
            ("", 0),
            ("raise SystemExit", 0),
            ("import sys; sys.exit(0)", 0),
            ("import sys; sys.exit(7)", 7),
            ("import sys; sys.exit('no data')", 1),
            ("import argparse; argparse.ArgumentParser().parse_args(['--unknown'])", 2),
        ],
    )
    def test_the_exit_code_is_the_one_that_python_would_give(self, script, source, code):
        found = run_script(script(source), [])
        assert (found.exit_code, found.problem, found.was_ended) == (code, None, False)

    def test_an_error_is_told_from_the_frames_of_the_script_on(self, script):
        path = script(
            """
            def load():
                raise ValueError("no  data\\nat all")
            load()
            """
        )
        found = run_script(path, [])
        assert (found.exit_code, found.problem) == (1, "ValueError: no data at all")
        assert f'File "{path}", line 4' in found.detail
        assert "in load" in found.detail
        assert "runpy" not in found.detail

    @pytest.mark.parametrize(
        ("source", "said"),
        [("def broken(:", "SyntaxError"), ("import absent_module_of_a_script", "ModuleNotFoundError")],
    )
    def test_a_script_that_cannot_start_says_why(self, script, source, said):
        found = run_script(script(source), [])
        assert found.problem.startswith(said)
        assert said in found.detail

    def test_a_script_that_is_not_there_is_an_error_of_its_own(self, tmp_path):
        found = run_script(str(tmp_path / "absent.py"), [])
        assert found.exit_code == 1
        assert found.problem.startswith("FileNotFoundError")

    def test_the_end_passes_everything_that_catches_exceptions(self, script):
        path = script(
            """
            from perfguard.worker.profiling.scripts import ScriptEnded
            done = []
            try:
                try:
                    raise ScriptEnded
                except Exception:
                    done.append("caught")
            finally:
                done.append("cleaned up")
            """
        )
        found = run_script(path, [])
        assert (found.exit_code, found.was_ended, found.problem) == (0, True, None)


class Parent:
    """The parent's side: gives the prepared commands and keeps the answers."""

    def __init__(self, *commands):
        self.commands, self.replies = list(commands), []

    def receive(self):
        return self.commands.pop(0) if self.commands else None

    def send(self, reply, **fields):
        self.replies.append({"reply": reply, **fields})

    @property
    def words(self):
        return [reply["reply"] for reply in self.replies]


class FakeProfiler:
    """Notes which steps it was asked for instead of looking at them."""

    def __init__(self, failure=None):
        self.failure, self.notes, self.is_open = failure, [], False

    def ready(self, kind):
        self.notes.append(f"ready {kind.value}")

    def start(self, kind, *, trace, log):
        self.notes.append(f"start {kind.value}")
        self.is_open = True

    def finish(self):
        if self.failure:
            raise self.failure
        self.is_open = False
        self.notes.append("finish")
        return {"kind": "any"}

    def abort(self):
        self.is_open = False

    def end(self):
        self.notes.append("end")
        self.is_open = False


class Optimizer:
    """Has an identity and takes weak references; has nothing to update."""

    param_groups = ()


def step(kind):
    return {"do": "step", "kind": kind.value, "trace": "/t", "log": None}


BARE, TRACE = step(StepKind.BARE), step(StepKind.TRACE)


def run_steps(held, count, optimizer):
    """Steps until the script is ended; how many it made."""
    for number in range(count):
        try:
            held.boundary(optimizer)
        except ScriptEnded:
            return number + 1
    return count


class TestHolding:
    def test_a_script_is_held_after_the_steps_to_be_skipped(self):
        parent = Parent({"do": "stop"})
        assert run_steps(StepBoundaries(parent, FakeProfiler(), ScriptSettings({}), skip=3), 10, Optimizer()) == 3
        assert parent.replies == [{"reply": "waiting", "step": 3, "settings": [], "checks": {}, "dtypes": []}]

    def test_the_first_step_is_skipped_in_any_case(self):
        parent, profiler = Parent(BARE, {"do": "stop"}), FakeProfiler()
        assert run_steps(StepBoundaries(parent, profiler, ScriptSettings({}), skip=0), 10, Optimizer()) == 2
        assert profiler.notes == ["start bare", "finish"]

    def test_each_step_is_looked_at_as_it_was_asked_for(self):
        parent, profiler = Parent(BARE, TRACE, BARE, TRACE, {"do": "stop"}), FakeProfiler()
        made = run_steps(StepBoundaries(parent, profiler, ScriptSettings({}), skip=1), 50, Optimizer())
        assert parent.words == ["waiting", "profiled", "profiled", "profiled", "profiled"]
        assert [note for note in profiler.notes if note.startswith("start")] == [
            "start bare",
            "start trace",
            "start bare",
            "start trace",
        ]
        # Only the first step with a profiler has steps before it that nobody looks at.
        assert made == 1 + 4 + SETTLING_STEPS

    def test_hooks_are_there_while_the_script_settles(self):
        parent, profiler = Parent(TRACE), FakeProfiler()
        held, optimizer = StepBoundaries(parent, profiler, ScriptSettings({}), skip=1), Optimizer()
        run_steps(held, 1, optimizer)
        assert profiler.notes == ["ready trace"]
        run_steps(held, SETTLING_STEPS, optimizer)
        assert profiler.notes == ["ready trace", "start trace"]

    def test_a_script_that_swallows_its_end_meets_it_again(self):
        held, optimizer = (
            StepBoundaries(Parent({"do": "stop"}), FakeProfiler(), ScriptSettings({}), skip=1),
            Optimizer(),
        )
        for _ in range(3):
            with pytest.raises(ScriptEnded):
                held.boundary(optimizer)

    def test_a_parent_that_has_gone_ends_the_script(self):
        with pytest.raises(ScriptEnded):
            StepBoundaries(Parent(), FakeProfiler(), ScriptSettings({}), skip=1).boundary(Optimizer())

    def test_a_second_optimizer_is_part_of_the_steps_of_the_first(self):
        parent = Parent(BARE, BARE, {"do": "stop"})
        held, generator, critic = (
            StepBoundaries(parent, FakeProfiler(), ScriptSettings({}), skip=1),
            Optimizer(),
            Optimizer(),
        )
        for _ in range(2):
            held.boundary(generator)
            held.boundary(critic)
        with pytest.raises(ScriptEnded):
            held.boundary(generator)
        assert held.steps == 3

    def test_the_next_optimizer_takes_over_from_one_that_is_gone(self):
        held, first = StepBoundaries(Parent(BARE), FakeProfiler(), ScriptSettings({}), skip=1), Optimizer()
        held.boundary(first)
        del first
        second = Optimizer()
        with pytest.raises(ScriptEnded):
            held.boundary(second)
        assert held.steps == 2

    def test_other_threads_and_forked_processes_have_no_boundaries(self, monkeypatch):
        parent = Parent({"do": "stop"})
        held = StepBoundaries(parent, FakeProfiler(), ScriptSettings({}), skip=1)
        thread = threading.Thread(target=held.boundary, args=(Optimizer(),))
        thread.start()
        thread.join()
        monkeypatch.setattr(os, "getpid", lambda: -1)
        held.boundary(Optimizer())
        assert parent.replies == []

    def test_what_fails_at_a_boundary_is_not_the_scripts_to_catch(self):
        failure = OSError("disk full")
        held = StepBoundaries(Parent(BARE), FakeProfiler(failure), ScriptSettings({}), skip=1)
        assert run_steps(held, 5, Optimizer()) == 2
        assert held.failure is failure


TRAINING = """
import sys, torch

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
for number in range(int(sys.argv[1])):
    try:
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
    except Exception:
        raise SystemExit("caught what was not its own")
"""


def end_of(parent):
    ended = parent.replies[-1]
    return ended["exit_code"], ended["was_ended"], ended["steps"]


@pytest.mark.torch
class TestWithTorch:
    def run(self, path, *commands, arguments=("50",), skip=2, profiler=None):
        parent = Parent(*commands)
        command = {"path": path, "arguments": list(arguments), "skip": skip}
        profile_script(command, parent, profiler or FakeProfiler())
        return parent

    def test_steps_end_where_the_optimizer_has_returned(self, torch, script):
        parent = self.run(script(TRAINING), BARE, BARE, {"do": "stop"})
        assert parent.words == ["waiting", "profiled", "profiled", "ended"]
        assert [reply["step"] for reply in parent.replies[:3]] == [2, 3, 4]
        assert end_of(parent) == (0, True, 4)

    def test_a_script_with_too_few_steps_ends_before_it_is_held(self, torch, script):
        parent = self.run(script(TRAINING), arguments=["3"], skip=5)
        assert parent.words == ["ended"]
        assert parent.replies[-1]["steps"] == 3

    def test_a_script_without_an_optimizer_makes_no_step(self, torch, script):
        parent = self.run(script("import torch; torch.ones(3).sum()"))
        assert parent.words == ["ended"]
        assert parent.replies[-1]["steps"] == 0

    def test_an_optimizer_within_an_optimizer_ends_one_step(self, torch, script):
        source = """
        import torch

        class Twice(torch.optim.SGD):
            def step(self):
                super().step()
                super().step()

        weight = torch.nn.Parameter(torch.ones(2))
        plain, optimizer = torch.optim.SGD([weight], lr=0.1), Twice([weight], lr=0.1)
        for _ in range(4):
            weight.sum().backward()
            optimizer.step()
        """
        assert self.run(script(source), skip=9).replies[-1]["steps"] == 4

    def test_afterwards_optimizers_are_as_torch_made_them(self, torch, script):
        steps = (torch.optim.Optimizer.profile_hook_step, torch.optim.Adam.step)
        self.run(script(TRAINING + "\nraise ValueError('late')"), arguments=["1"])
        assert (torch.optim.Optimizer.profile_hook_step, torch.optim.Adam.step) == steps

    def test_an_error_in_the_script_is_told_with_its_code(self, torch, script):
        parent = self.run(script(TRAINING + "\nraise ValueError('late')"), arguments=["1"])
        assert parent.replies[-1]["problem"] == "ValueError: late"
        assert parent.replies[-1]["exit_code"] == 1

    def test_what_fails_at_a_boundary_is_raised_once_the_script_has_ended(self, torch, script):
        with pytest.raises(OSError, match="disk full"):
            self.run(script(TRAINING), BARE, profiler=FakeProfiler(OSError("disk full")))

    def test_a_whole_script_is_one_step(self, torch, script):
        parent, profiler = Parent(), FakeProfiler()
        command = {"path": script("raise SystemExit(4)"), "arguments": [], "kind": "trace", "trace": None, "log": None}
        profile_whole_script(command, parent, profiler)
        assert parent.words == ["profiled", "ended"]
        assert profiler.notes == ["start trace", "finish", "end"]
        assert parent.replies[-1]["exit_code"] == 4
