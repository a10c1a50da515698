from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.errors import ArmError
from perfguard.records.plan import ArmSpec
from perfguard.runner.arms.resolve import parse_arm


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("stored", {"stored": True}),
        ("git:main", {"revision": "main"}),
        ("git:HEAD~3^2", {"revision": "HEAD~3^2"}),
        ("git:v1.0+build", {"revision": "v1.0+build"}),
        ("dir:.", {"directory": "."}),
        ("dir:/with space/and+plus", {"directory": "/with space/and+plus"}),
        ("dir:C:/colons:too", {"directory": "C:/colons:too"}),
        ("python:.venv/bin/python", {"interpreter": ".venv/bin/python"}),
        ("env:A=1", {"environment": (("A", "1"),)}),
        ("env:B=2,A=1", {"environment": (("A", "1"), ("B", "2"))}),
        ("env:A=", {"environment": (("A", ""),)}),
        ("env:A=x=y", {"environment": (("A", "x=y"),)}),
        (
            "env:MALLOC_CONF=narenas:1,tcache:false,OMP_NUM_THREADS=4",
            {"environment": (("MALLOC_CONF", "narenas:1,tcache:false"), ("OMP_NUM_THREADS", "4"))},
        ),
        ("env:CXXFLAGS=-O2+fast", {"environment": (("CXXFLAGS", "-O2+fast"),)}),
        ("set:optimizer=fused", {"parameters": (("optimizer", "fused"),)}),
        ("set:norm=folded,focal=fused", {"parameters": (("focal", "fused"), ("norm", "folded"))}),
        ("set:dtype=bf16+env:A=1", {"parameters": (("dtype", "bf16"),), "environment": (("A", "1"),)}),
        ("stack:ipex", {"stack": "ipex"}),
        ("stack:default", {"stack": None}),
        (
            "git:main+env:A=1+python:/opt/py",
            {"revision": "main", "environment": (("A", "1"),), "interpreter": "/opt/py"},
        ),
        ("dir:.+stack:ipex", {"directory": ".", "stack": "ipex"}),
    ],
)
def test_each_kind_of_arm_is_understood(text, fields):
    assert parse_arm(text) == ArmSpec(text=text, **fields)


@pytest.mark.parametrize(
    ("bare", "whole"),
    [
        ("main", "git:main"),
        ("HEAD~1", "git:HEAD~1"),
        ("dev", "git:dev"),
        ("main+env:A=1+stack:ipex", "git:main+env:A=1+stack:ipex"),
        (".", "dir:."),
        ("../other", "dir:../other"),
        ("/srv/net+python:/opt/py", "dir:/srv/net+python:/opt/py"),
    ],
)
def test_a_bare_word_is_a_revision_and_a_bare_path_a_folder(bare, whole):
    assert parse_arm(bare) == parse_arm(whole)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no kind of arm"),
        ("gti:main", "did you mean 'git'?"),
        ("git", "did you mean 'git'?"),
        ("stored+x", "'stored' stands alone"),
        ("git:", "nothing follows 'git:'"),
        ("env:", "nothing follows 'env:'"),
        ("git:main+dir:", "nothing follows 'dir:'"),
        ("git:a+git:b", "gives 'git:' twice"),
        ("env:A=1+env:B=2", "gives 'env:' twice; use one, env: and set: take several"),
        ("git:main+dir:.", "names both a revision and a directory"),
        ("stored+env:A=1", "'stored' stands alone"),
        ("stored:", "is no kind of arm"),
        ("stack:nightly", "unknown stack 'nightly'; choose from default, ipex"),
        ("env:A", "'A' is not KEY=VALUE"),
        ("env:=1", "'=1' is not KEY=VALUE"),
        ("env:1A=1", "'1A=1' is not KEY=VALUE"),
        ("env:A=1,A=2", "sets A twice"),
        ("+git:main", "is no kind of arm"),
    ],
)
def test_a_wrong_arm_is_refused_with_what_is_wrong(text, said):
    with pytest.raises(ArmError) as refused:
        parse_arm(text)
    assert said in str(refused.value)
    assert repr(text) in str(refused.value)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True),
        st.text(st.sampled_from("abc019=+:-/. "), max_size=12),
        min_size=1,
        max_size=5,
    )
)
def test_variables_without_commas_read_back_as_they_were_written(variables):
    text = "env:" + ",".join(f"{key}={value}" for key, value in variables.items())
    assert parse_arm(text).environment == tuple(sorted(variables.items()))


@given(st.text(max_size=40))
def test_no_text_brings_another_error_than_its_own(text):
    with contextlib.suppress(ArmError):
        assert parse_arm(text).text in (text, f"git:{text}", f"dir:{text}")
