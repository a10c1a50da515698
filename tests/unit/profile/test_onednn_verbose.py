from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.libraries.verbose import parse_verbose
from tests.library_calls import onednn_call

DATA = Path(__file__).parents[2] / "data" / "profile"
REAL_LINES = [line for log in sorted(DATA.glob("*.log")) for line in log.read_text().splitlines(keepends=True)]

TEMPLATE = (
    "operation,engine,primitive,implementation,prop_kind,memory_descriptors,attributes,auxiliary,problem_desc,exec_time"
)
CONVOLUTION = (
    "onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_training,"
    "src:f32::blocked:acdb::f0 wei:f32:ap:blocked:Acdb16a::f0 bia:f32:a:blocked:a::f0 dst:f32::blocked:acdb::f0,"
    "attr-scratchpad:user,alg:convolution_direct,mb2_ic3oc8_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1,0.013916"
)
REORDER = (
    "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32:p:blocked:aBcd16b::f0 "
    "dst:f32::blocked:abcd::f0,attr-scratchpad:user,,2x8x8x8,0.000976562"
)

GENERATIONS = {
    "MKL-DNN before it named implementations": ("", "reorder", "", "undef", "2x16x7x7", 0.484863),
    "MKL-DNN 0.18": ("", "convolution", "jit:avx512_common", "forward_inference", "mb32_g1ic32oc32_ih8oh8kh3", 9.98193),
    "DNNL 0.95": ("cpu", "reorder", "simple:any", "undef", "16", 0.462891),
    "DNNL 1.1": ("cpu", "convolution", "jit:avx512_common", "forward_inference", "mb32_ic32oc32_ih8oh8kh3", 20.7539),
    "oneDNN 2.7": ("cpu", "reorder", "simple:any", "undef", "2", 5.2561),
    "oneDNN 3.3": ("cpu", "matmul", "brg:avx512_core_amx", "undef", "256x11008:11008x4096", 1.21704),
    "oneDNN 3.12": ("cpu", "reorder", "jit:uni", "undef", "2x8x8x8", 0.000976562),
}
"""Engine, primitive, implementation, propagation kind, problem and milliseconds of the lines in `generations.log`."""
OLD_LINES = (DATA / "generations.log").read_text().splitlines()


@pytest.mark.parametrize(
    ("line", "expected"), list(zip(OLD_LINES, GENERATIONS.values(), strict=True)), ids=list(GENERATIONS)
)
def test_every_generation_is_read_without_its_header(line, expected):
    log = parse_verbose([line])
    assert log.malformed == 0
    (call,) = log.calls
    found = (call.engine, call.primitive, call.implementation, call.prop_kind, call.problem, call.time_s)
    assert found == (*expected[:-1], pytest.approx(expected[-1] / 1e3))
    assert call.executed
    assert (call.timestamp_s, call.library) == (None, "onednn")


def test_all_fields_of_a_call():
    (call,) = parse_verbose(["step 1\n", CONVOLUTION + "\n"]).calls
    assert call.operation == "exec"
    assert call.memory.split()[0] == "src:f32::blocked:acdb::f0"
    assert call.attributes == "attr-scratchpad:user"
    assert call.auxiliary == "alg:convolution_direct"
    assert call.direction == "FWD_D"
    assert call.line == 1


@pytest.mark.parametrize(
    "line",
    [
        CONVOLUTION.replace("v1,", "v1,1727000000123.250000,"),
        CONVOLUTION.replace("v1,", "1727000000123.250000,"),
        (
            "dnnl_verbose,1727000000123.250000,exec,cpu,reorder,jit:uni,undef,src_f32::blocked:ab:f0 "
            "dst_u8::blocked:ab:f0,,,2x3,3.3728"
        ),
    ],
)
@pytest.mark.parametrize("header", [[], ["onednn_verbose,v1,primitive,info,template:timestamp," + TEMPLATE]])
def test_a_timestamp_stands_before_the_component_whatever_the_template_says(line, header):
    (call,) = parse_verbose([*header, line]).calls
    assert call.timestamp_s == pytest.approx(1727000000.12325, abs=1e-6)


def test_a_template_of_the_log_says_where_fields_stand():
    swapped = TEMPLATE.replace("engine,primitive", "primitive,engine")
    log = parse_verbose([f"onednn_verbose,v2,primitive,info,template:{swapped}", CONVOLUTION, REORDER])
    assert [call.primitive for call in log.calls] == ["cpu", "cpu"]
    assert [call.engine for call in log.calls] == ["convolution", "reorder"]


