"""From the journals to `docs/measurements/peers-<machine_id>/`: the report, its figures as JSON, plots."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfguard.records.verdict import WIDE_MARGIN
from perfguard.units import format_count
from tests.proof.gates_against_peers import live_summary, plots, replay_summary
from tests.proof.gates_against_peers.journal import Journal, Row
from tests.proof.gates_against_peers.machine import identity
from tests.proof.gates_against_peers.places import (
    EFFECTS_JOURNAL,
    FAULTS_JOURNAL,
    LIVE_JOURNAL,
    MEASURED,
    RECORDINGS,
    REPLAY_JOURNAL,
    without_places,
)
from tests.proof.gates_against_peers.rules import NOT_SLOWER, peer_rules
from tests.proof.gates_against_peers.tables import effect_table, fault_table, live_table, replay_table, table
from tests.proof.gates_against_peers.targets import targets
from tests.proof.gates_against_peers.tools import TOOLS

_REPLAYED = """A long stream of interleaved blocks of identical arms is cut into gates. *Interleaved* gives a rule both
arms of every block; *sequential* gives it both arms of the first half as baseline and of the second half
as candidate, which is how most tools measure; *rounds* gives it whole blocks by turns, which is how asv
interleaves two commits. *Found* is the share of gates that flag the one case whose
candidate was made slower. *Tuned* rules have the smallest threshold at which at most 1 % of these gates
are red.
"""
_EFFECTS = "Processes of both arms take turns; the interval of 95 % is over pairs of processes. No gate."
_LIMITS = """
- One machine; figures hold for it alone.
- Replayed confirmations use blocks that follow the window: a recording cannot relocate its arms.
- Replayed, perfguard leaves cases that have their answer, as a live gate does, where the recording tells what each case
  took; it then reaches more blocks in the same minutes.
- Slowdowns are replayed by multiplication, so they are perfectly even; live ones are made by a spin or by wider
  layers.
- Interleaved samples are better than what most peers collect by themselves; the rows marked *not its own* show what
  their rules would make of perfguard's samples.
- Tuned thresholds are chosen on the very gates that they are judged by, in the peers' favour; perfguard's rule is
  left as it comes.
- Resampled windows are drawn at random from the recording, with the arms of random blocks exchanged: independent draws,
  so a rate among them is exact for the noise of this recording. Of other hours only windows that share no block tell.
- asv compares commits, so placebos of path and environment cannot be asked of it; its default has no budget and takes
  its own time.
- Arms that hash identical pass perfguard's gate by construction; what counts here is what their times said.
"""


def write(say: object = print, *, folder: Path = MEASURED) -> Path:
    """Write the report of what the journals hold; gives the Markdown file.

    Raises:
        SystemExit: Nothing was measured yet.
    """
    every_live, every_fault = Journal(LIVE_JOURNAL).rows(), Journal(FAULTS_JOURNAL).rows()
    live, faults = latest(every_live), latest(every_fault)
    again = len(every_live) + len(every_fault) - len(live) - len(faults)
    effects, replayed = latest(Journal(EFFECTS_JOURNAL).rows()), latest(Journal(REPLAY_JOURNAL).rows())
    if not (live or faults or replayed):
        raise SystemExit(
            "nothing was measured yet; run the sub-commands `live`, `faults` or `record` and `replay` first"
        )
    head = identity()
    folder.mkdir(parents=True, exist_ok=True)
    groups = by_length(replayed)
    # The score functions of asv are not needed for a summary: its scores are in the rows.
    rules = peer_rules(asv_score)
    summaries = {minutes: replay_summary.summarize(rows, rules) for minutes, rows in groups.items()}
    tools = live_summary.summarize(live)
    drawn = [
        p for m, s in summaries.items() for p in plots.replay_plots(s, folder, f"replayed-{m:g}min")
    ] + plots.live_plot(tools, folder)
    text = [
        *_head(head, live, faults, replayed),
        *([f"{again} gates were measured again; the last answer counts.", ""] if again else ()),
        *_targets(summaries, tools),
        *_replay(summaries, groups, drawn),
        *_live(tools, drawn),
        *_faults(faults, effects),
        "## Limits",
        "",
        _LIMITS,
    ]
    data = {
        "machine": head,
        "recordings": latest(Journal(RECORDINGS).rows()),
        "replay": {f"{minutes:g}": [asdict(s) for s in found] for minutes, found in summaries.items()},
        "live": [asdict(summary) for summary in tools],
    }
    raw = json.dumps(data, indent=1, sort_keys=True) + "\n"
    (folder / "report.json").write_text(without_places(raw), encoding="utf-8")
    path = folder / "README.md"
    path.write_text(without_places("\n".join(text)), encoding="utf-8")
    say(f"{path} and {len(drawn)} plots")
    return path


def asv_score(_: object) -> float:
    """Stands for asv's own score, whose values a replay has already written down."""
    return NOT_SLOWER


