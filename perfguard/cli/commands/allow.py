"""`perfguard allow`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load


@click.command("allow")
@click.argument("case", required=False)
@click.option("--max", "maximum", metavar="SLOWDOWN", help="Largest slowdown that is accepted, such as 3%.")
@click.option("--until", metavar="DATE", help="Last day, such as 2027-01-31, 30d or 2w; at most a year ahead.")
@click.option("--reason", metavar="TEXT", help="Why it is accepted; stands in every report.")
@click.option("--list", "listing", is_flag=True, help="Print the entries.")
@click.option("--remove", metavar="CASE", help="Remove the entry for CASE.")
@click.option("--json", "as_json", is_flag=True, help="With --list: JSON instead of text.")
def command(**options: Any) -> None:
    """Accept a slowdown of CASE for a while: `baselines/allow.toml`, made to be committed.

    CASE is a case id, a benchmark, a glob or tag:NAME. A gate whose case is slower by no more than that says `allowed`
    and passes.
    """
    from perfguard.cli.allowances import add_entry, print_entries, remove_entry
    from perfguard.errors import UsageError

    adding = [name for name in ("case", "maximum", "until", "reason") if options[name] is not None]
    if sum((bool(adding), options["listing"], options["remove"] is not None)) != 1:
        raise UsageError("give either CASE with --max, --until and --reason, or --list, or --remove CASE")
    if options["as_json"] and not options["listing"]:
        raise UsageError("--json goes with --list")
    loaded = load({}, keys=())
    if options["listing"]:
        print_entries(loaded, as_json=options["as_json"])
    elif options["remove"] is not None:
        remove_entry(loaded, options["remove"])
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
        add_entry(loaded, options)
