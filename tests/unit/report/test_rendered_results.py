"""Results as text: against golden files, and with hostile names. `PERFGUARD_UPDATE_GOLDEN=1` writes the files anew."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.records.estimate import Estimate, Interval
from perfguard.records.facts import Severity, fact, recorded_text
from perfguard.records.result import ArmSummary, CaseMeasured, RunResult, ScalingCell
from perfguard.records.spec import Gating
from perfguard.records.verdict import Comparison, GateOutcome, GateResult, Outcome, Policy, SignalFinding, Verdict
from perfguard.report.comment.markdown import escape, render_markdown
from perfguard.report.lines import names_in, note_lines
from perfguard.report.rows import MARKS, format_interval
from perfguard.report.terminal.result import render_result
from perfguard.units import printable
from tests.changed_values import replace
from tests.printed_text import printed

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = "evil[/][bold red]x[/bold red] | `code` <script>alert(1)</script> **b** _i_ ](http://x) \x1b[31m"


def verdict(name, outcome, effect=None, *, gating=Gating.GATING, reason="because it was seen", spread=0.01):
    estimate = None
    if effect is not None:
        center = math.log1p(effect)
        estimate = Estimate(
            log_ratio=center,
            standard_error=spread / 2,
            block_sd=spread,
            blocks=12,
            degrees_of_freedom=11.0,
            interval=Interval(lower=center - spread, upper=center + spread, level=0.95),
        )
    comparison = Comparison(
        case_id=name,
        gating=gating,
        estimate=estimate,
        p_regressed=None if effect is None else 0.01,
        p_improved=None if effect is None else 0.99,
        baseline_median_s=None if effect is None else 0.00123,
        candidate_median_s=None if effect is None else 0.00123 * (1 + effect),
        margin_ratio=0.005,
        problem=None if effect is not None else recorded_text(reason),
        problem_outcome=None if effect is not None else outcome,
    )
    return Verdict(
        case_id=name, outcome=outcome, gating=gating, reasons=(recorded_text(reason),), comparison=comparison
    )


def result(*verdicts, **fields):
    gate = GateResult(
        outcome=GateOutcome.REGRESSED,
        reasons=(recorded_text("1 of 4 cases regressed"),),
        verdicts=verdicts,
        policy=Policy(),
        blocks_total=12,
        blocks_voided=1,
        notes=(fact("host.block_disturbed", severity=Severity.NOTABLE, block=3, is_voided=True, control_ratio=0.4),),
    )
    arms = {
        "candidate": ArmSummary(
            text="dir:.", source_id="s2", interpreter="/py", python="3.11.7", torch="2.13.0", stack_id="t1"
        ),
        "baseline": ArmSummary(
            text="git:main", source_id="s1", interpreter="/py", python="3.11.7", torch=None, stack_id=None
        ),
    }
    defaults = {
        "command": "compare",
        "run_id": "20260102T030405-abcdef",
        "folder": "/project/.perfguard/runs/20260102T030405-abcdef",
        "suite": "pr",
        "machine_id": "intel-sapphirerapids-1s2c-0123abcd",
        "machine": "Intel Xeon (sapphirerapids), 2 cores",
        "cpus": (2, 3),
        "arms": arms,
        "gate": gate,
        "exit_code": 1,
        "verdict": "regressed",
        "reasons": (recorded_text("1 of 4 cases regressed"),),
        "notes": (fact("run.started", version="1.0", seed=7),),
        "duration_s": 125.0,
    }
    return RunResult(**{**defaults, **fields})


COMPARED = result(
    verdict("step.bert[layers=2,dtype=bf16]", Outcome.UNCHANGED, 0.001),
    verdict("kernel.linear[m=128,dtype=bf16]", Outcome.REGRESSED, 0.074, reason="7.40 % slower; p = 0.0001"),
    verdict("kernel.sdpa[causal=false]", Outcome.IMPROVED, -0.21, reason="21.0 % faster"),
    verdict("kernel.noisy", Outcome.INCONCLUSIVE, 0.01, gating=Gating.ADVISORY, spread=0.2, reason="too noisy to gate"),
    verdict("kernel.crash", Outcome.FAILED, reason="the candidate failed: out of memory"),
    verdict("kernel.new", Outcome.NO_BASELINE, reason="the baseline has no such case"),
    verdict("kernel.other", Outcome.INCOMPARABLE, reason="another machine"),
)
MEASURED = result(
    command="run",
    gate=None,
    arms={},
    exit_code=3,
    verdict="failed",
    reasons=(recorded_text("1 of 2 cases failed"),),
    measured=(
        CaseMeasured(
            case_id="kernel.linear[m=128]",
            rounds=8,
            median_s=0.00123,
            between_sd_ratio=0.012,
            within_sd_ratio=0.004,
            inner_loops=41,
        ),
        CaseMeasured(
            case_id="kernel.crash",
            rounds=0,
            median_s=None,
            between_sd_ratio=None,
            within_sd_ratio=None,
            inner_loops=None,
            problem=fact("case.raised", error="out of memory"),
        ),
    ),
)


SCALED = replace(
    MEASURED,
    scaling=tuple(
        ScalingCell(
            case_id=f"step.bert[batch=4,ranks={ranks}]",
            step="step.bert[batch=4]",
            threads=1,
            ranks=ranks,
            parallel="ddp" if ranks > 1 else None,
            examples_per_s=100.0 * ratio,
            throughput_ratio=ratio,
        )
        for ranks, ratio in ((1, 1.0), (2, 1.87), (4, 3.46))
    ),
)


@pytest.mark.parametrize("width", [60, 200])
def test_throughput_over_ranks_is_in_every_output(width):
    for text in (terminal_text(SCALED, width), render_markdown(SCALED)):
        (row,) = (line for line in text.splitlines() if "1.87" in line)
        assert [cell for cell in row.replace("|", " ").split() if cell] == ["1", "ddp", "1.00", "1.87", "3.46"]


def terminal_text(shown, width=200):
    text = printed(render_result(shown, width=width), width)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@pytest.mark.parametrize("name", ["compared", "measured"])
@pytest.mark.parametrize(("render", "ending"), [(terminal_text, "txt"), (render_markdown, "md")])
def test_a_result_reads_as_its_golden_file(name, render, ending):
    text = render({"compared": COMPARED, "measured": MEASURED}[name])
    path = GOLDEN / f"{name}.{ending}"
    if os.environ.get("PERFGUARD_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_nothing_is_lost_on_a_narrow_terminal(width):
    """Words may wrap, but each case, outcome and interval is there, whatever the width."""
    text = "".join(terminal_text(COMPARED, width=width).split())
    names = names_in(COMPARED)
    for verdict in COMPARED.gate.verdicts:
        assert "".join(printable(names[verdict.case_id]).split()) in text
        assert "".join(MARKS[verdict.outcome].word.split()) in text
        assert "".join(format_interval(verdict.comparison.estimate).split()) in text


def test_what_matters_most_comes_first_in_markdown():
    rows = [line for line in render_markdown(COMPARED).splitlines() if line.startswith("| ")]
    words = [row.split("**")[1] for row in rows if "**" in row]
    assert words == ["failed", "regressed", "incomparable", "no-baseline", "inconclusive", "improved", "unchanged"]


HOSTILE_RESULT = result(
    verdict(HOSTILE, Outcome.REGRESSED, 0.1, reason=HOSTILE),
    reasons=(recorded_text(HOSTILE),),
    machine=HOSTILE,
    notes=(replace(recorded_text(HOSTILE), severity=Severity.NOTABLE),),
    arms={
        "candidate": ArmSummary(
            text=HOSTILE, source_id=None, interpreter=None, python=HOSTILE, torch=HOSTILE, stack_id=None
        )
    },
)
HOSTILE_MEASURED = replace(
    MEASURED,
    reasons=(recorded_text(HOSTILE),),
    measured=(replace(MEASURED.measured[1], case_id=HOSTILE, problem=recorded_text(HOSTILE)),),
)


@pytest.mark.parametrize("shown", [HOSTILE_RESULT, HOSTILE_MEASURED], ids=["compared", "measured"])
def test_hostile_text_is_neither_html_nor_a_new_cell_nor_a_new_row_in_markdown(shown):
    text = render_markdown(shown)
    assert "<script" not in "".join(text.split("`")[::2]), "outside of a code span"
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1


@pytest.mark.parametrize("shown", [HOSTILE_RESULT, HOSTILE_MEASURED], ids=["compared", "measured"])
def test_hostile_text_is_printed_as_it_is_and_moves_no_terminal(shown):
    text = terminal_text(shown, width=400)
    assert "evil[/][bold red]x[/bold red]" in text
    assert "\x1b" not in text


def test_a_line_break_in_a_reason_does_not_start_a_heading_or_a_list():
    text = render_markdown(replace(HOSTILE_RESULT, reasons=(recorded_text("first\n# second\n- third"),)))
    assert "\n# second" not in text
    assert "\n- third" not in text


@given(st.text(max_size=60))
def test_escaped_text_is_one_line_without_markup(text):
    escaped = escape(text)
    assert "\n" not in escaped
    assert not set("<>`") & set(escaped)
    assert all(escaped[i - 1] == "\\" for i, character in enumerate(escaped) if character in "|*_")


def test_an_unknown_interval_is_a_dash():
    estimate = Estimate(
        log_ratio=0.1,
        standard_error=math.inf,
        block_sd=math.nan,
        blocks=1,
        degrees_of_freedom=0.0,
        interval=Interval(lower=-math.inf, upper=math.inf, level=0.95),
    )
    one = verdict("kernel.one", Outcome.INCONCLUSIVE, 0.1)
    shown = result(replace(one, comparison=replace(one.comparison, estimate=estimate)))
    assert "inf" not in terminal_text(shown)
    assert "nan" not in render_markdown(shown)


def test_without_any_case_there_is_still_a_verdict():
    empty = result(gate=None, arms={}, notes=(), reasons=(recorded_text("nothing was measured"),))
    assert terminal_text(empty).splitlines()[-1] == "regressed: nothing was measured"
    assert render_markdown(empty).startswith("## perfguard: regressed")


def shown(found):
    return printed(render_result(found, width=160), 160)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_sign_and_a_place(outcome):
    found = result(verdict("case", outcome, 0.01))
    assert MARKS[outcome].word in shown(found)
    assert f"**{outcome.value}**" in render_markdown(found)


def test_what_changed_beside_wall_time_stands_below_its_case():
    finding = SignalFinding(
        signal="faults",
        outcome=Outcome.REGRESSED,
        gating=False,
        unit="",
        baseline=0.0,
        candidate=120.0,
        p_adjusted=1e-9,
        fact=recorded_text("0 → 120 in 12 paired blocks"),
    )
    quiet = replace(finding, signal="cpu", outcome=Outcome.UNCHANGED)
    found = result(replace(verdict("case", Outcome.UNCHANGED, 0.001), signals=(quiet, finding)))
    line = "faults regressed (advisory): 0 → 120 in 12 paired blocks"
    assert f"    {line}" in shown(found)
    assert line in render_markdown(found)
    assert "cpu" not in shown(found)


def test_what_the_machine_lacks_is_named():
    found = result(verdict("case", Outcome.UNCHANGED, 0.001))
    found = replace(
        found, gate=replace(found.gate, missing_signals=(fact("signal.missing", signal="energy", why="no RAPL"),))
    )
    (line,) = note_lines(found, Severity.INFO)[-1:]
    assert "energy" in line
    assert "no RAPL" in line
    assert line not in shown(found)


def test_cpu_seconds_that_follow_the_time_are_not_told_twice():
    finding = SignalFinding(
        signal="cpu",
        outcome=Outcome.REGRESSED,
        gating=True,
        unit="s",
        baseline=0.01,
        candidate=0.02,
        p_adjusted=1e-9,
        fact=recorded_text("10 ms → 20 ms"),
    )
    slower = result(replace(verdict("case", Outcome.REGRESSED, 1.0), signals=(finding,)))
    assert "cpu regressed" not in shown(slower)
    faster = result(replace(verdict("case", Outcome.IMPROVED, -0.1), signals=(finding,)))
    assert "cpu regressed: 10 ms → 20 ms" in shown(faster)
