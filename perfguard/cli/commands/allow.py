"""`perfguard allow`."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

import click

from perfguard.cli.options import load, parse_percentage
from perfguard.codec import to_json
from perfguard.config import LoadedConfig
from perfguard.errors import UsageError
from perfguard.records.allowance import LARGEST_RATIO, LONGEST_DAYS, Allowance
from perfguard.units import format_count, format_ratio, printable

_SPAN = re.compile(r"([0-9]{1,4})([dw])")


@click.command("allow")
@click.argument("case", required=False)
@click.option("--max", "maximum", metavar="SLOWDOWN", help="Largest slowdown that is accepted, such as 3%.")
@click.option("--until", metavar="DATE", help="Last day, such as 2027-01-31, 30d or 2w; at most a year ahead.")
@click.option("--reason", metavar="TEXT", help="Why it is accepted; printed in every report.")
@click.option("--list", "listing", is_flag=True, help="Print the entries.")
@click.option("--remove", metavar="CASE", help="Remove the entry for CASE.")
@click.option("--json", "as_json", is_flag=True, help="With --list: JSON instead of text.")
def command(**options: Any) -> None:
    """Accept a slowdown of CASE until a date, in `baselines/allow.toml`; then commit the file.

    CASE is a case id, a benchmark, a glob or tag:NAME. If the case is slower by no more than that, its verdict
    is `allowed` and the gate passes.
    """
    adding = [name for name in ("case", "maximum", "until", "reason") if options[name] is not None]
    if sum((bool(adding), options["listing"], options["remove"] is not None)) != 1:
        raise UsageError("give either CASE with --max, --until and --reason, or --list, or --remove CASE")
    if options["as_json"] and not options["listing"]:
        raise UsageError("--json goes with --list")
    loaded = load({}, keys=())
    if options["listing"]:
        _print_entries(loaded, as_json=options["as_json"])
    elif options["remove"] is not None:
        _remove_entry(loaded, options["remove"])
    else:
        missing = [
            name
            for name, key in (("CASE", "case"), ("--max", "maximum"), ("--until", "until"), ("--reason", "reason"))
            if options[key] is None
        ]
        if missing:
            raise UsageError(
                f"{' and '.join(missing)} is missing: perfguard allow CASE --max 3% --until 30d --reason …"
            )
        _add_entry(loaded, options)


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
    done = allow(
        loaded, Allowance(case=options["case"], max_ratio=maximum, until=until, reason=options["reason"] or "")
    )
    for old in done.replaced:
        click.echo(f"replaced: {_line(old)}", err=True)
    names = ", ".join(done.cases[:3]) + (f" and {len(done.cases) - 3} more" if len(done.cases) > 3 else "")
    click.echo(f"{_line(done.entry)}\n  names {format_count(len(done.cases), 'case')}: {names}")
    click.echo(f"stored at {done.path}; commit it: git add {done.path}", err=True)


def _remove_entry(loaded: LoadedConfig, pattern: str) -> None:
    """Remove the entry of a pattern."""
    from perfguard.gate.paired.allow_list import disallow, path_of

    for entry in disallow(loaded, pattern):
        click.echo(f"removed: {_line(entry)}")
    click.echo(f"stored at {path_of(loaded)}; commit it: git add {path_of(loaded)}", err=True)


def _print_entries(loaded: LoadedConfig, *, as_json: bool) -> None:
    """One line for each entry, expired ones too."""
    from perfguard.gate.paired.allow_list import allowances_of, path_of, utc_today

    entries, today = allowances_of(loaded), utc_today()
    if as_json:
        found = [
            {
                "case": entry.case,
                "max_ratio": entry.max_ratio,
                "until": entry.until.isoformat(),
                "reason": entry.reason,
                "expired": entry.has_expired(today),
            }
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
    """`2027-01-31`, `30d` or `2w` as a date.

    Raises:
        UsageError: It is neither.
    """
    span = _SPAN.fullmatch(text.strip())
    if span:
        days = int(span[1]) * (7 if span[2] == "w" else 1)
        if days > LONGEST_DAYS:
            raise UsageError(f"--until {text!r} is more than a year ahead; allow it for a shorter time")
        return today + timedelta(days=days)
    # From 3.11 on, fromisoformat takes other spellings too, which 3.10 does not.
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text.strip()):
        try:
            return date.fromisoformat(text.strip())
        except ValueError:
            pass
    raise UsageError(f"--until {text!r} is no date; write 2027-01-31, or a time from today such as 30d or 2w")


def _line(entry: Allowance) -> str:
    return (
        f"{printable(entry.case)}  up to {format_ratio(entry.max_ratio)} slower until {entry.until.isoformat()}: "
        f"{entry.reason}"
    )
