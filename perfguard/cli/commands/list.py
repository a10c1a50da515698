"""`perfguard list`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load


@click.command("list")
@click.argument("patterns", nargs=-1)
@click.option("-s", "--suite", help="Only the cases of this suite.")
@click.option("--cases", is_flag=True, help="Every case, not only the benchmarks.")
@click.option("--format", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(**options: Any) -> None:
    """List suites, benchmarks and cases, your own included. PATTERN is an id, a name, a glob or tag:NAME."""
    from perfguard.cli.listing import print_cases, print_catalog
    from perfguard.runner.suites.selection import load_catalog, selected_cases

    catalog = load_catalog(load({}))
    if options["patterns"] or options["suite"]:
        cases = selected_cases(catalog, suite=options["suite"] or "", patterns=options["patterns"])
        print_cases(cases, as_json=options["output_format"] == "json")
    else:
        print_catalog(catalog, every_case=options["cases"], as_json=options["output_format"] == "json")
