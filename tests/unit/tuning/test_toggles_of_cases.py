"""Which toggles a case has, what is none and why, and the arm and the case id of a setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.benchmarks.options import with_values
from perfguard.benchmarks.selection import select
from perfguard.errors import UsageError
from perfguard.host.allocators import installed_allocators
from perfguard.profile.advice.advise import RULES
from perfguard.profile.advice.toggles import ANSWERS
from perfguard.records.spec import BenchmarkSpec, Case, Catalog, format_parameter
from perfguard.tuning.toggles import chosen_toggles, toggles_of
from tests.simulated_tuning import setting

RETINANET = "step.retinanet_resnext50[image_size=96,classes=91,batch=1,dtype=fp32,memory_format=contiguous,mode=eager]"
LSTM = "step.lstm_lm[layers=2,hidden=128,sequence=32,batch=16,dtype=fp32,mode=eager]"


def case_of(case_id: str) -> Case:
    (case,) = select(Catalog(benchmarks=BENCHMARKS), [case_id])
    return case


def found_of(case_id: str, *, libraries=None, threads=1):
    return toggles_of(case_of(case_id), BENCHMARKS, libraries=libraries or {}, threads=threads)


def codes(found) -> dict[str, str]:
    return {each.name: each.reason.code for each in found.inapplicable}


def test_a_step_has_the_toggles_of_its_catalogue_entry_in_its_order():
    values = {toggle.name: toggle.values for toggle in found_of(RETINANET).toggles}
    assert list(values) == [
        "dtype", "memory_format", "mode", "optimizer", "norm", "focal", "anchors", "loss", "heads",
    ]  # fmt: skip
    assert values["focal"] == ("implicit", "explicit", "fused", "compiled", "ipex_style")
    assert values["memory_format"] == ("channels_last",)


def test_sizes_are_no_toggles():
    assert not {"image_size", "classes", "batch"} & {toggle.name for toggle in found_of(RETINANET).toggles}


def test_ranks_choose_their_threads_themselves():
    assert "threads" in {toggle.name for toggle in found_of(LSTM, threads=4).toggles}
    assert codes(found_of(LSTM.replace("]", ",ranks=2]"), threads=4))["threads"] == "tune.of_ranks"


def test_a_fault_is_never_tried():
    assert codes(found_of(RETINANET))["frozen"] == "tune.only_faults"
    for spec in BENCHMARKS:
        for name, value in spec.faults:
            assert value in dict(spec.options)[name][1:], spec.name


def test_the_values_of_the_case_are_the_reference():
    found = found_of(RETINANET.replace("dtype=fp32", "dtype=bf16").replace("eager]", "eager,optimizer=fused]"))
    toggles = {toggle.name: toggle for toggle in found.toggles}
    assert (toggles["dtype"].reference, toggles["dtype"].values) == ("bf16", ("fp32",))
    assert (toggles["optimizer"].reference, toggles["optimizer"].values) == ("fused", ("for-loop", "foreach"))


def test_what_the_arm_sets_is_the_reference_too():
    found = toggles_of(case_of(LSTM), BENCHMARKS, libraries={}, threads=1, arm_parameters={"optimizer": "foreach"})
    (optimizer,) = (toggle for toggle in found.toggles if toggle.name == "optimizer")
    assert (optimizer.reference, optimizer.values) == ("foreach", ("for-loop", "fused"))


def test_what_a_step_lacks_is_named_with_the_reason():
    found = codes(found_of(LSTM))
    assert (found["mode"], found["memory_format"], found["focal"]) == (
        "tune.one_value",
        "tune.no_parameter",
        "tune.no_parameter",
    )


def test_allocators_and_threads_apply_where_the_machine_has_them():
    assert {name: codes(found_of(LSTM))[name] for name in ("allocator", "threads")} == {
        "allocator": "tune.no_allocator",
        "threads": "tune.one_cpu",
    }
    found = found_of(LSTM, libraries={"jemalloc": Path("/lib/libjemalloc.so.2")}, threads=8)
    toggles = {toggle.name: toggle.values for toggle in found.toggles}
    assert (toggles["allocator"], toggles["threads"]) == (("jemalloc",), ("4", "1"))
    chosen = setting(allocator="jemalloc", threads="4", optimizer="fused")
    assert found.variables(chosen) == {
        "LD_PRELOAD": "/lib/libjemalloc.so.2",
        "OMP_NUM_THREADS": "4",
        "MKL_NUM_THREADS": "4",
    }
    assert found.parameters(chosen) == {"optimizer": "fused"}


def test_allocators_are_found_where_the_system_keeps_them(tmp_path):
    place = tmp_path / "usr/lib/x86_64-linux-gnu"
    place.mkdir(parents=True)
    (place / "libtcmalloc_minimal.so.4").touch()
    own = tmp_path / "own"
    own.mkdir()
    (own / "libjemalloc.so.2").touch()
    found = installed_allocators({"LD_LIBRARY_PATH": f"/nowhere:{own}"}, root=tmp_path)
    assert found == {"jemalloc": own / "libjemalloc.so.2", "tcmalloc": place / "libtcmalloc_minimal.so.4"}


def test_a_restriction_keeps_the_order_and_refuses_unknown_names():
    found = found_of(RETINANET)
    toggles, inapplicable = chosen_toggles(found.toggles, found.inapplicable, ["norm", "dtype", "threads"])
    assert [toggle.name for toggle in toggles] == ["dtype", "norm"]
    assert [each.name for each in inapplicable] == ["threads"]
    with pytest.raises(UsageError, match="'optimizer'"):
        chosen_toggles(found.toggles, found.inapplicable, ["optimiser"])


def test_a_setting_becomes_the_id_of_a_case_that_can_be_selected():
    case = case_of(RETINANET.replace("eager]", "eager,optimizer=foreach]"))
    tuned = with_values(case, {"dtype": "bf16", "optimizer": "for-loop", "norm": "folded"}, BENCHMARKS)
    assert tuned.id == RETINANET.replace("dtype=fp32", "dtype=bf16").replace("eager]", "eager,norm=folded]")
    assert case_of(tuned.id) == tuned
    with pytest.raises(UsageError):
        with_values(case, {"dtype": "fp64"}, BENCHMARKS)


def test_a_benchmark_of_a_user_has_the_toggles_that_it_declares():
    spec = BenchmarkSpec(name="mine", target="b.py:mine", parameters=(("hidden", (1, 2)), ("dtype", ("fp32", "bf16"))))
    case = Case(benchmark="mine", target="b.py:mine", parameters=(("hidden", 1), ("dtype", "fp32")))
    found = toggles_of(case, [*BENCHMARKS, spec], libraries={}, threads=1)
    assert [(toggle.name, toggle.values) for toggle in found.toggles] == [("dtype", ("bf16",))]


def test_findings_name_toggles_and_values_that_exist():
    known = {code for rule in RULES for code in rule.codes}
    values: dict[str, set[str]] = {"allocator": {"jemalloc", "tcmalloc"}, "threads": {"1"}}
    for spec in BENCHMARKS:
        for name, of_spec in (*spec.parameters, *spec.options):
            values.setdefault(name, set()).update(map(format_parameter, of_spec))
    for code, answers in ANSWERS.items():
        assert code.removeprefix("advice.") in known
        for name, value in answers:
            assert value in values[name], code
