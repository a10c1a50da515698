"""A run of heterogeneous training as people read it: workers, epochs, how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfguard.hetero.shapes import SHAPES
from perfguard.records.facts import Severity
from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.training import GroupConfig, Kind, TrainedOn, Training, TrainingEpoch, TrainingUse
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.tables import plain_table, texts
from perfguard.units import format_count, format_duration, format_seconds, format_share, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perfguard.hetero.simulated import Balance, Basis

_MOST_EPOCHS = 12  # Rows of the table of epochs; the others are in training.json
_KINDS = {
    Kind.HOGWILD: "updates the shared model without locks",
    Kind.REPLICA: "trains a copy, merged by {merge}",
    Kind.STREAM: "trains by torch.optim.SGD",
    Kind.DDP: "trains by DistributedDataParallel, a rank a CPU",
}


def render_training(found: Training) -> list[RenderableType]:
    """What to print, in order."""
    good = found.exit_code == 0
    head = texts(*_head(found), style="dim")
    parts: list[RenderableType] = [*head]
    if found.outcome is not None:
        parts.append(_workers(found))
    if found.epochs:
        parts.append(_epochs(found))
    notes = [describe(note) for note in found.notes if note.severity is not Severity.INFO]
    parts += texts(*(f"! {note}" for note in notes), style="yellow")
    name = found.outcome.ending.value if found.outcome else "unfinished"
    parts += texts(f"{name}: {describe_all(found.reasons)}", style="bold green" if good else "bold yellow")
    return parts


def render_balances(found: Mapping[str, Balance], basis: Basis) -> list[RenderableType]:
    """Balances of one run by name, a row for each group, below what they rest on."""
    rows = [
        (
            name,
            group,
            format_share(share),
            format_share(balance.busy.get(group, 0.0)),
            f"{balance.batches[group]:,}" if group in balance.batches else "-",
            format_seconds(balance.epoch_s),
        )
        for name, balance in found.items()
        for group, share in balance.shares.items()
    ]
    table = plain_table("~run", "~group", ">updates", ">busy", ">last batch", ">epoch", rows=rows)
    return [*texts(*map(printable, _basis_lines(basis)), style="dim"), table]


def _basis_lines(basis: Basis) -> tuple[str, str]:
    size = f"{format_count(basis.epochs, 'epoch')} of {basis.examples:,} examples of {basis.source}"
    speeds = f"measured by run {basis.run_id}" if basis.run_id else f"estimated from data sheets: {basis.computer}"
    if basis.faster is not None:
        speeds += f"; replicas {basis.faster:g} times as fast as a hogwild worker"
    return f"simulated  {basis.algorithm}, {size}; nothing is trained", f"speeds     {speeds}"


def started_line(on: TrainedOn) -> str:
    """`training 294,407 parameters on 20,000 examples; cpu: CPU, large: NVIDIA H100`."""
    devices = ", ".join(f"{name}: {device}" for name, device in on.devices.items())
    return printable(f"training {on.parameters:,} parameters on {on.examples:,} examples; {devices}")


def use_line(use: TrainingUse, last: TrainingEpoch | None) -> str:
    """`epoch 3, loss 0.8123 · cpu 1,204 updates, batch 512, 97 % busy · large 31 updates, batch 1,024, 88 % busy`."""
    groups = [
        f"{name} {group.updates:,} updates, batch {group.batch:,}, {format_share(group.busy_ratio)} busy"
        for name, group in use.groups.items()
    ]
    epoch = "" if last is None else f"epoch {last.epoch}, loss {last.loss:.4f} · "
    return printable(epoch + " · ".join(groups))


def epoch_line(epoch: TrainingEpoch) -> str:
    """`epoch 3: loss 0.8123 after 4.1 s of training, updates so far cpu 97.5 %, large 2.5 %`."""
    shares = ", ".join(f"{name} {format_share(share)}" for name, share in shares_of(epoch.updates).items())
    updates = f", updates so far {shares}" if shares else ""
    return printable(f"epoch {epoch.epoch}: loss {epoch.loss:.4f} after {epoch.trained_s:.2f} s of training{updates}")


def shares_of(updates: Mapping[str, int]) -> dict[str, float]:
    """Each group's part of the updates; empty where there is none yet."""
    total = sum(updates.values())
    return {name: count / total for name, count in updates.items()} if total else {}


