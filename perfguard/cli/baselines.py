"""Stored baselines as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import click

from perfguard.codec import to_json
from perfguard.errors import StoreError
from perfguard.gate.stored.changes import CaseChange
from perfguard.records.record import BaselineInfo, StoredBaseline
from perfguard.records.steps.ops import CensusChange
from perfguard.report.lines import SAME_OP_COUNTS, change_lines
from perfguard.store.anchors import anchor_place, has_anchor
from perfguard.store.baselines import BaselineStore
from perfguard.units import format_effect, format_ratio, format_seconds, printable


def print_stored(store: BaselineStore, *, as_json: bool) -> None:
    """One line for each stored baseline; a corrupt one says so instead.

    Raises:
        StoreError: One was corrupt; after all lines.
    """
    places = store.stored()
    if as_json:
        click.echo(to_json([str(place) for place in places], indent=1))
        return
    if not places:
        click.echo(f"no baseline is stored in {store.root}; run `perfguard baseline update`")
    corrupt = []
    for place in places:
        try:
            info = store.load(place).info
        except StoreError as error:
            corrupt.append(place.name)
            click.echo(f"{place.parent.name}  {place.name:<8} corrupt: {error}")
            continue
        click.echo(
            f"{info.machine_id}  {info.suite:<8} {info.created_at}  commit {(info.commit or 'unknown')[:12]}  "
            f"{info.cpus} CPU, {info.env_profile}, over {info.span_s:.0f} s"
        )
        if has_anchor(place):
            try:
                click.echo(f"  {describe_anchor(store.load(anchor_place(place)).info)}")
            except StoreError as error:
                corrupt.append(place.name)
                click.echo(f"  anchor corrupt: {error}")
    if corrupt:
        raise StoreError(f"{len(corrupt)} of {len(places)} stored baselines cannot be read, see above")


def describe_anchor(info: BaselineInfo) -> str:
    """`anchor of 2026-08-01, commit 0123456789ab`."""
    return f"anchor of {info.created_at[:10]}, commit {(info.commit or 'unknown')[:12]}"


def print_baseline(baseline: StoredBaseline, place: Path, *, anchor: BaselineInfo | None, as_json: bool) -> None:
    """Provenance and each case's median and spread."""
    if as_json:
        click.echo(to_json({"anchor": anchor, "info": baseline.info, "noise": baseline.noise}, indent=1))
        return
    info = baseline.info
    click.echo(
        f"{place}\n  measured {info.created_at} by perfguard {info.perfguard}, commit {info.commit or 'unknown'}"
    )
    click.echo(f"  {info.cpus} CPU, profile {info.env_profile}, rounds over {info.span_s:.0f} s")
    if anchor is not None:
        click.echo(f"  {describe_anchor(anchor)}")
    width = max((len(case_id) for case_id in baseline.noise), default=4)
    click.echo(f"  {'case':<{width}}  rounds      median   between    within")
    for case_id, noise in sorted(baseline.noise.items()):
        click.echo(
            f"  {case_id:<{width}}  {noise.rounds:>6}  {format_seconds(noise.median_s):>10}  "
            f"{format_ratio(noise.between_round_sd_ratio):>8}  {format_ratio(noise.within_round_sd_ratio):>8}"
        )


def print_changes(changes: Sequence[CaseChange], *, as_json: bool, to_stderr: bool = False) -> None:
    """Each case before and after, and below it what changed by op counts."""
    if as_json:
        click.echo(to_json(changes, indent=1))
        return
    width = max((len(change.case_id) for change in changes), default=4)
    for change in changes:
        click.echo(f"{change.case_id:<{width}}  {_times(change)}", err=to_stderr)
        for line in _executed(change.op_changes):
            click.echo(f"  {line}", err=to_stderr)


def _times(change: CaseChange) -> str:
    before, after = change.before, change.after
    if before is None:
        return f"new        {format_seconds(after.median_s) if after else '-':>10}"
    if after is None:
        return f"gone       {format_seconds(before.median_s):>10}"
    effect = format_effect(math.log(after.median_s / before.median_s))
    times = f"{effect:>9}  {format_seconds(before.median_s):>10} -> {format_seconds(after.median_s):>10}"
    if change.interval is None:
        return f"{times}  too few rounds for an interval"
    noise = ", within the noise of the rounds" if change.is_within_noise else ""
    return f"{times}  [{format_effect(change.interval.lower)}, {format_effect(change.interval.upper)}]{noise}"


def _executed(changes: Sequence[CensusChange] | None) -> list[str]:
    """Lines on what changed by op counts; none where that is not known."""
    if changes is None:
        return []
    told = change_lines("changed", "in op counts", changes) or [SAME_OP_COUNTS]
    return [printable(line) for line in told]
