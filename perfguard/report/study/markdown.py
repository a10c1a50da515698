"""A study as Markdown, for a repository's documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfguard.report.escaping import code, escape
from perfguard.report.messages.catalog import describe_all
from perfguard.report.study.charts import ranks_table
from perfguard.report.study.rows import (
    OUTCOMES,
    TITLES,
    BarRow,
    case_rows,
    counted,
    kernel_rows,
    phase_rows,
    said,
    slice_rows,
)
from perfguard.study.evidence import StudyEvidence
from perfguard.study.paper import Paper
from perfguard.study.shapes.judge import shapes_of
from perfguard.study.shapes.shape import Figure, JudgedClaim
from perfguard.units import format_factor, format_share


def render_study_markdown(evidence: StudyEvidence, paper: Paper) -> str:
    """Every figure as a table, each claim with its mark."""
    shapes, machine = shapes_of(evidence, paper), evidence.machine
    cpus = ",".join(map(str, machine.cpus))
    lines = [
        "# ProfileDNN, measured again",
        "",
        f"{escape(paper.title)} ({escape(paper.source)}), measured there on {escape(paper.machine)}; here on "
        f"{escape(machine.machine)} ({code(machine.machine_id)}), CPU {cpus}, torch {escape(machine.torch)}, at "
        "reduced size. Shapes of the paper's results here: " + counted(shapes) + ".",
    ]
    for figure in Figure:
        lines += ["", f"## {TITLES[figure]}", ""]
        if figure is not Figure.CASES:
            lines += [*map(_line, (shape for shape in shapes if shape.figure is figure)), ""]
        lines += _table(figure, evidence, paper)
    return "\n".join(lines) + "\n"


def _line(shape: JudgedClaim) -> str:
    mark = OUTCOMES[shape.outcome]
    return f"- {mark.sign} **{mark.word}**: {escape(said(shape))}"


def _table(figure: Figure, evidence: StudyEvidence, paper: Paper) -> list[str]:
    match figure:
        case Figure.DONUTS:
            return _rows(
                ("model", "kind of work", ">paper", ">here"),
                (
                    (d.label, code(row.name), _share(row.paper), _share(row.here))
                    for d in paper.donuts
                    for row in slice_rows(d.slices, evidence.donut(d.model))
                ),
            )
        case Figure.PHASES:
            return _bars("phase", phase_rows(evidence, paper))
        case Figure.KERNELS:
            return _bars("time over the default's forward in float32", [r.bar for r in kernel_rows(evidence, paper)])
        case Figure.CASES:
            return _rows(
                ("case study", "here", ">paper", ">measured", "95 % interval", "why"),
                (
                    (
                        escape(row.what),
                        f"{OUTCOMES[row.shape.outcome].sign} {OUTCOMES[row.shape.outcome].word}",
                        format_factor(row.bar.paper),
                        format_factor(row.bar.factor),
                        row.bar.interval,
                        escape(describe_all(row.shape.reasons)),
                    )
                    for row in case_rows(evidence, paper)
                ),
            )
        case Figure.RANKS:
            table = ranks_table(evidence, paper)
            return _rows(table.columns, ((str(cell.content) for cell in row) for row in table.rows))
        case Figure.CONVERGENCE:
            return _rows(
                ("benchmark", ">batch", ">over the smallest", ">epochs over the first"),
                (
                    (p.benchmark, f"{batch:,}", format_factor(batch / p.batch[0]), f"{ratio:.3f}")
                    for p in paper.convergence
                    for batch, ratio in zip(p.batch, p.ratio, strict=True)
                ),
            )


def _share(share: float) -> str:
    return format_share(share) if share else "-"


def _bars(name: str, bars: Sequence[BarRow]) -> list[str]:
    return _rows(
        (name, ">paper", ">here", "95 % interval"),
        ((bar.name, format_factor(bar.paper), format_factor(bar.factor), bar.interval) for bar in bars),
    )


def _rows(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = " | ".join(name.removeprefix(">") for name in columns)
    rule = "|".join("--:" if name.startswith(">") else "---" for name in columns)
    return [f"| {head} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
