from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.libraries.benchdnn import (
    OUTPUT_TEMPLATE,
    UnsupportedPrimitiveError,
    benchdnn_options,
    memory_descriptors,
    parse_benchdnn,
    primitive_problems,
    projected_primitive,
)
from perfguard.profile.libraries.verbose import parse_verbose
from perfguard.records.facts import fact

CONVOLUTION = (
    "onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_training,"
    "src:f32::blocked:acdb::f0 wei:f32:ap:blocked:Acdb16a::f0 bia:f32:a:blocked:a::f0 dst:f32::blocked:acdb::f0,"
    "attr-scratchpad:user,alg:convolution_direct,mb2_ic3oc8_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1,0.5"
)
MATMUL = (
    "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_bf16,undef,"
    "src:bf16::blocked:ab::f0 wei:bf16::blocked:ba:1x64:f0 bia:f32::blocked:ab::f0_mask2 dst:bf16::blocked:ab::f0,"
    "attr-scratchpad:user attr-post-ops:eltwise_relu,,256x64:64x32,0.25"
)


def problems_in(*lines):
    return primitive_problems(parse_verbose(lines).calls)


def options_of(line):
    (problem,) = problems_in(line)
    return benchdnn_options(problem, budget_s=0.2)


def test_a_convolution_as_torch_calls_it():
    assert options_of(CONVOLUTION) == [
        "--conv",
        "--mode=P",
        "--max-ms-per-prb=200",
        f"--perf-template={OUTPUT_TEMPLATE}",
        "--allow-enum-tags-only=0",
        "--engine=cpu",
        "--dir=FWD_B",
        "--dt=f32:f32:f32",
        "--stag=acdb",
        "--wtag=any",
        "--dtag=acdb",
        "--alg=direct",
        "--attr-scratchpad=user",
        "mb2_ic3oc8_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1",
    ]


@pytest.mark.parametrize(
    ("prop_kind", "bias", "direction"),
    [
        ("forward_training", "undef", "FWD_D"),
        ("forward_inference", "undef", "FWD_I"),
        ("forward_inference", "f32", "FWD_B"),
        ("backward_data", "undef", "BWD_D"),
        ("backward_weights", "undef", "BWD_W"),
        ("backward_weights", "f32", "BWD_WB"),
    ],
)
def test_directions_tell_whether_there_is_a_bias(prop_kind, bias, direction):
    line = CONVOLUTION.replace("forward_training", prop_kind).replace("bia:f32", f"bia:{bias}")
    assert f"--dir={direction}" in options_of(line)


