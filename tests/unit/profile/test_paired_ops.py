"""Two profiles in the same columns, and which of their ops belong together although they differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfguard.profile.changes.paired_ops import Cause, CauseKind, Certainty, PairedOps, find_twins, pair_ops, relocated
from perfguard.profile.op_times.arm_profile import ArmProfile, ProcessPairs
from perfguard.profile.op_times.op_profile import OpProfile
from perfguard.profile.op_times.overhead import NO_OVERHEAD
from perfguard.records.steps.ops import ChangeClass
from tests.changed_values import replace
from tests.simulated_profiles import BACKWARD, op_key, python_key

ADD, CONV = "aten::add", "aten::conv2d"
WIDE, NARROW = "[8,8]", "[4,4]"


def columns(*rows):
    """Ops of one pair of processes, by rows of a key, its calls before and after, and its seconds before and after.

    Gives them with what their calls say of each. Seconds that are left out are those of the place in the list.
    """
    full = [(*row, 2.0**-number, 2.0**-number)[:5] for number, row in enumerate(rows)]
    keys, before, after, before_s, after_s = zip(*full, strict=True)
    ops = PairedOps(
        keys=keys,
        baseline_s=np.array([before_s]),
        candidate_s=np.array([after_s]),
        baseline_calls=np.array(before, dtype=np.float64),
        candidate_calls=np.array(after, dtype=np.float64),
        count_change=np.sign(np.array(after) - np.array(before)),
        overhead_error_s=np.zeros(len(keys)),
        sources=(None,) * len(keys),
        implementations=(((), ()),) * len(keys),
    )
    return ops, [_change(was, now) for was, now in zip(before, after, strict=True)]


def _change(was, now):
    if was == now:
        return ChangeClass.UNCHANGED
    if not was or not now:
        return ChangeClass.GONE if was else ChangeClass.NEW
    return ChangeClass.FEWER_CALLS if now < was else ChangeClass.MORE_CALLS


def twins(*rows):
    ops, changes = columns(*rows)
    return find_twins(ops, changes, range(len(rows)))


def moves(*rows):
    return list(relocated(*columns(*rows)).items())


# Both arms in the same columns


def arm(calls, self_s, *, wall_s=None, bare=False, process=None, **more):
    """One op for each column; each row is a step."""
    calls, self_s = np.array(calls), np.array(self_s, dtype=np.float64)
    steps, none = len(calls), np.zeros_like(calls)
    process = np.zeros(steps, dtype=np.int64) if process is None else np.array(process)
    profile = OpProfile(
        keys=tuple(op_key(name) for name in more.pop("names", "abcdef"[: calls.shape[1]])),
        calls=calls,
        module_calls=none,
        child_events=none,
        self_s=self_s,
        wall_s=self_s.sum(axis=1) if wall_s is None else np.array(wall_s, dtype=np.float64),
        process=process,
        sources={},
    )
    return ArmProfile(profile=profile, bare_s=np.ones(steps) if bare else np.empty(0), bare_process=process, **more)


def paired(baseline, candidate, overhead=NO_OVERHEAD, processes=(0,)):
    return pair_ops(baseline, candidate, ProcessPairs(baseline=processes, candidate=processes), overhead)


def test_calls_changed_where_every_step_of_one_arm_has_more_than_any_of_the_other():
    before = np.array([[1, 2], [2, 3], [1, 2], [3, 4], [1, 3], [2, 4]]).T
    after = np.array([[2, 3], [1, 2], [3, 4], [1, 2], [2, 4], [1, 3]]).T
    ops = paired(arm(before, np.ones((2, 6))), arm(after, np.ones((2, 6))))
    assert ops.count_change.tolist() == [0, 0, 1, -1, 0, 0]
    assert ops.baseline_calls.tolist() == [1.5, 2.5, 1.5, 3.5, 2, 3]
    assert ops.candidate_calls.tolist() == [2.5, 1.5, 3.5, 1.5, 3, 2]


def test_an_op_of_one_arm_takes_no_time_in_the_other():
    ops = paired(arm([[1, 1]], [[2, 4]], names="ab"), arm([[1, 3]], [[8, 1]], names="cb"))
    assert [key.op for key in ops.keys] == ["a", "b", "c"]
    assert (ops.baseline_s.tolist(), ops.candidate_s.tolist()) == ([[2, 4, 0]], [[0, 1, 8]])
    assert ops.deltas_s.tolist() == [[-2, -3, 8]]
    assert ops.candidate_calls.tolist() == [0, 3, 1]


@pytest.mark.parametrize(
    ("bare", "middle"),
    [((True, True), [2, 2]), ((True, False), [3, 2]), ((False, True), [3, 2]), ((False,) * 2, [3, 2])],
)
def test_each_op_has_its_own_middle_where_both_arms_ran_steps_without_the_profiler(bare, middle):
    """Else a step is left out as a whole, and what its ops took adds up to what it took."""
    calls, self_s, wall_s = [[1, 1]] * 3, [[1, 9], [2, 1], [3, 2]], [10, 3, 5]
    ops = paired(*(arm(calls, self_s, wall_s=wall_s, bare=is_bare) for is_bare in bare))
    assert ops.baseline_s.tolist() == ops.candidate_s.tolist() == [middle]


@pytest.mark.parametrize("bare", [True, False])
def test_processes_are_told_apart(bare):
    calls, process = [[1, 1]] * 4, [0, 0, 1, 1]
    baseline = arm(calls, [[1, 2], [3, 4], [16, 32], [48, 64]], process=process, bare=bare)
    candidate = arm(calls, [[2, 2], [4, 4], [4, 8], [12, 24]], process=process, bare=bare)
    ops = paired(baseline, candidate, processes=(0, 1))
    assert ops.baseline_s.tolist() == [[2, 3], [32, 48]]
    assert ops.candidate_s.tolist() == [[3, 3], [8, 16]]
    assert (ops.before_s.tolist(), ops.after_s.tolist()) == ([17, 25.5], [5.5, 9.5])


def test_what_the_profiler_costs_is_taken_out_and_its_error_is_that_of_the_arms_difference():
    overhead = replace(NO_OVERHEAD, event_s=0.25, own_share=1.0, error_ratio=0.5)
    before, after = arm([[1, 2], [3, 2]], [[8, 8], [8, 8]]), arm([[4, 1], [4, 1]], [[8, 8], [8, 8]])
    ops = paired(before, after, overhead)
    assert (ops.baseline_s.tolist(), ops.candidate_s.tolist()) == ([[7.5, 7.5]], [[7, 7.75]])
    assert ops.overhead_error_s.tolist() == [0.25, 0.125]


# Twins: one op on other tensors


def tensors(shapes="[2,8]", dtypes="f32", layouts="contiguous", op=ADD, **place):
    return op_key(op, shapes=shapes, dtypes=dtypes, layouts=layouts, **place)


@pytest.mark.parametrize(
    ("lost", "gained", "kind", "words"),
    [
        (tensors(WIDE), tensors(NARROW, "bf16", "strided"), CauseKind.SHAPE, (WIDE, NARROW)),
        (tensors(), tensors(dtypes="bf16", layouts="strided"), CauseKind.DTYPE, ("f32", "bf16")),
        (tensors(), tensors(layouts="strided"), CauseKind.LAYOUT, ("contiguous", "strided")),
        # Words that stay are no part of the change; the commonest of the others is named.
        (
            tensors(dtypes="s8 s8 s8 f32 f64 f64"),
            tensors(dtypes="s8 s8 s8 u8 f16 f16"),
            CauseKind.DTYPE,
            ("f64", "f16"),
        ),
        (tensors(dtypes="f32"), tensors(dtypes="f32 f32"), CauseKind.DTYPE, ("f32", "f32 f32")),
        (tensors(dtypes="f32 s64"), tensors(dtypes="f32"), CauseKind.DTYPE, ("f32 s64", "f32")),
        # An op on numbers may be called on others.
        (tensors("[] []"), tensors("[]"), CauseKind.SHAPE, ("[] []", "[]")),
    ],
)
def test_the_first_of_shape_dtype_and_layout_that_changed_is_named(lost, gained, kind, words):
    (twin,) = twins((lost, 1, 0), (gained, 0, 1))
    assert (twin.kind, twin.certainty, twin.columns) == (kind, Certainty.EXACT, (0, 1))
    assert (twin.lost, twin.gained) == words


@pytest.mark.parametrize("op", ["aten::copy_", "aten::clone", "aten::to", "reorder"])
def test_a_copy_of_another_shape_is_no_twin_whatever_it_copies_for(op):
    lost, gained = tensors(WIDE, op=op), tensors(NARROW, op=op)
    assert twins((lost, 1, 0), (gained, 0, 1)) == []
    (twin,) = twins((lost, 1, 0), (replace(lost, layouts="strided"), 0, 1))
    assert twin.kind is CauseKind.LAYOUT


@pytest.mark.parametrize("numbers", ["[]", "[] []"])
def test_whether_an_op_is_on_numbers_is_said_by_the_longest(numbers):
    short, long = (tensors(WIDE), 0, 1, 0.0, 1.0), (tensors(numbers), 0, 1, 0.0, 2.0)
    assert twins((tensors(NARROW), 1, 0), short, long) == []
    assert len(twins((tensors(NARROW), 1, 0), short, (*long[:4], 0.5))) == 1


def test_the_longest_come_first_and_say_what_was_lost_and_gained():
    rows = [
        (tensors(WIDE), 1, 0, 1.0, 0.0),
        (tensors("[16,16]"), 2, 1, 2.0, 0.0),
        (tensors("[2,2]"), 0, 1, 0.0, 4.0),
        (tensors(NARROW), 1, 3, 0.0, 8.0),
    ]
    (twin,) = twins(*rows)
    assert (twin.columns, twin.lost, twin.gained) == ((1, 0, 3, 2), "[16,16]", NARROW)
    dtypes = dict(zip((WIDE, "[16,16]", "[2,2]", NARROW), ("f32", "f64", "u8", "bf16"), strict=True))
    typed = [(tensors(dtypes=dtypes[key.shapes]), *row) for key, *row in rows]
    assert [(twin.lost, twin.gained) for twin in twins(*typed)] == [("f64", "bf16")]


def test_a_layout_is_told_of_the_same_tensors_where_there_are_such():
    long = [(tensors(WIDE, layouts="channels_last"), 1, 0), (tensors(NARROW, layouts="channels_last"), 1, 0)]
    same, others = tensors(WIDE), tensors(NARROW, layouts="strided")
    (twin,) = twins(*long, (others, 0, 1), (same, 0, 1))
    assert (twin.kind, twin.gained) == (CauseKind.LAYOUT, "contiguous")
    # Of other pairs of the same shapes and dtypes the longest.
    crossed = [(tensors(WIDE, "f32"), 1, 0), (tensors(NARROW, "bf16"), 1, 0)]
    now = [(tensors(WIDE, "bf16", "strided"), 0, 1), (tensors(NARROW, "f32"), 0, 1)]
    (twin,) = twins(*crossed, *now)
    assert (twin.kind, twin.lost, twin.gained) == (CauseKind.LAYOUT, "contiguous", "strided")


def test_twins_come_in_the_order_of_their_first_columns():
    first, second = tensors(op=CONV), tensors()
    rows = [
        (first, 1, 0),
        (second, 1, 0),
        (replace(first, layouts="blocked"), 1, 0),
        (replace(second, layouts="strided"), 0, 1),
        (replace(first, layouts="strided"), 0, 1),
    ]
    assert [twin.columns for twin in twins(*rows)] == [(0, 2, 4), (1, 3)]


def test_an_op_of_another_place_or_time_in_no_op_is_no_twin():
    rows = [(tensors(), 1, 0), (tensors(NARROW, module="Net.other"), 0, 1), (tensors(NARROW, phase=BACKWARD), 0, 1)]
    assert twins(*rows, (python_key("Net.a"), 2, 1), (replace(python_key("Net.a"), shapes="[1]"), 1, 2)) == []


# Moves: an op that is called from elsewhere


def test_an_op_moves_rather_within_its_phase():
    rows = [
        (op_key(ADD, "Net.z"), 2, 0),
        (op_key(ADD, "Net.a", BACKWARD), 2, 0),
        (op_key(ADD, "Net.m"), 0, 2),
        (op_key(ADD, "Net.n", BACKWARD), 0, 2),
    ]
    assert moves(*rows) == [(0, 2), (1, 3)]
    assert moves(rows[0], rows[3]) == [(0, 1)]


def test_ops_move_where_as_many_came_with_the_same_calls():
    gone = [(op_key(ADD, "Net.a"), 3, 0), (op_key(ADD, "Net.b"), 1, 0)]
    came = [(op_key(ADD, "Net.y"), 0, 1), (op_key(ADD, "Net.z"), 0, 3)]
    assert moves(*gone, *came) == [(1, 2), (0, 3)]
    assert moves(*gone, came[0], (came[1][0], 0, 2)) == []
    assert moves(*gone, came[0]) == []
    assert moves(*gone[:1], (replace(gone[0][0], module="Net.z", layouts="strided"), 0, 3)) == []


def test_time_in_no_op_goes_where_most_ops_of_its_place_went():
    rows = [
        (python_key("Net.a"), 1, 0),
        (op_key("x", "Net.a"), 1, 0),
        (op_key("y", "Net.a"), 1, 0),
        (op_key("z", "Net.a"), 1, 0),
        (python_key("Net.stays"), 1, 0),
        (op_key("x", "Net.b"), 0, 1),
        (python_key("Net.b"), 0, 1),
        (op_key("y", "Net.c"), 0, 1),
        (op_key("z", "Net.c"), 0, 1),
        (python_key("Net.c"), 0, 1),
    ]
    assert moves(*rows) == [(1, 5), (2, 7), (3, 8), (0, 9)]
    assert moves(*rows[:-1]) == [(1, 5), (2, 7), (3, 8)]


def test_of_places_to_which_as_many_ops_went_time_in_no_op_follows_the_first_op():
    rows = [
        (op_key("x", "Net.a"), 1, 0),
        (op_key("y", "Net.a"), 1, 0),
        (op_key("x", "Net.d"), 1, 0),
        (python_key("Net.a"), 1, 0),
        (op_key("x", "Net.b"), 0, 1),
        (op_key("x", "Net.e"), 0, 1),
        (op_key("y", "Net.c"), 0, 1),
        (python_key("Net.b"), 0, 1),
        (python_key("Net.c"), 0, 1),
    ]
    assert moves(*rows) == [(0, 4), (2, 5), (1, 6), (3, 7)]


def test_one_place_takes_the_time_in_no_op_of_one_place():
    rows = [
        *((key, 1, 0) for module in ("Net.a", "Net.b") for key in (op_key(module, module), python_key(module))),
        *((op_key(module, "Net.c"), 0, 1) for module in ("Net.a", "Net.b")),
        (python_key("Net.c"), 0, 1),
    ]
    assert moves(*rows) == [(0, 4), (2, 5), (1, 6)]


# Causes


def test_a_cause_that_was_not_weighed_says_nothing_of_its_cost():
    cause = Cause(kind=CauseKind.TIME, certainty=Certainty.OPEN, columns=(0,))
    assert (cause.delta_s, cause.lower_s, cause.upper_s, cause.p) == (0, -math.inf, math.inf, 1)
    assert not cause.is_exact
    assert replace(cause, certainty=Certainty.EXACT).is_exact


@pytest.mark.parametrize(
    ("lower_s", "upper_s", "is_significant", "is_within_noise"),
    [
        (0.5, 2.0, True, False),
        (-2.0, -0.5, True, False),
        (-0.5, 0.5, False, True),
        (0.0, 0.5, False, True),
        (-0.5, 0.0, False, True),
        (-math.inf, math.inf, False, False),
    ],
)
def test_an_interval_that_excludes_zero_is_no_noise(lower_s, upper_s, is_significant, is_within_noise):
    cause = Cause(kind=CauseKind.TIME, certainty=Certainty.OPEN, columns=(0,), lower_s=lower_s, upper_s=upper_s)
    assert (cause.is_significant, cause.is_within_noise) == (is_significant, is_within_noise)
