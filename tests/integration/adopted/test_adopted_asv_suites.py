"""asv suites as asv's documentation writes them: found, set up and timed without asv."""

from __future__ import annotations

import pytest

from perfguard.errors import ConfigError
from perfguard.records.facts import fact
from perfguard.runner.process.arm_worker import CaseRefused
from perfguard.runner.suites import Suites
from tests.adopted_suites import cases_of, imports_torch
from tests.worker_rigs import completed, failures

QUICKSTART = '''
    class TimeSuite:
        """
        An example benchmark that times the performance of various kinds
        of iterating over dictionaries in Python.
        """
        def setup(self):
            self.d = {}
            for x in range(500):
                self.d[x] = None

        def time_keys(self):
            for key in self.d.keys():
                pass

        def time_values(self):
            for value in self.d.values():
                pass


    class MemSuite:
        def mem_list(self):
            return [0] * 256


    class Tracks:
        def track_sum(self):
            return 5
        track_sum.unit = "apples"

        def peakmem_list(self):
            [0] * 165000


    def time_function():
        sum(range(100))


    def helper():
        raise OSError("is no benchmark")
'''

PARAMETRIZED = """
    import math

    class Sizes:
        params = [[0, 10, 100], ["sum", "max"]]
        param_names = ["length", "function"]

        def setup(self, length, function):
            if length == 0 and function == "max":
                raise NotImplementedError("an empty list has no maximum")
            self.values = list(range(length))
            self.function = {"sum": sum, "max": max}[function]

        def time_function(self, length, function):
            self.function(self.values)

        def teardown(self, length, function):
            del self.values

    def time_call(function, text):
        function(4.0)

    time_call.params = ([math.sqrt, math.exp], ["a,b", "[c]=d"])

    def time_single(n):
        range(n)

    time_single.params = [1, 2]
"""


def test_the_suite_of_the_quickstart_is_found_without_an_edit(suite):
    found = suite.asv(QUICKSTART)
    assert list(cases_of(found)) == [
        "asv.suite.TimeSuite.time_keys",
        "asv.suite.TimeSuite.time_values",
        "asv.suite.time_function",
    ]
    assert found.benchmarks[0].doc == "An example benchmark that times the performance of various kinds"
    assert not imports_torch(found)


def test_what_is_not_timed_is_counted_in_a_note(suite):
    kinds = ("1 mem_*", "1 peakmem_*", "1 track_*")
    assert suite.asv(QUICKSTART).notes == (fact("adopted.other_kinds", place="benchmarks", tool="asv", kinds=kinds),)


def test_every_combination_of_parameters_is_a_case_unless_the_setup_skips_it(suite):
    found = suite.asv(PARAMETRIZED)
    assert list(cases_of(found)) == [
        "asv.suite.Sizes.time_function[length=0,function=sum]",
        "asv.suite.Sizes.time_function[length=10,function=sum]",
        "asv.suite.Sizes.time_function[length=10,function=max]",
        "asv.suite.Sizes.time_function[length=100,function=sum]",
        "asv.suite.Sizes.time_function[length=100,function=max]",
        "asv.suite.time_call[param1=sqrt,param2=a;b]",
        "asv.suite.time_call[param1=sqrt,param2=(c):d]",
        "asv.suite.time_call[param1=exp,param2=a;b]",
        "asv.suite.time_call[param1=exp,param2=(c):d]",
        "asv.suite.time_single[param1=1]",
        "asv.suite.time_single[param1=2]",
    ]
    assert found.notes == (fact("adopted.skipped_by_setup", place="benchmarks", tool="asv", number=1),)


def test_all_cases_of_a_parametrized_suite_are_measured_in_both_arms(suite):
    cases = cases_of(suite.asv(PARAMETRIZED))
    events = suite.measure(*cases.values(), instances=2)
    assert failures(events) == {}
    assert sorted(completed(events)) == sorted(cases)


def test_settings_of_how_to_measure_are_ignored_and_said_so_once(suite):
    found = suite.asv(
        """
        class Slow:
            timeout = 1200.0
            repeat = (1, 5, 10.0)
            warmup_time = 0
            def time_a(self): pass
            def time_b(self): pass
        """
    )
    names = ("repeat", "timeout", "warmup_time")
    assert found.notes == (fact("adopted.ignored_settings", place="benchmarks", tool="asv", names=names),)


def test_setup_and_teardown_are_called_in_the_order_of_asv(suite):
    cases = cases_of(
        suite.asv(
            """
            from pathlib import Path

            log = Path(__file__).with_name("log.txt")

            def note(word):
                with log.open("a") as file:
                    file.write(word + " ")

            def setup(*args): note("module")

            class Logged:
                def setup(self): note("class")
                def time_it(self): pass
                def teardown(self): note("teardown")
            """
        )
    )
    with suite.worker() as (worker, _):
        worker.prepare(cases["asv.suite.Logged.time_it"], seed=1, check=False)
        assert (suite.tree / "benchmarks/log.txt").read_text() == "module class "
    assert (suite.tree / "benchmarks/log.txt").read_text() == "module class teardown "


