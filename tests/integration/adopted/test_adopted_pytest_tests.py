"""Tests in the shapes that pytest-benchmark's documentation shows, timed without pytest-benchmark."""

from __future__ import annotations

import pytest

from perfguard.errors import ConfigError
from perfguard.records.facts import fact
from perfguard.runner.process.arm_worker import CaseRefused
from tests.adopted_suites import AdoptedSuite, cases_of, imports_torch
from tests.worker_rigs import completed, failures

DOCUMENTED = '''
    import time

    import pytest

    def something(duration=0.0001):
        """Function that needs some serious benchmarking."""
        time.sleep(duration)
        return 123

    def test_my_stuff(benchmark):
        """Benchmark something."""
        result = benchmark(something)
        assert result == 123

    def test_with_arguments(benchmark):
        assert benchmark(something, 0.0002) == 123
        assert benchmark.extra_info == {}

    def test_decorated(benchmark):
        @benchmark
        def result():
            return something(0.0001)

        assert result == 123

    @pytest.mark.benchmark(group="group-name", min_time=0.1, max_time=0.5, min_rounds=5, warmup=False)
    def test_marked(benchmark):
        benchmark.group = "another"
        benchmark.extra_info["foo"] = "bar"
        benchmark(sorted, [3, 1, 2])

    def test_pedantic_with_setup(benchmark):
        def setup():
            return ([3, 1, 2],), {"reverse": True}

        def in_place(values, reverse):
            assert values == [3, 1, 2]
            values.sort(reverse=reverse)
            return values

        assert benchmark.pedantic(in_place, setup=setup, rounds=100) == [3, 2, 1]

    def test_pedantic(benchmark):
        assert benchmark.pedantic(something, kwargs={"duration": 0.0002}, iterations=10, rounds=100) == 123

    @pytest.mark.parametrize("kind", ["list", "tuple"])
    @pytest.mark.parametrize("length", [100, 2000])
    def test_sort(benchmark, length, kind):
        benchmark(sorted, {"list": list, "tuple": tuple}[kind](range(length)))

    class TestGroup:
        def test_method(self, benchmark):
            benchmark(sum, [1, 2])

    def test_without():
        assert True

    @pytest.mark.skipif("True", reason="not on this machine")
    def test_skipped(benchmark):
        benchmark(something)
'''
PREFIX = "pytest.tests.test_speed."


def only(found):
    (case,) = cases_of(found).values()
    return case


def refusal(suite, text):
    """Why a test is refused as a case."""
    case = only(suite.tests(text))
    with suite.worker() as (worker, _), pytest.raises(CaseRefused) as refused:
        worker.prepare(case, seed=1, check=True)
    return refused.value


def test_every_test_with_the_fixture_is_a_case_and_no_other(suite):
    found = suite.tests(DOCUMENTED)
    assert [name.removeprefix(PREFIX) for name in cases_of(found)] == [
        "test_my_stuff",
        "test_with_arguments",
        "test_decorated",
        "test_marked",
        "test_pedantic_with_setup",
        "test_pedantic",
        "test_sort[id=100-list]",
        "test_sort[id=100-tuple]",
        "test_sort[id=2000-list]",
        "test_sort[id=2000-tuple]",
        "TestGroup.test_method",
    ]
    assert found.benchmarks[0].doc == "Benchmark something."
    assert found.notes == (fact("adopted.skipped_by_marks", tool="pytest", number=1),)
    assert not imports_torch(found)


def test_all_documented_forms_are_measured_in_both_arms(suite):
    cases = cases_of(suite.tests(DOCUMENTED))
    events = suite.measure(*cases.values(), instances=2)
    assert failures(events) == {}
    assert sorted(completed(events)) == sorted(cases)


