"""What the rules about implementations, instruction sets and dtypes say."""

from __future__ import annotations

import pytest

from perfguard.profile.advice.trials import Program
from perfguard.records.facts import Severity
from perfguard.records.plan import ArmSpec
from tests.finding_evidence import CASE, all_of, conv, machine, nothing, only, op, primitive, seen_codes, software, told

BF16 = {"memory": "src:bf16::blocked:acdb::f0 wei:bf16:a:blocked:any::f0 dst:bf16::blocked:acdb::f0"}
F16 = {"memory": BF16["memory"].replace("bf16", "f16")}
KERNEL = "[2,64,56,56] [64,64,3,3]"


def linear(ms=20, dtypes="bf16"):
    return op("addmm", ms, shapes="[768] [128,768] [768,768]", dtypes=dtypes)


def test_the_reference_is_grave_and_told_with_its_longest_problem():
    finding = only(
        "reference_kernel",
        primitive("matmul", "ref:any", 30, calls=12, direction="", memory="src:f16 dst:f16", problem="64x64:64x64"),
        primitive("matmul", "ref:any", 2, direction="", problem="2x2:2x2"),
        primitive("convolution", "brg_conv_fwd:avx512_core", 10),
    )
    assert finding.severity is Severity.GRAVE
    assert told(finding, "primitive", "is_reference") == ("matmul", True)
    assert told(finding, "calls", "implementations", "time_s") == (13, ("ref:any",), 0.032)
    assert told(finding, "longest") == "64x64:64x64 src:f16 dst:f16"
    assert finding.share == pytest.approx(0.32)


@pytest.mark.parametrize(
    ("name", "implementation", "severity"),
    [
        ("convolution", "gemm:jit", Severity.NOTABLE),
        ("deconvolution", "ref:any", Severity.GRAVE),
        ("inner_product", "ref:any", Severity.GRAVE),
    ],
)
def test_a_product_in_place_of_a_convolution_is_less_grave(name, implementation, severity):
    assert only("reference_kernel", primitive(name, implementation, 5)).severity is severity


@pytest.mark.parametrize(
    ("name", "implementation"),
    [("matmul", "gemm:jit:f32"), ("rnn", "ref:any"), ("rnn", "ref+matmul"), ("reorder", "simple:any")],
)
def test_what_is_no_fallback_for_its_primitive_is_left_alone(name, implementation):
    assert nothing("reference_kernel", primitive(name, implementation, 50))


def test_a_reference_that_takes_next_to_nothing_is_not_told():
    assert nothing("reference_kernel", primitive("convolution", "ref:any", 0.5))


@pytest.mark.parametrize("name", ["_slow_conv2d_forward", "slow_conv_dilated2d", "thnn_conv2d"])
def test_convolutions_outside_of_onednn_are_grave(name):
    finding = only("reference_kernel", op(name, 5, calls=3, shapes=KERNEL, dtypes="bf16"))
    assert finding.severity is Severity.GRAVE
    assert finding.code == "advice.slow_convolution"
    assert told(finding, "calls", "ops", "time_s") == (3, (name,), 0.005)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("_slow_conv2d_forward", "[2,64,56,56] [64,64,1,1]"),
        ("_slow_conv2d_backward", "[2,64,56,56] [2,64,56,56] [64,64,1,1]"),
        ("_slow_conv2d_forward", "[1,64,16,16] [64,64,3,3]"),
        ("_slow_conv2d_backward", "[1,256,16,16] [1,64,16,16] [256,64,3,3]"),
    ],
)
def test_where_torch_takes_its_own_convolution_in_f32_it_may(name, shapes):
    assert nothing("reference_kernel", op(name, 20, shapes=shapes))
    assert not nothing("reference_kernel", op(name, 20, shapes=shapes, dtypes="bf16"))


def test_one_large_image_is_for_onednn():
    assert not nothing("reference_kernel", op("thnn_conv2d", 20, shapes="[1,64,56,56] [64,64,3,3]"))


def test_each_primitive_has_a_finding_of_its_own():
    found = all_of(
        "reference_kernel", primitive("convolution", "ref:any", 5), primitive("matmul", "ref:any", 5, direction="")
    )
    assert [told(finding, "primitive") for finding in found] == ["convolution", "matmul"]


def test_bf16_without_instructions_for_it_is_grave():
    finding = only("emulated_dtype", linear(), fingerprint=machine(bf16=False, amx_bf16=False), isa_class="avx512_core")
    assert finding.severity is Severity.GRAVE
    assert seen_codes(finding) == ["no_instructions"]
    assert told(finding, "dtype", "widest", "caps") == ("bf16", "avx512_core", ())


