from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfguard.errors import StoreError
from perfguard.profile.trace import file as trace_file
from perfguard.profile.trace.events import NO_SEQUENCE, NO_TENSORS, EventKind, Signature
from perfguard.profile.trace.trace import read_trace
from perfguard.records.facts import fact
from perfguard.records.protocol import STEP_WINDOW
from tests.profile_traces import TraceBuilder, training_step
from tests.proof import trace_diff_speed


def step_of_two_ops():
    trace = TraceBuilder()
    with trace.step():
        trace.leaf("aten::add", 3, shapes=[[4, 5], [5]])
        trace.wait(1)
        trace.leaf("aten::mul", 2, sequence=9)
    return trace


def read_text(tmp_path, text):
    (tmp_path / "trace.json").write_text(text)
    return read_trace(tmp_path / "trace.json")


def names_of(trace):
    return [trace.names[position] for position in trace.name]


@pytest.mark.parametrize("piece", [512, 1 << 20])
def test_more_events_than_a_step_has_are_not_read(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(trace_file, "PIECE_BYTES", piece)
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    path.write_text(json.dumps({"traceEvents": [event] * 100}))
    assert len(read_trace(path, most_events=100).start_ns) == 101  # with a window around them
    with pytest.raises(StoreError, match="more events than a step has"):
        read_trace(path, most_events=50)


def test_events_become_columns_in_nanoseconds(tmp_path):
    trace = read_trace(step_of_two_ops().write(tmp_path / "trace.json"))
    assert names_of(trace) == [STEP_WINDOW, "aten::add", "aten::mul"]
    assert trace.start_ns.tolist() == [1_000_000, 1_000_000, 1_004_000]
    assert trace.duration_ns.tolist() == [6_000, 3_000, 2_000]
    assert trace.kind.tolist() == [EventKind.ANNOTATION, EventKind.OP, EventKind.OP]
    assert trace.sequence.tolist() == [NO_SEQUENCE, NO_SEQUENCE, 9]
    assert [trace.signatures[position] for position in trace.signature] == [
        NO_TENSORS,
        Signature(shapes="[4,5] [5]", dtypes="f32 f32", layouts="contiguous contiguous"),
        NO_TENSORS,
    ]
    assert trace.base_ns == 1_700_000_000_000
    assert trace.notes == ()


def test_a_compressed_trace_reads_the_same_whatever_it_is_called(tmp_path):
    plain = read_trace(step_of_two_ops().write(tmp_path / "plain.json"))
    step_of_two_ops().write(tmp_path / "packed.json.gz").rename(tmp_path / "packed.json")
    packed = read_trace(tmp_path / "packed.json")
    assert names_of(packed) == names_of(plain)
    assert packed.start_ns.tolist() == plain.start_ns.tolist()


def test_gzip_members_are_read_one_after_the_other(tmp_path):
    text = step_of_two_ops().text().encode()
    (tmp_path / "two.json.gz").write_bytes(gzip.compress(text[:500]) + gzip.compress(text[500:]))
    assert len(read_trace(tmp_path / "two.json.gz")) == 3


def test_a_bare_list_of_events_is_a_trace(tmp_path):
    trace = read_text(tmp_path, json.dumps(step_of_two_ops().events))
    assert names_of(trace) == [STEP_WINDOW, "aten::add", "aten::mul"]
    assert trace.base_ns == 0


def test_the_base_time_may_stand_after_the_events(tmp_path):
    builder = step_of_two_ops()
    text = json.dumps({"traceEvents": builder.events, "baseTimeNanoseconds": 42})
    assert read_text(tmp_path, text).base_ns == 42


def test_events_are_sorted_by_thread_then_start_then_the_longest_first(tmp_path):
    builder = TraceBuilder()
    builder.leaf("late", 1)
    builder.thread, builder.now_us = 2, 500
    builder.leaf("other", 1)
    builder.thread, builder.now_us = 1, 100
    builder.leaf("inner", 2)
    builder.now_us = 100
    builder.leaf("outer", 5)
    builder.now_us = 0
    with builder.step():
        builder.wait(2000)
    assert names_of(read_trace(builder.write(tmp_path / "t.json"))) == [STEP_WINDOW, "outer", "inner", "late", "other"]


def test_what_is_no_work_of_a_cpu_is_passed_over(tmp_path):
    builder = step_of_two_ops()
    builder.head["deviceProperties"] = [{"id": 0, "name": "GPU"}]
    for category in ("kernel", "gpu_memcpy", "cuda_runtime", "Trace", "gpu_user_annotation"):
        with builder.span("something else", category):
            builder.wait(1)
    builder.events.append({"ph": "s", "id": 1, "pid": 7, "tid": 1, "ts": 1001.0, "cat": "fwdbwd", "name": "fwdbwd"})
    builder.events.append({"ph": "M", "name": "process_name", "pid": "Spans", "tid": 0, "args": {"name": "python"}})
    builder.events.append({"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "s": "g", "ts": 2000})
    trace = read_trace(builder.write(tmp_path / "gpu.json"))
    assert len(trace) == 3
    assert trace.notes == (fact("trace.gpu_run", trace="gpu.json"),)


def test_allocations_of_the_cpu_are_kept_and_what_is_freed_is_not(tmp_path):
    builder = TraceBuilder()
    with builder.step(), builder.op("aten::empty", us=1):
        builder.allocation(256)
        builder.wait(1)
        builder.allocation(-256)
        builder.allocation(64, device=1)
    trace = read_trace(builder.write(tmp_path / "memory.json"))
    allocations = trace.kind == EventKind.ALLOCATION
    assert trace.size_bytes[allocations].tolist() == [256]
    assert trace.duration_ns[allocations].tolist() == [0]


def test_a_trace_without_steps_is_one_step_of_its_busiest_thread(tmp_path):
    builder = TraceBuilder()
    builder.thread = 2
    builder.leaf("aten::copy_", 100)
    builder.thread, builder.now_us = 1, 1010
    for _ in range(3):
        builder.leaf("aten::add", 10)
    trace = read_trace(builder.write(tmp_path / "bare.json"))
    window = names_of(trace).index(STEP_WINDOW)
    assert (trace.start_ns[window], trace.duration_ns[window]) == (1_010_000, 30_000)
    assert names_of(trace)[window + 1 :][:3] == ["aten::add"] * 3
    assert trace.notes == (fact("trace.no_step_marker", trace="bare.json"),)


def test_what_torch_makes_of_a_custom_op_is_the_op(tmp_path):
    trace = TraceBuilder()
    with trace.step(), trace.op("my_lib::gate"), trace.op("GeneratedBackwardFor_my_lib_gate_default"):
        trace.leaf("aten::sigmoid", 2)
    with trace.step(), trace.op("GeneratedBackwardFor_my_lib_gate_defaultBackward"):
        trace.leaf("aten::mul", 2)
    with trace.step(), trace.op("GeneratedBackwardFor_another_default"):
        trace.leaf("aten::exp", 2)
    found = names_of(read_trace(trace.write(tmp_path / "trace.json")))
    assert [name for name in found if name != STEP_WINDOW] == [
        "my_lib::gate",
        "aten::sigmoid",
        "GeneratedBackwardFor_my_lib_gate_defaultBackward",
        "aten::mul",
        "GeneratedBackwardFor_another_default",
        "aten::exp",
    ]


def test_windows_of_a_profiler_with_a_schedule_are_steps(tmp_path):
    builder = TraceBuilder()
    with builder.span("ProfilerStep#5"):
        builder.leaf("aten::add", 1)
    trace = read_trace(builder.write(tmp_path / "t.json"))
    assert names_of(trace) == ["ProfilerStep#5", "aten::add"]
    assert trace.notes == ()


def test_a_piece_may_end_anywhere(tmp_path, monkeypatch):
    builder = TraceBuilder()
    for number in range(3):
        training_step(builder, first_sequence=10 * number)
    builder.events[1]["args"]["Call stack"] = 'a "},{" in a name'
    builder.events[2]["args"]["nested"] = [{"a": 1}, {"b": 2}]
    path = builder.write(tmp_path / "t.json")
    whole = read_trace(path)
    for size in (7, 64, 100, 333, 1000):
        monkeypatch.setattr(trace_file, "PIECE_BYTES", size)
        again = read_trace(path)
        assert names_of(again) == names_of(whole)
        assert again.start_ns.tolist() == whole.start_ns.tolist()


LONG = TraceBuilder()
for _number in range(4):
    training_step(LONG, first_sequence=10 * _number)
TEXT = LONG.text().encode()
FIRST_OP_ENDS = TEXT.index(b"}}", TEXT.index(b"aten::randn")) + 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(FIRST_OP_ENDS, len(TEXT)), piece=st.sampled_from([50, 1000, 1 << 20]))
def test_a_truncated_trace_keeps_what_is_whole(tmp_path, monkeypatch, cut, piece):
    monkeypatch.setattr(trace_file, "PIECE_BYTES", piece)
    (tmp_path / "cut.json").write_bytes(TEXT[:cut])
    trace = read_trace(tmp_path / "cut.json")
    ends = [match.end() for match in re.finditer(rb'"Ev Idx": \d+.*?\}\}(?=,\n|\n)', TEXT)]
    whole = [end for end in ends if end <= cut]
    assert len(trace) == len(whole)
    if cut >= TEXT.index(b"]", ends[-1]) + 1:
        assert trace.notes == ()
    else:
        dropped = len(TEXT[whole[-1] : cut].lstrip(b",\n "))
        assert trace.notes == (fact("trace.cut_off", trace="cut.json", dropped=dropped),)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9])
