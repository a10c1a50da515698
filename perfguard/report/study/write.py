"""Writes a study's report: HTML, Markdown, and the JSON that they are made of."""

from __future__ import annotations

from pathlib import Path

from perfguard.codec import to_builtins, to_json
from perfguard.report.study.markdown import render_study_markdown
from perfguard.report.study.page import render_study_page
from perfguard.report.study.rows import OUTCOMES, TITLES, counted, said
from perfguard.store.files import write_text
from perfguard.study.evidence import StudyEvidence
from perfguard.study.paper import Paper
from perfguard.study.shapes.judge import shapes_of
from perfguard.units import printable


def write_study(folder: Path, evidence: StudyEvidence, paper: Paper) -> tuple[Path, ...]:
    """The files that were written.

    Raises:
        StoreError: One cannot be written.
    """
    content = {"evidence": to_builtins(evidence), "paper": to_builtins(paper)}
    content["shapes"] = to_builtins(shapes_of(evidence, paper))
    texts = {
        "report.html": render_study_page(evidence, paper),
        "report.md": render_study_markdown(evidence, paper),
        "report.json": f"{to_json(content, indent=1)}\n",
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return tuple(folder / name for name in texts)


def summary(evidence: StudyEvidence, paper: Paper) -> str:
    """Each shape in a line, for a terminal."""
    shapes = shapes_of(evidence, paper)
    lines = [f"shapes of the paper's results on this machine: {counted(shapes)}"]
    for figure in dict.fromkeys(shape.figure for shape in shapes):
        lines.append(TITLES[figure])
        lines += [
            f"  {OUTCOMES[shape.outcome].sign} {OUTCOMES[shape.outcome].word}: {printable(said(shape))}"
            for shape in shapes
            if shape.figure is figure
        ]
    return "\n".join(lines)
