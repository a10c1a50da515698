"""`perfguard hetero`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from perfguard.cli import options as shared
from perfguard.cli.declaring import SecondsType
from perfguard.cli.diagnostics import Verbosity
from perfguard.errors import StoreError, UsageError, did_you_mean

if TYPE_CHECKING:
    from perfguard.config import LoadedConfig
    from perfguard.hetero.simulated import Balance, Basis
    from perfguard.hetero.simulator import Speed
    from perfguard.records.training import TrainingConfig, WorkerPlace
    from perfguard.runner.training import Resumed

_EPILOG = """\b
Exit codes: 0 the target was reached, or all epochs or the time used up without one; 1 the target was not
reached, or the loss became NaN or infinite; 2 usage; 3 no worker, memory, disk space or checkpoint, or
another perfguard measures; 130 interrupted.
Examples:
  perfguard hetero train --preset covtype --algorithm adaptive --target-loss 0.6
  perfguard hetero train --preset digits --algorithm cpu --epochs 5
  perfguard hetero train train.toml --learning-rate 0.02
  perfguard hetero train --resume --epochs 10
"""
_SIMULATE_EPILOG = """\b
Examples:
  perfguard hetero simulate                                  # the latest run, live beside simulated
  perfguard hetero simulate --algorithm adaptive --speed 30  # its CPU workers, and a device 30 times as fast
  perfguard hetero simulate --computer uc-merced --preset covtype --algorithm hogbatch