def test_a_product_has_strides_where_its_tags_do_not_tell_and_says_what_its_bias_is():
    options = options_of(MATMUL)
    assert options[6:] == [
        "--dt=bf16:bf16:bf16",
        "--bia_dt=f32",
        "--bia_mask=2",
        "--stag=ab",
        "--dtag=ab",
        "--strides=:1x64:",
        "--attr-scratchpad=user",
        "--attr-post-ops=eltwise_relu",
        "256x64:64x32",
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            "reorder,jit:uni,undef,src:f32:p:blocked:aBcd16b::f0 dst:bf16::blocked:abcd::f0,,,2x8x8x8",
            ["--reorder", "--sdt=f32", "--ddt=bf16", "--stag=aBcd16b", "--dtag=abcd", "2x8x8x8"],
        ),
        (
            "reorder,jit:uni,undef,src:f32::blocked:aB4b:8x1:f0 dst:f32::blocked:ab:8x1:f0,,,2x8",
            ["--reorder", "--sdt=f32", "--ddt=f32", "--stag=aB4b", "--strides=:8x1", "2x8"],
        ),
        (
            (
                "eltwise,jit:avx512_core,forward_training,src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,"
                "alg:eltwise_gelu_erf alpha:0 beta:0,4x8"
            ),
            [
                "--eltwise",
                "--dir=FWD_D",
                "--dt=f32",
                "--tag=ab",
                "--alg=eltwise_gelu_erf",
                "--alpha=0",
                "--beta=0",
                "4x8",
            ],
        ),
        (
            (
                "inner_product,brgemm:avx512_core,backward_data,src:f32::blocked:ab::f0 wei:f32:a:blocked:AB8b32a::f0 "
                "dst:f32::blocked:ab::f0,,,mb32ic64oc10"
            ),
            ["--ip", "--dir=BWD_D", "--dt=f32:f32:f32", "--stag=ab", "--wtag=any", "--dtag=ab", "mb32ic64oc10"],
        ),
        (
            (
                "batch_normalization,bnorm_jit:avx512_core,forward_training,src:f32::blocked:acdb::f0 "
                "dst:f32::blocked:acdb::f0,,flags:CH,mb2ic16ih8iw8"
            ),
            ["--bnorm", "--dir=FWD_D", "--dt=f32", "--tag=acdb", "--flags=CH", "mb2ic16ih8iw8"],
        ),
        (
            (
                "pooling,jit:avx512_core,forward_training,src:f32::blocked:acdb::f0 dst:f32::blocked:acdb::f0 "
                "ws:u8::blocked:acdb::f0,,alg:pooling_max,mb2ic16_ih8oh4kh2sh2dh0ph0_iw8ow4kw2sw2dw0pw0"
            ),
            [
                "--pool",
                "--dir=FWD_D",
                "--dt=f32:f32",
                "--tag=acdb",
                "--alg=pooling_max",
                "mb2ic16_ih8oh4kh2sh2dh0ph0_iw8ow4kw2sw2dw0pw0",
            ],
        ),
        (
            (
                "binary,jit:uni,undef,src:f32::blocked:ab::f0 src:f32::blocked:ba::f0 dst:f32::blocked:ab::f0,,"
                "alg:binary_add,4x8:4x8"
            ),
            ["--binary", "--sdt=f32:f32", "--ddt=f32", "--stag=ab:ba", "--dtag=ab", "--alg=add", "4x8:4x8"],
        ),
        (
            (
                "rnn,ref:any,forward_training,src_layer:bf16::blocked:abc::f0 src_iter:bf16::blocked:abcd::f0 "
                "src_iter_c:undef::undef::: wei_layer:bf16:a:blocked:abcde::f0 bias:f32::blocked:abcd::f0 "
                "dst_layer:bf16::blocked:abc::f0,,alg:vanilla_lstm direction:unidirectional_left2right "
                "activation:undef,l1t5mb4sic16slc32dhc16dic16"
            ),
            [
                "--rnn",
                "--prop=FWD_D",
                "--cfg=bf16f32",
                "--trivial-strides=true",
                "--alg=VANILLA_LSTM",
                "--direction=left2right",
                "l1t5mb4sic16slc32dhc16dic16",
            ],
        ),
    ],
)
def test_other_primitives_have_other_options(fields, expected):
    options = options_of(f"onednn_verbose,v1,primitive,exec,cpu,{fields},0.1")
    assert [options[0], *options[6:]] == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (CONVOLUTION.replace(",convolution,", ",shuffle,"), "it is a shuffle"),
        (CONVOLUTION.replace("attr-scratchpad:user", "attr-scales:src:0:f32"), "attr-scales"),
        (CONVOLUTION.replace("attr-scratchpad:user", "attr-post-ops:dw:k3s1p1"), "attr-post-ops:dw"),
        ("mkldnn_verbose,exec,reorder,jit:uni,undef,in:f32_nchw out:f32_nChw8c,num:1,2x16x7x7,0.48", "in:f32_nchw"),
    ],
)
def test_what_cannot_be_said_to_benchdnn_has_a_reason(line, reason):
    with pytest.raises(UnsupportedPrimitiveError, match=reason):
        options_of(line)


def test_mixed_dtypes_of_a_recurrent_layer_have_no_configuration():
    line = (
        "onednn_verbose,v1,primitive,exec,cpu,rnn,ref:any,forward_training,src_layer:u8::blocked:abc::f0 "
        "dst_layer:f32::blocked:abc::f0,,alg:vanilla_lstm,l1t5mb4,0.1"
    )
    with pytest.raises(UnsupportedPrimitiveError, match="mixes dtypes"):
        options_of(line)


