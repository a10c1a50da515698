from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

import perfguard
from perfguard.benchmarks.catalog import BENCHMARKS, SUITES
from perfguard.benchmarks.selection import select, suite_cases
from perfguard.errors import NothingSelectedError, UsageError
from perfguard.records.spec import BenchmarkSpec, Case, Catalog, Gating, Phase, SuiteSpec, expand

CATALOG = Catalog(benchmarks=BENCHMARKS, suites=SUITES)
ROOT = Path(perfguard.__file__).parent.parent
ORDER = ("dtype", "memory_format", "mode", "phase")

LINEAR_CASE = "kernel.linear[m=512,dtype=bf16,phase=forward]"


@lru_cache
def module_functions(module: str) -> dict[str, ast.FunctionDef]:
    source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text()
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


def factory(spec: BenchmarkSpec) -> ast.FunctionDef:
    module, _, name = spec.target.partition(":")
    return module_functions(module)[name]


@pytest.mark.parametrize("spec", BENCHMARKS, ids=lambda spec: spec.name)
def test_factory_takes_exactly_the_specs_parameters_as_keywords(spec: BenchmarkSpec) -> None:
    arguments = factory(spec).args
    assert [*arguments.posonlyargs, *arguments.args] == []
    assert (arguments.vararg, arguments.kwarg) == (None, None)
    names = [argument.arg for argument in arguments.kwonlyargs]
    required = {n for n, default in zip(names, arguments.kw_defaults, strict=True) if default is None}
    assert required == {name for name, _ in spec.parameters}


@pytest.mark.parametrize("spec", BENCHMARKS, ids=lambda spec: spec.name)
def test_factory_says_what_it_measures(spec: BenchmarkSpec) -> None:
    assert ast.get_docstring(factory(spec))
    assert spec.doc
    assert spec.name.partition(".")[0] in spec.tags


@pytest.mark.parametrize("spec", BENCHMARKS, ids=lambda spec: spec.name)
def test_shape_parameters_come_before_dtype_layout_mode_and_phase(spec: BenchmarkSpec) -> None:
    names = [name for name, _ in spec.parameters]
    common = [name for name in ORDER if name in names]
    assert names[len(names) - len(common) :] == common


def test_names_and_case_ids_are_unique() -> None:
    assert max(Counter(spec.name for spec in BENCHMARKS).values()) == 1
    assert max(Counter(case.id for spec in BENCHMARKS for case in expand(spec)).values()) == 1


def test_everything_is_covered_in_fp32_and_bf16_and_kernels_in_both_phases() -> None:
    for spec in BENCHMARKS:
        if {"hetero", "task"} & set(spec.tags):
            continue
        parameters = dict(spec.parameters)
        assert parameters["dtype"] == ("fp32", "bf16")
        if spec.phase not in {Phase.STEP, Phase.OPTIMIZER}:
            assert parameters["phase"] == ("forward", "forward+backward")


def test_the_issues_list_of_benchmarks_is_complete() -> None:
    assert {spec.name for spec in BENCHMARKS} == {
        *(f"kernel.conv{kind}" for kind in ("1x1", "3x3", "_grouped", "_depthwise")),
        *(f"kernel.{name}" for name in ("linear", "matmul", "bmm", "sdpa", "batch_norm", "layer_norm")),
        *(f"kernel.{name}" for name in ("softmax", "gelu", "embedding_bag", "cross_entropy", "focal_loss")),
        *(f"kernel.{name}" for name in ("lstm", "cat", "copy", "transpose", "optimizer")),
        *(f"step.{name}" for name in ("resnet18", "resnet50", "retinanet_resnext50", "bert", "dlrm")),
        *(f"step.{name}" for name in ("lstm_lm", "mobilenetv3")),
        *(f"hetero.{name}" for name in ("covtype", "w8a")),
        *(f"task.{name}" for name in ("digits", "ssd_mobilenetv2")),
    }


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_each_suite_resolves_without_duplicates(suite: SuiteSpec) -> None:
    cases = suite_cases(CATALOG, suite.name)
    assert len({case.id for case in cases}) == len(cases)


