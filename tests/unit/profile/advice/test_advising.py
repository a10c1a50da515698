"""The order of findings, what is new in them, and the commands that try them."""

from __future__ import annotations

import json
import math
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.codec import from_builtins, to_json
from perfguard.profile.advice.advise import AdviceRule, advise
from perfguard.profile.advice.evidence import Evidence, largest, tensors_of
from perfguard.profile.advice.hints import Hint
from perfguard.profile.advice.trials import Program, after_edit, arm_text, with_setting, with_variables
from perfguard.records.facts import Severity, fact
from perfguard.records.plan import ArmSpec, EnvProfile
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import OpKey
from perfguard.runner.arms.resolve import parse_arm
from tests.finding_evidence import (
    CASE,
    FORWARD,
    OPTIMIZER,
    change,
    comparison,
    evidence,
    machine,
    only,
    op,
    primitive,
    program,
    reorder,
    software,
)

ADAM = {"module": "Adam", "phase": OPTIMIZER}
COPY = {"shapes": "[8,64,56,56] [8,64,56,56]", "layouts": "contiguous channels_last"}


def test_the_gravest_come_first_then_the_largest():
    found = advise(
        evidence(
            op("copy_", 6, **COPY),
            op("mul_", 20, calls=62, shapes="[64]", **ADAM),
            primitive("matmul", "ref:any", 2),
            op("mul", 2, shapes="[64]", dtypes="f64"),
        )
    )
    assert [finding.id for finding in found] == ["reference-kernel", "unfused-optimizer", "copies", "double-precision"]
    assert [finding.severity for finding in found] == sorted(
        (finding.severity for finding in found), key=list(Severity).index
    )


def test_what_is_new_since_the_baseline_comes_before_what_was_always_so():
    changes = [change("copies", "copies.added", module="Net.body")]
    found = advise(
        evidence(
            op("copy_", 6, **COPY),
            op("mul_", 20, calls=62, shapes="[64]", **ADAM),
            comparison=comparison(changes=changes),
        )
    )
    assert [(finding.id, finding.since_baseline) for finding in found] == [
        ("copies", (fact("copies.added"),)),
        ("unfused-optimizer", ()),
    ]


@pytest.mark.parametrize(
    ("rule", "module", "is_about"),
    [
        ("fusion", "Adam", True),
        ("fusion", "", True),
        ("fusion", "Net.bn1", False),
        ("fusion", "Ada", False),
        ("copies", "Adam", False),
    ],
)
def test_a_change_belongs_to_findings_of_its_kind_and_place(rule, module, is_about):
    compared = comparison(changes=[change(rule, "some.change", module=module)])
    finding = only("unfused_optimizer", op("mul_", 20, calls=62, shapes="[64]", **ADAM), comparison=compared)
    assert bool(finding.since_baseline) is is_about


def test_of_many_changes_two_are_told():
    changes = [change("reorders", f"reorders.number_{number}") for number in range(4)]
    finding = only("reorders", reorder(9), comparison=comparison(changes=changes))
    assert finding.since_baseline == (fact("reorders.number_0"), fact("reorders.number_1"))


def test_findings_are_data():
    finding = only("copies", op("copy_", 6, **COPY))
    assert from_builtins(json.loads(to_json(finding)), Finding, source="test") == finding


CASE_PROGRAM = Program(case_id=CASE)
TYPED = ArmSpec(text="", interpreter="/venv/bin/python", environment=(("OMP_NUM_THREADS", "4"),), stack="ipex")


def words(command):
    return shlex.split(command)


def test_an_edit_is_compared_with_the_last_commit():
    assert words(after_edit(CASE_PROGRAM)) == [
        "perfguard", "compare", "--baseline", "git:HEAD", "--candidate", "dir:.", "--case", CASE, "--ops",
    ]  # fmt: skip


def test_an_edit_keeps_what_else_makes_the_arm():
    command = words(after_edit(Program(case_id=CASE, arm=TYPED)))
    rest = "python:/venv/bin/python+env:OMP_NUM_THREADS=4+stack:ipex"
    assert command[3] == f"git:HEAD+{rest}"
    assert command[5] == f"dir:.+{rest}"


def test_an_edit_of_a_revision_is_compared_with_that_revision():
    command = words(after_edit(Program(case_id=CASE, arm=ArmSpec(text="git:v1", revision="v1"))))
    assert (command[3], command[5]) == ("git:v1", "dir:.")


def test_variables_are_added_replaced_and_unset():
    arm = ArmSpec(text="", directory=".", environment=(("A", "1"), ("B", "2")))
    command = words(with_variables(Program(case_id=CASE, arm=arm), {"B": "", "C": "3"}))
    assert (command[3], command[5]) == ("dir:.+env:A=1,B=2", "dir:.+env:A=1,B=,C=3")


