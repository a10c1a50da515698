from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.codec import from_builtins, to_builtins, to_json
from perfguard.errors import StoreError
from perfguard.recordings import decode_event, encode_event, schema_of, upgraded
from perfguard.records.events import Noted, SampleTimed
from perfguard.records.facts import Severity, fact, recorded_text
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.plan import DEFAULT_GATE, FOR_BISECTION, FOR_CALIBRATION, EnvProfile
from perfguard.records.record import CaseNoise
from perfguard.records.run import Arm
from perfguard.watch.sources.event_sources import read_selection
from tests.changed_values import replace

finite = st.floats(allow_nan=False, allow_infinity=False)


@dataclass(frozen=True)
class Nested:
    items: tuple[EnvProfile, ...]
    table: dict[str, float]


def test_dataclasses_enums_tuples_and_odd_numbers_become_plain_data():
    value = Nested(items=(EnvProfile.STABLE,), table={"a": math.nan, "b": -math.inf, "c": 1.5})
    assert to_builtins(value) == {"items": ["stable"], "table": {"a": None, "b": None, "c": 1.5}}
    assert to_builtins({Arm.BASELINE: Arm.CANDIDATE}) == {"baseline": "candidate"}


def test_json_is_sorted_and_keeps_letters_outside_ascii():
    assert to_json({"b": "µs ✓", "a": 1}) == '{"a": 1, "b": "µs ✓"}'


@given(st.builds(CaseNoise, rounds=st.integers(0), median_s=finite, between_round_sd_ratio=finite,
                 within_round_sd_ratio=finite, inner_loops=st.integers(0)))  # fmt: skip
def test_what_was_written_reads_back_to_the_last_bit(noise):
    assert from_builtins(json.loads(to_json(noise)), CaseNoise, source="here") == noise


@given(finite, st.integers(0, 2**53), st.text(st.characters(blacklist_categories=["Cs"])), st.sampled_from(list(Arm)))
def test_any_event_is_one_line_and_reads_back(number, whole, text, arm):
    for event in (
        Noted(fact=recorded_text(text)),
        SampleTimed(
            block=whole, case_id=text, arm=arm, index=whole, warmup=False, value_s=number, cpu_s=number,
            minor_faults=whole, involuntary_switches=whole,
        ),
    ):  # fmt: skip
        line = encode_event(event, seq=0, t_wall=0.0, t_mono=0.0)
        assert line.count(b"\n") == 1
        assert decode_event(line, source="here") == event


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "missing required field `rounds`"),
        ([], "Expected `object`, got `array`"),
        (None, "Expected `object`, got `null`"),
        (
            {"rounds": "4", "median_s": 1, "between_round_sd_ratio": 1, "within_round_sd_ratio": 1, "inner_loops": 1},
            r"Expected `int`, got `str` - at `\$.rounds`",
        ),
    ],
)
def test_a_misfit_is_named_with_its_source(data, said):
    with pytest.raises(StoreError, match=rf"here is not valid: .*{said}"):
        from_builtins(data, CaseNoise, source="here")


@pytest.mark.parametrize("name", ["result", "events", "fingerprint"])
def test_every_schema_is_a_valid_schema(name):
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "version 2" in schema["title"] or name == "fingerprint"


