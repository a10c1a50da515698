from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.libraries.verbose import parse_mkl_verbose

DATA = Path(__file__).parents[2] / "data" / "profile"
REAL_LINES = [line for log in sorted(DATA.glob("*.log")) for line in log.read_text().splitlines(keepends=True)]

HEADER = (
    "MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240823 for Intel(R) 64 architecture Intel(R) Advanced Vector "
    "Extensions 512 (Intel(R) AVX-512) enabled processors, Lnx 2.00GHz lp64 gnu_thread"
)
GEMM = (
    "MKL_VERBOSE SGEMM(N,T,10,128,64,0x7f3b0effc148,0x7f3a9d088440,10,0x7f3a10203c40,128,0x7f3b0effc150,"
    "0x7f3a9d0ce040,10) 41.32us CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:50 WDiv:HOST:+0.000"
)
FFT = (
    "MKL_VERBOSE FFT(drfo7:8:8x8:1:1,input_strides:{0,8,1},output_strides:{0,8,1},bScale:0.0178571,tLim:1,"
    "unaligned_input,desc:0x561750094440) 15.56us CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:4"
)


def test_a_product_is_a_call_without_addresses_and_timestamps():
    (call,) = parse_mkl_verbose([HEADER, GEMM]).calls
    assert (call.library, call.primitive, call.operation, call.engine) == ("mkl", "sgemm", "exec", "cpu")
    assert call.problem == "N,T,10,128,64,10,128,10"
    assert call.time_s == pytest.approx(41.32e-6)
    assert call.attributes == "CNR:OFF Dyn:1 FastMM:1 NThr:50 WDiv:HOST:+0.000"
    assert (call.timestamp_s, call.direction, call.implementation, call.line) == (None, "", "", 1)


def test_the_same_problem_at_another_address_is_the_same_problem():
    first, second = parse_mkl_verbose([GEMM, GEMM.replace("0x7f3", "0x5a1").replace("TID:0", "TID:3")]).calls
    assert (first.problem, first.attributes) == (second.problem, second.attributes)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (FFT, "drfo7:8:8x8:1:1,input_strides:{0,8,1},output_strides:{0,8,1},bScale:0.0178571,tLim:1,unaligned_input"),
        (
            "MKL_VERBOSE PDPOTRF(l,1024,(nil),1,1,0x7fff5c591294,0,nb={1024,1024},myid={8,0}) 1.5s CNR:OFF NThr:1",
            "l,1024,1,1,0,nb={1024,1024},myid={8,0}",
        ),
    ],
)
def test_routines_with_lists_among_their_arguments(line, problem):
    (call,) = parse_mkl_verbose([line]).calls
    assert call.problem == problem


@pytest.mark.parametrize(("time", "time_s"), [("1.5s", 1.5), ("2.91ms", 2.91e-3), ("7us", 7e-6), ("312.0ns", 3.12e-7)])
def test_units_of_time(time, time_s):
    (call,) = parse_mkl_verbose([GEMM.replace("41.32us", time)]).calls
    assert call.time_s == pytest.approx(time_s)


@pytest.mark.parametrize(
    ("header", "version"),
    [
        (HEADER, "2024.0 Update 2"),
        ("MKL_VERBOSE oneMKL 2024.0 Update 2 Patch 2 Product build 20240823 for …", "2024.0 Update 2"),
        ("MKL_VERBOSE oneMKL 2025.0 Product build 20241009 for …", "2025.0"),
        ("MKL_VERBOSE Intel(R) MKL 2019.0 Update 3 Product build 20190125 for …", "2019.0 Update 3"),
        ("MKL_VERBOSE Intel(R) oneAPI Math Kernel Library 2021.4 Product build 20210904 for …", "2021.4"),
    ],
)
def test_the_header_names_the_version(header, version):
    log = parse_mkl_verbose([header])
    assert (log.version, log.calls, log.malformed) == (version, (), 0)


@pytest.mark.parametrize(
    "line",
    [
        GEMM[:60],
        GEMM[: GEMM.index("us CNR")],
        GEMM.replace("41.32us", "41.32"),
        GEMM.replace("41.32us", "1e999us"),
        GEMM.replace("41.32us", "--us"),
        "MKL_VERBOSE ",
    ],
)
def test_a_malformed_message_is_counted_and_the_rest_is_read(line):
    log = parse_mkl_verbose([GEMM, line, GEMM])
    assert (len(log.calls), log.malformed) == (2, 1)


def test_other_output_and_onednns_messages_are_passed_over():
    log = parse_mkl_verbose(["loss 0.5", "step 1 " + GEMM, "onednn_verbose,v1,info,oneDNN v3.12.0 (commit x)", "MKL 1"])
    assert (len(log.calls), log.malformed) == (1, 0)


lines_of_logs = st.one_of(
    st.text(max_size=100),
    st.sampled_from([HEADER, GEMM, FFT, *REAL_LINES]).flatmap(
        lambda line: st.one_of(
            st.integers(0, len(line)).map(lambda cut: line[:cut]),
            st.integers(0, len(line)).map(lambda cut: line[cut:]),
            st.tuples(st.integers(0, len(line)), st.text(max_size=5)).map(
                lambda change: line[: change[0]] + change[1] + line[change[0] + 1 :]
            ),
        )
    ),
    st.text(alphabet="(){},:0x19e+-.sumNThr ", max_size=60).map(lambda text: "MKL_VERBOSE S(" + text),
)


@given(st.lists(lines_of_logs, max_size=8))
def test_no_line_whatsoever_raises(lines):
    log = parse_mkl_verbose(lines)
    assert len(log.calls) + log.malformed <= sum(line.count("MKL_VERBOSE ") for line in lines)
    assert all(call.time_s >= 0 and call.primitive for call in log.calls)