def _head(found: Training) -> list[str]:
    config, on = found.planned.config, found.trained
    rate = f"{config.learning_rate:g}" + (f" for {config.reference_batch:,} examples" if config.reference_batch else "")
    lines = [
        f"run        {found.run_id}",
        f"machine    {found.machine}",
        f"algorithm  {config.algorithm}, learning rate {rate}, seed {config.seed}",
    ]
    if on is not None:
        kind = "sparse" if on.is_sparse else "dense"
        size = f"{on.examples:,} examples, {on.features:,} {kind} features, {on.classes:,} "
        made = f" (generated, seed {config.data.seed})" if config.data.source in SHAPES else ""
        lines.append(f"data       {config.data.source}{made}: {size}{'labels' if on.is_multilabel else 'classes'}")
        lines.append(f"model      {_model(found)}, {on.parameters:,} parameters; torch {on.torch}")
    lines += [
        f"{name:<10} {group_text(found, name)}" for name in dict.fromkeys(each.group for each in found.planned.workers)
    ]
    return [printable(line) for line in lines]


def _model(found: Training) -> str:
    model = found.planned.config.model
    if model.factory is not None:
        return model.factory
    return f"{format_count(model.layers, 'hidden layer')} of {model.width:,}, {model.activation.value}"


def group_text(found: Training, name: str) -> str:
    """`1 worker on CPU (CPU 0), updates the shared model without locks; at first 8 updates of 64 a request`."""
    group: GroupConfig = found.planned.config.groups[name]
    own = [each for each in found.planned.workers if each.group == name]
    cpus = sorted({cpu for each in own for cpu in each.cpus})
    device = found.trained.devices.get(name, group.device.value) if found.trained else group.device.value
    how = _KINDS[group.kind].format(merge=group.merge.value)
    request = f"at first {format_count(group.updates, 'update')} of {group.batch // group.updates:,} examples a request"
    return f"{format_count(len(own), 'worker')} on {device} (CPU {format_cpu_list(cpus)}), {how}; {request}"


def _workers(found: Training) -> RenderableType:
    assert found.outcome is not None  # noqa: S101 - checked by the caller
    counters, at_s = found.outcome.counters, found.outcome.at_s
    total = sum(count.updates for count in counters.values()) or 1
    rows = [
        (
            name,
            f"{count.updates:,}",
            format_share(count.updates / total),
            f"{count.trained:,}",
            format_share(count.busy_s / at_s if at_s else 0.0),
            format_share(count.transfer_s / at_s if at_s else 0.0),
        )
        for name, count in counters.items()
    ]
    return plain_table("~worker", ">updates", ">share", ">examples", ">busy", ">copying", rows=rows)


def _epochs(found: Training) -> RenderableType:
    groups = list(dict.fromkeys(each.group for each in found.planned.workers))
    rows = []
    for epoch in _shown(found.epochs):
        shares = shares_of(epoch.updates)
        rows.append(
            (
                str(epoch.epoch),
                f"{epoch.loss:.4f}",
                format_duration(epoch.trained_s) if epoch.trained_s >= 60 else f"{epoch.trained_s:.2f} s",
                *(format_share(shares[name]) if name in shares else "-" for name in groups),
                *(f"{epoch.batches[name]:,}" if name in epoch.batches else "-" for name in groups),
            )
        )
    heads = [*(f">updates so far\n{name}" for name in groups), *(f">batch\n{name}" for name in groups)]
    return plain_table(">epoch", ">loss", ">training", *heads, rows=rows)


def _shown(epochs: Sequence[TrainingEpoch]) -> list[TrainingEpoch]:
    """The first and the last, and some between them."""
    if len(epochs) <= _MOST_EPOCHS:
        return list(epochs)
    step = (len(epochs) - 1) / (_MOST_EPOCHS - 1)
    return [epochs[round(number * step)] for number in range(_MOST_EPOCHS)]
