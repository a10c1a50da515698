"""Tables of the terminal at any width: no line is wider, no cell is folded, no name is taken for markup."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from perfguard.cli.commands import describe as listing
from perfguard.cli.commands.interchange import _series_table
from perfguard.records.result import CaseMeasured
from perfguard.records.spec import Case
from perfguard.records.steps.ops import OpTotal
from perfguard.report.terminal.calibration import render_calibration, render_plan
from perfguard.report.terminal.ops import render_attribution, render_breakdown
from perfguard.report.terminal.projection import render_projection
from perfguard.report.terminal.result import render_result
from perfguard.report.terminal.tables import FittedTable, fit, plain_table
from tests.calibrated_machines import plan_of
from tests.changed_values import replace
from tests.example_attribution import attribution_of
from tests.html_reports import a_breakdown, a_projection
from tests.interchange_files import measured, suite_of
from tests.printed_text import printed
from tests.unit.report.test_rendered_calibrations import SUMMARY, planned
from tests.unit.report.test_rendered_projections import CASE as PROJECTION
from tests.unit.report.test_rendered_results import COMPARED, MEASURED

WIDTHS = (60, 80, 100, 140)
LONG = "step.a_very_long_name_of_a_benchmark[layers=2,hidden=1024,dtype=bf16,layout=channels_last]"
HOSTILE = "evil[/][bold red]x[/bold red][link=http://x]y[/link]\x1b[31m"
SOURCE = "some/deeply/nested/folder/of/a/project/train_a_model.py:1234"


def ops(name: str):
    attribution = attribution_of(name)
    keys = [replace(delta.key, op=f"aten::{name}_backward", module="Net.encoder.layers.11.attention.output.dense")
            for delta in attribution.deltas]  # fmt: skip
    deltas = tuple(replace(delta, key=key, source=SOURCE) for delta, key in zip(attribution.deltas, keys, strict=True))
    totals = [OpTotal(key=key, calls=1e6, self_s=1e-3, source=SOURCE) for key in keys]
    return [*render_attribution(replace(attribution, deltas=deltas)), *render_breakdown(a_breakdown(), totals)]


def projections(name: str):
    problems = tuple(replace(problem, name=name) for problem in PROJECTION.ops.problems)
    points = tuple(replace(point, name=name) for point in PROJECTION.roofline)
    found = replace(PROJECTION, ops=replace(PROJECTION.ops, problems=problems), roofline=points)
    return [*render_projection(found, name=name), *render_projection(a_projection(name), name=name)]


def results(name: str, width: int):
    verdicts = (*COMPARED.gate.verdicts, replace(COMPARED.gate.verdicts[1], case_id=name))
    compared = replace(COMPARED, gate=replace(COMPARED.gate, verdicts=verdicts))
    cases: tuple[CaseMeasured, ...] = (*MEASURED.measured, replace(MEASURED.measured[0], case_id=name))
    one_arm = replace(MEASURED, measured=cases)
    return [*render_result(compared, width=width), *render_result(one_arm, width=width)]


def calibrations(name: str, width: int):
    summary = replace(SUMMARY, cases=(*SUMMARY.cases, replace(SUMMARY.cases[0], case_id=name)))
    plan = plan_of(planned(name, gating=True), planned("c", gating=False, reason="loud"), minutes=3.0)
    return [*render_calibration(summary, width=width), *render_plan(plan, width=width)]


def imported(name: str):
    return [_series_table(suite_of(measured(name, (1.0, 2.0), (1.5, 2.5))))]


RENDERERS = {
    "ops": lambda name, _: ops(name),
    "projections": lambda name, _: projections(name),
    "results": results,
    "calibrations": calibrations,
    "imported": lambda name, _: imported(name),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [LONG, "長い名前" * 20, "short"], ids=["long", "wide", "short"])
@pytest.mark.parametrize("render", RENDERERS.values(), ids=RENDERERS)
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_folded(render, name, width):
    parts = render(name, width)
    tables = [part for part in parts if isinstance(part, FittedTable)]
    for part in parts:
        assert max((cell_len(line) for line in printed([part], width).splitlines()), default=0) <= width
    for table in tables:
        lines = [line for line in printed([table], width).splitlines() if line.strip()]
        assert len(lines) == len(table._rows) + 2  # the heading and the line below it
    assert tables or render is results


@pytest.mark.parametrize("render", RENDERERS.values(), ids=RENDERERS)
def test_names_are_never_taken_for_markup(render):
    drawn = printed(render(HOSTILE, 400), 400)
    assert "evil[/][bold red]x[/bold red][link=http://x]y[/link]" in drawn
    assert "\x1b" not in drawn


@pytest.mark.parametrize("width", WIDTHS)
def test_what_an_op_costs_and_where_it_is_stay_at_any_width(width):
    table = next(part for part in ops("convolution") if isinstance(part, FittedTable))
    heading = printed([table], width).splitlines()[1]
    assert all(name in heading for name in ("op", "Δ per step", "source"))


def test_columns_are_dropped_by_rank_and_names_shortened_before():
    table = plain_table("~name", ">first/1", ">second/2")
    table.add_row("a" * 30, "11", "22")
    assert "second" in printed([table], 40)
    assert "second" not in printed([table], 25)
    assert "first" in printed([table], 25)
    assert "first" not in printed([table], 20)


@pytest.mark.parametrize("width", range(1, 12))
def test_a_shortened_name_is_never_wider_than_its_place(width):
    assert cell_len(fit("名前abcdef名前", width)) <= max(width, 1)
    assert fit("abc", 3) == "abc"


@pytest.mark.parametrize("width", WIDTHS)
def test_listed_cases_fit_a_terminal_or_are_stacked(monkeypatch, capsys, width):
    monkeypatch.setattr(listing, "_room", lambda: width)
    cases = [Case(benchmark="kernel.linear", target="", parameters=(("m", 512), ("name", "x" * 30)))]
    listing._print_cases(cases, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(cases[0].id)
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_listed_benchmarks_fit_a_terminal(monkeypatch, capsys, width):
    monkeypatch.setattr(listing, "_room", lambda: width)
    listing._print_wrapped("  kernel.linear  " + "words of a description " * 10, indent=17)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) > 1
