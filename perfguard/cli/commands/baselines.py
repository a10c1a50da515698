"""`perfguard baseline` and `perfguard allow`: what is stored in `baselines/` and committed."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import click

from perfguard.cli import options as shared
from perfguard.cli.declaring import SecondsType, flag, parse_percentage
from perfguard.cli.measuring import build_request
from perfguard.cli.measuring import show as show_result
from perfguard.cli.watching import tui_option
from perfguard.codec import to_builtins, to_json
from perfguard.config import LoadedConfig
from perfguard.errors import StoreError, UsageError
from perfguard.records.allowance import LARGEST_RATIO, LONGEST_DAYS, Allowance
from perfguard.units import format_count, format_effect, format_ratio, format_seconds, printable

if TYPE_CHECKING:
    from perfguard.gate.stored.update import CaseChange
    from perfguard.records.record import BaselineInfo
    from perfguard.store.baselines import BaselineStore

_SPAN = re.compile(r"([0-9]{1,4})([dw])")


@click.group("baseline")
def baseline_command() -> None:
    """Show, update or compare stored baselines: `baselines/<machine_id>/<suite>/`, to be committed."""


@baseline_command.command("show")
@click.option("-s", "--suite", help="Suite whose baseline is shown; without it, all stored baselines are listed.")
@click.option("--machine", metavar="ID", help="Another machine's baseline.")
@shared.json_option
def show(*, suite: str | None, machine: str | None, as_json: bool) -> None:
    """List the stored baselines, or show one."""
    from perfguard.gate.stored.lookup import anchor_of, require_stored, store_of
    from perfguard.host.probe import probe

    loaded = shared.load({})
    store = store_of(loaded)
    if suite is None and machine is None:
        _print_stored(store, as_json=as_json)
        return
    suite = suite or loaded.config.suite
    place = store.place(machine, suite) if machine else require_stored(loaded, suite, probe().machine_id)
    anchor = anchor_of(loaded, place)
    baseline = store.load(place)
    info, noise = baseline.info, baseline.noise
    if as_json:
        click.echo(to_json({"anchor": anchor.info if anchor else None, "info": info, "noise": noise}, indent=1))
        return
    click.echo(
        f"{place}\n  measured {info.created_at} by perfguard {info.perfguard}, commit {info.commit or 'unknown'}\n"
        f"  {info.cpus} CPU, profile {info.env_profile}, rounds over {info.span_s:.0f} s"
    )
    if anchor is not None:
        click.echo(f"  {_describe_anchor(anchor.info)}")
    width = max(map(len, noise), default=4)
    click.echo(f"  {'case':<{width}}  rounds      median   between    within")
    for case_id, case in sorted(noise.items()):
        click.echo(
            f"  {case_id:<{width}}  {case.rounds:>6}  {format_seconds(case.median_s):>10}  "
            f"{format_ratio(case.between_round_sd_ratio):>8}  {format_ratio(case.within_round_sd_ratio):>8}"
        )


@baseline_command.command("diff")
@click.argument("before")
@click.argument("after", required=False)
@shared.suite_option
@shared.json_option
def diff(*, before: str, after: str | None, suite: str | None, as_json: bool) -> None:
    """Compare two stored baselines: directories, or revisions for this machine's baseline as it was committed there.

    AFTER defaults to this machine's baseline in the working tree. The output shows the 95 % interval of each case's
    difference, and its changed op counts.
    """
    from perfguard.gate.stored.lookup import named_baseline
    from perfguard.gate.stored.update import changes_between
    from perfguard.host.probe import probe

    loaded = shared.load({"suite": suite}, keys=("suite",))
    machine_id = probe().machine_id
    old, new = (named_baseline(loaded, name, machine_id) for name in (before, after))
    print_changes(changes_between(old, new), as_json=as_json)


@baseline_command.command("anchor")
@shared.suite_option
@click.option("--from", "source", metavar="REV", help="Freeze the baseline that was committed there.")
@flag("--replace", help="Replace the existing anchor; this accepts all drift since then.")
@flag("--remove", help="Remove the anchor.")
def anchor(*, suite: str | None, source: str | None, replace: bool, remove: bool) -> None:
    """Freeze this machine's stored baseline as the anchor, from which drift is measured; then commit the files.

    `baseline update` does not change it. Gates against the stored baseline compare with it, too; `gate --anchor`
    pairs with its commit.
    """
    from perfguard.gate.stored.lookup import freeze_anchor, remove_anchor
    from perfguard.host.probe import probe

    if remove and (source is not None or replace):
        raise UsageError("--remove stands alone; leave --from and --replace out")
    loaded = shared.load({"suite": suite}, keys=("suite",))
    if remove:
        place = remove_anchor(loaded, probe().machine_id)
        click.echo(f"removed {place}; commit it: git add -A {place}")
        return
    place, info = freeze_anchor(loaded, source, probe().machine_id, replace=replace)
    click.echo(_describe_anchor(info))
    click.echo(f"stored at {place}; commit it: git add {place}", err=True)


@baseline_command.command("update")
@shared.measuring_options
@click.option("--rounds", type=int, metavar="N", help="Independent rounds, each a fresh process.")
@click.option(
    "--spread", "spread_s", type=SecondsType(), metavar="TIME", help="Minimum time from the first round to the last."
)
@flag("--allow-dirty", help="Store even if the tree has uncommitted changes.")
@flag("--allow-unfit", help="Store even if `perfguard doctor` finds the host unfit.")
@flag("--allow-few", help="Store even with too few rounds.")
@flag("--allow-different", help="Store even if a case computes another result than in the old baseline.")
@flag("-n", "--dry-run", help="Measure and show the changes, but store nothing.")
@tui_option
@shared.output_options
def update(**options: Any) -> None:
    """Measure independent rounds and store them as this machine's baseline, then commit the files."""
    from perfguard.gate.stored.update import UpdateOptions, update_baseline

    if options["patterns"] and not options["dry_run"]:
        raise UsageError("a baseline is stored for a suite; name one with --suite (your own: [suites.NAME])")
    loaded = shared.load(options)
    request = build_request("baseline update", loaded, options)

    def confirm(changes: tuple[CaseChange, ...]) -> bool:
        print_changes(changes, as_json=False, to_stderr=options["output_format"] == "json")
        return not options["dry_run"]

    allowed = {name: options[name] for name in ("allow_dirty", "allow_unfit", "allow_few", "allow_different")}
    size = UpdateOptions(rounds=loaded.config.rounds, spread_s=loaded.config.spread_s, **allowed)
    result, place = update_baseline(request, size, confirm)
    click.echo(f"stored at {place}; commit it: git add {place}" if place else "nothing was stored", err=True)
    show_result(result, options)