def test_the_schema_of_events_accepts_events_and_refuses_others():
    schema = schema_of("events")
    line = json.loads(encode_event(Noted(fact=fact("x")), seq=0, t_wall=0.0, t_mono=0.0))
    jsonschema.validate(line, schema)
    for wrong in ({**line, "event": "slice"}, {**line, "fact": 3}, {"event": "note"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


@pytest.mark.parametrize(("level", "severity"), [("info", Severity.INFO), ("warning", Severity.NOTABLE)])
def test_a_note_of_schema_1_is_read_as_a_fact_of_its_text(level, severity):
    line = json.dumps({"event": "note", "seq": 0, "t_wall": 0, "t_mono": 0, "level": level, "text": "no canary"})
    noted = decode_event(line.encode(), source="old")
    assert noted == Noted(fact=replace(recorded_text("no canary"), severity=severity))


@pytest.mark.parametrize(
    ("command", "gate", "is_injected"),
    [
        (["perfguard", "gate"], DEFAULT_GATE, False),
        (["perfguard", "calibrate", "--gates", "3"], FOR_CALIBRATION, False),
        (["perfguard", "bisect"], FOR_BISECTION, False),
        (["perfguard", "gate", "--inject=*=+5%"], DEFAULT_GATE, True),
        ([], DEFAULT_GATE, False),
    ],
)
def test_what_gates_did_follows_from_the_command_in_schema_1_alone(command, gate, is_injected):
    fields = {"run_id": "r", "schema": 1, "mode": "paired", "suite": "s", "case_ids": [], "budget_s": 1.0}
    line = {"event": "run_started", "seq": 0, "t_wall": 0, "t_mono": 0, "command": command, **fields}
    started = decode_event(json.dumps(line).encode(), source="old")
    assert (started.gate, started.is_injected) == (gate, is_injected)
    now = decode_event(encode_event(replace(started, gate=FOR_BISECTION), seq=0, t_wall=0.0, t_mono=0.0), source="new")
    assert now.gate == FOR_BISECTION


def test_there_is_no_other_schema():
    with pytest.raises(KeyError):
        schema_of("other")


def test_half_a_surrogate_pair_where_a_number_belongs_is_a_misfit():
    with pytest.raises(StoreError, match="events:7 is not valid"):
        decode_event(
            b'{"event":"control","seq":0,"t_wall":0,"t_mono":0,"block":"\\ud800","value_s":1.0}', source="events:7"
        )


class TestRecordingsOlderThanCodes:
    def test_a_failure_keeps_its_sentence(self):
        line = json.dumps(
            {"event": "case_failed", "case_id": "a", "arm": "candidate", "missing": False, "reason": "no", "detail": ""}
        )
        event = decode_event(line.encode(), source="events.jsonl")
        assert (event.reason, event.quoted) == (fact("case.raised", error="no"), "no")

    def test_a_fingerprint_keeps_its_notes_and_the_trouble_of_its_interpreter(self):
        path = Path(__file__).parents[1] / "data" / "runs" / "paired" / "fingerprint.json"
        old = {**json.loads(path.read_text()), "notes": ["No cpufreq."], "software": {"problem": "no torch"}}
        found = from_builtins(upgraded(old, Fingerprint), Fingerprint, source="fingerprint.json")
        assert (found.notes, found.software.problem) == ((recorded_text("No cpufreq."),), recorded_text("no torch"))

    def test_the_choice_of_cpus_keeps_its_reason(self):
        old = {"cpus": [1], "threads": 1, "housekeeping": [0], "numa_node": None, "bind_memory_node": None}
        found = read_selection(lambda _: json.dumps({"cpus": {**old, "reason": "one thread a core"}}).encode())
        assert found.reason == recorded_text("one thread a core")


THREADS_THAT_MEET_A_TYPE_AT_ONCE = """
import dataclasses, sys, threading
from perfguard.codec import from_builtins

sys.setswitchinterval(1e-6)
inner = {f"a{number}": number for number in range(20)}
data = {f"b{number}": inner for number in range(10)}
for number in range(100):
    within = dataclasses.make_dataclass("Within", [(name, "int") for name in inner])
    kind, ready = dataclasses.make_dataclass("Around", [(name, within) for name in data]), threading.Barrier(4)
    read = []

    def meet():
        ready.wait()
        read.append(from_builtins(data, kind, source="a thread").b0.a3)

    threads = [threading.Thread(target=meet) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [3, 3, 3, 3]
"""


def test_threads_that_meet_a_type_at_the_same_time_all_read_it():
    done = subprocess.run([sys.executable, "-c", THREADS_THAT_MEET_A_TYPE_AT_ONCE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