def test_calls_are_timed_on_the_main_thread_while_the_fixtures_of_the_test_are_alive(suite):
    suite.write(
        "tests/conftest.py",
        """
        import pytest

        @pytest.fixture
        def resource():
            held = {"is open": True}
            yield held
            held["is open"] = False

        @pytest.fixture(autouse=True)
        def everywhere(monkeypatch):
            monkeypatch.setenv("PLACE", "inside")
        """,
    )
    found = suite.tests(
        """
        import os
        import threading

        def test_alive(benchmark, resource, tmp_path, capsys):
            path = tmp_path / "file"
            path.write_text("1.5")

            def call():
                assert resource["is open"]
                assert os.environ["PLACE"] == "inside"
                assert threading.current_thread() is threading.main_thread()
                return float(path.read_text())

            assert benchmark(call) == 1.5
        """
    )
    case = only(found)
    events = suite.measure(case, instances=3)
    assert failures(events) == {}
    assert completed(events) == [case.id]


def test_what_a_test_asserts_after_its_benchmark_decides_whether_the_case_failed(suite):
    case = only(
        suite.tests(
            """
            calls = []

            def test_few(benchmark):
                benchmark(calls.append, 0)
                assert len(calls) < 5, "too many calls"
            """
        )
    )
    found = failures(suite.measure(case))[case.id]
    assert "the test fails: AssertionError: too many calls" in found.quoted


def test_a_call_that_raises_while_it_is_timed_fails_its_case_even_where_the_test_expects_that(suite):
    case = only(
        suite.tests(
            """
            import pytest

            calls = []

            def call():
                calls.append(0)
                if len(calls) > 8:
                    raise OSError("disk gone")

            def test_expects(benchmark):
                try:
                    benchmark(call)
                except OSError:
                    pass
            """
        )
    )
    assert failures(suite.measure(case))[case.id].quoted == "OSError: disk gone (test_speed.py:9)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def test_it(benchmark):\n    assert benchmark(len, 'ab') == 3", "the test fails: AssertionError"),
        ("def test_it(benchmark, absent): benchmark(len, 'ab')", "fixture 'absent' not found"),
        ("def test_it(benchmark): pass", "never calls its benchmark fixture"),
        ("def test_it(benchmark):\n    benchmark(len, '')\n    benchmark(len, '')", "uses its benchmark fixture twice"),
        ("def test_it(benchmark): benchmark.weave(len)", "benchmark.weave is not supported"),
        ("def test_it(benchmark):\n    benchmark(len, 'a')\n    benchmark.stats['mean']", "TypeError"),
    ],
)
def test_a_test_that_fails_is_refused_with_its_reason(suite, text, said):
    refused = refusal(suite, text)
    assert said in refused.reason
    assert not refused.missing


def test_a_test_that_skips_itself_is_skipped(suite):
    refused = refusal(suite, "import pytest\ndef test_it(benchmark): pytest.skip('no data')")
    assert refused.skipped
    assert refused.missing
    assert "no data" in refused.reason


def test_a_test_that_the_other_arm_lacks_is_missing_there(suite):
    cases = cases_of(suite.tests(DOCUMENTED))
    suite.write("tests/test_speed.py", "def test_other(benchmark): benchmark(len, '')")
    with suite.worker() as (worker, _):
        for name in ("test_my_stuff", "test_sort[id=100-list]", "TestGroup.test_method"):
            with pytest.raises(CaseRefused) as refused:
                worker.prepare(cases[PREFIX + name], seed=1, check=True)
            assert refused.value.missing, name


def test_settings_marks_and_hooks_of_pytest_benchmark_are_accepted(suite):
    suite.write(
        "pytest.ini",
        """
        [pytest]
        addopts = --benchmark-autosave --benchmark-min-rounds=3 --benchmark-warmup=on --strict-markers
        """.replace("        ", ""),
    )
    suite.write(
        "tests/conftest.py",
        """
        def pytest_benchmark_update_json(config, benchmarks, output_json):
            raise OSError("nothing is saved")

        def pytest_benchmark_scale_unit(config, unit, benchmarks, best, worst, sort):
            return "", 1.0
        """,
    )
    case = only(
        suite.tests("import pytest\n@pytest.mark.benchmark(group='a')\ndef test_it(benchmark): benchmark(len, '')")
    )
    assert completed(suite.measure(case)) == [case.id]


