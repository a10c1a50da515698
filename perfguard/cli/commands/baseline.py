"""`perfguard baseline`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfguard.cli.options import load, measuring_options, output_options
from perfguard.cli.watching import tui_option
from perfguard.codec import to_json
from perfguard.errors import StoreError, UsageError
from perfguard.units import format_effect, format_ratio, format_seconds, printable

if TYPE_CHECKING:
    from perfguard.gate.stored.update import CaseChange
    from perfguard.records.record import BaselineInfo, StoredBaseline
    from perfguard.records.steps.ops import OpCountChange
    from perfguard.store.baselines import BaselineStore


@click.group("baseline")
def command() -> None:
    """Show, update or compare stored baselines: `baselines/<machine_id>/<suite>/`, to be committed."""


@command.command("show")
@click.option("-s", "--suite", help="Suite whose baseline is shown; without it, all stored baselines are listed.")
@click.option("--machine", metavar="ID", help="Another machine's baseline.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def show(*, suite: str | None, machine: str | None, as_json: bool) -> None:
    """List the stored baselines, or show one."""
    from perfguard.gate.stored.lookup import anchor_of, require_stored, store_of
    from perfguard.host.probe import probe

    loaded = load({})
    store = store_of(loaded)
    if suite is None and machine is None:
        _print_stored(store, as_json=as_json)
        return
    suite = suite or loaded.config.suite
    place = store.place(machine, suite) if machine else require_stored(loaded, suite, probe().machine_id)
    anchor = anchor_of(loaded, place)
    _print_baseline(store.load(place), place, anchor=anchor.info if anchor else None, as_json=as_json)


@command.command("diff")
@click.argument("before")
@click.argument("after", required=False)
@click.option("-s", "--suite", help="Suite.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def diff(*, before: str, after: str | None, suite: str | None, as_json: bool) -> None:
    """Compare two stored baselines: directories, or git:REV for this machine's baseline as it was committed there.

    AFTER defaults to this machine's baseline in the working tree. The output shows the 95 % interval of each case's
    difference, and its changed op counts.
    """
    from perfguard.gate.stored.lookup import named_baseline
    from perfguard.gate.stored.update import changes_between
    from perfguard.host.probe import probe

    loaded = load({"suite": suite}, keys=("suite",))
    machine_id = probe().machine_id
    old, new = (named_baseline(loaded, name, machine_id) for name in (before, after))
    print_changes(changes_between(old, new), as_json=as_json)


@command.command("anchor")
@click.option("-s", "--suite", help="Suite.")
@click.option("--from", "source", metavar="git:REV", help="Freeze the baseline that was committed there.")
@click.option("--replace", is_flag=True, help="Replace the existing anchor; this accepts all drift since then.")
@click.option("--remove", is_flag=True, help="Remove the anchor.")
def anchor(*, suite: str | None, source: str | None, replace: bool, remove: bool) -> None:
    """Freeze this machine's stored baseline as the anchor, from which drift is measured; then commit the files.

    `baseline update` does not change it. Gates against the stored baseline compare with it, too; `gate --anchor`
    pairs with its commit.
    """
    from perfguard.gate.stored.lookup import freeze_anchor, remove_anchor
    from perfguard.host.probe import probe

    if remove and (source is not None or replace):
        raise UsageError("--remove stands alone; leave --from and --replace out")
    loaded = load({"suite": suite}, keys=("suite",))
    if remove:
        place = remove_anchor(loaded, probe().machine_id)
        click.echo(f"removed {place}; commit it: git add -A {place}")
        return
    place, info = freeze_anchor(loaded, source, probe().machine_id, replace=replace)
    click.echo(_describe_anchor(info))
    click.echo(f"stored at {place}; commit it: git add {place}", err=True)


@command.command("update")
@measuring_options
@click.option("--rounds", type=int, metavar="N", help="Independent rounds, each a fresh process.")
@click.option(
    "--spread", "spread_s", type=float, metavar="SECONDS", help="Minimum time from the first round to the last."
)
@click.option("--allow-dirty", is_flag=True, help="Store even if the tree has uncommitted changes.")
@click.option("--allow-unfit", is_flag=True, help="Store even if `perfguard doctor` finds the host unfit.")
@click.option("--allow-few", is_flag=True, help="Store even with too few rounds.")
@click.option(
    "--allow-different", is_flag=True, help="Store even if a case computes another result than in the old baseline."
)
@click.option("-n", "--dry-run", is_flag=True, help="Measure and show the changes, but store nothing.")
@tui_option
@output_options
def update(**options: Any) -> None:
    """Measure independent rounds and store them as this machine's baseline, then commit the files."""
    from perfguard.cli.measuring import build_request, show
    from perfguard.gate.stored.update import UpdateOptions, update_baseline

    if options["patterns"] and not options["dry_run"]:
        raise UsageError("a baseline is stored for a suite; name one with --suite (your own: [suites.NAME])")
    loaded = load(options)
    request = build_request("baseline update", loaded, options)

    def confirm(changes: tuple[CaseChange, ...]) -> bool:
        print_changes(changes, as_json=False, to_stderr=options["output_format"] == "json")
        return not options["dry_run"]

    result, place = update_baseline(
        request,
        UpdateOptions(
            rounds=loaded.config.rounds,
            spread_s=loaded.config.spread_s,
            allow_dirty=options["allow_dirty"],
            allow_unfit=options["allow_unfit"],
            allow_few=options["allow_few"],
            allow_different=options["allow_different"],
        ),
        confirm,
    )
    stored = f"stored at {place}; commit it: git add {place}" if place else "nothing was stored"
    click.echo(stored, err=True)
    show(result, options)


