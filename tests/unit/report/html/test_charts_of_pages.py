"""Charts hold the numbers that they are drawn from, all of them, and add up where they say so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.records.run import Stage
from perfguard.records.verdict import Outcome
from perfguard.report.case_history import histories_of
from perfguard.report.html.case_charts import ecdf, forest, pairs
from perfguard.report.html.content import BlockPoint, CaseEvidence
from perfguard.report.html.op_charts import Wedge, all_parts, donuts, elided, icicle, rooflines, waterfall, wedges_of
from perfguard.report.html.series import series
from perfguard.report.html.svg import Element
from perfguard.report.rows import case_rows
from tests.changed_values import replace
from tests.example_attribution import attribution_of
from tests.html_reports import a_breakdown, a_projection, recorded
from tests.recorded_runs import FAILING, MACHINE, SLOWER

ATTRIBUTION = attribution_of(SLOWER)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("project"))


def of_tag(drawn, tag):
    own = [drawn] if drawn.tag == tag else []
    return [*own, *(found for child in drawn.children if isinstance(child, Element) for found in of_tag(child, tag))]


def attribute(drawn, name):
    return dict(drawn.attributes).get(name)


def places(figure, tag, name, *, class_):
    found = [part for part in of_tag(figure, tag) if class_ in (attribute(part, "class") or "").split()]
    return [float(attribute(part, name).rstrip("%")) for part in found]


def verdict_of(compared, case_id):
    return next(verdict for verdict in compared.result.gate.verdicts if verdict.case_id == case_id)


finite_s = st.floats(min_value=-1e-2, max_value=1e-2, allow_subnormal=False)


@given(finite_s, finite_s, finite_s, finite_s)
def test_a_waterfalls_parts_add_up_to_the_steps_difference(ops_s, python_s, idle_s, unexplained_s):
    delta_s = ops_s + python_s + idle_s + unexplained_s
    balance = replace(
        ATTRIBUTION.balance,
        candidate_s=ATTRIBUTION.balance.baseline_s + delta_s,
        delta_s=delta_s,
        ops_s=ops_s,
        python_s=python_s,
        idle_s=idle_s,
        unexplained_s=unexplained_s,
    )
    parts = all_parts(replace(ATTRIBUTION, balance=balance))
    assert math.fsum(part.value_s for part in parts) == pytest.approx(delta_s, rel=1e-6, abs=1e-12)


def test_a_waterfalls_bars_begin_where_the_one_above_ends():
    rows = waterfall(ATTRIBUTION).figure.rows
    bars = [of_tag(row[1].content, "rect")[0] for row in rows]
    ends = [sum(float(attribute(bar, name).rstrip("%")) for name in ("x", "width")) for bar in bars]
    starts = [float(attribute(bar, "x").rstrip("%")) for bar in bars]
    assert starts[1] == pytest.approx(ends[0], abs=0.01)
    assert ends[-2] == pytest.approx(ends[-1], abs=0.3)
    assert [rows[0][0].content, rows[-1][0].content] == ["baseline", "candidate"]


def test_a_step_whose_difference_is_unknown_has_no_waterfall():
    assert waterfall(replace(ATTRIBUTION, balance=replace(ATTRIBUTION.balance, delta_s=math.nan))) is None


@given(st.lists(st.floats(min_value=1e-6, max_value=1.0), min_size=1, max_size=40))
def test_a_rings_parts_are_the_whole_step(times):
    total = math.fsum(times)
    wedges = wedges_of([Wedge(f"kind {index}", time / total, time) for index, time in enumerate(times)])
    assert len(wedges) <= 9
    assert math.fsum(wedge.share for wedge in wedges) == pytest.approx(1.0)
    assert math.fsum(wedge.time_s for wedge in wedges) == pytest.approx(total)


def test_rings_show_kinds_with_their_direction_and_phases_that_took_time():
    work, phases = donuts(a_breakdown())
    assert "convolution FWD_D: 25.0 %, 3.000 ms" in [words for _, words in work.legend]
    assert len(of_tag(work.figure, "path")) == 9
    assert len(work.data.rows) == 15
    assert len(of_tag(phases.figure, "path")) == 4


def test_a_ring_of_one_part_is_closed():
    whole = replace(a_breakdown(), slices=(replace(a_breakdown().slices[0], share=1.0),))
    assert len(of_tag(donuts(whole)[0].figure, "path")) == 1


def test_a_forest_has_a_row_for_each_case_and_its_axis_below(compared):
    chart = forest(case_rows(compared.result.gate.verdicts), {SLOWER: "#there"})
    rows = {row[0].title or row[0].content: row for row in chart.figure.rows}
    assert len(chart.figure.rows) == len(compared.result.gate.verdicts) + 1
    assert rows[SLOWER][0].link == "#there"
    assert places(rows[SLOWER][1].content, "circle", "cx", class_="slower")[0] > 50
    assert of_tag(rows[FAILING][1].content, "circle") == []
    assert "regressed" in rows[SLOWER][3].content
    assert "(advisory)" in rows[FAILING][3].content


def test_a_forest_shows_with_an_arrow_what_lies_beyond_its_axis(compared):
    slower = verdict_of(compared, SLOWER)
    estimate = slower.comparison.estimate
    wide = replace(estimate, interval=replace(estimate.interval, upper=5.0))
    many = [slower] * 9 + [replace(slower, comparison=replace(slower.comparison, estimate=wide))]
    drawn = forest(case_rows(many), {}).figure.rows[9][1].content
    assert [part.children for part in of_tag(drawn, "text")] == [("▶",)]


def test_a_gate_without_an_effect_has_no_forest(compared):
    assert forest(case_rows([verdict_of(compared, FAILING)]), {}) is None


def test_pairs_show_every_block_and_mark_what_does_not_count():
    blocks = [
        BlockPoint(block=0, log_ratio=0.05, stage=Stage.MAIN),
        BlockPoint(block=1, log_ratio=0.2, stage=Stage.MAIN, voided=("canary 12.0 % slower",)),
        BlockPoint(block=2, log_ratio=-0.01, stage=Stage.MAIN),
        BlockPoint(block=9, log_ratio=0.04, stage=Stage.CONFIRMATION),
    ]
    chart = pairs(blocks, None)
    figure = chart.figure
    heights = places(figure, "circle", "cy", class_="slower") + places(figure, "circle", "cy", class_="faster")
    assert heights == sorted(heights)
    assert len(places(figure, "text", "x", class_="voided")) == 1
    assert len(places(figure, "text", "x", class_="confirming")) == 1
    assert [row[3].content for row in chart.data.rows] == ["", "canary 12.0 % slower", "", ""]
    assert any("confirmation" in str(part.children) for part in of_tag(figure, "text"))


def test_the_blocks_that_count_are_those_that_the_effect_rests_on(compared):
    for verdict in compared.result.gate.verdicts:
        estimate = verdict.comparison.estimate
        blocks = [
            block
            for block in compared.evidence[verdict.case_id].blocks
            if block.stage is Stage.MAIN and not block.voided
        ]
        assert len(blocks) == (estimate.blocks if estimate else 0)


def test_nothing_paired_is_no_chart():
    assert pairs([], None) is None


def test_a_distribution_ends_at_all_of_its_samples():
    chart = ecdf(CaseEvidence(case_id="a", baseline_s=(1.0, 2.0, 4.0), candidate_s=(2.0, 3.0, 5.0)))
    curves = [attribute(part, "d") for part in of_tag(chart.figure, "path")]
    assert len(curves) == 2
    assert all("V0H1000" in curve for curve in curves)
    assert [cell.content for cell in chart.data.rows[2]] == ["50 %", "2.000 s", "3.000 s"]


def test_a_curve_of_many_samples_is_written_whole():
    chart = ecdf(CaseEvidence(case_id="a", candidate_s=tuple(1 + index / 7 for index in range(5000))))
    (curve,) = [part.__html__() for part in of_tag(chart.figure, "path")]
    assert 'V0H1000"' in curve
    assert 100 <= curve.count("V") <= 130


def test_a_distribution_of_one_arm_has_one_curve_and_of_none_no_chart():
    assert len(of_tag(ecdf(CaseEvidence(case_id="a", candidate_s=(1.0, 2.0))).figure, "path")) == 1
    assert ecdf(CaseEvidence(case_id="a", candidate_s=(math.nan,))) is None


def test_an_icicles_frames_lie_within_what_calls_them():
    frames = [part for part in of_tag(icicle(ATTRIBUTION).figure, "svg") if attribute(part, "class") == "step-frame"]
    spans = [
        (
            int(attribute(f, "data-level")),
            float(attribute(f, "data-left")),
            float(attribute(f, "data-left")) + float(attribute(f, "data-width")),
        )
        for f in frames
    ]
    assert spans[0] == (0, 0.0, 1.0)
    for level, left, right in spans[1:]:
        assert any(a - 1e-6 <= left and right <= b + 1e-6 for above, a, b in spans if above == level - 1)


def test_an_icicle_tells_slower_from_faster_without_colour():
    names = [part.children[0] for part in of_tag(icicle(ATTRIBUTION).figure, "text")]
    assert any(name.startswith("+ convolution_backward") for name in names)
    assert any(name.startswith("- batch_norm") for name in names)


def test_ops_that_only_the_baseline_has_are_listed():
    assert elided(ATTRIBUTION) is None
    swapped = replace(
        ATTRIBUTION,
        deltas=tuple(
            replace(delta, change=type(delta.change).GONE, baseline_s=3e-4, candidate_s=0.0)
            if delta.key.op == "onednn::reorder"
            else delta
            for delta in ATTRIBUTION.deltas
        ),
    )
    assert [row[0].content for row in elided(swapped).rows] == ["onednn::reorder"]


def test_a_roofline_for_each_dtype_with_a_peak_leaves_out_what_has_no_operations():
    charts = rooflines(a_projection(SLOWER))
    assert [len(chart.data.rows) for chart in charts] == [1, 1]
    assert all(len(of_tag(chart.figure, "circle")) == 1 for chart in charts)
    assert rooflines(replace(a_projection(SLOWER), ceilings=None)) == ()


def test_a_series_is_drawn_for_each_machine_that_of_the_run_first(compared):
    case = next(case for case in histories_of(compared.history) if case.case_id == SLOWER)
    other = replace(case.points[0], machine_id="another-machine", outcome=Outcome.IMPROVED.value, run_id="other")
    both = replace(case, points=(other, *case.points), baseline_s=0.04, baseline_machine_id=MACHINE)
    charts = series(both, machine_id=MACHINE, run_id="paired")
    assert [chart.title for chart in charts] == [f"Since when? On {MACHINE}", "Since when? On another-machine"]
    assert [len(places(chart.figure, "line", "y1", class_="stored")) for chart in charts] == [1, 0]
    assert [len(places(chart.figure, "circle", "cx", class_="this-run")) for chart in charts] == [1, 0]
    assert ("key-sign faster", "▼ improved") in charts[1].legend
