"""Options of benchmarks in patterns, and parameters that an arm sets for all cases."""

from __future__ import annotations

import pytest

from perfguard.benchmarks.catalog import BENCHMARKS, SUITES
from perfguard.benchmarks.options import require_parameters, values_of
from perfguard.benchmarks.selection import in_no_suite, select
from perfguard.errors import NothingSelectedError, UsageError
from perfguard.records.spec import BenchmarkSpec, Case, Catalog, SuiteSpec, expand

CATALOG = Catalog(benchmarks=BENCHMARKS, suites=SUITES)
BERT = "step.bert[layers=2,hidden=256,sequence=128,batch=4,dtype=bf16,mode=eager"
RETINANET = (
    "step.retinanet_resnext50[image_size=96,classes=91,batch=1,dtype=fp32,memory_format=channels_last,mode=eager"
)


def ids(*patterns):
    return [case.id for case in select(CATALOG, patterns)]


def test_an_option_stands_behind_the_parameters_of_the_id():
    (case,) = select(CATALOG, [f"{BERT},optimizer=fused]"])
    assert case.id == f"{BERT},optimizer=fused]"
    assert dict(case.parameters)["optimizer"] == "fused"


def test_the_default_of_an_option_is_the_case_without_it():
    assert ids(f"{BERT},optimizer=for-loop]") == ids(f"{BERT}]") == [f"{BERT}]"]


def test_options_have_one_order_whatever_the_pattern_says():
    assert ids(f"{RETINANET},anchors=all,norm=folded]") == ids(f"{RETINANET},norm=folded,anchors=all]")


def test_a_glob_takes_options_too():
    found = ids("step.bert[*mode=eager,optimizer=fused]")
    assert found == [f"{case[:-1]},optimizer=fused]" for case in ids("step.bert[*mode=eager]")]
    assert len(found) == 6


def test_an_option_may_take_any_number_from_one():
    assert ids(f"{BERT},ranks=12,threads=7]") == [f"{BERT},threads=7,ranks=12]"]
    assert ids(f"{BERT},ranks=1,threads=all]") == [f"{BERT}]"]
    assert require_parameters({"ranks": "3"}, CASES, BENCHMARKS) == tuple(
        case.id for case in select(CATALOG, ["kernel.copy"])
    )


@pytest.mark.parametrize(
    ("pattern", "error", "words"),
    [
        (f"{BERT},ranks=0]", UsageError, "ranks=0 is unknown"),
        (f"{BERT},ranks=N]", UsageError, "ranks=N is unknown"),
        (f"{BERT},threads=1.5]", UsageError, "threads=1.5 is unknown"),
        (f"{BERT},optimizer=fusd]", UsageError, "for-loop, foreach, fused"),
        (f"{BERT},norm=folded]", UsageError, "step.bert has no option 'norm'; choose from optimizer"),
        (f"{BERT},optimiser=fused]", NothingSelectedError, "nearest is 'step.bert"),
        ("kernel.copy[*,optimizer=fused]", UsageError, "kernel.copy has no option 'optimizer'; it has none"),
    ],
)
def test_what_a_benchmark_has_not_is_refused(pattern, error, words):
    with pytest.raises(error, match=words):
        ids(pattern)


@pytest.mark.parametrize("spec", [spec for spec in BENCHMARKS if spec.options], ids=lambda spec: spec.name)
def test_every_option_has_a_default_and_another_value_and_is_no_parameter(spec):
    assert all(len(set(values)) == len(values) > 1 for _, values in spec.options)
    assert not {name for name, _ in spec.options} & {name for name, _ in spec.parameters}


CASES = select(CATALOG, [f"{BERT}]", f"{RETINANET}]", "kernel.copy"])


def test_an_arm_may_set_options_and_parameters_and_leaves_other_cases_alone():
    untouched = require_parameters({"optimizer": "fused"}, CASES, BENCHMARKS)
    assert untouched == tuple(case.id for case in expand(next(s for s in BENCHMARKS if s.name == "kernel.copy")))
    assert require_parameters({"dtype": "bf16"}, CASES, BENCHMARKS) == ()


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"optimiser": "fused"}, "nearest is 'optimizer'"),
        ({"zzz": "1"}, "no selected case has a parameter 'zzz'; choose from"),
        ({"optimizer": "fusd"}, "choose from for-loop, foreach, fused"),
        ({"optimizer": "fused", "memory_format": "nhwc"}, "choose from contiguous, channels_last"),
    ],
)
def test_what_no_case_has_is_refused(chosen, words):
    with pytest.raises(UsageError, match=words):
        require_parameters(chosen, CASES, BENCHMARKS)


def test_what_an_arm_can_set_of_a_case_is_known_for_built_in_ones_alone():
    (case,) = select(CATALOG, [f"{BERT}]"])
    values = values_of(case, BENCHMARKS)
    assert (values["dtype"], "fused" in values["optimizer"]) == (("fp32", "bf16"), True)
    assert values_of(Case(benchmark="mine", target="bench.py:mine"), BENCHMARKS) == {}


def test_a_users_case_may_have_any_value_of_its_own_parameters():
    mine = Case(benchmark="mine", target="bench.py:mine", parameters=(("hidden", 4),))
    assert require_parameters({"hidden": "64"}, [mine], BENCHMARKS) == ()
    with pytest.raises(UsageError, match="no selected case has a parameter 'optimizer'"):
        require_parameters({"optimizer": "fused"}, [mine], BENCHMARKS)


def test_a_benchmark_without_parameters_has_options_all_the_same():
    spec = BenchmarkSpec(name="whole", target="x:y", options=(("mode", ("slow", "fast")),))
    assert select(Catalog(benchmarks=(spec,)), ["whole"])[0].parameters == ()
    assert require_parameters({"mode": "fast"}, expand(spec), [spec]) == ()


def test_what_no_suite_measures_is_what_the_project_declares_and_not_what_other_tools_do():
    targets = {"mine": "bench.py:mine", "more": "bench.py:more", "asv.Old": "asv:benchmarks/old.py:Old"}
    declared = tuple(BenchmarkSpec(name=name, target=target) for name, target in targets.items())
    gone = SuiteSpec(name="gone", doc="", gating=("nowhere",))
    suites = (*SUITES, SuiteSpec(name="own", doc="", gating=("mine",)), gone)
    assert in_no_suite(Catalog(benchmarks=(*BENCHMARKS, *declared), suites=suites)) == ("more",)