def test_a_script_is_profiled_anew_with_its_arguments():
    program = Program(script=("train.py", "--name", "a b"))
    assert words(after_edit(program)) == ["perfguard", "profile", "--candidate", "dir:.", "train.py", "--name", "a b"]
    command = with_variables(program, {"X": "1"}, profile=EnvProfile.PRODUCTION)
    assert words(command) == [
        "perfguard", "profile", "--baseline", "dir:.", "--candidate", "dir:.+env:X=1", "--env-profile", "production",
        "train.py", "--name", "a b",
    ]  # fmt: skip


def test_an_arm_is_typed_with_its_parameters():
    arm = ArmSpec(text="", directory=".", parameters=(("dtype", "bf16"), ("optimizer", "fused")))
    assert arm_text(arm) == "dir:.+set:dtype=bf16,optimizer=fused"


def test_a_trace_alone_has_no_command():
    assert after_edit(Program()) == ""


def test_a_setting_of_a_script_is_tried_beside_the_script_as_it_is():
    arms = ["--baseline", "dir:.", "--candidate", "dir:.+set:dtype=bf16"]
    program = Program(script=("train.py", "--epochs", "3"))
    assert words(with_setting(program, "dtype", "bf16")) == ["perfguard", "profile", *arms, *program.script]


@pytest.mark.parametrize(
    ("known", "candidate"), [({}, "dir:."), ({"dtype": ("fp32", "bf16")}, "git:HEAD+set:dtype=bf16")]
)
def test_advice_on_a_case_sets_what_its_arm_can_set_and_else_expects_an_edit(known, candidate):
    target = Program(case_id=CASE, arm=ArmSpec(text="git:HEAD", revision="HEAD"), settings=known)
    (found,) = advise(Evidence(target=target), [AdviceRule(lambda _: [Hint("bf16_untried", [])], ("bf16_untried",))])
    assert words(found.command)[:6] == ["perfguard", "compare", "--baseline", "git:HEAD", "--candidate", candidate]


NAMES = st.text("ABC_", min_size=1, max_size=4)
VALUES = st.text("abc019=./", max_size=8)


@given(
    st.dictionaries(NAMES, VALUES, max_size=3),
    st.sampled_from([None, "HEAD~1", "v1.0"]),
    st.sampled_from([None, "ipex"]),
)
def test_an_arm_reads_back_as_it_was(variables, revision, stack):
    arm = ArmSpec(
        text="",
        revision=revision,
        directory=None if revision else "sub/folder",
        environment=tuple(sorted(variables.items())),
        stack=stack,
    )
    read = parse_arm(arm_text(arm))
    assert (read.revision, read.directory, read.environment, read.stack) == (
        arm.revision, arm.directory, arm.environment, arm.stack,
    )  # fmt: skip


def test_the_profilers_cost_is_taken_off_each_call():
    total = op("mul", 10, calls=1_000)
    known = Evidence(totals=(total,), event_s=4e-6)
    assert known.seconds_of((total,)) == pytest.approx(6e-3)
    assert known.call_s(total) == pytest.approx(6e-6)
    assert Evidence(totals=(total,), event_s=1.0).step_s == 0.0


def test_without_a_step_there_are_no_shares():
    assert Evidence().share_of(()) is None
    assert Evidence().ratio_of(1.0) is None


def test_software_of_the_arm_is_preferred_to_that_of_the_machine():
    assert Evidence(fingerprint=machine(), software=software(A="1")).environment == {"A": "1"}
    assert Evidence(fingerprint=machine()).environment == {}


def test_no_share_is_more_than_all():
    assert evidence(reorder(500)).ratio_of(0.5) == 1.0


def key(shapes, dtypes="", layouts=""):
    return OpKey(phase=FORWARD, module="", op="aten::mul", shapes=shapes, dtypes=dtypes, layouts=layouts)


def test_tensors_are_read_back_from_a_key():
    image, scalar, listed = tensors_of(key("[2,3,8,8] [] {62:1234}", "f32 f64 list", "channels_last contiguous list"))
    assert (image.shape, image.dtype, image.layout, image.elements) == ((2, 3, 8, 8), "f32", "channels_last", 384)
    assert (scalar.shape, scalar.elements) == ((), 1)
    assert (listed.shape, listed.elements) == ((), 1234)
    assert largest(key("[2,3,8,8] [] {62:1234}")) == 1234


def test_a_trace_without_dtypes_or_strides_leaves_them_open():
    (tensor,) = tensors_of(key("[2,3,8,8]"))
    assert (tensor.dtype, tensor.layout, tensor.image_layout) == ("", "", "")


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_read_as_some_tensors(shapes, dtypes, layouts):
    assert len(tensors_of(key(shapes, dtypes, layouts))) == len(shapes.split())
    assert largest(key(shapes)) >= 0


def test_the_machines_isa_is_unknown_without_a_fingerprint():
    assert Evidence().isa.bf16 is None
    assert not math.isnan(Evidence(program=program()).step_s)
