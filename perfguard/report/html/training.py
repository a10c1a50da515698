"""A run of heterogeneous training as charts and tables of a page."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfguard.records.training import Ending, Training
from perfguard.report.html.charts import Chart, Table, cells
from perfguard.report.html.curves import Curve, curves_picture
from perfguard.report.shown import Mark
from perfguard.report.terminal.training import group_text, shares_of
from perfguard.units import format_seconds, format_share

_MOST_ROWS = 200


def mark_of_training(found: Training) -> Mark:
    """How it ended."""
    if found.outcome is None:
        return Mark("?", "cut off", "open")
    word = {Ending.TARGET: "target reached", Ending.EPOCHS: "trained", Ending.TIME: "time used up"}.get(
        found.outcome.ending, found.outcome.ending.value
    )
    return Mark("✓", word, "faster") if found.exit_code == 0 else Mark("✗", word, "broken")


def training_charts(found: Training) -> Iterator[Chart]:
    """Loss, utilisation and batches."""
    points = [(epoch.trained_s, epoch.loss) for epoch in found.epochs if math.isfinite(epoch.loss)]
    if len(points) > 1:
        yield Chart(
            kind="training-loss",
            title="Loss by seconds of training",
            figure=curves_picture("loss", [Curve(0, points)], "s"),
            note="Mean over all examples after each epoch; computing it is not part of the time.",
        )
    if found.outcome is None:
        return
    use, groups = found.outcome.utilisation, list(found.outcome.utilisation.groups)
    legend = tuple((f"key-part part-{index}", group) for index, group in enumerate(groups))
    yield Chart(
        kind="training-use",
        title="Busy part of the time",
        figure=curves_picture(
            "utilisation",
            [
                Curve(index, [((at + 0.5) * use.bin_s, value) for at, value in enumerate(use.groups[group])])
                for index, group in enumerate(groups)
            ],
            "s",
        ),
        legend=legend,
        note="Computing and copying, training and losses.",
    )
    if len(found.outcome.schedule) > len(groups):
        yield Chart(
            kind="training-batches",
            title="Examples of a request",
            figure=curves_picture("batches", batch_curves(found.outcome.schedule, groups, found.outcome.at_s), "s"),
            legend=legend,
        )


def batch_curves(schedule: tuple[tuple[float, str, int], ...], groups: list[str], end_s: float) -> list[Curve]:
    """Batches as steps over time, a curve for each group."""
    curves = []
    for index, group in enumerate(groups):
        steps: list[tuple[float, float]] = []
        for at_s, name, batch in schedule:
            if name == group:
                steps += [(at_s, steps[-1][1])] if steps else []
                steps.append((at_s, float(batch)))
        if steps:
            steps.append((max(end_s, steps[-1][0]), steps[-1][1]))
        curves.append(Curve(index, steps))
    return curves


def training_tables(found: Training) -> Iterator[Table]:
    """Groups, workers and epochs."""
    groups = list(dict.fromkeys(place.group for place in found.planned.workers))
    yield Table(columns=("group", "what it is"), rows=tuple(cells(name, group_text(found, name)) for name in groups))
    if found.outcome is not None:
        at_s = found.outcome.at_s or 1.0
        yield Table(
            columns=("worker", ">updates", ">examples", ">busy", ">copying", ">ranges given to others"),
            rows=tuple(
                cells(
                    name,
                    f"{count.updates:,}",
                    f"{count.trained:,}",
                    format_share(count.busy_s / at_s),
                    format_share(count.transfer_s / at_s),
                    f"{count.ranges_returned:,}",
                )
                for name, count in found.outcome.counters.items()
            ),
        )
    yield Table(
        columns=(">epoch", ">loss", ">training", *(f">updates of {name}" for name in groups)),
        rows=tuple(
            cells(
                f"{epoch.epoch}",
                f"{epoch.loss:.4f}",
                format_seconds(epoch.trained_s),
                *(format_share(shares_of(epoch.updates).get(name, 0.0)) for name in groups),
            )
            for epoch in found.epochs[-_MOST_ROWS:]
        ),
    )