def _print_stored(store: BaselineStore, *, as_json: bool) -> None:
    """One line per stored baseline; for a corrupt one, its error.

    Raises:
        StoreError: One was corrupt; after all lines.
    """
    from perfguard.store.baselines import anchor_place, has_anchor

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
                click.echo(f"  {_describe_anchor(store.load(anchor_place(place)).info)}")
            except StoreError as error:
                corrupt.append(place.name)
                click.echo(f"  anchor corrupt: {error}")
    if corrupt:
        raise StoreError(f"{len(corrupt)} of {len(places)} stored baselines cannot be read, see above")


def _describe_anchor(info: BaselineInfo) -> str:
    """`anchor of 2026-08-01, commit 0123456789ab`."""
    return f"anchor of {info.created_at[:10]}, commit {(info.commit or 'unknown')[:12]}"


def _print_baseline(baseline: StoredBaseline, place: Path, *, anchor: BaselineInfo | None, as_json: bool) -> None:
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
        click.echo(f"  {_describe_anchor(anchor)}")
    width = max((len(case_id) for case_id in baseline.noise), default=4)
    click.echo(f"  {'case':<{width}}  rounds      median   between    within")
    for case_id, noise in sorted(baseline.noise.items()):
        click.echo(
            f"  {case_id:<{width}}  {noise.rounds:>6}  {format_seconds(noise.median_s):>10}  "
            f"{format_ratio(noise.between_round_sd_ratio):>8}  {format_ratio(noise.within_round_sd_ratio):>8}"
        )


def print_changes(changes: Sequence[CaseChange], *, as_json: bool, to_stderr: bool = False) -> None:
    """Each case before and after, and below it its changed op counts."""
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


def _executed(changes: Sequence[OpCountChange] | None) -> list[str]:
    """Lines on changed op counts; none if they are unknown."""
    from perfguard.report.lines import SAME_OP_COUNTS, change_lines

    if changes is None:
        return []
    lines = change_lines("changed", "in op counts", changes) or [SAME_OP_COUNTS]
    return [printable(line) for line in lines]