def latest(rows: Sequence[Row]) -> list[Row]:
    """The last row of each key, in the order in which the keys first came."""
    return list({row["key"]: row for row in rows}.values())


def by_length(rows: Sequence[Row]) -> dict[float, list[Row]]:
    """Replayed gates by their minutes, shortest first."""
    found: dict[float, list[Row]] = {}
    for row in rows:
        found.setdefault(row["gate_minutes"], []).append(row)
    return dict(sorted(found.items()))


def _head(head: dict[str, Any], live: Sequence[Row], faults: Sequence[Row], replayed: Sequence[Row]) -> list[str]:
    timed = [*live, *faults]
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(row["at"])) for row in timed})
    loads = sorted(row["load_1min"] for row in timed)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(head["suites"].items()))
    recordings = Journal(RECORDINGS).rows()
    commits = sorted({row["commit"] for row in (*timed, *replayed, *recordings)})
    return [
        "# perfguard's gate against its peers",
        "",
        (
            f"Made by `make proof-peers` on {head['cpu']} ({head['microarchitecture']}, {head['hypervisor'] or 'no'} "
            f"hypervisor, {head['cores']} cores, Linux {head['kernel']}; `{head['machine_id']}`). perfguard "
            f"{head['perfguard']}, commits {', '.join(f'`{c}`' for c in commits)}; {versions}, asv {head['asv']}."
        ),
        "",
        f"{len(live)} live gates, {len(faults)} faults, {len(replayed)} replayed gates from "
        f"{format_count(len(recordings), 'recording')}; {', '.join(days) or 'no live day'}; load before each live gate "
        + (f"{loads[0]:.1f} to {loads[-1]:.1f}, median {statistics.median(loads):.1f}." if loads else "not measured."),
        "",
    ]


def _targets(summaries: dict[float, Sequence[Any]], tools: Sequence[Any]) -> list[str]:
    words = {True: "yes", False: "**no**", None: "too little measured"}
    lines = ["## Targets", ""]
    for minutes, found in summaries.items() or {0.0: ()}.items():
        wanted = targets(found, tools if minutes == max(summaries, default=0.0) else ())
        if summaries:
            lines += [f"Replayed gates of {minutes:g} minutes:", ""]
        lines += table(
            ("target", "measured", "reached"), [(t.aim, t.measured, words[t.reached]) for t in wanted], left=3
        )
    return lines


def _replay(summaries: dict[float, Sequence[Any]], groups: dict[float, list[Row]], drawn: Sequence[Path]) -> list[str]:
    if not summaries:
        return []
    lines = ["## Replay: identical samples, every rule", "", _REPLAYED, ""]
    for minutes, found in summaries.items():
        rows = groups[minutes]
        separate = sum(row["scheme"] == "separate" for row in rows)
        lines += [
            f"### Gates of {minutes:g} minutes",
            "",
            (
                f"{_span([row['blocks'] for row in rows])} blocks of {rows[0]['block_s']:.1f} s; "
                f"perfguard's margin {rows[-1].get('margin', WIDE_MARGIN):.2%}; "
                f"{separate} windows that share no block, "
                f"{len(rows) - separate} resampled."
            ),
            "",
            *replay_table(found),
            *(f"![{p.stem}]({p.name})\n" for p in drawn if f"-{minutes:g}min-" in p.name),
        ]
    return lines


def _span(counts: Sequence[int]) -> str:
    """`17`, or `17 to 19` where recordings of several days differ."""
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _live(tools: Sequence[Any], drawn: Sequence[Path]) -> list[str]:
    if not tools:
        return []
    rules = [(f"`{tool.name}`", tool.rule) for tool in TOOLS.values()]
    return [
        "## Live gates: each tool with its own commands",
        "",
        "Same CPUs, same minutes, tools in the rows of a Latin square. *Alone* counts gates that flag no other case.",
        "",
        *table(("tool", "rule"), rules, left=2),
        *live_table(tools),
        *(f"![{p.stem}]({p.name})\n" for p in drawn if p.name.startswith("live-")),
    ]


def _faults(faults: Sequence[Row], effects: Sequence[Row]) -> list[str]:
    lines = []
    if faults:
        right = sum(row["as_expected"] for row in faults)
        lines += ["## Natural faults and reported regressions", "", f"{right} of {len(faults)} as expected.", ""]
        lines += fault_table(faults)
    if effects:
        lines += ["### What each variant does here", "", _EFFECTS, ""]
        lines += effect_table([row for row in effects if not row.get("error")])
    return lines