@pytest.mark.parametrize(
    "isa",
    [
        {"bf16": True, "amx_bf16": False},
        {"bf16": False, "amx_bf16": True},
        {"bf16": None, "amx_bf16": None},
        {"bf16": False, "amx_bf16": None},
    ],
)
def test_native_or_unknown_bf16_is_left_alone(isa):
    assert nothing("emulated_dtype", linear(), fingerprint=machine(**isa))


@pytest.mark.parametrize(
    ("layout", "implementation", "emulated"),
    [
        (BF16, "brg_conv_fwd:avx512_core_bf16", False),
        (BF16, "brg_conv_fwd:avx10_1_512_amx", False),
        (BF16, "brg_conv_fwd:avx2_vnni_2", False),
        (BF16, "brg_conv_fwd:avx512_core", True),
        (BF16, "jit:avx2", True),
        (F16, "brg_conv_fwd:avx512_core_bf16", True),
        (F16, "brg_conv_fwd:avx10_1_512", False),
        (BF16, "brgconv:sve_256", False),
        ({}, "jit:avx2", False),
    ],
)
def test_instructions_that_do_not_know_a_dtype_emulate_it(layout, implementation, emulated):
    dtype = "f16" if layout is F16 else "bf16"
    image = op("mkldnn_convolution", 20, shapes=KERNEL, dtypes=dtype)
    primitives = primitive("convolution", implementation, 18, **layout)
    found = all_of("emulated_dtype", image, primitives, fingerprint=machine(bf16=True, fp16=True))
    assert bool(found) is emulated


def test_a_cap_that_causes_it_is_to_be_unset():
    finding = only(
        "emulated_dtype",
        linear(),
        primitive("matmul", "brg_matmul:avx2", 18, calls=24, **BF16),
        fingerprint=machine(bf16=True),
        software=software(ONEDNN_MAX_CPU_ISA="AVX2"),
        target=Program(
            case_id=CASE, arm=ArmSpec(text="", directory=".", environment=(("ONEDNN_MAX_CPU_ISA", "AVX2"),))
        ),
    )
    assert told(finding, "calls", "implementations") == (24, ("brg_matmul:avx2",))
    assert told(finding, "caps") == ("ONEDNN_MAX_CPU_ISA",)
    assert "--candidate dir:.+env:ONEDNN_MAX_CPU_ISA= " in finding.command


def test_element_wise_bf16_is_converted_on_every_machine():
    isa = machine(bf16=False, amx_bf16=False)
    assert nothing("emulated_dtype", op("mul", 20, shapes="[64]", dtypes="bf16"), fingerprint=isa)


def test_every_cap_is_told_with_its_value():
    finding = only(
        "capped_isa",
        software=software(ONEDNN_MAX_CPU_ISA="AVX2", ATEN_CPU_CAPABILITY="default", MKL_CBWR="COMPATIBLE"),
        isa_class="avx512_core_amx",
    )
    variables = ("ONEDNN_MAX_CPU_ISA=AVX2", "ATEN_CPU_CAPABILITY=default", "MKL_CBWR=COMPATIBLE")
    assert told(finding, "variables", "widest") == (variables, "avx512_core_amx")
    assert "env:ATEN_CPU_CAPABILITY=,MKL_CBWR=,ONEDNN_MAX_CPU_ISA=" in finding.command


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ONEDNN_MAX_CPU_ISA", "default"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_AMX"),
        ("ATEN_CPU_CAPABILITY", "avx512"),
        ("MKL_CBWR", "AUTO"),
        ("OMP_NUM_THREADS", "1"),
    ],
)
def test_a_variable_that_caps_nothing_is_left_alone(name, value):
    assert nothing("capped_isa", software=software(**{name: value}), isa_class="avx512_core_amx")


def test_doubles_that_are_only_a_part_of_the_step_are_told():
    finding = only("double_precision", op("mul", 6, calls=4, shapes="[512,512]", dtypes="f64", source="data.py:7"))
    assert told(finding, "calls", "ops", "time_s") == (4, ("mul",), 0.006)
    assert finding.subject.place == "data.py:7"


def test_a_model_in_double_precision_is_meant_to_be():
    products = op("addmm", 60, calls=3, shapes="[512] [512,512] [512,512]", dtypes="f64")
    assert nothing("double_precision", products, op("mul", 6, shapes="[512,512]", dtypes="f64"))


def test_a_slip_that_takes_most_of_the_step_is_the_worst_one():
    finding = only("double_precision", op("mul", 600, calls=40, shapes="[512,512]", dtypes="f64"))
    assert finding.severity is Severity.NOTABLE
    assert told(finding, "calls") == 40


def test_integers_and_numbers_are_no_doubles():
    assert nothing(
        "double_precision", op("index", 30, shapes="[8]", dtypes="i64"), op("add", 5, shapes="[8] []", dtypes="f32 f64")
    )


def test_convolutions_of_onednn_are_no_slow_ones():
    assert nothing("reference_kernel", conv(50), op("mkldnn_convolution", 40, shapes=KERNEL))
