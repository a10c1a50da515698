from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.records.plan import EnvProfile
from perfguard.runner.arms.environment import (
    ALLOCATOR_TUNABLES,
    apply_overrides,
    base_environment,
    ignored_variables,
    mismatched_threads,
    pad_to_equal_size,
)

INHERITED = {
    "PATH": "/usr/bin",
    "HOME": "/home/user",
    "OMP_NUM_THREADS": "64",
    "LD_PRELOAD": "/usr/lib/libjemalloc.so",
    "GITHUB_TOKEN": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "HF_TOKEN": "secret",
    "PYTHONPATH": "/elsewhere",
    "PYTHONHOME": "/elsewhere",
    "DATA_ROOT": "/data",
}

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
values = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=40)
environments = st.dictionaries(names, values, max_size=12)


def environment(profile, *, glibc=(2, 36), pass_through=(), inherited=INHERITED):
    return base_environment(inherited, profile=profile, threads=3, glibc=glibc, pass_through=pass_through)


@pytest.mark.parametrize("profile", list(EnvProfile))
def test_secrets_and_foreign_import_paths_never_reach_a_worker(profile):
    found = environment(profile)
    assert "secret" not in found.values()
    assert found.keys().isdisjoint({"PYTHONPATH", "PYTHONHOME", "GITHUB_TOKEN", "HF_TOKEN"})
    assert (found["PATH"], found["HOME"]) == ("/usr/bin", "/home/user")


def test_the_stable_profile_decides_threads_and_allocator():
    found = environment(EnvProfile.STABLE)
    assert (found["OMP_NUM_THREADS"], found["MKL_NUM_THREADS"]) == ("3", "3")
    assert found["GLIBC_TUNABLES"] == ALLOCATOR_TUNABLES
    assert "LD_PRELOAD" not in found
    assert ignored_variables(INHERITED, EnvProfile.STABLE) == ("LD_PRELOAD", "OMP_NUM_THREADS")


@pytest.mark.parametrize("glibc", [(2, 34), None])
def test_an_old_or_unknown_c_library_gets_the_older_variables(glibc):
    found = environment(EnvProfile.STABLE, glibc=glibc)
    assert "GLIBC_TUNABLES" not in found
    assert found["MALLOC_TRIM_THRESHOLD_"] == str(8 * 1024**3)


def test_the_production_profile_keeps_what_the_user_set_and_fills_in_threads_only_where_none_are():
    found = environment(EnvProfile.PRODUCTION)
    assert (found["OMP_NUM_THREADS"], found["LD_PRELOAD"]) == ("64", "/usr/lib/libjemalloc.so")
    assert "GLIBC_TUNABLES" not in found
    assert environment(EnvProfile.PRODUCTION, inherited={})["OMP_NUM_THREADS"] == "3"
    assert ignored_variables(INHERITED, EnvProfile.PRODUCTION) == ()


def test_a_variable_that_benchmarks_need_is_passed_on_by_name():
    assert "DATA_ROOT" not in environment(EnvProfile.STABLE)
    assert environment(EnvProfile.STABLE, pass_through=["DATA_ROOT"])["DATA_ROOT"] == "/data"


def test_an_arms_own_variables_win_and_an_empty_one_removes():
    changed = apply_overrides({"A": "1", "B": "2"}, [("A", "3"), ("B", ""), ("C", "4"), ("D", "")])
    assert changed == {"A": "3", "C": "4"}


@given(environments, environments)
def test_both_environments_take_equally_many_bytes_and_keep_their_variables(first, second):
    padded = pad_to_equal_size(first, second)
    sizes = {sum(len(f"{key}={value}".encode()) + 1 for key, value in one.items()) for one in padded}
    assert len(sizes) == 1
    for one, original in zip(padded, (first, second), strict=True):
        assert {key: value for key, value in one.items() if key != "PERFGUARD_PAD"} == original


@given(environments)
def test_nothing_passes_through_by_accident(inherited):
    mine = base_environment({}, profile=EnvProfile.STABLE, threads=1, glibc=None)
    found = base_environment(inherited, profile=EnvProfile.STABLE, threads=1, glibc=None)
    passed = found.keys() - mine.keys()
    assert not any("TOKEN" in name or "SECRET" in name or "PASSWORD" in name for name in passed)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((("OMP_NUM_THREADS", "2"),), (("OMP_NUM_THREADS", "2"),)),
        ((("OMP_NUM_THREADS", "1"), ("MKL_NUM_THREADS", "4")), (("MKL_NUM_THREADS", "4"),)),
        ((("OMP_NUM_THREADS", ""), ("ONEDNN_MAX_CPU_ISA", "AVX2")), ()),
    ],
)
def test_threads_that_do_not_fit_the_mask_are_told(overrides, told):
    assert mismatched_threads(overrides, 1) == told