def test_a_later_template_replaces_an_earlier_one():
    swapped = TEMPLATE.replace("engine,primitive", "primitive,engine")
    headers = [f"onednn_verbose,v1,primitive,info,template:{names}" for names in (swapped, TEMPLATE)]
    log = parse_verbose([headers[0], CONVOLUTION, headers[1], CONVOLUTION])
    assert [call.primitive for call in log.calls] == ["cpu", "convolution"]


@pytest.mark.parametrize("kind", ["template", "prim_template"])
def test_a_template_of_graphs_is_not_that_of_primitives(kind):
    graph = "operation,engine,partition_id,partition_kind,op_names,data_formats,logical_tensors,backend,exec_time"
    log = parse_verbose(
        [f"onednn_verbose,info,{kind}:{TEMPLATE}", f"onednn_verbose,graph,info,{kind}:{graph}", OLD_LINES[-1]]
    )
    assert (len(log.calls), log.malformed) == (1, 0)


def test_the_header_names_version_isa_and_threads():
    log = parse_verbose(
        [
            "onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80afa71049cd69a3df32adcccb623b12cd7baa22)",
            "onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:12",
            "onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with float16, Intel DL Boost and bfloat16 support",
        ]
    )
    assert (log.version, log.threads) == ("3.12.0", 12)
    assert log.isa == "Intel AVX-512 with float16, Intel DL Boost and bfloat16 support"
    assert (log.calls, log.malformed) == ((), 0)


@pytest.mark.parametrize(
    ("lines", "version", "isa"),
    [
        (
            [
                "dnnl_verbose,info,DNNL v1.1.2 (commit cb2cc7ac17ff4e2ef50805c7048d33256d82be4d)",
                "dnnl_verbose,info,Detected ISA is Intel AVX-512 with Intel DL Boost",
            ],
            "1.1.2",
            "Intel AVX-512 with Intel DL Boost",
        ),
        (
            ["mkldnn_verbose,info,Intel(R) MKL-DNN v0.18.0 (Git Hash 863ff6),Intel(R) Advanced Vector Extensions 2"],
            "0.18.0",
            "Intel(R) Advanced Vector Extensions 2",
        ),
        (["mkldnn_verbose,info,Intel MKL-DNN v0.21.1 (commit 7d2fd5)"], "0.21.1", None),
        (["onednn_verbose,info,oneDNN v2.6.0 (commit N/A)"], "2.6.0", None),
    ],
)
def test_older_headers_name_them_too(lines, version, isa):
    log = parse_verbose(lines)
    assert (log.version, log.isa, log.threads, log.malformed) == (version, isa, None, 0)


def test_creations_are_calls_of_their_own():
    made = [CONVOLUTION.replace(",exec,", f",create:{how},") for how in ("cache_hit", "cache_miss", "nested_cache_hit")]
    nested = CONVOLUTION.replace(",exec,", ",create_nested:cache_miss,")
    log = parse_verbose([*made, nested, CONVOLUTION])
    assert [call.cache_miss for call in log.calls] == [False, True, False, True, False]
    assert [call.executed for call in log.calls] == [False, False, False, False, True]


@pytest.mark.parametrize(
    "line",
    [
        (
            "onednn_verbose,v0,primitive,create:dispatch,matmul,cpu,matmul,brg:avx512_core_amx,undef,src_u8:a:any:any::f0,"
            ",,256x256:256x256,unsupported isa,src/cpu/x64/matmul/brgemm_matmul.cpp:97"
        ),
        "onednn_verbose,create:check,matmul,dimension src:1 is inconsistent with weights:0,src/common/matmul.cpp:69",
        "onednn_verbose,v1,primitive,error,gpu,jit::gemm,Insufficient registers in requested bundle,src/gpu.cpp:1005",
        "onednn_verbose,v1,graph,exec,cpu,100002,sdp,matmul_qk;scale_div,,in0_f16:1:strided,fpm:strict,sdp,dnnl,0.5",
        "onednn_verbose,v1,ukernel,exec,cpu,brgemm,jit:avx512_core,undef,src:bf16,,,4x4:4x4,0.5",
        "onednn_verbose,v1,common,error,filter format is ill-formed and is not applied, error: x",
        "onednn_verbose,v1,info,gpu,engine,0,backend:Level Zero,name:Card,driver_version:1.2.3",
        "MKL_VERBOSE SGEMM(N,N,8,4,16,0x7f,0x7f,8,0x7f,16,0x7f,0x7f,8) 1.23ms CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:1",
        "epoch 1, loss 0.5, 0.013916",
        "",
    ],
)
def test_what_is_no_primitive_is_passed_over(line):
    log = parse_verbose([line])
    assert (log.calls, log.malformed) == ((), 0)


