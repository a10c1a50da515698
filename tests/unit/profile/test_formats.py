from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.integrations.formats.tables import OP_COLUMNS, collapsed_stacks, ops_csv, speedscope_profile
from perfguard.records.steps.ops import PYTHON_OP, OpKey, OpTotal, StepPhase


def total(op, self_us, *, phase=StepPhase.FORWARD, module="", shapes="", source=None, implementations=()):
    key = OpKey(phase=phase, module=module, op=op, shapes=shapes, dtypes="", layouts="")
    return OpTotal(key=key, calls=2.0, self_s=self_us * 1e-6, source=source, implementations=implementations)


TOTALS = (
    total("aten::convolution", 120.4, module="ResNet.layer1.0.conv1", shapes="[2,3,8,8]", source="net.py:12"),
    total("aten::convolution", 30, module="ResNet.layer1.0.conv1", shapes="[2,3,4,4]", source="net.py:12"),
    total(PYTHON_OP, 7, phase=StepPhase.LOAD),
    total("aten::nothing", 0.2),
)


def test_collapsed_stacks_are_phase_module_and_op():
    assert collapsed_stacks(TOTALS) == ("forward;ResNet;layer1;0;conv1;aten::convolution 150\nload;(python) 7\n")


def test_names_cannot_break_a_collapsed_stack():
    assert collapsed_stacks([total("a;b c\n9", 5)]) == "forward;a:b_c_9 5\n"


def test_speedscope_holds_a_sample_for_each_op():
    document = json.loads(speedscope_profile(TOTALS, name="model.resnet"))
    (profile,) = document["profiles"]
    frames = document["shared"]["frames"]
    stacks = [[frames[index]["name"] for index in sample] for sample in profile["samples"]]
    assert stacks[0] == ["load", "(python)"]
    assert ["forward", "ResNet", "layer1", "0", "conv1", "aten::convolution [2,3,8,8]"] in stacks
    assert sum(profile["weights"]) == pytest.approx(profile["endValue"]) == pytest.approx(157.6)
    assert len(profile["samples"]) == len(profile["weights"]) == 4
    assert {"name": "aten::convolution [2,3,8,8]", "file": "net.py", "line": 12} in frames
    assert profile["unit"] == "microseconds"
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"


def test_frames_of_speedscope_are_shared():
    frames = json.loads(speedscope_profile(TOTALS, name=""))["shared"]["frames"]
    assert len({json.dumps(frame, sort_keys=True) for frame in frames}) == len(frames)


def test_a_table_has_a_row_for_each_op():
    rows = list(csv.DictReader(io.StringIO(ops_csv([total("aten::add", 1.5, implementations=("a", "b")), *TOTALS]))))
    assert tuple(rows[0]) == OP_COLUMNS
    assert rows[0]["op"] == "aten::add"
    assert float(rows[0]["self_s"]) == 1.5e-6
    assert rows[0]["implementations"] == "a b"
    assert rows[1]["source"] == "net.py:12"
    assert len(rows) == 5


def test_a_cell_that_looks_like_a_formula_is_text():
    (row,) = csv.DictReader(io.StringIO(ops_csv([total("=cmd()", 1)])))
    assert row["op"] == "'=cmd()"


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4), st.floats(0, 1e9))
def test_any_name_makes_a_readable_table_and_stack(names, self_us):
    found = [total(name, self_us, module=name) for name in names]
    assert len(list(csv.reader(io.StringIO(ops_csv(found))))) == len(names) + 1
    for line in collapsed_stacks(found).splitlines():
        stack, _, count = line.rpartition(" ")
        assert stack.startswith("forward;")
        assert int(count) > 0
    json.loads(speedscope_profile(found, name=names[0]))
