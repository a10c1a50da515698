"""Decision replay: one recorded stream, cut into gates, given to perfguard's rule and to the peers'.

Every gate becomes a row with the scores of all rules, so that tables, other thresholds included, need no second replay.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from perfguard.config import load_config
from perfguard.gate.calibration.machine_rates import margins_of
from perfguard.host.probe import probe
from tests.proof.gates_against_peers.journal import Journal, Row, within
from tests.proof.gates_against_peers.machine import commit
from tests.proof.gates_against_peers.perfguard_rule import CONFIRMATION_BLOCKS, decide
from tests.proof.gates_against_peers.places import REPLAY_JOURNAL, REPOSITORY
from tests.proof.gates_against_peers.rules import NOT_SLOWER, PeerRule, Score, asv_process, peer_rules
from tests.proof.gates_against_peers.stream import Block, Design, Window, resampled, sample, separate
from tests.proof.live_gates import calibration_of

EFFECTS = (0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.07, 0.10, 0.15, 0.20, 0.30, 0.50)
"""Slowdowns put into one case of each gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a stream becomes gates."""

    gate_minutes: float
    """Length of a gate."""
    size: int
    """Blocks of a gate."""
    block_s: float
    """Median seconds of a block."""
    windows: tuple[tuple[str, Window], ...]
    """Key and window of each gate: of each recording the separate ones first, then the resampled ones."""


def cut(streams: Mapping[str, Sequence[Block]], *, gate_minutes: float, set_up_s: float, extra: int, seed: int) -> Cut:
    """Cut streams into gates of the wanted length, none of them across two recordings.

    Args:
        streams: Blocks by the recording's name.
        gate_minutes: Wall time of a gate.
        set_up_s: Part of it that goes into calibration before the first block.
        extra: Resampled gates of each stream beside its separate ones.
        seed: Of the resampling.

    Raises:
        SystemExit: The recordings are too short for a single gate.
    """
    durations = [block.conditions.duration_s for stream in streams.values() for block in stream]
    if not durations:
        raise SystemExit("nothing is recorded yet; run the sub-command `record` first")
    block_s = statistics.median(durations)
    size = max(6, int((gate_minutes * 60 - set_up_s) / block_s))
    confirmation = CONFIRMATION_BLOCKS
    windows: list[tuple[str, Window]] = []
    for name, stream in streams.items():
        own = separate(stream, size=size, confirmation=confirmation)
        more = resampled(stream, size=size, confirmation=confirmation, count=extra, seed=seed)
        windows += [(f"{name}/{gate_minutes:g}min/separate/{n}", window) for n, window in enumerate(own)]
        windows += [(f"{name}/{gate_minutes:g}min/resampled-{seed}/{n}", window) for n, window in enumerate(more)]
    if not windows:
        raise SystemExit(f"a gate of {gate_minutes:g} minutes needs {size} blocks; record for longer")
    return Cut(gate_minutes=gate_minutes, size=size, block_s=block_s, windows=tuple(windows))


def run(pieces: Cut, *, minutes: float | None, resume: bool, say: object = print) -> int:
    """Decide every gate that is not in the journal yet; gives how many were decided."""
    journal, margin_ratio = Journal(REPLAY_JOURNAL), _calibrated_margin()
    done = journal.done() if resume else frozenset()
    todo = [(n, key, window) for n, (key, window) in enumerate(pieces.windows) if key not in done]
    count = 0
    with asv_process() as asv:
        rules = peer_rules(asv)
        for number, key, window in within(todo, minutes=minutes):
            found = decided(window, number, rules, margin_ratio)
            journal.append({"key": key, **_head(pieces, key), "margin": margin_ratio, **found})
            count += 1
            if count % 25 == 0:
                say(f"{count} of {len(todo)} gates")
    return count


def _calibrated_margin() -> float:
    """The margin that this machine's calibration of `pr` gives to gates."""
    config = load_config(REPOSITORY, os.environ, {}).config
    found = calibration_of(probe().machine_id, "pr")
    return config.wide_margin if found is None else margins_of(config, found).ratio


def decided(window: Window, number: int, rules: Sequence[PeerRule], margin_ratio: float) -> Row:
    """Everything that all rules say of one gate; the slowdown goes round the cases from gate to gate.

    `margin_ratio` is that of perfguard's rule.
    """
    cases = tuple(window.blocks[0].cases)
    case = cases[number % len(cases)]
    slowdowns = {"0": (None, 0.0), **{f"{effect:g}": (case, effect) for effect in EFFECTS}}
    return {
        "case": case,
        "perfguard": {
            name: asdict(decide(window, case=slower, effect=effect, margin_ratio=margin_ratio))
            for name, (slower, effect) in slowdowns.items()
        },
        "scores": {
            score.__name__: {
                design.value: _scored(window, cases, case, design, score)
                for rule in rules
                if rule.score is score
                for design in rule.designs
            }
            for score in dict.fromkeys(rule.score for rule in rules)
        },
    }


def _scored(window: Window, cases: Sequence[str], case: str, design: Design, score: Score) -> Row:
    return {
        "identical": {name: _plain(score(sample(window.blocks, name, design))) for name in cases},
        "slower": {f"{e:g}": _plain(score(sample(window.blocks, case, design, e))) for e in EFFECTS},
    }


def _plain(score: float) -> float | None:
    """JSON has no minus infinity; None is a test that found no difference."""
    return None if score == NOT_SLOWER or math.isnan(score) else score


def _head(pieces: Cut, key: str) -> Row:
    return {
        "gate_minutes": pieces.gate_minutes,
        "blocks": pieces.size,
        "block_s": pieces.block_s,
        "scheme": "separate" if "/separate/" in key else "resampled",
        "commit": commit(),
    }
