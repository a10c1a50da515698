"""`perfguard study`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from perfguard.cli import options as shared
from perfguard.cli.declaring import SecondsType
from perfguard.cli.diagnostics import Verbosity
from perfguard.errors import UsageError
from perfguard.records.machine.cpuset import parse_cpu_list
from perfguard.study.items import PARTS


@click.group("study")
def study_command() -> None:
    """Measure a published study again, beside the paper's own figures."""


@study_command.command("profilednn", short_help="ProfileDNN: training on Intel's CPUs (arXiv:2206.10034).")
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
    type=SecondsType(),
    default="15m",
    show_default=True,
    metavar="TIME",
    help="Wall-clock budget, waiting included; an item that was begun is finished. 0 measures nothing.",
)
@shared.cpus_option
@click.option("--threads", type=int, metavar="N", default=1, show_default=True, help="CPUs to use; one thread each.")
@click.option("--numa", metavar="NODE", help="NUMA node to measure on, or 'none' to leave memory unbound.")
@shared.env_profile_option
@shared.python_option
@shared.wait_option
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
        items=items_of(_known(parts, PARTS, "--parts")),
        host=host,
        budget_s=budget_s,
        request_of=request_of,
        progress=progress.step,
    )
    evidence = collect(plan)
    written = write_study(folder, evidence, paper)
    click.echo(summary(evidence, paper))
    click.echo(f"written to {', '.join(map(str, written))}", err=True)


@study_command.command("hogbatch", short_help="Hogbatch: heterogeneous CPU+GPU SGD (arXiv:2004.08771).")
@click.option(
    "--shapes",
    metavar="LIST",
    help="Data shapes, separated by commas: covtype, w8a, delicious, real-sim.  [default: all]",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    metavar="N",
    help="Race runs per algorithm and shape.",
)
@click.option(
    "--search-s",
    type=click.FloatRange(min=0.1),
    default=6.0,
    show_default=True,
    metavar="SECONDS",
    help="Wall time of each run of the search, losses included; a race run may take five times as long.",
)
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("hogbatch"),
    show_default=True,
    help="Folder for evidence and report. What it holds already is not measured again.",
)
@click.option(
    "--budget",
    "budget_s",
    type=SecondsType(),
    default="1h",
    show_default=True,
    metavar="TIME",
    help="Wall-clock budget, waiting included; a run that was begun is finished. 0 measures nothing.",
)
@click.option(
    "--device", metavar="DEVICE", help="Device of replicas: auto, cpu, cuda, or emulated:30 (30 times one CPU)."
)
@shared.cpus_option
@shared.wait_option
@shared.progress_options
def hogbatch(*, shapes: str | None, seeds: int, search_s: float, folder: Path, budget_s: float, **options: Any) -> None:
    """Race the algorithms of "Heterogeneous CPU+GPU SGD Algorithms" (arXiv:2004.08771) and PyTorch to the same loss.

    Every algorithm gets the same search over batches and learning rates, PyTorch over threads as well. The report has
    loss by time and epochs, shares of updates, utilisation and batches, with the paper's figures beside them, and says
    whether each claim holds here: FOLDER/report.html, report.md and report.json.

    Run the same command again to continue: each run is stored as soon as it has ended.
    """
    from perfguard.cli.progress import make_progress
    from perfguard.cli.recording import recorder
    from perfguard.hetero.settings import with_device
    from perfguard.hetero.shapes import SHAPES
    from perfguard.records.training import Training, TrainingConfig
    from perfguard.report.study.hogbatch import hogbatch_summary, write_hogbatch
    from perfguard.runner.session import Request
    from perfguard.runner.training import train
    from perfguard.study.hogbatch.collect import HogbatchPlan, collect

    loaded = shared.load({"cpus": options["cpus"], "wait": options["wait"]})
    progress = make_progress(options.get("verbosity", Verbosity.NORMAL))
    cpus = len(parse_cpu_list(options["cpus"] or "") or os.sched_getaffinity(0))

    def trained(config: TrainingConfig) -> Training:
        request = Request(
            command="study hogbatch",
            arguments=shared.command_line(),
            loaded=loaded,
            suite=config.data.source,
            cases=(),
            budget_s=config.time_s or 0.0,
            progress=make_progress(Verbosity.QUIET).step,
            record=recorder(loaded),
        )
        return train(request, config if options["device"] is None else with_device(config, options["device"]))

    plan = HogbatchPlan(
        folder=folder,
        shapes=_known(shapes, tuple(SHAPES), "--shapes"),
        seeds=seeds,
        search_s=search_s,
        budget_s=budget_s,
        cpus=cpus,
        device=options["device"],
        train=trained,
        progress=progress.step,
    )
    evidence = collect(plan)
    written = write_hogbatch(folder, evidence)
    click.echo(hogbatch_summary(evidence))
    click.echo(f"written to {', '.join(map(str, written))}", err=True)


def _known(text: str | None, names: tuple[str, ...], option: str) -> tuple[str, ...]:
    """The names in a list; all of them for None."""
    if text is None:
        return names
    chosen = tuple(name.strip() for name in text.split(","))
    for name in chosen:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{option}: {name!r} is unknown{hint}; choose from {', '.join(names)}")
    return chosen
