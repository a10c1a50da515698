"""`perfguard hetero`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfguard.cli import options as shared
from perfguard.cli.diagnostics import Verbosity
from perfguard.errors import StoreError, UsageError

if TYPE_CHECKING:
    from perfguard.config import LoadedConfig
    from perfguard.records.training import TrainingConfig
    from perfguard.runner.training import Resumed

_EPILOG = """\b
Exit codes: 0 the target was reached, or all epochs were made; 1 the target was not reached, or the loss
became NaN; 2 usage; 3 no worker, memory or device is left; 130 interrupted.
Examples:
  perfguard hetero train --preset covtype --algorithm adaptive --target-loss 0.6
  perfguard hetero train --preset digits --algorithm cpu --epochs 5
  perfguard hetero train train.toml --learning-rate 0.02
  perfguard hetero train --resume
"""
_LATEST = "latest"


@click.group("hetero")
def hetero_command() -> None:
    """Train one model with workers of different speed (Hogbatch, Adaptive Hogbatch)."""


@hetero_command.command("train", epilog=_EPILOG)
@click.argument("config", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--preset", metavar="NAME", help="Packaged settings: covtype, w8a, delicious, real-sim, digits.")
@click.option("--algorithm", metavar="NAME", help="cpu, large, hogbatch, adaptive, additive, or an entry point's.")
@click.option("--target-loss", "target_loss", type=float, metavar="LOSS", help="Mean loss at which training ends.")
@click.option("--epochs", type=int, metavar="N", help="Most epochs.")
@click.option("--time", "time_s", type=float, metavar="SECONDS", help="Longest time of training.")
@click.option("--learning-rate", "learning_rate", type=float, metavar="RATE", help="Step of plain SGD.")
@click.option("--examples", type=int, metavar="N", help="Train on as many examples.")
@click.option("--device", metavar="DEVICE", help="Of replicas: auto, cpu, cuda, or emulated:30 (30 times one CPU).")
@click.option("--seed", type=int, metavar="N", help="Seed of the initial weights.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=_LATEST,
    metavar="[RUN]",
    help="Go on from the last epoch of a run; default: the latest. Options change its settings.",
)
@shared.cpus_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Format of the result on stdout.",
)
@shared.progress_options
def train(**options: Any) -> None:
    """Train a model on CONFIG, a TOML file, or on a preset.

    Processes on the CPU update one shared model without locks, in small batches; a replica trains on large batches, on
    a GPU where there is one, else on a CPU of its own. The algorithm decides who takes part and how large each batch
    is. The run is recorded: `perfguard show` prints it again, and `--resume` goes on from it.
    """
    from perfguard.cli.progress import make_progress
    from perfguard.cli.training import print_training
    from perfguard.runner.session import Request
    from perfguard.runner.training import train as run_training

    loaded = shared.load({"cpus": options["cpus"]})
    config, resumed = _config(loaded, options)
    progress = make_progress(options.get("verbosity", Verbosity.NORMAL))
    request = Request(
        command="hetero train",
        arguments=shared.command_line(),
        loaded=loaded,
        suite=config.data.source,
        cases=(),
        budget_s=config.time_s or 0.0,
        observe=progress.observe,
        progress=progress.step,
    )
    print_training(run_training(request, config, resumed), options["output_format"])


def _config(loaded: LoadedConfig, options: dict[str, Any]) -> tuple[TrainingConfig, Resumed | None]:
    """The settings that the options ask for, and the run that is gone on from."""
    from perfguard.hetero.algorithms import require_algorithm
    from perfguard.hetero.settings import load_file, load_preset, with_device, with_overrides

    chosen = [name for name in ("config", "preset", "resume") if options[name] is not None]
    if len(chosen) != 1:
        raise UsageError("give one of CONFIG, --preset or --resume: perfguard hetero train --preset covtype")
    resumed = None
    if options["resume"] is not None:
        config, resumed = _resumed(loaded, options["resume"])
    else:
        config = load_preset(options["preset"]) if options["preset"] else load_file(options["config"])
    names = ("algorithm", "target_loss", "epochs", "time_s", "learning_rate", "seed")
    overrides = {name: options[name] for name in names} | {"data.examples": options["examples"]}
    config = with_overrides(config, overrides, "options")
    if options["device"] is not None:
        config = with_device(config, options["device"])
    require_algorithm(config.algorithm)
    return config, resumed


def _resumed(loaded: LoadedConfig, name: str) -> tuple[TrainingConfig, Resumed]:
    from perfguard.gate.show import find_run, runs_of
    from perfguard.records.run_data import RunData
    from perfguard.runner.run_folder import read_events
    from perfguard.runner.training import CHECKPOINT, Resumed

    if name == _LATEST:
        found = sorted(path.parent for path in runs_of(loaded).glob(f"*/{CHECKPOINT}"))
        if not found:
            raise StoreError(
                f"no run in {runs_of(loaded)} has a checkpoint; start one: perfguard hetero train --preset digits"
            )
        folder = found[-1]
    else:
        folder = find_run(loaded, name)
    data = RunData.of(read_events(folder / "events.jsonl"))
    if data.training is None:
        raise StoreError(f"run {folder.name} is no training; `perfguard hetero train` makes one")
    if not (folder / CHECKPOINT).is_file():
        raise StoreError(
            f"run {folder.name} ended before its first epoch, so there is nothing to go on from; start it anew"
        )
    return data.training.planned.config, Resumed(run_id=folder.name, checkpoint=folder / CHECKPOINT)
