"""The study of Hogbatch as a page, as Markdown and for a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfguard.codec import to_builtins, to_json
from perfguard.report.escaping import escape
from perfguard.report.html.charts import Chart, Table, cells, mark_cell
from perfguard.report.html.curves import Curve, curves_picture
from perfguard.report.html.page import Opening, Section, render_sections
from perfguard.report.html.training import batch_curves
from perfguard.report.messages.catalog import describe
from perfguard.report.shown import Number
from perfguard.report.study.rows import OUTCOMES
from perfguard.store.files import write_text
from perfguard.study.hogbatch.claims import CPU_SHARES, TARGETS, Claim, claims_of, race
from perfguard.study.hogbatch.collect import REPLICA_FACTOR, THREADED
from perfguard.study.hogbatch.evidence import ALGORITHMS, HogbatchEvidence, TrainedRun
from perfguard.study.shapes.shape import ShapeOutcome
from perfguard.units import format_seconds, format_share, printable

_RANGES = (0.01, 0.05, 0.10)  # Parts of the loss range that a run may still be above its end
_NAMES = {
    "pytorch": "PyTorch, one process",
    "cpu": "hogwild alone",
    "large": "large batches alone",
    "hogbatch": "Hogbatch",
    "adaptive": "Adaptive Hogbatch",
}
_PAPER = 'F. Ma and F. Rusu, "Heterogeneous CPU+GPU Stochastic Gradient Descent Algorithms" (arXiv:2004.08771)'


def write_hogbatch(folder: Path, evidence: HogbatchEvidence) -> tuple[Path, ...]:
    """The report's files: HTML, Markdown, JSON.

    Raises:
        StoreError: One cannot be written.
    """
    claims = claims_of(evidence)
    content = {"evidence": to_builtins(evidence), "claims": to_builtins(claims)}
    texts = {
        "report.html": render_hogbatch_page(evidence, claims),
        "report.md": render_hogbatch_markdown(evidence, claims),
        "report.json": f"{to_json(content, indent=1)}\n",
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return tuple(folder / name for name in texts)


def hogbatch_summary(evidence: HogbatchEvidence) -> str:
    """Each claim in a line, for a terminal."""
    claims = claims_of(evidence)
    lines = [_counted(claims)]
    for shape in evidence.shapes:
        lines += [shape, *(f"  ! {problem}" for problem in _problems(evidence, shape))]
        lines += [f"  {_line(claim)}" for claim in claims if claim.shape == shape]
    return "\n".join(map(printable, lines))


def render_hogbatch_markdown(evidence: HogbatchEvidence, claims: Sequence[Claim]) -> str:
    """Tables a shape, each claim with its mark."""
    lines = ["# Hogbatch, measured again", "", _intro(evidence, claims), ""]
    for shape in evidence.shapes:
        lines += [f"## {shape}", "", _target_text(evidence, shape), ""]
        lines += [f"- {escape(problem)}" for problem in _problems(evidence, shape)]
        lines += [f"- {escape(_line(claim))}" for claim in claims if claim.shape == shape]
        for table in _tables(evidence, shape):
            names = [name.removeprefix(">") for name in table.columns]
            lines += [
                "",
                f"| {' | '.join(names)} |",
                "|" + "|".join("--:" if c[0] == ">" else "---" for c in table.columns) + "|",
            ]
            lines += [f"| {' | '.join(escape(str(cell.content)) for cell in row)} |" for row in table.rows]
        lines.append("")
    return "\n".join(lines)


def render_hogbatch_page(evidence: HogbatchEvidence, claims: Sequence[Claim]) -> str:
    """The whole page; the same evidence gives the same bytes."""
    opening = Opening(
        heading="Hogbatch, measured again",
        intro=_intro(evidence, claims),
        conclusion=f"{_counted(claims)}.",
        note="Times are of training alone, without losses, to the same loss, between epochs by a straight line. Ratios "
        "are geometric means over seeds, with 95 % intervals (Student's t). A claim on times holds or fails where its "
        "whole interval lies on one side; else it is open. Data is generated in the shapes of the paper's sets.",
    )
    sections = [_section(evidence, claims, shape) for shape in evidence.shapes]
    return render_sections("perfguard: Hogbatch measured again", "study hogbatch", opening, sections)


def _section(evidence: HogbatchEvidence, claims: Sequence[Claim], shape: str) -> Section:
    own = [claim for claim in claims if claim.shape == shape]
    table = Table(
        columns=("", "claim"),
        rows=tuple(
            (mark_cell(OUTCOMES[each.outcome], OUTCOMES[each.outcome].word), *cells(describe(each.claim)))
            for each in own
        ),
    )
    return Section(
        anchor=shape,
        title=f"{shape}: {_target_text(evidence, shape)}",
        first=table,
        charts=(*_loss_charts(evidence, shape), *_use_charts(evidence, shape)),
        tables=_tables(evidence, shape),
    )


def _tables(evidence: HogbatchEvidence, shape: str) -> tuple[Table, ...]:
    """None where nothing was raced yet."""
    made = (_times(evidence, shape), _shares(evidence, shape), _settings(evidence, shape))
    return tuple(table for table in made if table.rows)


def _problems(evidence: HogbatchEvidence, shape: str) -> list[str]:
    """Why runs are missing, each reason once, and how they come."""
    reasons = dict.fromkeys(map(describe, evidence.problems_of(shape)))
    return [f"not finished: {why}; the same command goes on" for why in reasons]


def _intro(evidence: HogbatchEvidence, claims: Sequence[Claim]) -> str:
    devices = dict.fromkeys(run.devices.get("large", "") for run in evidence.runs)
    large = ", ".join(device for device in devices if device) or "not used"
    return (
        f"{_PAPER}. Measured on {evidence.machine} ({evidence.machine_id}), {evidence.cpus} CPUs, torch "
        f"{evidence.torch}; large batches run on: {large}. {_counted(claims)}."
    )


def _target_text(evidence: HogbatchEvidence, shape: str) -> str:
    target = evidence.targets.get(shape)
    return "no target" if target is None else f"race to a loss of {target:.4g}"


def _line(claim: Claim) -> str:
    mark = OUTCOMES[claim.outcome]
    return f"{mark.sign} {mark.word}: {describe(claim.claim)}"


def _counted(claims: Sequence[Claim]) -> str:
    """The paper's claims and this project's targets, each counted by outcome."""
    words = ("hold", "do not hold", "open", "not measured")
    parts = []
    for name, is_target in (("Claims of the paper", False), ("targets of perfguard", True)):
        own = [claim for claim in claims if (claim.claim.code in TARGETS) == is_target]
        counts = [sum(claim.outcome is outcome for claim in own) for outcome in ShapeOutcome]
        parts.append(f"{name}: {', '.join(f'{count} {word}' for count, word in zip(counts, words, strict=True))}")
    return "; ".join(parts)


def _algorithms(evidence: HogbatchEvidence, shape: str) -> list[str]:
    return [name for name in ALGORITHMS if evidence.raced(shape, name)]


def _times(evidence: HogbatchEvidence, shape: str) -> Table:
    target, rows = evidence.targets.get(shape, 0.0), []
    for name in _algorithms(evidence, shape):
        runs = evidence.raced(shape, name)
        reached = [found for run in runs if (found := run.time_to(target)) is not None]
        epochs = [found for run in runs if (found := run.epochs_to(target)) is not None]
        ratio = race(evidence, shape, name, "pytorch", target).ratio if name != "pytorch" else None
        rows.append(
            cells(
                _NAMES[name],
                _right(f"{len(reached)} of {len(runs)}"),
                _right(format_seconds(statistics.median(reached)) if reached else "-"),
                _right("-" if ratio is None else f"{ratio.factor:.2f} [{ratio.lower:.2f}, {ratio.upper:.2f}]"),
                _right(f"{statistics.median(epochs):.1f}" if epochs else "-"),
                _right(format_seconds(statistics.median(run.epoch_s for run in runs))),
                *(_right(_time_within(evidence, shape, runs, part)) for part in _RANGES),
            )
        )
    within = [f">to {part:.0%} of the range" for part in _RANGES]
    columns = ("algorithm", ">reached", ">median time", ">over PyTorch's (95 %)", ">epochs", ">an epoch", *within)
    return Table(columns=columns, rows=tuple(rows), caption="Time of training to the target")


def _time_within(evidence: HogbatchEvidence, shape: str, runs: Sequence[TrainedRun], part: float) -> str:
    """Median time to a part of the range between the first loss and the lowest of all runs."""
    losses = [point.loss for run in evidence.runs if run.shape == shape for point in run.points]
    raced = [run for name in ALGORITHMS for run in evidence.raced(shape, name)]
    first = statistics.median(run.points[0].loss for run in raced)
    least = min(losses)
    found = [each for run in runs if (each := run.time_to(least + part * (first - least))) is not None]
    return format_seconds(statistics.median(found)) if len(found) * 2 > len(runs) else "-"


def _shares(evidence: HogbatchEvidence, shape: str) -> Table:
    rows = []
    for name in ("hogbatch", "adaptive"):
        runs = evidence.raced(shape, name)
        if not runs:
            continue
        shares = [run.updates.get("cpu", 0) / (sum(run.updates.values()) or 1) for run in runs]
        paper = CPU_SHARES.get(shape, {}).get(name)
        live = statistics.median(shares)
        again = statistics.median(run.simulated_shares.get("cpu", 0.0) for run in runs)
        rows.append(
            cells(
                _NAMES[name],
                _right(format_share(live)),
                _right(format_share(again)),
                _right("-" if paper is None else f"{format_share(paper[0])} and {format_share(paper[1])}"),
                *(
                    _right(format_share(statistics.median(run.busy.get(group, 0.0) for run in runs)))
                    for group in ("cpu", "large")
                ),
            )
        )
    columns = ("algorithm", ">updates of the CPU", ">simulated", ">paper (K80, V100)", ">CPU busy", ">large busy")
    return Table(columns=columns, rows=tuple(rows), caption="Balance and utilisation")


def _settings(evidence: HogbatchEvidence, shape: str) -> Table:
    rows = []
    for name in _algorithms(evidence, shape):
        setting = evidence.raced(shape, name)[0].setting
        tried = [run for run in evidence.runs if (run.shape, run.algorithm, run.is_search) == (shape, name, True)]
        rows.append(
            cells(
                _NAMES[name],
                _right(f"{setting.batch * (REPLICA_FACTOR if name == 'large' else 1)}"),
                _right(f"{setting.learning_rate:g}"),
                _right(f"{setting.threads}" if name in THREADED else "1 each"),
                _right(f"{len(tried)}"),
            )
        )
    columns = ("algorithm", ">batch of an update", ">learning rate", ">threads", ">settings tried")
    return Table(columns=columns, rows=tuple(rows), caption="Settings that the search chose")


def _right(text: str) -> Number | str:
    return text


def _loss_charts(evidence: HogbatchEvidence, shape: str) -> Iterator[Chart]:
    """Normalised loss, by time and by epochs; one line a run."""
    raced = {name: evidence.raced(shape, name) for name in _algorithms(evidence, shape)}
    losses = [point.loss for runs in raced.values() for run in runs for point in run.points]
    if not losses:
        return
    high, low = max(losses), min(losses)
    span = high - low or 1.0
    legend = tuple((f"key-part part-{_colour(name)}", _NAMES[name]) for name in raced)
    for title, unit in (("Loss by time of training", "s"), ("Loss by epochs", "")):
        curves = [
            Curve(
                _colour(name), [((p.trained_s if unit else float(p.epoch)), (p.loss - low) / span) for p in run.points]
            )
            for name, runs in raced.items()
            for run in runs
        ]
        yield Chart(
            kind="study-loss",
            title=title,
            figure=curves_picture(f"{shape}, {title.lower()}", curves, unit),
            legend=legend,
            note="0 is the lowest loss of all runs, 1 the highest.",
        )


def _use_charts(evidence: HogbatchEvidence, shape: str) -> Iterator[Chart]:
    """Utilisation and batches of one run of each heterogeneous algorithm."""
    for name in ("hogbatch", "adaptive"):
        runs = evidence.raced(shape, name)
        if not runs:
            continue
        run = runs[0]
        groups = list(run.utilisation.groups)
        legend = tuple((f"key-part part-{index}", group) for index, group in enumerate(groups))
        use = [
            Curve(index, [((at + 0.5) * run.utilisation.bin_s, value) for at, value in enumerate(values)])
            for index, values in enumerate(run.utilisation.groups.values())
        ]
        yield Chart(
            kind="study-use",
            title=f"{_NAMES[name]}: busy part of the time",
            figure=curves_picture(f"{shape}, {name}: utilisation", use, "s"),
            legend=legend,
        )
        if name == "adaptive":
            yield Chart(
                kind="study-batches",
                title=f"{_NAMES[name]}: examples of a request",
                figure=curves_picture(
                    f"{shape}, {name}: batches", batch_curves(run.schedule, groups, _end_of(run)), "s"
                ),
                legend=legend,
            )


def _end_of(run: TrainedRun) -> float:
    return run.utilisation.bin_s * max((len(values) for values in run.utilisation.groups.values()), default=0)


def _colour(name: str) -> int:
    return ALGORITHMS.index(name)
