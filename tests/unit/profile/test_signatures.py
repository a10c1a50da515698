from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.trace.events import NO_TENSORS, Signature, layout_of, read_signature


def test_tensors_read_as_shapes_dtypes_and_layouts():
    encoded = (
        b'[[2, 3, 8, 8], [4, 3, 3, 3], []],["c10::BFloat16", "float", "Scalar"],[[192, 1, 24, 3], [27, 9, 3, 1], []]'
    )
    assert read_signature(encoded) == Signature(
        shapes="[2,3,8,8] [4,3,3,3]", dtypes="bf16 f32", layouts="channels_last contiguous"
    )


def test_what_is_no_tensor_is_left_out():
    assert read_signature(b'[[], [], [1]],["Scalar", "", "ScalarList"],[[], [], []]') == NO_TENSORS


def test_a_tensor_without_dimensions_is_one():
    assert read_signature(b'[[]],["double"],[[]]') == Signature(shapes="[]", dtypes="f64", layouts="contiguous")


def test_a_list_of_tensors_is_told_by_its_number_and_size():
    encoded = b'[[[64], [64, 3, 7, 7]], []],["TensorList", "Scalar"],[[[1], [147, 49, 7, 1]], []]'
    assert read_signature(encoded) == Signature(shapes="{2:9472}", dtypes="list", layouts="list")


def test_older_traces_have_no_strides():
    assert read_signature(b'[[4, 5]],["long int"],null') == Signature(shapes="[4,5]", dtypes="i64", layouts="")


@pytest.mark.parametrize(
    ("name", "short"),
    [("c10::Half", "f16"), ("c10::Float8_e4m3fn", "float8_e4m3fn"), ("c10::complex<float>", "c64"), ("bool", "bool")],
)
def test_dtypes_have_short_names(name, short):
    assert read_signature(f'[[1]],["{name}"],[[1]]'.encode()).dtypes == short


@pytest.mark.parametrize(
    "encoded", [b"null,null,null", b"", b"1,2,3", b"[1],[2],[3]", b'{},"a",[]', b"[[[[]]]],[7],[]"]
)
def test_what_cannot_be_read_is_no_tensors(encoded):
    assert read_signature(encoded) == NO_TENSORS


@pytest.mark.parametrize(
    ("shape", "strides", "layout"),
    [
        ([4, 5], [5, 1], "contiguous"),
        ([4, 5], [1, 4], "strided"),
        ([], [], "contiguous"),
        ([2, 3, 4, 5], [60, 1, 15, 3], "channels_last"),
        ([2, 3, 4, 5, 6], [360, 1, 90, 18, 3], "channels_last_3d"),
        ([2, 3, 4, 5], [120, 20, 5, 1], "strided"),  # every other image
        ([4, 5], [0, 1], "strided"),  # expanded
        ([64, 32, 1, 1], [32, 1, 32, 32], "contiguous"),  # both formats
        ([8, 1, 4, 4], [16, 1, 4, 1], "contiguous"),  # both formats
        ([0, 3], [17, 19], "contiguous"),
    ],
)
def test_layouts_are_those_of_torch(shape, strides, layout):
    assert layout_of(shape, strides) == layout


@given(st.lists(st.integers(1, 4), max_size=6))
def test_a_dense_tensor_is_contiguous_whatever_the_strides_of_single_elements(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step if size > 1 else 999)
        step *= size
    assert layout_of(shape, strides) == "contiguous"
