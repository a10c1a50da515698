"""Scripts with torch.utils.benchmark.Timer as its tutorial writes them."""

from __future__ import annotations

import pytest

from perfguard.records.facts import fact
from perfguard.runner.process.arm_worker import CaseRefused
from tests.adopted_suites import cases_of, imports_torch
from tests.worker_rigs import completed, failures

pytestmark = pytest.mark.torch

TUTORIAL = """
    from itertools import product

    import torch
    import torch.utils.benchmark as benchmark

    def batched_dot_mul_sum(a, b):
        return a.mul(b).sum(-1)

    def batched_dot_bmm(a, b):
        a = a.reshape(-1, 1, a.shape[-1])
        b = b.reshape(-1, b.shape[-1], 1)
        return torch.bmm(a, b).flatten(-3)

    x = torch.randn(100, 64)

    t0 = benchmark.Timer(
        stmt='batched_dot_mul_sum(x, x)',
        setup='from __main__ import batched_dot_mul_sum',
        globals={'x': x})
    print(t0.timeit(10 ** 12))

    results = []
    for b, n in product([1, 16], [1, 16]):
        label = 'Batched dot'
        sub_label = f'[{b}, {n}]'
        x = torch.ones((b, n))
        for num_threads in [1, 2]:
            results.append(benchmark.Timer(
                stmt='batched_dot_bmm(x, x)',
                setup='from __main__ import batched_dot_bmm',
                globals={'x': x},
                num_threads=num_threads,
                label=label,
                sub_label=sub_label,
                description='bmm',
            ).blocked_autorange(min_run_time=10 ** 9))
    compare = benchmark.Compare(results)
    compare.trim_significant_figures()
    compare.colorize()
    compare.print()

    from torch.utils.benchmark import Timer
    native = Timer("at::Tensor y = x + 1;", setup="at::Tensor x = torch::ones({1});", language="c++").timeit(10 ** 12)
"""


def test_a_script_is_read_without_measuring_and_every_python_statement_is_a_case(suite):
    found = suite.timers(TUTORIAL)
    shapes = ("(1; 1)", "(1; 16)", "(16; 1)", "(16; 16)")
    assert list(cases_of(found)) == [
        "timer.bench.timers.batched_dot_mul_sum_x_x[num_threads=1]",
        *(
            f"timer.bench.timers.Batched_dot[sub_label={shape},description=bmm,num_threads={threads}]"
            for shape in shapes
            for threads in (1, 2)
        ),
    ]
    assert found.notes == (
        fact("adopted.cpp_statements", tool="timer", number=1),
        fact("adopted.own_threads", tool="timer", threads=1, number=5),
        fact("adopted.own_threads", tool="timer", threads=2, number=4),
    )
    assert imports_torch(found)


def test_statements_are_measured_and_tensors_are_compared(suite):
    cases = list(cases_of(suite.timers(TUTORIAL)).values())[:2]
    with suite.worker(torch=True) as (worker, _):
        seen = [worker.prepare(case, seed=1, check=True).checks for case in cases]
    assert [set(checks) for checks in seen] == [{"result_norm"}, {"result"}]
    events = suite.measure(*cases, instances=2)
    assert failures(events) == {}
    assert sorted(completed(events)) == sorted(case.id for case in cases)


def test_set_up_and_statement_share_variables_and_run_on_the_threads_asked_for(suite):
    cases = cases_of(
        suite.timers(
            '''
            from torch.utils.benchmark import Timer

            def timers():
                yield_ = Timer(
                    """
                    n += 1
                    squares = [n * n for _ in range(3)]
                    """,
                    """
                    n = 0
                    """,
                    label="counting",
                )
                for threads in (1, 2):
                    Timer("assert torch.get_num_threads() == wanted", globals={"wanted": threads},
                          num_threads=threads, label="threads")
                Timer("(lambda: (yield))()", label="counting")
                Timer("pass", label="counting")
                return yield_
            '''
        )
    )
    assert list(cases) == [
        "timer.bench.timers.counting[num_threads=1]",
        "timer.bench.timers.threads[num_threads=1]",
        "timer.bench.timers.threads[num_threads=2]",
        "timer.bench.timers.counting[num_threads=1,occurrence=2]",
        "timer.bench.timers.counting[num_threads=1,occurrence=3]",
    ]
    events = suite.measure(*cases.values())
    assert failures(events) == {}
    assert sorted(completed(events)) == sorted(cases)


def test_functions_that_say_they_return_timers_are_called_and_no_others(suite):
    found = suite.timers(
        """
        from torch.utils.benchmark import Timer

        def make_timers(size=3):
            return [Timer("pass", label=f"made {n}") for n in range(size)]

        measured = [timer.timeit() for timer in make_timers(2)]

        def annotated() -> Timer:
            return Timer("pass", label="annotated")

        def destroy_everything():
            raise OSError("not to be called")

        def timers_of(size):
            raise OSError("needs an argument")

        if __name__ == "__main__":
            Timer("pass", label="guarded").timeit()
        """
    )
    assert [case.partition("[")[0].rpartition(".")[2] for case in cases_of(found)] == [
        "made_0",
        "made_1",
        "made_2",
        "annotated",
    ]


def test_a_file_that_makes_no_timers_is_mentioned(suite):
    found = suite.timers("import torch\nif __name__ == '__main__':\n    torch.utils.benchmark.Timer('pass').timeit()\n")
    assert found.benchmarks == ()
    assert [note.code for note in found.notes] == ["adopted.no_timer"]


def test_a_statement_that_raises_fails_its_case_and_one_that_is_gone_is_missing(suite):
    cases = cases_of(
        suite.timers(
            """
            from torch.utils.benchmark import Timer
            Timer("1 / 0", label="divides")
            Timer("return 3", label="returns")
            Timer("pass", label="goes")
            """
        )
    )
    suite.write("bench/timers.py", (suite.tree / "bench/timers.py").read_text().replace('"goes"', '"went"'))
    said = {}
    with suite.worker(torch=True) as (worker, _):
        for name, case in cases.items():
            with pytest.raises(CaseRefused) as refused:
                worker.prepare(case, seed=1, check=True)
            said[name.partition("[")[0].rpartition(".")[2]] = refused.value
    assert said["divides"].reason == "ZeroDivisionError: division by zero"
    assert "'return' outside function" in said["returns"].reason
    assert said["goes"].missing