def _print_stored(store: BaselineStore, *, as_json: bool) -> None:
    """One line per stored baseline, and one for its anchor; for a corrupt one, its error, and an error in the end."""
    from perfguard.store.baselines import anchor_place, has_anchor

    places = store.stored()
    if as_json:
        click.echo(to_json([str(place) for place in places], indent=1))
        return
    if not places:
        click.echo(f"no baseline is stored in {store.root}; run `perfguard baseline update`")
    corrupt = 0
    for place in places:
        what = f"{place.parent.name}  {place.name:<8}"
        try:
            info = store.load(place).info
            click.echo(
                f"{info.machine_id}  {info.suite:<8} {info.created_at}  commit {(info.commit or 'unknown')[:12]}  "
                f"{info.cpus} CPU, {info.env_profile}, over {info.span_s:.0f} s"
            )
            what = "  anchor"
            if has_anchor(place):
                click.echo(f"  {_describe_anchor(store.load(anchor_place(place)).info)}")
        except StoreError as error:
            corrupt += 1
            click.echo(f"{what} corrupt: {error}")
    if corrupt:
        raise StoreError(f"{corrupt} of {len(places)} stored baselines cannot be read, see above")


def _describe_anchor(info: BaselineInfo) -> str:
    """`anchor of 2026-08-01, commit 0123456789ab`."""
    return f"anchor of {info.created_at[:10]}, commit {(info.commit or 'unknown')[:12]}"


def print_changes(changes: Sequence[CaseChange], *, as_json: bool, to_stderr: bool = False) -> None:
    """Each case before and after, and below it its changed op counts, where they are known."""
    from perfguard.report.lines import SAME_OP_COUNTS, change_lines

    if as_json:
        click.echo(to_json(changes, indent=1))
        return
    width = max((len(change.case_id) for change in changes), default=4)
    for change in changes:
        click.echo(f"{change.case_id:<{width}}  {_times(change)}", err=to_stderr)
        if change.op_changes is not None:
            for line in change_lines("changed", "in op counts", change.op_changes) or [SAME_OP_COUNTS]:
                click.echo(f"  {printable(line)}", err=to_stderr)


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