def test_the_time_for_a_problem_stays_within_what_benchdnn_takes():
    (problem,) = problems_in(CONVOLUTION)
    assert "--max-ms-per-prb=10" in benchdnn_options(problem, budget_s=0.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wei:f32:ap:blocked:Acdb16a::f0", ("wei", "f32", "any", "", "f0")),
        ("src:bf16::blocked:ab:64x1:f0", ("src", "bf16", "ab", "64x1", "f0")),
        ("src_layer_f32::blocked:abc:f0", ("src_layer", "f32", "abc", "", "f0")),
        ("wei_s8::blocked:ABcd16b16a::f0", ("wei", "s8", "ABcd16b16a", "", "f0")),
        ("bia:undef::undef:::", ("bia", "undef", "", "", "")),
        ("dst:f8_e5m2::blocked:ab::f0_mask3", ("dst", "f8_e5m2", "ab", "", "f0_mask3")),
    ],
)
def test_memory_descriptors_of_all_generations(text, expected):
    (found,) = memory_descriptors(text)
    assert found == expected


def test_equal_executions_are_one_problem_with_all_their_time():
    created = CONVOLUTION.replace(",exec,", ",create:cache_miss,")
    other = CONVOLUTION.replace("brg_conv_fwd:avx512_core", "jit:avx512_core")
    first, second = problems_in(MATMUL, CONVOLUTION, created, other)
    assert (first.call.primitive, first.calls, first.observed_s) == ("convolution", 2, pytest.approx(1e-3))
    assert first.implementations == ("brg_conv_fwd:avx512_core", "jit:avx512_core")
    assert (second.call.primitive, second.calls) == ("matmul", 1)


def test_calls_are_those_of_one_step():
    (problem,) = primitive_problems(parse_verbose([CONVOLUTION] * 6).calls, steps=3)
    assert (problem.calls, problem.observed_s) == (2, pytest.approx(1e-3))


def test_a_primitive_alone_tells_where_another_implementation_was_chosen():
    (problem,) = problems_in(CONVOLUTION)
    same = projected_primitive(problem, call_s=1e-4, reason=None, implementation="brg_conv_fwd:avx512_core")
    other = projected_primitive(problem, call_s=1e-4, reason=None, implementation="ref:any")
    assert (same.name, same.detail, same.assumed) == ("convolution FWD_D", problem.call.problem, ())
    assert other.assumed == ("implementation_in_step=brg_conv_fwd:avx512_core",)
    assert (
        projected_primitive(problem, call_s=None, reason=fact("replay.no_time")).implementation
        == "brg_conv_fwd:avx512_core"
    )


PRINTED = f"""Output template: {OUTPUT_TEMPLATE}
perf,cpu,brg_conv_fwd:avx512_core,0.576451
tests:1 passed:1 skipped:0 mistrusted:0 unimplemented:0 invalid_arguments:0 failed:0 listed:0
total perf: min(ms):0.521729 avg(ms):0.576451
"""


def test_the_mean_time_is_read_by_the_template():
    found = parse_benchdnn(PRINTED)
    assert (found.call_s, found.implementation, found.reason) == (
        pytest.approx(0.576451e-3),
        "brg_conv_fwd:avx512_core",
        None,
    )


def test_benchdnns_own_template_is_read_as_well():
    found = parse_benchdnn(
        "Output template: perf,%engine%,%name%,%prb%,%Gops%,%Gfreq%,%-time%,%-Gflops%,%0time%,%0Gflops%\n"
        'perf,cpu,"resnet:ip1",--ip mb112oc1000ic2048n"resnet:ip1",0.458752,0,0.521729,879.293,0.576451,795.822\n'
    )
    assert (found.call_s, found.implementation) == (pytest.approx(0.576451e-3), "")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "0:SKIPPED (CASE_NOT_SUPPORTED) __REPRO: --conv\n",
            fact("replay.status", status="skipped", why="CASE_NOT_SUPPORTED"),
        ),
        ("0:UNIMPLEMENTED __REPRO: --conv\n", fact("replay.status", status="unimplemented", why=None)),
        (
            "0:INVALID_ARGUMENTS (12 ms) __REPRO: --conv\n",
            fact("replay.status", status="invalid arguments", why="12 ms"),
        ),
        ("", fact("replay.no_time")),
        ("Output template: %prb%\n--conv\n", fact("replay.no_time")),
    ],
)
def test_a_problem_without_a_time_has_a_reason(output, reason):
    found = parse_benchdnn(output)
    assert found.call_s is None
    assert found.reason == reason


@given(st.text())
def test_whatever_is_printed_is_read_without_failing(output):
    found = parse_benchdnn(output)
    assert (found.call_s is None) == (found.reason is not None)
