"""Samples that are kept by the million."""

from __future__ import annotations

from perfguard.records.case_block import PackedSamples
from perfguard.records.events import SampleTimed
from perfguard.records.run import Arm
from tests.changed_values import replace

SAMPLE = SampleTimed(
    block=3,
    case_id="step.train",
    arm=Arm.CANDIDATE,
    index=0,
    warmup=False,
    value_s=0.25,
    cpu_s=0.5,
    minor_faults=7,
    involuntary_switches=0,
    iterations=4,
    peak_memory_bytes=2**40 + 1,
    elapsed_s=1.01,
    own={"loss": 2.5},
)


def test_samples_come_back_as_they_were():
    given = [SAMPLE, replace(SAMPLE, index=1, own=None, waited_s=0.125, voluntary_switches=2), replace(SAMPLE, index=2)]
    packed = PackedSamples()
    for sample in given:
        packed.append(sample)
    assert len(packed) == 3
    for sample, known in zip(given, packed, strict=True):
        assert known._asdict() == {name: getattr(sample, name) for name in known._fields}


def test_nothing_is_in_them_at_first():
    assert (len(PackedSamples()), list(PackedSamples())) == (0, [])