@click.command("allow")
@click.argument("case", required=False)
@click.option("--max", "maximum", metavar="SLOWDOWN", help="Largest slowdown that is accepted, such as 3%.")
@click.option("--until", metavar="DATE", help="Last day, such as 2027-01-31, 30d or 2w; at most a year ahead.")
@click.option("--reason", metavar="TEXT", help="Why it is accepted; printed in every report.")
@flag("--list", "listing", help="Print the entries.")
@click.option("--remove", metavar="CASE", help="Remove the entry for CASE.")
@flag("--json", "as_json", help="With --list: JSON instead of text.")
def allow_command(**options: Any) -> None:
    """Accept a slowdown of CASE until a date, in `baselines/allow.toml`; then commit the file.

    CASE is a case id, a benchmark, a glob or tag:NAME. If the case is slower by no more than that, its verdict
    is `allowed` and the gate passes.
    """
    from perfguard.gate.paired.allow_list import disallow, path_of

    needed = {"CASE": "case", "--max": "maximum", "--until": "until", "--reason": "reason"}
    missing = [name for name, key in needed.items() if options[key] is None]
    pattern = options["remove"]
    if sum((len(missing) < len(needed), options["listing"], pattern is not None)) != 1:
        raise UsageError("give either CASE with --max, --until and --reason, or --list, or --remove CASE")
    if options["as_json"] and not options["listing"]:
        raise UsageError("--json goes with --list")
    loaded = shared.load({}, keys=())
    if options["listing"]:
        _print_entries(loaded, as_json=options["as_json"])
        return
    if pattern is not None:
        for entry in disallow(loaded, pattern):
            click.echo(f"removed: {_line(entry)}")
    elif missing:
        verb = "is" if len(missing) == 1 else "are"
        raise UsageError(
            f"{' and '.join(missing)} {verb} missing: perfguard allow CASE --max 3% --until 30d --reason …"
        )
    else:
        _add_entry(loaded, options)
    click.echo(f"stored at {path_of(loaded)}; commit it: git add {path_of(loaded)}", err=True)


def _add_entry(loaded: LoadedConfig, options: dict[str, Any]) -> None:
    """Add the entry of the options; print the cases that it covers and the entry that it replaces."""
    from perfguard.gate.paired.allow_list import allow, utc_today

    maximum = parse_percentage("--max", options["maximum"])
    if maximum > LARGEST_RATIO:
        raise UsageError(
            f"--max {options['maximum']!r} is {format_ratio(maximum)}; at most {format_ratio(LARGEST_RATIO)} can be "
            "allowed (3 % is written 3% or 0.03), beyond that take the case out of the suite"
        )
    until = parse_until(options["until"], utc_today())
    entry = Allowance(case=options["case"], max_ratio=maximum, until=until, reason=options["reason"])
    done = allow(loaded, entry)
    for old in done.replaced:
        click.echo(f"replaced: {_line(old)}", err=True)
    names = ", ".join(done.cases[:3]) + (f" and {len(done.cases) - 3} more" if len(done.cases) > 3 else "")
    click.echo(f"{_line(done.entry)}\n  names {format_count(len(done.cases), 'case')}: {names}")


def _print_entries(loaded: LoadedConfig, *, as_json: bool) -> None:
    """One line for each entry, expired ones too."""
    from perfguard.gate.paired.allow_list import allowances_of, path_of, utc_today

    entries, today = allowances_of(loaded), utc_today()
    if as_json:
        found = [
            {**to_builtins(entry), "until": entry.until.isoformat(), "expired": entry.has_expired(today)}
            for entry in entries
        ]
        click.echo(to_json(found, indent=1))
        return
    if not entries:
        click.echo(f"nothing is allowed: {path_of(loaded)} holds no entry")
    for entry in entries:
        left = (entry.until - today).days
        state = "expired, no longer applies" if left < 0 else f"{format_count(left, 'day')} left"
        click.echo(f"{_line(entry)} ({state})")


def parse_until(text: str, today: date) -> date:
    """`2027-01-31`, `30d` or `2w` as a date. Raises UsageError: it is neither."""
    span = _SPAN.fullmatch(text.strip())
    if span:
        days = int(span[1]) * (7 if span[2] == "w" else 1)
        if days > LONGEST_DAYS:
            raise UsageError(f"--until {text!r} is more than a year ahead; allow it for a shorter time")
        return today + timedelta(days=days)
    # From 3.11 on, fromisoformat takes other spellings too, which 3.10 does not.
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text.strip()):
        with contextlib.suppress(ValueError):
            return date.fromisoformat(text.strip())
    raise UsageError(f"--until {text!r} is no date; write 2027-01-31, or a time from today such as 30d or 2w")


def _line(entry: Allowance) -> str:
    return (
        f"{printable(entry.case)}  up to {format_ratio(entry.max_ratio)} slower until {entry.until.isoformat()}: "
        f"{entry.reason}"
    )