"""
_LATEST = "latest"


@click.group("hetero")
def hetero_command() -> None:
    """Train one model with workers of different speed (Hogbatch, Adaptive Hogbatch)."""


@hetero_command.command("train", epilog=_EPILOG)
@click.argument("config", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--preset", metavar="NAME", help="Packaged settings: covtype, w8a, delicious, real-sim, digits.")
@click.option(
    "--algorithm",
    metavar="NAME",
    help="adaptive, additive, hogbatch, cpu, large, pytorch, ddp, or an entry point's.  [default: the settings']",
)
@click.option("--target-loss", "target_loss", type=float, metavar="LOSS", help="Mean loss at which training ends.")
@click.option("--epochs", type=int, metavar="N", help="Maximum number of epochs, those before --resume included.")
@click.option(
    "--time",
    "time_s",
    type=SecondsType(),
    metavar="TIME",
    help="Maximum wall time, losses and time before --resume included.",
)
@click.option("--learning-rate", "learning_rate", type=float, metavar="RATE", help="Learning rate of SGD.")
@click.option("--examples", type=int, metavar="N", help="Train on the first N examples.")
@click.option(
    "--device", metavar="DEVICE", help="Device of replica groups: auto, cpu, cuda, or emulated:30 (30 times one CPU)."
)
@click.option("--listen", metavar="HOST:PORT", help="Address that workers on other hosts join; see `work`.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Seed of the initial weights.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=_LATEST,
    metavar="[RUN]",
    help="Go on from the last epoch of a run; default: the latest. Options change its settings.",
)
@shared.cpus_option
@shared.wait_option
@shared.format_option
@shared.progress_options
def train(**options: Any) -> None:
    """Train a model with the settings in CONFIG, a TOML file, or of a preset.

    Processes on the CPU update one shared model without locks, in small batches; a replica trains on large batches, on
    a GPU where there is one, else on a CPU of its own. The algorithm decides who takes part and how large each batch
    is. The run is recorded: `perfguard show` prints it again, and `--resume` goes on from it.
    """
    from perfguard.cli.progress import make_progress
    from perfguard.cli.recording import recorder
    from perfguard.cli.training import print_training
    from perfguard.runner.session import Request
    from perfguard.runner.training import train as run_training

    loaded = shared.load({"cpus": options["cpus"], "wait": options["wait"]})
    config, resumed = _config(loaded, options)
    _require_used(config, options["device"], options["listen"])
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
        record=recorder(loaded),
    )
    print_training(run_training(request, config, resumed, options["listen"]), options["output_format"])


@hetero_command.command("work")
@click.argument("address", metavar="HOST:PORT")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Threads.")
@click.option(
    "--wait",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait to join.",
)
def work(*, address: str, threads: int, wait: float) -> None:
    """Train on this machine for a coordinator that listens at HOST:PORT, until its run ends.

    The coordinator is `perfguard hetero train CONFIG --listen HOST:PORT`, with a group that has `is_remote = true` and
    as many `workers` as machines. Use it in networks that you trust: nothing is encrypted, and whoever reaches the port
    may join.
    """
    from perfguard.hetero.addresses import parse_address
    from perfguard.runner.training import work_remotely

    _require_finite("--wait", wait)
    parse_address(address)
    name = work_remotely(shared.load({}, keys=()), address, threads=threads, timeout_s=wait)
    click.echo(f"{name}: the run has ended")


def _require_finite(option: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{option} {value} must be a finite number, 0 or more")


def _require_used(config: TrainingConfig, device: str | None, listen: str | None) -> None:
    """Raise UsageError where an option is for workers that do not take part, or one that they need is missing."""
    from perfguard.hetero.addresses import parse_address
    from perfguard.hetero.planning import places
    from perfguard.records.training import Kind

    groups = [config.groups[name] for name in {place.group for place in places(config, (0,))}]
    if device is not None and not any(group.kind is Kind.REPLICA for group in groups):
        raise UsageError(
            f"--device {device}: algorithm {config.algorithm} trains without replicas; try --algorithm large"
        )
    has_remote = any(group.is_remote for group in groups)
    if listen is not None:
        parse_address(listen)
        if not has_remote:
            raise UsageError(
                f"--listen {listen}: no group that takes part has is_remote = true; see `perfguard hetero work`"
            )
    elif has_remote:
        raise UsageError("a group is on other hosts; give the address that they join, --listen HOST:PORT")


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
    trained = resumed.epoch if resumed else 0
    _require_finite("--target-loss", options["target_loss"])
    names = ("algorithm", "target_loss", "epochs", "time_s", "learning_rate", "seed")
    overrides = {name: options[name] for name in names} | {"data.examples": options["examples"]}
    config = with_overrides(config, overrides, "options")
    if options["device"] is not None:
        config = with_device(config, options["device"])
    require_algorithm(config.algorithm)
    if config.epochs <= trained:
        raise UsageError(
            f"the run has already made {trained} epochs, and they count; give --epochs with more than that"
        )
    if resumed and config.time_s is not None and config.time_s <= resumed.at_s:
        raise UsageError(f"the run has used {resumed.at_s:.1f} s; to go on, give --time with more than that")
    return config, resumed


def _training(loaded: LoadedConfig, name: str | None, file: str) -> Path:
    """Folder of a run by its id or path; the latest training that has a file for None."""
    from perfguard.gate.show import find_run, runs_of

    if name is not None:
        return find_run(loaded, name)
    found = sorted(path for path in runs_of(loaded).glob("*") if (path / file).is_file())
    if not found:
        raise StoreError(f"no training is in {runs_of(loaded)}; start one: perfguard hetero train --preset digits")
    return found[-1]


def _resumed(loaded: LoadedConfig, name: str) -> tuple[TrainingConfig, Resumed]:
    from perfguard.records.run_data import RunData
    from perfguard.runner.run_folder import read_events
    from perfguard.runner.training import CHECKPOINT, LOG, Resumed

    folder = _training(loaded, None if name == _LATEST else name, LOG)
    data = RunData.of(read_events(folder / "events.jsonl"))
    if data.training is None:
        raise StoreError(f"run {folder.name} is no training; `perfguard hetero train` makes one")
    if not (folder / CHECKPOINT).is_file():
        raise StoreError(
            f"run {folder.name} ended before its first epoch, so there is nothing to go on from; start it anew, or go "
            "on from another: perfguard hetero train --resume RUN"
        )
    epochs = data.training.epochs
    epoch, at_s = (epochs[-1].epoch, epochs[-1].at_s) if epochs else (0, 0.0)
    resumed = Resumed(run_id=folder.name, checkpoint=folder / CHECKPOINT, epoch=epoch, at_s=at_s)
    return data.training.planned.config, resumed


@hetero_command.command("simulate", epilog=_SIMULATE_EPILOG)
@click.argument("run", required=False)
@click.option("--computer", metavar="NAME", help="A computer of the paper instead of RUN: uc-merced, aws-p3.")
@click.option("--preset", metavar="NAME", help="With --computer: packaged settings.  [default: covtype]")
@click.option("--algorithm", metavar="NAME", help="cpu, large, hogbatch, adaptive, additive, or an entry point's.")
@click.option(
    "--speed", type=click.FloatRange(min=1), metavar="X", help="Replicas X times as fast as a hogwild worker."
)
@click.option("--workers", type=click.IntRange(1, 10_000), metavar="N", help="Hogwild workers.")
@click.option("--epochs", type=click.IntRange(1, 10_000), metavar="N", help="Epochs.")
@shared.format_option
def simulate(**options: Any) -> None:
    """Simulate the coordinator and a policy with workers of given speed; default: those that the latest RUN measured.

    Prints each group's share of the updates, the busy part of its time, its last batch, and the seconds of an epoch;
    for a run without other options also what the run itself came to. Nothing is trained, so there is no loss.
    """
    from perfguard.cli.training import print_balances
    from perfguard.hetero.simulated import simulated

    _require_finite("--speed", options["speed"])
    setup = _of_computer(options) if options["computer"] else _of_run(options)
    has_gpu = bool(options["computer"])
    balance = simulated(setup.config, setup.workers, setup.examples, setup.speeds, has_gpu=has_gpu)
    balances = {"simulated": balance, **({"live": setup.live} if setup.live else {})}
    print_balances(balances, setup.basis, options["output_format"])


class _Setup(Struct, frozen=True, kw_only=True):
    """What is simulated."""

    config: TrainingConfig
    workers: tuple[WorkerPlace, ...]
    examples: int
    speeds: Mapping[str, Speed]  # By group
    run_id: str | None = None  # The run that measured them
    computer: str | None = None  # Else the computer whose data sheets they are estimated from
    faster: float | None = None  # Times that replicas are as fast as a hogwild worker, by `--speed`
    live: Balance | None = None  # What the run came to whose speeds these are

    @property
    def basis(self) -> Basis:
        """What the numbers rest on."""
        from perfguard.hetero.simulated import Basis

        return Basis(
            algorithm=self.config.algorithm,
            epochs=self.config.epochs,
            examples=self.examples,
            source=self.config.data.source,
            run_id=self.run_id,
            computer=self.computer,
            faster=self.faster,
        )


def _of_computer(options: dict[str, Any]) -> _Setup:
    """A computer of the paper, with full-size data and the paper's batches."""
    from perfguard.hetero.computers import COMPUTERS
    from perfguard.hetero.settings import load_preset, paper_batches
    from perfguard.hetero.shapes import SHAPES, parameters_of

    name = options["computer"]
    if options["run"] is not None:
        raise UsageError("give a RUN, whose speeds are used, or --computer")
    if name not in COMPUTERS:
        hint = did_you_mean(name, COMPUTERS)
        raise UsageError(f"--computer {name!r} is unknown; {hint}choose from {', '.join(COMPUTERS)}")
    config = load_preset(options["preset"] or "covtype")
    if config.data.source not in SHAPES:
        raise UsageError(f"--preset {options['preset']}: a computer of the paper trains on {', '.join(SHAPES)}")
    shape, computer = SHAPES[config.data.source], COMPUTERS[name]
    config = paper_batches(config)
    speeds = computer.speeds(parameters_of(config.model, shape.features, shape.classes))
    return replace(_changed(config, speeds, shape.examples, computer.threads, options), computer=computer.doc)