def test_quick_has_six_gating_cases() -> None:
    cases = suite_cases(CATALOG, "quick")
    assert [case.gating for case in cases] == [Gating.GATING] * 6


def test_pr_has_twelve_gating_cases_of_which_six_are_training_steps() -> None:
    cases = suite_cases(CATALOG, "pr")
    assert [case.gating for case in cases] == [Gating.GATING] * 12
    assert sum(case.phase is Phase.STEP for case in cases) == 6


def compiled(case: Case) -> bool:
    return ("mode", "compile") in case.parameters


def test_full_has_all_eager_cases_and_gates_only_on_the_cases_of_pr() -> None:
    cases = suite_cases(CATALOG, "full")
    everything = [case for spec in BENCHMARKS if not {"hetero", "task"} & set(spec.tags) for case in expand(spec)]
    assert {case.id for case in cases if not compiled(case)} == {case.id for case in everything if not compiled(case)}
    gating = [case for case in cases if case.gating is Gating.GATING]
    assert gating == list(suite_cases(CATALOG, "pr"))


def test_torch_compile_is_only_in_full_once_for_each_step_that_has_it() -> None:
    assert not any(map(compiled, [*suite_cases(CATALOG, "quick"), *suite_cases(CATALOG, "pr")]))
    names = [case.benchmark for case in suite_cases(CATALOG, "full") if compiled(case)]
    assert sorted(names) == sorted(spec.name for spec in BENCHMARKS if any(map(compiled, expand(spec))))


def test_exact_id_selects_one_case() -> None:
    assert [case.id for case in select(CATALOG, [LINEAR_CASE])] == [LINEAR_CASE]


def test_bare_name_selects_all_cases_of_that_benchmark_only() -> None:
    assert {case.benchmark for case in select(CATALOG, ["kernel.copy"])} == {"kernel.copy"}
    assert len(select(CATALOG, ["kernel.copy"])) == 8


def test_brackets_in_a_glob_are_literal() -> None:
    cases = select(CATALOG, ["kernel.linear[m=512,*]"])
    assert len(cases) == 4
    assert all(case.id.startswith("kernel.linear[m=512,") for case in cases)


def test_glob_over_a_bare_name_matches_ids_with_parameters() -> None:
    assert {case.benchmark for case in select(CATALOG, ["kernel.conv?x?"])} == {"kernel.conv1x1", "kernel.conv3x3"}


def test_tag_selects_all_steps() -> None:
    assert {case.phase for case in select(CATALOG, ["tag:step"])} == {Phase.STEP}


def test_patterns_keep_their_order_and_select_a_case_once() -> None:
    cases = select(CATALOG, ["kernel.copy", LINEAR_CASE, "kernel.*"])
    assert cases[8].id == LINEAR_CASE
    assert len(cases) == len(select(CATALOG, ["kernel.*"]))


@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [
        ("kernel.liner", "kernel.linear"),
        ("kernel.liner*", "kernel.linear"),
        ("kernel.linear[m=512,dtype=bf16,phase=forwrd]", LINEAR_CASE),
        ("tag:stp", "tag:step"),
    ],
)
def test_unknown_pattern_names_the_nearest_match(pattern: str, nearest: str) -> None:
    with pytest.raises(NothingSelectedError) as caught:
        select(CATALOG, [LINEAR_CASE, pattern])
    assert repr(pattern) in str(caught.value)
    assert repr(nearest) in str(caught.value)


def test_empty_catalog_has_no_nearest_match() -> None:
    with pytest.raises(NothingSelectedError, match=r"^no case matches 'a'; `perfguard list`"):
        select(Catalog(benchmarks=()), ["a"])


def test_unknown_suite_names_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="no suite is named 'quik'; the nearest is 'quick'"):
        suite_cases(CATALOG, "quik")


def test_selection_imports_no_torch() -> None:
    code = (
        "import sys; from perfguard.benchmarks.catalog import BENCHMARKS, SUITES\n"
        "from perfguard.benchmarks.selection import suite_cases\n"
        "import perfguard.benchmarks.api\n"
        "from perfguard.records.spec import Catalog\n"
        "suite_cases(Catalog(benchmarks=BENCHMARKS, suites=SUITES), 'full')\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
