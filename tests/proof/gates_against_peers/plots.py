"""Power and false alarms as pictures. matplotlib is needed for these alone, and only where a report is made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.proof.gates_against_peers.live_summary import ToolSummary
from tests.proof.gates_against_peers.replay_summary import RuleSummary

# Okabe and Ito's colours, told apart by people with any common colour vision; dashes and markers tell them apart, too.
_COLOURS = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#CC79A7",
    "#0072B2",
    "#D55E00",
    "#999933",
    "#882255",
    "#44AA99",
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")


def power_plot(summaries: Sequence[RuleSummary], path: Path, *, title: str) -> None:
    """Share of gates that find a slowdown, against the slowdown, one line a rule."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    for number, summary in enumerate(summaries):
        axes.plot(
            [100 * effect for effect in summary.power],
            [100 * power for power in summary.power.values()],
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=5,
            linewidth=3 if summary.name == "perfguard" else 1.5,
            linestyle="-" if summary.name == "perfguard" else "--",
            label=f"{summary.name} ({summary.false_alarms.count}/{summary.false_alarms.trials} red on identical arms)",
        )
    axes.axhline(80, color="#888888", linewidth=1, linestyle=":")
    axes.set(
        xscale="log", xlabel="slowdown of one case, %", ylabel="gates that flag it, %", title=title, ylim=(-3, 103)
    )
    axes.set_xticks([0.5, 1, 2, 3, 5, 10, 20, 50], labels=["0.5", "1", "2", "3", "5", "10", "20", "50"])
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.grid(alpha=0.3)
    _save(plt, figure, path)


def false_alarm_plot(rates: Sequence[tuple[str, float, float, float]], path: Path, *, title: str) -> None:
    """Share of red gates where nothing changed, with its exact interval.

    Args:
        rates: Name, share, lower and upper end.
        path: SVG to write.
        title: Of the picture.
    """
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(9, 0.45 * len(rates) + 1.6), layout="constrained")
    for place, (name, value, lower, upper) in enumerate(reversed(rates)):
        colour = _COLOURS[0] if name.startswith("perfguard") else _COLOURS[5]
        axes.plot([100 * lower, 100 * upper], [place, place], color=colour, linewidth=2)
        axes.plot([100 * value], [place], color=colour, marker="o", markersize=7)
    axes.set_yticks(range(len(rates)), labels=[name for name, *_ in reversed(rates)])
    axes.axvline(1, color="#888888", linewidth=1, linestyle=":")
    axes.set(
        xlabel="gates that are red though nothing changed, % (95 % interval; dotted: 1 %)", title=title, xlim=(-2, 102)
    )
    axes.grid(axis="x", alpha=0.3)
    _save(plt, figure, path)


def replay_plots(summaries: Sequence[RuleSummary], folder: Path, stem: str) -> list[Path]:
    """Power of the rules as they come, of the tuned ones, and their false alarms."""
    own = [s for s in summaries if s.is_own_design and not s.name.endswith(", tuned")]
    tuned = [s for s in summaries if s.name == "perfguard" or (s.is_own_design and s.name.endswith(", tuned"))]
    paths = [folder / f"{stem}-{name}.svg" for name in ("power", "power-tuned", "false-alarms")]
    power_plot(own, paths[0], title="Replay: rules as they come, each on samples in its own order")
    power_plot(tuned, paths[1], title="Replay: thresholds tuned to 1 % red gates on these very samples")
    rates = [(s.name, s.false_alarms.value, s.false_alarms.lower, s.false_alarms.upper) for s in own]
    false_alarm_plot([r for r in rates if r[1] == r[1]], paths[2], title="Replay: false alarms for each gate")
    return paths


def live_plot(summaries: Sequence[ToolSummary], folder: Path) -> list[Path]:
    """False alarms of the live gates."""
    path = folder / "live-false-alarms.svg"
    rates = [
        (
            f"{s.tool}, {s.regime}, {s.gate_minutes:g} min, {s.allocator}",
            s.nothing.value,
            s.nothing.lower,
            s.nothing.upper,
        )
        for s in summaries
        if s.nothing.trials
    ]
    if not rates:
        return []
    false_alarm_plot(rates, path, title="Live: false alarms for each gate, identical arms and placebos")
    return [path]


def _pyplot():
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit(
            "plots need matplotlib: pip install -c tests/proof/gates_against_peers/constraints.txt matplotlib"
        ) from None
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "perfguard"  # equal figures give equal files
    import matplotlib.pyplot as plt

    return plt


def _save(plt, figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