def _of_run(options: dict[str, Any]) -> _Setup:
    """The speeds and settings of a recorded run."""
    from perfguard.hetero.simulated import live
    from perfguard.hetero.simulator import Speed
    from perfguard.records.run_data import RunData
    from perfguard.runner.run_folder import read_events
    from perfguard.runner.training import RESULT

    if options["preset"] is not None:
        raise UsageError("--preset belongs to --computer; a RUN has its own settings")
    folder = _training(shared.load({}, keys=()), options["run"], RESULT)
    training = RunData.of(read_events(folder / "events.jsonl")).training
    if training is None or training.outcome is None or training.trained is None:
        raise StoreError(
            f"run {folder.name} has no speeds of workers; give a finished run of `perfguard hetero train`, or "
            "--computer"
        )
    planned, outcome = training.planned, training.outcome
    speeds = {group: Speed.of(pace) for group, pace in outcome.paces.items()}
    count = sum(place.group in _hogwild(planned.config) for place in planned.workers)
    config = replace(planned.config, epochs=max(1, training.epochs[-1].epoch if training.epochs else 1))
    setup = replace(_changed(config, speeds, training.trained.examples, count, options), run_id=folder.name)
    if any(options[name] is not None for name in ("algorithm", "speed", "workers", "epochs")):
        return setup
    found = live(training.epochs, outcome, planned.workers)
    return replace(setup, config=config, workers=planned.workers, live=found)


def _changed(
    config: TrainingConfig, speeds: Mapping[str, Speed], examples: int, hogwild: int, options: dict[str, Any]
) -> _Setup:
    """The settings that the options ask for."""
    from perfguard.hetero.algorithms import require_algorithm
    from perfguard.hetero.planning import places
    from perfguard.hetero.settings import with_overrides

    config = with_overrides(config, {name: options[name] for name in ("algorithm", "epochs")}, "options")
    require_algorithm(config.algorithm)
    own, count = _hogwild(config), options["workers"] or hogwild
    groups = {name: replace(group, workers=count) if name in own else group for name, group in config.groups.items()}
    config = replace(config, groups=groups)
    if options["speed"] is not None:
        cpu = next((speeds[name] for name in own if name in speeds), None)
        if cpu is None:
            raise UsageError("--speed is a multiple of a hogwild worker's, and the run had none that trained")
        replica = dataclasses.replace(cpu, example_s=cpu.example_s / options["speed"], loss_example_s=None)
        speeds = {name: cpu if name in own else replica for name in config.groups}
    workers = places(config, tuple(range(1024)))
    missing = sorted({place.group for place in workers} - set(speeds))
    if missing:
        raise UsageError(f"the run measured no speed of {', '.join(missing)}; give --speed, or another run")
    return _Setup(config=config, workers=workers, examples=examples, speeds=speeds, faster=options["speed"])


def _hogwild(config: TrainingConfig) -> list[str]:
    from perfguard.records.training import Kind

    return [name for name, group in config.groups.items() if group.kind is Kind.HOGWILD]
