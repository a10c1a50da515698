"""Studies as Markdown and as a page. `PERFGUARD_UPDATE_GOLDEN=1` writes the golden file anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from perfguard.records.facts import fact
from perfguard.report.study.markdown import render_study_markdown
from perfguard.report.study.page import render_study_page
from perfguard.report.study.rows import case_rows, kernel_rows, phase_rows, slice_rows
from perfguard.study.evidence import StudyEvidence
from perfguard.study.paper import load_paper
from tests.changed_values import replace
from tests.made_studies import EVIDENCE, NOTHING, RATIOS, toggle, with_toggle

GOLDEN = Path(__file__).parent / "golden" / "study.md"
PAPER = load_paper()
MEASURED = pytest.mark.parametrize("evidence", [EVIDENCE, NOTHING], ids=["everything", "nothing"])
HOSTILE = "<script>alert(1)</script> | `x`"


def test_the_whole_study_as_markdown() -> None:
    text = render_study_markdown(EVIDENCE, PAPER)
    if os.environ.get("PERFGUARD_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@MEASURED
def test_every_table_has_as_many_cells_in_each_row(evidence: StudyEvidence) -> None:
    tables = re.findall(r"(?:^\|.*\|\n)+", render_study_markdown(evidence, PAPER), re.MULTILINE)
    assert len(tables) == 6
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


@MEASURED
def test_a_page_is_the_same_twice_and_has_a_section_a_figure(evidence: StudyEvidence) -> None:
    page = render_study_page(evidence, PAPER)
    assert page == render_study_page(evidence, PAPER)
    assert re.findall(r'<section id="(\w+)">', page) == ["fig2", "fig4", "fig6", "cases", "table2", "fig7"]


def test_a_page_has_the_papers_charts_with_and_without_evidence() -> None:
    charts = re.findall(r'data-chart="([\w-]+)"', render_study_page(EVIDENCE, PAPER))
    others = ["study-phases", "study-kernels", "study-kernels", "study-cases", "study-convergence"]
    assert charts == ["study-donut"] * 4 + others
    assert re.findall(r'data-chart="([\w-]+)"', render_study_page(NOTHING, PAPER)) == ["study-donut"] * 4 + [
        "study-phases", "study-kernels", "study-cases", "study-convergence"
    ]  # fmt: skip


def test_foreign_texts_are_escaped() -> None:
    evidence = replace(
        NOTHING,
        machine=replace(NOTHING.machine, machine=HOSTILE),
        problems={"donuts-lstm": fact("study.item_failed", item="donuts-lstm", error=HOSTILE)},
    )
    assert "<script>alert" not in render_study_page(evidence, PAPER)
    assert "<script>" not in render_study_markdown(evidence, PAPER)


def test_both_donuts_have_every_kind_of_work() -> None:
    published = PAPER.donut("lstm").slices
    donut = EVIDENCE.donut("lstm")
    assert [(row.name, row.paper, row.here) for row in slice_rows(published, donut)] == [
        ("rnn BWD_DW", 0.55, 0.6),
        ("rnn FWD_D", 0.37, 0.3),
        ("reorder", 0.05, 0.0),
        ("inner_product", 0.03, 0.0),
        ("MKL gemm backward", 0.0, 0.1),
    ]


def test_phases_keep_the_papers_order_and_what_is_not_measured() -> None:
    rows = phase_rows(EVIDENCE, PAPER)
    assert [row.name for row in rows] == list(PAPER.phases)
    assert {row.name: row.factor for row in rows} == {"load": None, **{n: pytest.approx(r) for n, r in RATIOS.items()}}


def test_kernel_bars_are_over_the_defaults_forward_in_float32() -> None:
    bars = {(row.dtype, row.is_forward, row.variant): row.bar for row in kernel_rows(EVIDENCE, PAPER)}
    assert bars["fp32", True, "reference"].factor == pytest.approx(1.0)
    assert bars["fp32", False, "reference"].factor == pytest.approx(6 / 8)
    assert bars["bf16", True, "explicit"].factor == pytest.approx(0.15, rel=0.01)
    assert bars["bf16", True, "explicit"].paper == 0.157


def test_a_case_study_has_its_gain_unless_its_results_differ() -> None:
    gains = {row.bar.name: row.bar.factor for row in case_rows(EVIDENCE, PAPER)}
    assert gains["optimizer"] == pytest.approx(4.0)
    assert gains["dataloader"] is None
    refused = with_toggle(replace(toggle("optimizer", 4.0), is_different=True))
    assert {row.bar.name: row.bar.factor for row in case_rows(refused, PAPER)}["optimizer"] is None