@pytest.mark.parametrize(
    "line",
    [
        CONVOLUTION.rpartition(",")[0],
        CONVOLUTION[: len(CONVOLUTION) // 2],
        CONVOLUTION + ",0.5",
        CONVOLUTION.replace("0.013916", "nan"),
        CONVOLUTION.replace("0.013916", "1e999"),
        CONVOLUTION.replace("0.013916", "0.0139loss"),
        CONVOLUTION.replace("cpu,convolution", "cpu,"),
        CONVOLUTION.replace("exec,cpu", "melt,cpu"),
        "onednn_verbose,",
        "onednn_verbose,v1",
        "onednn_verbose,v1,primitive,info,template:operation,engine,prim",
    ],
)
def test_a_malformed_message_is_counted_and_the_rest_is_read(line):
    log = parse_verbose([REORDER, line, REORDER])
    assert (len(log.calls), log.malformed) == (2, 1)


def test_the_programs_own_output_may_stand_before_a_message():
    log = parse_verbose(["step 5" + REORDER])
    assert (len(log.calls), log.malformed) == (1, 0)


def test_a_message_that_another_one_cuts_is_malformed_even_if_a_number_is_left():
    log = parse_verbose([CONVOLUTION + REORDER])
    assert [call.primitive for call in log.calls] == ["reorder"]
    assert log.malformed == 1


def test_the_last_line_of_a_killed_process_is_not_believed():
    lines = f"{REORDER}\n{REORDER[:-4]}".splitlines(keepends=True)
    log = parse_verbose(lines)
    assert (len(log.calls), log.malformed) == (1, 1)


def test_a_call_counts_although_the_clock_was_set_back_in_it():
    (call,) = parse_verbose([REORDER.replace("0.000976562", "-3.5")]).calls
    assert call.time_s == 0.0


@pytest.mark.parametrize(
    ("prop_kind", "direction"),
    [
        ("forward_training", "FWD_D"),
        ("forward_inference", "FWD_D"),
        ("backward_data", "BWD_D"),
        ("backward_weights", "BWD_W"),
        ("backward", "BWD_DW"),
        ("undef", ""),
        ("sideways", ""),
    ],
)
def test_propagation_kinds_in_the_words_of_benchdnn(prop_kind, direction):
    assert onednn_call("matmul", 0, 1, prop_kind=prop_kind).direction == direction


lines_of_logs = st.one_of(
    st.text(max_size=200),
    st.sampled_from([CONVOLUTION, *REAL_LINES]).flatmap(
        lambda line: st.one_of(
            st.integers(0, len(line)).map(lambda cut: line[:cut]),
            st.integers(0, len(line)).map(lambda cut: line[cut:]),
            st.tuples(st.integers(0, len(line)), st.text(max_size=5)).map(
                lambda change: line[: change[0]] + change[1] + line[change[0] + 1 :]
            ),
            st.just(line),
        )
    ),
    st.lists(st.sampled_from([*",:_\n", "exec", "v1", "info", "template:", "primitive", "0.5", "1e9", ""])).map(
        lambda words: "onednn_verbose," + "".join(words)
    ),
)


@given(st.lists(lines_of_logs, max_size=8))
def test_no_line_whatsoever_raises_and_none_is_read_twice(lines):
    log = parse_verbose(lines)
    markers = sum(line.count("_verbose,") for line in lines)
    assert len(log.calls) + log.malformed <= markers
    assert all(call.time_s >= 0 and call.primitive for call in log.calls)


@given(st.integers(1, len(CONVOLUTION) - 1))
def test_no_part_of_a_message_is_read_as_another_problem(cut):
    for call in parse_verbose([CONVOLUTION[:cut]]).calls:
        assert CONVOLUTION.rpartition(",")[0].endswith(call.problem)
