from __future__ import annotations

import os
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.errors import ConfigError, ExitCode
from perfguard.records.allowance import Allowance
from perfguard.store.allowances import allow_file, allowances_text, load_allowances, one_line, save_allowances

TODAY = date(2026, 11, 21)
ENTRY = Allowance(
    case='kernel.linear[m=1,dtype=bf16]"\\', max_ratio=0.03, until=date(2027, 1, 31), reason="größer — see #12"
)
HEAD = "schema = 1\n[[allow]]\n"
GOOD = {"case": '"x"', "max_ratio": "0.03", "until": "2027-01-31", "reason": '"why"'}


def file_with(tmp_path, text):
    path = tmp_path / "allow.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def entry_with(**values):
    return HEAD + "".join(f"{key} = {value}\n" for key, value in (GOOD | values).items() if value is not None)


def test_what_is_saved_is_loaded_again(tmp_path):
    path = allow_file(tmp_path / "baselines")
    other = Allowance(case="a*", max_ratio=1 / 3, until=TODAY - timedelta(days=400), reason="old")
    save_allowances(path, [ENTRY, other])
    assert load_allowances(path, today=TODAY) == (other, ENTRY)
    assert [found.name for found in path.parent.iterdir()] == ["allow.toml"]


def test_a_pipe_in_its_place_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "allow.toml")
    with pytest.raises(ConfigError, match="it is a pipe, not a file; remove it"):
        load_allowances(tmp_path / "allow.toml", today=TODAY)


def test_entries_are_sorted_so_that_a_further_one_moves_none():
    other = Allowance(case="b", max_ratio=0.1, until=TODAY, reason="r")
    assert allowances_text([ENTRY, other]) == allowances_text([other, ENTRY])
    alone, both = allowances_text([ENTRY]).splitlines(), allowances_text([ENTRY, other]).splitlines()
    assert [line for line in alone if line not in both] == []


@given(reason=st.text(), case=st.text(min_size=1), ratio=st.floats(1e-6, 1.0), days=st.integers(-3000, 366))
def test_any_entry_survives_the_file(tmp_path_factory, reason, case, ratio, days):
    reason, case = one_line(reason) or "r", one_line(case) or "c"
    entry = Allowance(case=case, max_ratio=ratio, until=TODAY + timedelta(days=days), reason=reason)
    path = tmp_path_factory.mktemp("allow") / "allow.toml"
    save_allowances(path, [entry])
    assert load_allowances(path, today=TODAY) == (entry,)


def test_no_file_allows_nothing(tmp_path):
    assert load_allowances(tmp_path / "allow.toml", today=TODAY) == ()
    assert load_allowances(file_with(tmp_path, "schema = 1\n"), today=TODAY) == ()


def test_a_date_may_be_written_as_text_and_a_whole_number_as_ratio(tmp_path):
    path = file_with(tmp_path, entry_with(until='"2027-01-31"', max_ratio="1"))
    assert load_allowances(path, today=TODAY)[0].until == date(2027, 1, 31)
    assert load_allowances(path, today=TODAY)[0].max_ratio == 1.0


def test_a_reason_over_several_lines_with_control_characters_becomes_one_safe_line(tmp_path):
    path = file_with(tmp_path, entry_with(reason='"""new\n\n  padding\\u001b[31m \\u202e code\\r\\n\\u0007"""'))
    (entry,) = load_allowances(path, today=TODAY)
    assert entry.reason == "new padding [31m code"


def test_two_entries_for_one_case_are_both_kept(tmp_path):
    text = entry_with() + "\n" + entry_with(max_ratio="0.01").removeprefix("schema = 1\n")
    assert [entry.max_ratio for entry in load_allowances(file_with(tmp_path, text), today=TODAY)] == [0.03, 0.01]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has schema None, this perfguard reads 1"),
        ("schema = 2\n", "has schema 2"),
        ("schema = true\n", "has schema True"),
        ('schema = "1"\n', "has schema '1'"),
        ("schema = 1\nallowed = []\n", "unknown key 'allowed'; did you mean 'allow'?"),
        ("schema = 1\nallow = 3\n", "is not valid: Expected `array`, got `int` - at `$.allow`"),
        ('schema = 1\nallow = ["x"]\n', "is not valid: Expected `object`, got `str`"),
        ("schema = 1\n[allow]\nx = 0.03\n", "is not valid: Expected `array`, got `object`"),
        (entry_with(max='"3%"'), "entry 1: unknown key 'max'; did you mean 'max_ratio'?"),
        (entry_with(max_ratio='"3%"'), "Expected `float`, got `str` - at `$.allow[0].max_ratio`"),
        (entry_with(max_ratio="true"), "Expected `float`, got `bool`"),
        (entry_with(max_ratio="3"), "entry 1 ('x'): max_ratio = 3 must be above 0 and at most 1"),
        (entry_with(max_ratio="0"), "must be above 0"),
        (entry_with(max_ratio="-0.03"), "must be above 0"),
        (entry_with(max_ratio="nan"), "max_ratio = nan must be above 0"),
        (entry_with(max_ratio="inf"), "max_ratio = inf must be above 0"),
        (entry_with(until="2027-01-31T00:00:00Z"), "is not valid"),
        (entry_with(until="20270131"), "Expected `date`, got `int`"),
        (entry_with(until='"soon"'), "Invalid RFC3339 encoded date"),
        (entry_with(until="2027-02-30"), "is not valid TOML"),
        (entry_with(until="2029-01-01"), "until = 2029-01-01 is more than a year ahead"),
        (entry_with(until="9999-12-31"), "is more than a year ahead"),
        (entry_with(until=None), "Object missing required field `until`"),
        (entry_with(case="3"), "Expected `str`, got `int`"),
        (entry_with(case='"  "'), "case must not be empty"),
        (entry_with(reason='" \\n\\u0000 "'), "reason must say why"),
        (entry_with(reason=None), "Object missing required field `reason`"),
        ("<<<<<<< HEAD\nschema = 1\n", "is not valid TOML"),
        ("schema = 1\nschema = 1\n", "is not valid TOML"),
        (b"\xff\xfe\x00", "cannot be read"),
        ("x = " + "[" * 50_000, "is not valid TOML"),
    ],
)
def test_a_corrupt_or_foreign_file_gives_one_sentence_that_names_it(tmp_path, text, said):
    path = file_with(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_allowances(path, today=TODAY)
    message = str(caught.value)
    assert str(path) in message
    assert said in message
    assert caught.value.exit_code is ExitCode.USAGE
    assert "\n" not in message


def test_a_directory_in_its_place_gives_a_sentence(tmp_path):
    (tmp_path / "allow.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_allowances(tmp_path / "allow.toml", today=TODAY)
