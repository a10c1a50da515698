"""A study as one page that works offline."""

from __future__ import annotations

from perfguard.report.html.charts import Chart, Table, cells, mark_cell
from perfguard.report.html.page import Opening, Section, render_sections
from perfguard.report.messages.catalog import describe_all
from perfguard.report.shown import Mark, Number
from perfguard.report.study.charts import (
    cases_chart,
    convergence_chart,
    donut_charts,
    kernel_charts,
    phases_chart,
    ranks_table,
)
from perfguard.report.study.rows import OUTCOMES, TITLES, CaseStudyRow, case_rows, counted, said
from perfguard.study.evidence import StudyEvidence
from perfguard.study.paper import Paper
from perfguard.study.shapes.judge import shapes_of
from perfguard.study.shapes.shape import Figure, JudgedClaim
from perfguard.units import format_factor


def render_study_page(evidence: StudyEvidence, paper: Paper) -> str:
    """The whole page; the same evidence gives the same bytes."""
    shapes, machine = shapes_of(evidence, paper), evidence.machine
    cpus = ",".join(map(str, machine.cpus))
    sections = [_section(figure, evidence, paper, shapes) for figure in Figure]
    opening = Opening(
        heading="ProfileDNN, measured again",
        intro=f"{paper.title} ({paper.source}), measured there on {paper.machine}; here on {machine.machine} "
        f"({machine.machine_id}), CPU {cpus}, torch {machine.torch}, at reduced size.",
        conclusion=f"Shapes of the paper's results here: {counted(shapes)}.",
        note="A shape is an order or a proportion, not an absolute time. Shares come from profiled steps; a claim "
        "about times holds, or fails, where its whole 95 % interval over fresh processes lies on one side, and is open "
        "otherwise. The paper prints no numbers in its figures: those here were measured on them.",
    )
    return render_sections("perfguard: ProfileDNN measured again", "study profilednn", opening, sections)


def _section(figure: Figure, evidence: StudyEvidence, paper: Paper, shapes: tuple[JudgedClaim, ...]) -> Section:
    charts: list[Chart] = []
    tables: list[Table] = []
    own = [shape for shape in shapes if shape.figure is figure]
    match figure:
        case Figure.DONUTS:
            charts = donut_charts(evidence, paper)
        case Figure.PHASES:
            charts = [phases_chart(evidence, paper)]
        case Figure.KERNELS:
            charts = kernel_charts(evidence, paper)
        case Figure.CASES:
            rows = case_rows(evidence, paper)
            return Section(
                anchor=figure.value, title=TITLES[figure], first=_cases_table(rows), charts=(cases_chart(rows),)
            )
        case Figure.RANKS:
            tables = [ranks_table(evidence, paper)]
        case Figure.CONVERGENCE:
            charts = [convergence_chart(paper.convergence)]
    return Section(
        anchor=figure.value, title=TITLES[figure], first=_shapes_table(own), charts=tuple(charts), tables=tuple(tables)
    )


def _shapes_table(shapes: list[JudgedClaim]) -> Table:
    rows = (cells(mark_cell(mark, f"{mark.sign} {mark.word}"), said(shape)) for shape, mark in _marked(shapes))
    return Table(columns=("here", "the paper's result"), rows=tuple(rows), class_="shapes")


def _marked(shapes: list[JudgedClaim]) -> list[tuple[JudgedClaim, Mark]]:
    return [(shape, OUTCOMES[shape.outcome]) for shape in shapes]


def _cases_table(rows: list[CaseStudyRow]) -> Table:
    return Table(
        columns=("case study", "", "here", ">paper", ">measured", ">95 % interval", "why"),
        rows=tuple(
            cells(
                row.bar.name,
                row.what,
                mark_cell(OUTCOMES[row.shape.outcome], _word(row.shape)),
                Number.of(format_factor, row.bar.paper),
                Number.of(format_factor, row.bar.factor),
                Number(row.bar.interval),
                describe_all(row.shape.reasons),
            )
            for row in rows
        ),
        class_="shapes",
    )


def _word(shape: JudgedClaim) -> str:
    mark = OUTCOMES[shape.outcome]
    return f"{mark.sign} {mark.word}"