def test_a_truncated_compressed_trace_keeps_what_is_whole(tmp_path, share):
    packed = gzip.compress(TEXT)
    (tmp_path / "cut.json.gz").write_bytes(packed[: int(share * len(packed))])
    trace = read_trace(tmp_path / "cut.json.gz")
    assert 0 < len(trace) < len(LONG.events)
    assert trace.notes[0].code == "trace.cut_off"


def test_damage_in_the_middle_of_compressed_events_is_told_as_that(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_file, "PIECE_BYTES", 1 << 8)
    builder = TraceBuilder()
    for number in range(300):
        training_step(builder, first_sequence=10 * number)
    packed = bytearray(gzip.compress(builder.text().encode()))
    packed[len(packed) // 2 :] = b"\xff" * (len(packed) - len(packed) // 2)
    (tmp_path / "damaged.json.gz").write_bytes(packed)
    trace = read_trace(tmp_path / "damaged.json.gz")
    assert 0 < len(trace) < len(builder.events)
    assert trace.notes == (fact("trace.damaged", trace="damaged.json.gz"),)


def test_events_without_a_duration_are_told_and_take_no_time(tmp_path):
    builder = TraceBuilder()
    with builder.step():
        builder.leaf("aten::add", 1)
        builder.leaf("aten::mul", 1)
    del builder.events[1]["dur"]
    builder.events[2]["dur"] = -5.0
    trace = read_trace(builder.write(tmp_path / "t.json"))
    assert trace.notes == (fact("trace.events_without_duration", trace="t.json", events=2),)
    assert trace.duration_ns.tolist() == [2000, 0, 0]


def test_events_without_a_start_are_left_out_and_told(tmp_path):
    builder = step_of_two_ops()
    del builder.events[1]["ts"]
    trace = read_trace(builder.write(tmp_path / "t.json"))
    assert trace.notes == (fact("trace.events_without_start", trace="t.json", events=1),)
    assert [trace.names[position] for position in trace.name] == ["perfguard::step", "aten::mul"]
    del builder.events[2]["ts"]
    with pytest.raises(StoreError, match=r"no op that ran on a CPU with a start \(ts; 2 events without\)"):
        read_trace(builder.write(tmp_path / "t.json"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not a Chrome trace"),
        ("no JSON", "is not a Chrome trace"),
        ('{"a": 1}', "is not a Chrome trace"),
        ("\0" * 100, "is not a Chrome trace"),
        ('{"traceEvents": []}', "holds no op that ran on a CPU"),
        ("[]", "holds no op that ran on a CPU"),
        ('{"traceEvents": [1]}', "is not a readable trace: Expected `object`, got `int`"),
        ('{"traceEvents": [{"ph": "X", "ts": "1"}]}', "is not a readable trace: Expected `float`, got `str`"),
        ('{"traceEvents": [{"name": "a" "b"}, {"name": "c", "args": {"a": [1, 2, 3, 4]}}]}', "is not a readable trace"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1e300}]}', "are no microseconds of a clock"),
    ],
)
def test_rubbish_is_refused_with_a_sentence_that_names_the_file(tmp_path, text, sentence):
    with pytest.raises(StoreError, match=re.escape(str(tmp_path / "trace.json"))) as caught:
        read_text(tmp_path, text)
    assert sentence in str(caught.value)
    assert "; " in str(caught.value)