def test_plugins_that_would_run_a_test_elsewhere_or_end_it_keep_still(tmp_path):
    pytest.importorskip("xdist")
    pytest.importorskip("pytest_timeout")
    suite = AdoptedSuite(tmp_path)
    suite.write("pytest.ini", "[pytest]\naddopts = -n 2 --timeout=1\n")
    case = only(
        suite.tests(
            """
            import os
            import signal

            def test_here(benchmark):
                assert "PYTEST_XDIST_WORKER" not in os.environ
                assert benchmark(signal.getitimer, signal.ITIMER_REAL) == (0.0, 0.0)
            """
        )
    )
    events = suite.measure(case)
    assert failures(events) == {}
    assert completed(events) == [case.id]


def test_every_conftest_is_attested_although_they_share_a_name(suite):
    suite.write("conftest.py", "OUTER = 1")
    suite.write("tests/conftest.py", "INNER = 1")
    case = only(suite.tests("def test_it(benchmark): benchmark(len, '')"))
    with suite.worker() as (worker, _):
        worker.prepare(case, seed=1, check=False)
        attested = worker.attest((str(suite.tree),), ())
    paths = {module["path"] for module in attested["modules"]}
    assert paths >= {"conftest.py", "tests/conftest.py", "tests/test_speed.py"}


def test_a_test_that_cannot_be_inside_itself_has_one_instance(suite):
    cases = cases_of(
        suite.tests(
            """
            import os

            import pytest

            @pytest.fixture
            def exclusive():
                path = __file__ + ".lock"
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
                yield
                os.unlink(path)

            def test_exclusive(benchmark, exclusive):
                benchmark(len, "")

            def test_shared(benchmark):
                benchmark(len, "")
            """
        )
    )
    with suite.worker() as (worker, _):
        alone, shared = (
            worker.prepare(cases[PREFIX + name], seed=1, check=True) for name in ("test_exclusive", "test_shared")
        )
    assert alone.instance_s is None
    assert shared.instance_s is not None


def test_the_worker_goes_on_after_a_test_was_taken_back(suite):
    first, second = cases_of(
        suite.tests(
            """
            def test_first(benchmark):
                assert benchmark(len, "ab") == 2

            def test_second(benchmark):
                assert benchmark(len, "abc") == 3
            """
        )
    ).values()
    with suite.worker() as (worker, _):
        for case in (first, second):
            worker.prepare(case, seed=1, check=False)
        worker.open(first, inner_loops=1, spin_s=0.0)
        worker.skip()
        worker.open(second, inner_loops=1, spin_s=0.0)
        assert worker.sample(block=0, case_id=second.id).iterations == 1


def test_numbers_are_compared_where_they_can_be_reproduced(suite):
    cases = cases_of(
        suite.tests(
            """
            import os, random
            def test_number(benchmark): benchmark(sum, [1, 2])
            def test_seeded(benchmark): benchmark(lambda value=random.random(): value)
            def test_random(benchmark): benchmark(lambda: float(os.urandom(1)[0] * 256 + os.urandom(1)[0]))
            def test_list(benchmark): benchmark(list, "ab")
            """
        )
    )
    with suite.worker() as (worker, _):
        checks = {
            name.removeprefix(PREFIX): worker.prepare(case, seed=1, check=False).checks for name, case in cases.items()
        }
    assert checks["test_number"] == {"result": 3.0}
    assert set(checks["test_seeded"]) == {"result"}
    assert checks["test_list"] == {}


def test_a_file_that_pytest_cannot_collect_is_told_with_its_error(suite):
    with pytest.raises(ConfigError, match="No module named 'absent_dependency'"):
        suite.tests("import absent_dependency\ndef test_it(benchmark): pass")


def test_a_file_without_the_fixture_is_mentioned(suite):
    found = suite.tests("def test_it(): pass")
    assert found.benchmarks == ()
    assert found.notes == (fact("adopted.no_test", place="tests/test_speed.py", tool="pytest", fixture="benchmark"),)
