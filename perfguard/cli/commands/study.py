"""`perfguard study`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from perfguard.cli import options as shared
from perfguard.cli.diagnostics import Verbosity
from perfguard.errors import UsageError
from perfguard.study.items import PARTS


@click.group("study")
def study_command() -> None:
    """Measure a published study again, beside the paper's own figures."""


@study_command.command("profilednn")
@click.option(
    "--parts", metavar="LIST", help=f"Parts to measure, separated by commas: {', '.join(PARTS)}.  [default: all]"
)
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("profilednn"),
    show_default=True,
    help="Folder for evidence and report. What it holds already is not measured again.",
)
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(min=0),
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="Wall-clock budget of measuring; an item that was begun is finished. 0 measures nothing.",
)
@shared.cpus_option
@click.option("--threads", type=int, metavar="N", default=1, show_default=True, help="CPUs to use; one thread each.")
@click.option("--numa", metavar="NODE", help="NUMA node to measure on, or 'none' to leave memory unbound.")
@shared.env_profile_option
@shared.python_option
@click.option("--seed", type=int, metavar="N", help="Seed of everything random; always recorded.")
@shared.progress_options
def profilednn(*, parts: str | None, folder: Path, budget_s: float, **options: Any) -> None:
    """Measure what "Deep Learning Models on CPUs" (arXiv:2206.10034) reports, at reduced size.

    Where the time of four models' steps is, what more classes cost, variants of the focal loss, the paper's
    optimizations one by one, threads and ranks. The report has the paper's figures beside those of this machine, and
    says of each result whether its shape holds here: FOLDER/report.html, report.md and report.json.

    Run the same command again to continue: each item is stored as soon as it is measured.
    """
    from perfguard.cli.measuring import build_request
    from perfguard.cli.progress import make_progress
    from perfguard.host.probe import probe
    from perfguard.report.study.write import summary, write_study
    from perfguard.runner.session import Request
    from perfguard.study.collect import StudyPlan, collect, items_of
    from perfguard.study.paper import load_paper

    loaded, host = shared.load(options), probe()
    progress = make_progress(options.get("verbosity", Verbosity.NORMAL))

    def request_of(patterns: Sequence[str], item_budget_s: float) -> Request:
        request = build_request("study", loaded, {**options, "patterns": tuple(patterns)})
        return replace(request, budget_s=item_budget_s, fingerprint=host)

    paper = load_paper()
    plan = StudyPlan(
        folder=folder,
        items=items_of(_parts(parts)),
        host=host,
        budget_s=budget_s,
        request_of=request_of,
        progress=progress.step,
    )
    evidence = collect(plan)
    written = write_study(folder, evidence, paper)
    click.echo(summary(evidence, paper))
    click.echo(f"written to {', '.join(map(str, written))}", err=True)


def _parts(text: str | None) -> tuple[str, ...]:
    if text is None:
        return PARTS
    chosen = tuple(part.strip() for part in text.split(","))
    for part in chosen:
        if part not in PARTS:
            near = difflib.get_close_matches(part, PARTS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"--parts: {part!r} is unknown{hint}; choose from {', '.join(PARTS)}")
    return chosen
