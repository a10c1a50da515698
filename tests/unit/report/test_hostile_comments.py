"""Comments on results that a stranger wrote: whatever stands in them stays text."""

from __future__ import annotations

import json
import math
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.codec import from_builtins, to_json
from perfguard.integrations.github.job import Annotation, Level, annotation_line, annotations_of, output_lines
from perfguard.recordings import with_nan
from perfguard.records.estimate import Estimate, Interval
from perfguard.records.result import RunResult
from perfguard.records.verdict import Outcome
from perfguard.report.comment.comment import COMMENT_CHARACTERS, CommentContext, marker_line, render_comment
from perfguard.report.comment.markdown import render_markdown
from perfguard.report.escaping import code, escape, escape_html
from tests.changed_values import replace
from tests.commented_results import INCONCLUSIVE, PASSED, REGRESSED, gate_result, judged, other_environment
from tests.composite_action import commands_in, parse_outputs
from tests.hostile_texts import TEXTS, assert_harmless, poisoned, shown

URL = "https://github.example/octo/net/actions/runs/1"
CONTEXT = CommentContext(marker="gate", head_sha="f" * 40, report_url=URL, accept_label="perf-accepted", from_fork=True)
BASES = {"regressed": REGRESSED, "pass": PASSED, "inconclusive": INCONCLUSIVE, "environment": other_environment()}


@pytest.mark.parametrize(
    "text",
    ["<b>x</b>", "[a](http://b)", "@octocat", "#12", "www.evil.example", "http://evil", "a@b.cc", "$x$", "\u202ex"],
)
def test_what_is_not_escaped_is_seen(text):
    with pytest.raises(AssertionError):
        assert_harmless(f"<!-- x -->\n\na {text} z")


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_in_every_field_of_a_result_stays_text(base, text):
    comment = render_comment(poisoned(BASES[base], text), CONTEXT)
    assert len(comment) <= COMMENT_CHARACTERS
    assert comment.startswith("<!-- perfguard:gate -->\n\n### ")
    assert_harmless(comment, links=(URL,))


@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_text_in_every_field_stays_text(text):
    assert_harmless(render_comment(poisoned(REGRESSED, text), CONTEXT), links=(URL,))


@given(st.lists(st.sampled_from([*"`*_[]()<>#@!|\\~$&-+=. \n1aw:/", "www.", "http://", "<!--", "GH-1"])))
@settings(max_examples=300, deadline=None)
def test_no_arrangement_of_markup_becomes_markup(parts):
    text = "".join(parts)
    assert_harmless(f"<!-- x -->\n\n- {escape(text)}\n\n**{escape(text) or 'x'}**\n\n{code(text)}: {escape(text)}")
    assert_harmless(f"<!-- x -->\n\n<details><summary>{escape_html(text)}</summary>\n\nx\n\n</details>")


@given(st.text(alphabet=st.characters(exclude_categories=["C", "Z"]), max_size=40))
def test_what_is_escaped_reads_as_it_did(text):
    said = "".join(shown(f"a {escape(text)} z").text).replace("\u200b", "").strip()
    assert said == f"a {text} z".replace("`", "'").replace("$", "\N{FULLWIDTH DOLLAR SIGN}")


def test_a_commands_case_id_cannot_leave_its_quotes():
    for text in TEXTS:
        comment = render_comment(poisoned(REGRESSED, text), replace(CONTEXT, reproduce="perfguard compare"))
        lines = comment[comment.find("```sh") :].splitlines()
        for line in (line for line in lines if line.startswith("perfguard ")):
            words = shlex.split(line)
            assert words[1] in ("compare", "allow")
            if words[1] == "allow":
                assert [words[2], len(words)] == [text, 9]
            else:
                assert words[2:] in ([], ["--ops", "-c", text])


def test_a_fork_brings_no_command_of_its_own():
    assert "env:X=1" in render_comment(REGRESSED, replace(CONTEXT, from_fork=False))
    assert "env:X=1" not in render_comment(REGRESSED, CONTEXT)
    forged = {**REGRESSED.arms, "candidate": replace(REGRESSED.arms["candidate"], text="git:$(id)")}
    assert "$(id)" not in render_comment(replace(REGRESSED, arms=forged), CONTEXT)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_markdown_of_other_commands_is_harmless_too(text):
    markdown = "<!-- x -->\n\n" + render_markdown(poisoned(REGRESSED, text))
    page = shown(markdown)
    assert not {"script", "img", "a", "h1", "b", "details"} & set(page.tags)


@pytest.mark.parametrize("number", [math.nan, 1e308, -1e308, 5e-324, -0.0, 1e18], ids=str)
def test_no_number_breaks_a_comment(number):
    interval = Interval(lower=number, upper=-number, level=number)
    estimate = Estimate(
        log_ratio=number,
        standard_error=number,
        block_sd=number,
        blocks=10**30,
        degrees_of_freedom=number,
        interval=interval,
    )
    verdicts = [judged(f"kernel.x{index}", outcome, 0.01) for index, outcome in enumerate(Outcome)]
    odd = [
        replace(
            v, comparison=replace(v.comparison, estimate=estimate, baseline_median_s=number, candidate_median_s=number)
        )
        for v in verdicts
    ]
    result = gate_result(REGRESSED.gate.outcome, "odd", *odd, *verdicts)
    result = replace(result, gate=replace(result.gate, policy=replace(result.gate.policy, alpha=number)))
    assert_harmless(render_comment(result, CONTEXT), links=(URL,))


def test_a_marker_is_one_word_of_one_comment():
    for marker in (*TEXTS, "a--b", "---", "-->", "a b\nc", ">"):
        line = marker_line(marker)
        assert shown(line + "\n\nx").comments == [line.removeprefix("<!--").removesuffix("-->")]
        assert "\n" not in line


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_in_an_annotation_is_one_command(text):
    annotation = Annotation(level=Level.ERROR, title=text, message=text, file=text, line=3)
    line = annotation_line(annotation)
    assert "\n" not in line
    assert "\r" not in line
    assert len(commands_in(line)) == 1
    properties = line.removeprefix("::error ").partition("::")[0]
    assert {part.partition("=")[0] for part in properties.split(",")} <= {"file", "line", "title"}


def test_annotations_of_a_hostile_result_are_commands_of_ours():
    for text in TEXTS:
        result = poisoned(REGRESSED, text)
        lines = [annotation_line(annotation) for annotation in annotations_of(result)]
        assert len(lines) == len(annotations_of(REGRESSED))
        assert all(line.startswith(("::error title=", "::warning title=", "::notice title=")) for line in lines)


@given(st.text(), st.text(alphabet="end-0123456789abcdef<=\n", max_size=80))
def test_an_output_adds_no_output_of_its_own(text, forged):
    value = f"{text}\nverdict<<x\npass\nx\n{forged}"
    read = parse_outputs(output_lines({"verdict": "regressed", "free": value}))
    assert set(read) == {"verdict", "free"}
    assert read["verdict"] == "regressed"


@pytest.mark.parametrize("base", BASES)
def test_a_result_reads_back_as_it_was_written(base):
    result = BASES[base]
    back = from_builtins(with_nan(json.loads(to_json(result)), RunResult), RunResult, source="test")
    assert json.loads(to_json(back)) == json.loads(to_json(result))
    assert render_comment(back, CONTEXT) == render_comment(result, CONTEXT)
