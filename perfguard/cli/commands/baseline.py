"""`perfguard baseline`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load, measuring_options, output_options
from perfguard.cli.watching import tui_option


@click.group("baseline")
def command() -> None:
    """Show, update or compare stored baselines: `baselines/<machine_id>/<suite>/`, made to be committed."""


@command.command("show")
@click.option("-s", "--suite", help="Suite whose baseline is shown; without it, all stored baselines are listed.")
@click.option("--machine", metavar="ID", help="Another machine's baseline.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def show(*, suite: str | None, machine: str | None, as_json: bool) -> None:
    """List the stored baselines, or show one."""
    from perfguard.cli.baselines import print_baseline, print_stored
    from perfguard.gate.stored.anchors import anchor_of
    from perfguard.gate.stored.lookup import require_stored, store_of

    loaded = load({})
    store = store_of(loaded)
    if suite is None and machine is None:
        print_stored(store, as_json=as_json)
        return
    suite = suite or loaded.config.suite
    place = store.place(machine, suite) if machine else require_stored(loaded, suite)
    anchor = anchor_of(loaded, place)
    print_baseline(store.load(place), place, anchor=anchor.info if anchor else None, as_json=as_json)


@command.command("diff")
@click.argument("before")
@click.argument("after", required=False)
@click.option("-s", "--suite", help="Suite.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def diff(*, before: str, after: str | None, suite: str | None, as_json: bool) -> None:
    """Compare two stored baselines: directories, or git:REV for this machine's baseline as it was committed there.

    AFTER defaults to this machine's baseline in the working tree. Each case is told with the 95 % interval of its
    difference, and with what its step executes otherwise.
    """
    from perfguard.cli.baselines import print_changes
    from perfguard.gate.stored.changes import changes_between
    from perfguard.gate.stored.lookup import named_baseline

    loaded = load({"suite": suite}, keys=("suite",))
    old = named_baseline(loaded, before)
    new = named_baseline(loaded, after)
    print_changes(changes_between(old, new), as_json=as_json)


@command.command("anchor")
@click.option("-s", "--suite", help="Suite.")
@click.option("--from", "source", metavar="git:REV", help="Freeze the baseline that was committed there.")
@click.option("--replace", is_flag=True, help="Replace the anchor that exists; what has been added since is accepted.")
@click.option("--remove", is_flag=True, help="Remove the anchor.")
def anchor(*, suite: str | None, source: str | None, replace: bool, remove: bool) -> None:
    """Freeze this machine's stored baseline as the anchor that drift is told by; then commit the files.

    `baseline update` leaves it alone. Gates against the stored baseline compare with it, too; `gate --anchor` pairs
    with its commit.
    """
    from perfguard.cli.baselines import describe_anchor
    from perfguard.errors import UsageError
    from perfguard.gate.stored.anchors import freeze_anchor, remove_anchor

    if remove and (source is not None or replace):
        raise UsageError("--remove stands alone; leave --from and --replace out")
    loaded = load({"suite": suite}, keys=("suite",))
    if remove:
        place = remove_anchor(loaded)
        click.echo(f"removed {place}; commit it: git add -A {place}")
        return
    place, info = freeze_anchor(loaded, source, replace=replace)
    click.echo(describe_anchor(info))
    click.echo(f"stored at {place}; commit it: git add {place}", err=True)


@command.command("update")
@measuring_options
@click.option("--rounds", type=int, metavar="N", help="Independent rounds, each a fresh process.")
@click.option(
    "--spread", "spread_s", type=float, metavar="SECONDS", help="Least time from the first round to the last."
)
@click.option("--allow-dirty", is_flag=True, help="Record although the tree has uncommitted changes.")
@click.option("--allow-unfit", is_flag=True, help="Record although `perfguard doctor` finds the host unfit.")
@click.option("--allow-few", is_flag=True, help="Record with fewer rounds than are needed.")
@click.option(
    "--allow-different", is_flag=True, help="Record although a case computes something else than in the old baseline."
)
@click.option("-n", "--dry-run", is_flag=True, help="Measure and show what would change, but store nothing.")
@tui_option
@output_options
def update(**options: Any) -> None:
    """Measure independent rounds and store them as this machine's baseline, then commit the files."""
    from perfguard.cli.baselines import print_changes
    from perfguard.cli.measuring import build_request, show
    from perfguard.errors import UsageError
    from perfguard.gate.stored.changes import CaseChange
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