def test_rubbish_in_the_middle_is_not_taken_for_a_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_file, "PIECE_BYTES", 400)
    text = LONG.text()
    middle = text.index('"ph"', len(text) // 2)
    with pytest.raises(StoreError, match="is not a readable trace"):
        read_text(tmp_path, text[:middle] + "}" + text[middle:])


def test_a_file_without_whole_events_is_given_up_early(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_file, "PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(trace_file, "LONGEST_BYTES", 1 << 12)
    with pytest.raises(StoreError, match="no whole event in 4096 bytes"):
        read_text(tmp_path, '{"traceEvents": [' + "[" * 100_000)
    with pytest.raises(StoreError, match="is not a Chrome trace"):
        read_text(tmp_path, "x" * 100_000)


def test_a_file_that_is_missing_or_no_file_is_refused(tmp_path):
    with pytest.raises(StoreError, match=r"absent\.json cannot be read: No such file"):
        read_trace(tmp_path / "absent.json")
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)


def test_damaged_compression_is_refused_where_nothing_can_be_unpacked(tmp_path):
    (tmp_path / "bad.json.gz").write_bytes(b"\x1f\x8b" + b"\xff" * 100)
    with pytest.raises(
        StoreError, match=r"bad\.json\.gz is a damaged gzip file: no event in it can be read; export it again"
    ):
        read_trace(tmp_path / "bad.json.gz")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ph", "cat", "name", "ts", "dur", "tid", "args", "Bytes", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(JSON, max_size=4))
def test_any_json_is_read_or_refused(tmp_path, events):
    builder = step_of_two_ops()
    builder.events += events
    try:
        trace = read_trace(builder.write(tmp_path / "trace.json"))
    except StoreError:
        return
    assert len(trace) >= 3


def test_the_traces_of_the_proof_of_speed_are_whole(tmp_path):
    trace_diff_speed.write(tmp_path / "t.json", 3000, 1)
    trace = read_trace(tmp_path / "t.json")
    assert trace.notes == ()
    assert len(trace) == 2999
    assert 1 < names_of(trace).count(STEP_WINDOW) <= trace_diff_speed.STEPS


def test_times_since_the_epoch_do_not_lose_whole_microseconds(tmp_path):
    builder = TraceBuilder(start_us=1_700_000_000_000_000.0)
    with builder.step():
        builder.leaf("aten::add", 5)
    trace = read_trace(builder.write(tmp_path / "old.json"))
    assert np.diff(trace.start_ns).tolist() == [0]
    assert trace.start_ns[0] == 1_700_000_000_000_000_000
    assert trace.duration_ns.tolist() == [5000, 5000]


def test_a_window_around_everything_holds_the_modules_too(tmp_path):
    events = [
        {"ph": "X", "cat": "python_function", "name": "nn.Module: Linear_0", "ts": 10, "dur": 20, "tid": 1, "pid": 1},
        {"ph": "X", "cat": "python_function", "name": "train.py(1): <module>", "ts": 1, "dur": 99, "tid": 1, "pid": 1},
        {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "ts": 15, "dur": 5, "tid": 1, "pid": 1},
        {"ph": "X", "cat": "cpu_op", "name": "aten::sum", "ts": 40, "dur": 10, "tid": 1, "pid": 1},
    ]
    trace = read_text(tmp_path, json.dumps({"traceEvents": events}))
    assert names_of(trace) == [STEP_WINDOW, "nn.Module: Linear_0", "aten::addmm", "aten::sum"]
    assert (trace.start_ns[0], trace.duration_ns[0]) == (10_000, 40_000)


def test_an_event_that_is_nested_without_end_is_refused(tmp_path):
    nested = '{"traceEvents": [{"ph": "X", "other": ' + "[" * 100_000 + "]" * 100_000 + "}]}"
    with pytest.raises(StoreError, match=r"trace\.json is not a readable trace: .*nested"):
        read_text(tmp_path, nested)


def test_a_cut_event_of_nothing_but_ends_is_given_up(tmp_path):
    with pytest.raises(StoreError, match="its last event holds more than 200 objects"):
        read_text(tmp_path, '{"traceEvents": [{"ph": "X", "name": "' + "}" * 5_000)
