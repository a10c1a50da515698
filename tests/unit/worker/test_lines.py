"""What is marked is seen by calls that have no frame of their own, as torch's ops have none."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import threading

import pytest

from perfguard.records.protocol import LINE_PREFIX
from perfguard.worker.profiling import lines
from perfguard.worker.profiling.lines import LineMarks, is_compiled


class Recorder:
    """Takes the place of torch's events: marks, and between them what programs call `op` with."""

    def __init__(self):
        self.seen = []
        self.op = self.seen.append

    def __call__(self, name):
        recorder, line = self, name.removeprefix(LINE_PREFIX)
        assert line != name

        class Mark:
            def __enter__(self):
                recorder.seen.append((line, threading.get_ident()))

            def __exit__(self, *error):
                pass

        return Mark()

    @property
    def marks(self):
        return [entry[0] for entry in self.seen if isinstance(entry, tuple)]

    @property
    def lines(self):
        """The line of each op."""
        found, line = {}, "(none)"
        for entry in self.seen:
            if isinstance(entry, tuple):
                line = entry[0]
            else:
                found[entry] = line
        return found


@pytest.fixture
def seen(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(lines, "annotation_type", lambda: recorder)
    return recorder


@pytest.fixture
def load(tmp_path, monkeypatch, seen):
    """Runs a file below the working directory; its names, `op` among them."""
    monkeypatch.chdir(tmp_path)

    def loaded(source, name="train.py", **names):
        path = tmp_path / name
        program = {"__name__": "program", "op": seen.op, **names}
        exec(compile(textwrap.dedent(source).lstrip("\n"), str(path), "exec"), program)
        return program

    return loaded


@pytest.fixture
def run(load, seen):
    """Runs `step` of a program with marks; the line of each op."""

    def ran(source, **names):
        step = load(source, **names)["step"]
        with LineMarks():
            step()
        return seen.lines

    return ran


def test_an_op_belongs_to_the_line_that_runs_not_to_where_its_function_begins(run):
    assert run("""
        def step():
            op("first")
            for _ in range(2):
                op("again")
            both(
                op("inner"),
                2,
            )

        def both(one, two):
            op("both")
    """) == {"first": "train.py:2", "again": "train.py:4", "inner": "train.py:6", "both": "train.py:11"}


def test_a_changed_line_comes_before_the_lines_that_it_leads_to(load, seen, tmp_path):
    source = """
        def step():
            op("before")
            helped(
                3)
            op("behind")

        def helped(times):
            for _ in range(times): op("helper")
    """
    step = load(source)["step"]
    with LineMarks(changed={str(tmp_path / "train.py"): [[3, 4]]}):
        step()
    assert seen.lines == {"before": "train.py:2", "helper": "train.py:3", "behind": "train.py:5"}


def test_of_changed_lines_the_innermost_one_is_named(load, seen, tmp_path):
    step = load("def step():\n    helped()\n\ndef helped():\n    op('one')\n    op('two')\n")["step"]
    with LineMarks(changed={str(tmp_path / "train.py"): [[2, 2], [6, 6]]}):
        step()
    assert seen.lines == {"one": "train.py:2", "two": "train.py:6"}


def test_behind_a_call_the_line_of_the_caller_goes_on(run, load):
    other = load("def helped(value):\n    return op('helper')\n", name="layers.py")
    assert run("def step():\n    [helped(1), op('after')]\n    return op('end')\n", helped=other["helped"]) == {
        "helper": "layers.py:2",
        "after": "train.py:2",
        "end": "train.py:3",
    }


def test_code_of_libraries_belongs_to_the_line_that_called_it(run, load):
    library = load(
        "def apply(function):\n    op('before')\n    function()\n    op('behind')\n", name="site-packages/timm/apply.py"
    )
    found = run("def step():\n    apply(hook)\n\ndef hook():\n    op('hook')\n", apply=library["apply"])
    assert found == {"before": "train.py:2", "hook": "train.py:5", "behind": "train.py:2"}


def test_a_generator_goes_on_in_the_line_that_it_left(run):
    assert run("""
        def values():
            both = [op("made"), (yield), op("resumed")]
            yield op("next")

        def step():
            stream = values()
            next(stream); op("between")
            next(stream); op("behind")
    """) == {
        "made": "train.py:2",
        "between": "train.py:7",
        "resumed": "train.py:2",
        "next": "train.py:3",
        "behind": "train.py:8",
    }


def test_what_is_thrown_into_a_generator_is_caught_at_its_line(run):
    assert run("""
        def values():
            try:
                yield
            except ValueError:
                op("caught")
                yield

        def step():
            stream = values()
            next(stream)
            stream.throw(ValueError); op("behind")
    """) == {"caught": "train.py:5", "behind": "train.py:11"}


def test_a_coroutine_goes_on_in_the_line_that_it_left(run):
    source = """
        async def batch():
            return [op("loads"), await sleep(0), op("loaded")]

        async def both():
            await gather(batch(), other())

        async def other():
            op("meanwhile")

        def step():
            start(both())
    """
    found = run(source, sleep=asyncio.sleep, gather=asyncio.gather, start=asyncio.run)
    assert found == {"loads": "train.py:2", "meanwhile": "train.py:8", "loaded": "train.py:2"}


def test_an_exception_leads_to_the_line_that_handles_it(run):
    assert run("""
        def fails():
            try:
                raise ValueError
            finally:
                op("cleaned")

        def step():
            try:
                fails()
            except ValueError:
                op("handled")
    """) == {"cleaned": "train.py:5", "handled": "train.py:11"}


def test_a_library_that_catches_an_exception_goes_on_in_the_line_that_called_it(run, load):
    library = load(
        "def attempt(function):\n    try:\n        function()\n    except ValueError:\n        op('caught')\n",
        name="site-packages/retry.py",
    )
    found = run("def step():\n    attempt(fails)\n\ndef fails():\n    raise ValueError\n", attempt=library["attempt"])
    assert found == {"caught": "train.py:2"}


def test_functions_that_run_already_are_followed_and_left_behind(load, seen):
    source = """
        marks.__enter__(); op("first")
        op("second")
        marks.__exit__(None, None, None); op("late")
        op("last")
    """
    load(source, marks=LineMarks())
    # The last mark is that of the line that ended it.
    assert seen.lines == {"first": "train.py:1", "second": "train.py:2", "late": "train.py:3", "last": "train.py:3"}


def test_a_line_that_runs_again_and_again_is_marked_once(run, seen):
    run("def step():\n    while len(more) < 5: more.append(0)\n", more=[])
    assert seen.marks.count("train.py:2") == 1


def test_where_no_code_of_the_users_runs_there_is_no_line(load, seen):
    library = load(
        "def work():\n    with marks:\n        op('first')\n        call()\n        op('behind')\n",
        name="site-packages/worker.py",
        marks=LineMarks(),
        call=load("def call():\n    op('called')\n")["call"],
    )
    thread = threading.Thread(target=library["work"])
    thread.start()
    thread.join()
    assert seen.lines == {"first": "", "called": "train.py:2", "behind": ""}


def test_other_threads_are_not_followed(run, seen):
    found = run(
        """
        def other():
            op("beside")

        def step():
            thread = Thread(target=other)
            thread.start()
            thread.join()
            op("here")
        """,
        Thread=threading.Thread,
    )
    assert found["here"] == "train.py:8"
    assert "train.py:2" not in seen.marks
    assert {thread for _, thread in filter(lambda entry: isinstance(entry, tuple), seen.seen)} == {
        threading.get_ident()
    }


def test_after_so_many_marks_there_is_no_line(load, seen):
    step = load("def step():\n    op('a')\n    op('b')\n    op('c')\n    op('d')\n")["step"]
    with LineMarks(most=4):  # the first two are of the lines here
        step()
    assert seen.lines == {"a": "train.py:2", "b": "", "c": "", "d": ""}
    assert len(seen.marks) == 4


def test_code_that_a_compiler_made_belongs_to_the_line_that_called_it(run):
    assert (
        run("""
        def forward():
            __compiled_fn_1_7()
            eager()
            __resume_at_30_2()

        def __compiled_fn_1_7(): op("graph")

        def eager():
            op("between")

        def __resume_at_30_2(): op("rest")

        def step():
            forward()
    """)["between"]
        == "train.py:9"
    )


@pytest.mark.parametrize(
    ("source", "name", "compiled"),
    [
        ("def f(x):\n    return __compiled_fn_3_0f(x)\n", "f", True),
        ("def f(x):\n    return __resume_at_14_2(x)\n", "f", True),
        ("def torch_dynamo_resume_in_f_at_14(x):\n    return x\n", "torch_dynamo_resume_in_f_at_14", True),
        ("def f(x):\n    return compiled_fn(x)\n", "f", False),
        ("def compiled(x):\n    return x.resume_at(3)\n", "compiled", False),
    ],
)
def test_compiled_code_is_told_by_what_it_calls(source, name, compiled):
    program = {}
    exec(source, program)
    assert is_compiled(program[name].__code__) is compiled


class TestLeavingThingsAsTheyWere:
    @pytest.fixture(autouse=True)
    def untraced(self):
        before = sys.gettrace()
        yield
        sys.settrace(before)

    def test_afterwards_nothing_is_followed(self, run):
        before, frame = sys.gettrace(), sys._getframe()
        run("def step():\n    op('a')\n")
        assert sys.gettrace() is before
        assert frame.f_trace is None

    def test_a_step_that_raises_ends_it(self, load, seen):
        step = load("def step():\n    raise ValueError\n")["step"]
        with pytest.raises(ValueError), LineMarks():  # noqa: PT011 - there is nothing to match
            step()
        assert sys.gettrace() is None
        seen.seen.clear()
        with pytest.raises(ValueError):  # noqa: PT011
            step()
        assert seen.marks == []

    def test_a_debugger_is_left_in_peace(self, run, seen):
        def debugger(frame, event, argument):
            return None

        sys.settrace(debugger)
        run("def step():\n    op('a')\n")
        assert sys.gettrace() is debugger
        assert seen.marks == []

    def test_a_program_that_begins_to_follow_itself_goes_on_with_that(self, load):
        def debugger(frame, event, argument):
            return None

        step = load("def step():\n    settrace(debugger)\n", settrace=sys.settrace, debugger=debugger)["step"]
        with LineMarks():
            step()
        assert sys.gettrace() is debugger

    def test_results_and_locals_are_those_without_marks(self, load):
        step = load(
            "def step():\n    total = 0\n    for n in range(9):\n        total += n\n    return total, locals()\n"
        )
        with LineMarks():
            marked = step["step"]()
        assert marked == step["step"]()


def test_the_compiler_is_told_of_all_that_runs_between_lines(load, monkeypatch):
    skipped, called = [], set()
    dynamo = type(sys)("torch._dynamo.eval_frame")
    dynamo.skip_code = skipped.append
    monkeypatch.setitem(sys.modules, "torch._dynamo.eval_frame", dynamo)
    marks = LineMarks()
    with marks:
        pass
    frame = load("def more():\n    yield\n")["more"]().gi_frame

    def profile(called_frame, event, argument):
        if event == "call" and called_frame.f_code.co_filename.endswith("/lines.py"):
            called.add(called_frame.f_code)

    # A trace function is not profiled, so what is called is looked at without one.
    sys.setprofile(profile)
    try:
        for event in ("call", "line", "return"):
            (marks._enter if event == "call" else marks._follow)(frame, event, None)
    finally:
        sys.setprofile(None)
    assert len(called) > 5
    assert called <= set(skipped)
