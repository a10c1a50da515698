from __future__ import annotations

from itertools import product

import pytest

from perfguard.profile.libraries.implementations import Turn, class_of, isa_class, turn_of

CHOICES = (
    "brg_conv_fwd:avx512_core_bf16",
    "brg_matmul:avx10_1_512",
    "jit:avx2",
    "jit:uni",
    "x64:gemm:jit",
    "ref:any",
    "ref_int8:any",
    "brgemm:sve_256",
    "simple:any",
    "",
    "something new",
)


@pytest.mark.parametrize(
    ("before", "after", "turn"),
    [
        ("brg_conv_fwd:avx512_core_bf16", "ref:any", Turn.FALLBACK),
        ("brg_matmul:avx10_1_512", "x64:gemm:jit", Turn.FALLBACK),
        ("x64:gemm:jit", "ref:any", Turn.LOWER),
        ("brg_conv_fwd:avx512_core", "jit:avx2", Turn.LOWER),
        ("brg_conv_fwd:avx512_core_amx", "brg_conv_fwd:avx512_core_bf16", Turn.LOWER),
        ("jit:avx512_core_fp16", "jit:avx512_core_bf16", Turn.LOWER),
        ("brgemm:sve_512", "brgemm:sve_256", Turn.LOWER),
        ("brg_conv_fwd:avx512_core", "jit:avx512_core", Turn.SIDEWAYS),
        ("brg_matmul:avx10_1_512", "brg_matmul:avx512_core_fp16", Turn.SIDEWAYS),
        ("jit:uni", "jit:avx2", Turn.SIDEWAYS),
        ("brgemm:sve_512", "jit:avx2", Turn.SIDEWAYS),
    ],
)
def test_choices_are_ranked_by_fallback_first_and_then_by_instruction_set(before, after, turn):
    assert turn_of(before, after) is turn


@pytest.mark.parametrize(("one", "other"), list(product(CHOICES, CHOICES)))
def test_the_way_back_is_the_opposite_turn(one, other):
    assert turn_of(one, other) == -turn_of(other, one)


def test_two_names_of_an_instruction_set_are_one_class():
    assert isa_class("avx10_1_512_amx") == "avx512_core_amx"
    assert class_of("brg_matmul:avx10_1_512") == class_of("brg_matmul:avx512_core_fp16")
    assert class_of("brg_matmul:avx10_1_512") != class_of("brgemm:avx10_1_512")


def test_names_that_are_not_known_stay_as_they_are():
    assert class_of("new_family:avx99") == "new_family:avx99"
