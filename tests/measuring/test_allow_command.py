"""`perfguard allow`, and gates with an allow-list."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from tests.tiny_projects import facts, noted, outcomes, passes

SLOWER = ("return sum(range(LENGTH))", "return [sum(range(n)) for n in (9_000, LENGTH)][1]")
"""About 45 % more work, the same result."""


def allow(project, *arguments):
    return project.run("allow", *arguments)


def tomorrow():
    return (datetime.now(timezone.utc) + timedelta(days=1)).date().isoformat()


def entries(project):
    return json.loads(allow(project, "--list", "--json").stdout)


def test_a_slowdown_is_red_allowed_for_a_while_and_red_again_when_the_entry_has_expired(project):
    project.replace("tiny_work.py", *SLOWER)
    done = allow(project, "tiny.sum", "--max", "100%", "--until", "30d", "--reason", "exact sums,\nsee #12")
    assert done.returncode == 0, done.stderr
    assert "names 1 case: tiny.sum" in done.stdout
    allowed = project.result("compare", "-c", "tiny.sum", "--max-blocks", "20")
    assert outcomes(allowed) == {"tiny.sum": "allowed"}, allowed["reasons"]
    assert passes(allowed)
    until = entries(project)[0]["until"]
    (verdict,) = allowed["gate"]["verdicts"]
    (allowance,) = facts(verdict, "allowance.applied")
    assert allowance["values"] == {"limit_ratio": 1.0, "until": until, "why": "exact sums, see #12", "entries": None}
    (used,) = noted(allowed, "allowance.used")
    assert (used["values"]["pattern"], used["values"]["until"]) == ("tiny.sum", until)
    shown = project.result("show")
    assert outcomes(shown) == {"tiny.sum": "allowed"}
    assert shown["duration_s"] == allowed["duration_s"]
    assert passes(shown)

    file = project.path / "baselines" / "allow.toml"
    file.write_text(file.read_text().replace(until, "2026-01-31"))
    again = project.result("show", "--rejudge")
    assert (again["exit_code"], outcomes(again)) == (1, {"tiny.sum": "regressed"})
    (expired,) = noted(again, "allowance.expired")
    assert expired["values"] == {"pattern": "tiny.sum", "until": "2026-01-31"}
    file.write_text(file.read_text().replace("2026-01-31", until).replace("max_ratio = 1.0", "max_ratio = 0.01"))
    strict = project.result("show", "--rejudge")
    assert strict["exit_code"] == 1
    (exceeded,) = facts(strict["gate"]["verdicts"][0], "allowance.exceeded")
    assert exceeded["values"] == {"limit_ratio": 0.01, "until": until}


def test_entries_are_listed_replaced_and_removed(project):
    assert "nothing is allowed" in allow(project, "--list").stdout
    assert allow(project, "tiny.*", "--max", "3%", "--until", "2w", "--reason", "größer ✓").returncode == 0
    before = tomorrow()
    done = allow(project, "tiny.*", "--max", "0.05", "--until", "1d", "--reason", "twice")
    assert "replaced: tiny.*  up to 3.00 % slower" in done.stderr
    assert "names 2 cases: tiny.sort, tiny.sum" in done.stdout
    (entry,) = entries(project)
    assert entry["until"] in {before, tomorrow()}  # the day may have changed meanwhile
    assert entry == {
        "case": "tiny.*", "max_ratio": 0.05, "until": entry["until"], "reason": "twice", "expired": False
    }  # fmt: skip
    assert f"tiny.*  up to 5.00 % slower until {entry['until']}: twice (" in allow(project, "--list").stdout
    assert allow(project, "--remove", "tiny.*").returncode == 0
    assert entries(project) == []


def test_an_entry_may_name_cases_by_tag_live_and_in_a_recording(project):
    """So slow that it is red on any host; the reason tells that the entry was found."""
    assert allow(project, "tag:no-torch", "--max", "100%", "--until", "1d", "--reason", "r").returncode == 0
    measured = project.result("compare", "-c", "tiny.sum", "--inject", "tiny.sum=+500%")
    shown = project.result("show", "--rejudge")
    for result in (measured, shown):
        assert outcomes(result) == {"tiny.sum": "regressed"}
        (found,) = facts(result["gate"]["verdicts"][0], "allowance.exceeded")
        assert found["values"]["limit_ratio"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("tiny.summ", "--max", "3%", "--until", "30d", "--reason", "r"), 5, "the nearest is 'tiny.sum'"),
        (("tiny.sum", "--max", "-3%", "--until", "30d", "--reason", "r"), 2, "--max '-3%' is no percentage above zero"),
        (("tiny.sum", "--max", "300%", "--until", "30d", "--reason", "r"), 2, "at most 100.0 % can be allowed"),
        (("tiny.sum", "--max", "3", "--until", "30d", "--reason", "r"), 2, "3 % is written 3% or 0.03"),
        (("tiny.sum", "--max", "nan", "--until", "30d", "--reason", "r"), 2, "no percentage above zero"),
        (("tiny.sum", "--max", "3%", "--until", "2020-01-31", "--reason", "r"), 2, "2020-01-31 is in the past"),
        (("tiny.sum", "--max", "3%", "--until", "2099-01-31", "--reason", "r"), 2, "more than a year ahead"),
        (("tiny.sum", "--max", "3%", "--until", "53w", "--reason", "r"), 2, "more than a year ahead"),
        (("tiny.sum", "--max", "3%", "--until", "2027-02-30", "--reason", "r"), 2, "'2027-02-30' is no date"),
        (("tiny.sum", "--max", "3%", "--until", "soon", "--reason", "r"), 2, "'soon' is no date"),
        (("tiny.sum", "--max", "3%", "--until", "30d", "--reason", " \n\x07"), 2, "--reason must say why"),
        (("tiny.sum", "--max", "3%"), 2, "--until and --reason are missing"),
        (("--max", "3%", "--until", "30d", "--reason", "r"), 2, "CASE is missing"),
        ((), 2, "give either CASE"),
        (("tiny.sum", "--list"), 2, "give either CASE"),
        (("--remove", "tiny.sum"), 2, "holds none"),
    ],
)
def test_what_cannot_be_allowed_is_said_in_one_sentence_and_nothing_is_written(project, arguments, code, said):
    done = allow(project, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project.path / "baselines").exists()


def test_a_broken_allow_list_ends_a_gate_before_anything_is_measured(project):
    project.write("baselines/allow.toml", "schema = 1\n[[allow]]\ncase = 'tiny.sum'\nmax_ratio = 'a lot'\n")
    for arguments in (("gate",), ("compare",), ("allow", "--list")):
        done = project.run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "allow.toml is not valid: Expected `float`, got `str`" in done.stderr
    assert not (project.path / ".perfguard" / "runs").exists()