def test_a_setup_cache_runs_once_in_a_process_and_its_files_are_read_by_relative_paths(suite):
    cases = cases_of(
        suite.asv(
            """
            from pathlib import Path

            log = Path(__file__).with_name("log.txt")

            class Cached:
                def setup_cache(self):
                    with log.open("a") as file:
                        file.write("made ")
                    Path("stored.txt").write_text("12")
                    return {"numbers": [1, 2, 3]}

                def setup(self, cache):
                    self.stored = Path("stored.txt").read_text()

                def time_cached(self, cache):
                    cache["numbers"].append(4)
                    return float(cache["numbers"][2])

                def time_stored(self, cache):
                    return float(Path("stored.txt").read_text())
            """
        )
    )
    with suite.worker() as (worker, _):
        first = worker.prepare(cases["asv.suite.Cached.time_cached"], seed=1, check=True)
        second = worker.prepare(cases["asv.suite.Cached.time_stored"], seed=1, check=True)
    assert (first.checks, second.checks) == ({"result": 3.0}, {"result": 12.0})
    assert (suite.tree / "benchmarks/log.txt").read_text() == "made "
    events = suite.measure(*cases.values())
    assert sorted(completed(events)) == sorted(cases)


def test_a_benchmark_with_a_number_gets_a_fresh_state_before_each_call(suite):
    cases = cases_of(
        suite.asv(
            """
            class Sorting:
                number = 1

                def setup(self):
                    self.values = list(range(100, 0, -1))

                def time_sort(self):
                    if self.values[0] != 100:
                        raise ValueError("sorted already")
                    self.values.sort()
            """
        )
    )
    events = suite.measure(*cases.values(), instances=2)
    assert failures(events) == {}
    assert completed(events) == ["asv.suite.Sorting.time_sort"]


def test_modules_of_nested_packages_import_each_other_relatively(suite):
    suite.write("benchmarks/common.py", "class Base:\n    def setup(self):\n        self.n = 3\n")
    suite.write("benchmarks/deep/__init__.py", "def time_of_package():\n    pass\n")
    found = suite.asv(
        "from ..common import Base\nclass Derived(Base):\n    def time_n(self):\n        return float(self.n)\n",
        name="benchmarks/deep/derived.py",
    )
    cases = cases_of(found)
    assert list(cases) == ["asv.deep.time_of_package", "asv.deep.derived.Derived.time_n"]
    with suite.worker() as (worker, _):
        prepared = worker.prepare(cases["asv.deep.derived.Derived.time_n"], seed=1, check=True)
        worker.prepare(cases["asv.deep.time_of_package"], seed=1, check=True)
    assert prepared.checks == {"result": 3.0}


def test_results_that_are_no_reproducible_numbers_are_neither_compared_nor_held_against_a_case(suite):
    cases = cases_of(
        suite.asv(
            """
            import os
            def time_none(): pass
            def time_text(): return "text"
            def time_nan(): return float("nan")
            def time_random(): return float(int.from_bytes(os.urandom(6), "big"))
            def time_huge(): return 10 ** 400
            def time_number(): return 2.5
            """
        )
    )
    with suite.worker() as (worker, _):
        checks = {name: worker.prepare(case, seed=1, check=True).checks for name, case in cases.items()}
    assert {name: found for name, found in checks.items() if found} == {"asv.suite.time_number": {"result": 2.5}}
    assert failures(suite.measure(*cases.values())) == {}


def test_random_data_of_a_setup_is_seeded_alike_for_all_set_ups(suite):
    cases = cases_of(
        suite.asv(
            """
            import random
            class Random:
                def setup(self):
                    self.value = random.random()
                def time_value(self):
                    return self.value
            """
        )
    )
    (case,) = cases.values()
    with suite.worker() as (worker, _):
        seen = [worker.prepare(case, seed=seed, check=True).checks["result"] for seed in (1, 1, 2)]
    assert seen[0] == seen[1] != seen[2]


def test_what_the_other_arm_does_not_have_is_missing_there(suite):
    cases = cases_of(suite.asv(PARAMETRIZED))
    suite.write("benchmarks/suite.py", "def time_single(n): pass\ntime_single.params = [2, 3]\n")
    gone = {"asv.suite.time_single[param1=1]", "asv.suite.time_call[param1=sqrt,param2=a;b]"}
    with suite.worker() as (worker, _):
        worker.prepare(cases["asv.suite.time_single[param1=2]"], seed=1, check=True)
        for name in gone:
            with pytest.raises(CaseRefused) as refused:
                worker.prepare(cases[name], seed=1, check=True)
            assert refused.value.missing, name


def test_a_suite_that_cannot_be_imported_is_told_with_its_error(suite):
    with pytest.raises(ConfigError, match="No module named 'absent_dependency'"):
        suite.asv("import absent_dependency")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read as asv's configuration"),
        ('{"benchmark_dir": "absent"}', "'absent', which is no directory"),
        ('{"benchmark_dir": ".."}', "must be inside the project"),
        ('{"benchmark_dir": 3}', "names no benchmark_dir that is a text"),
    ],
)
def test_a_configuration_that_leads_nowhere_is_refused(suite, text, said):
    suite.write("asv.conf.json", text)
    with pytest.raises(ConfigError, match=said):
        suite.found(Suites(asv="asv.conf.json"))
