"""`perfguard doctor`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.option("--cpus", metavar="LIST", help="CPUs that would be measured on.")
@click.option("--threads", type=int, metavar="N", help="How many of them.")
@click.option("--numa", metavar="NODE", help="NUMA node.")
@click.option("--env-profile", type=click.Choice(["stable", "production"]))
@click.option(
    "--observer-effect", is_flag=True, help="Measure instead whether a TUI that watches changes what is measured."
)
@click.option("--pairs", type=click.IntRange(3, 500), metavar="N", help="Of rounds, for --observer-effect; default 12.")
@click.option("-s", "--suite", help="Suite, for --observer-effect.")
@click.option("-c", "--case", "patterns", multiple=True, metavar="PATTERN", help="Cases instead of the suite.")
@click.option("--budget", "budget_s", type=float, metavar="SECONDS", help="Wall-clock budget, for --observer-effect.")
def command(*, as_json: bool, observer_effect: bool, pairs: int | None, **options: Any) -> None:
    """Check the host for sources of noise: what was seen, why it matters, and the command that mends it.

    Exits with 3 where a check fails outright; warnings alone exit with 0.
    """
    from perfguard.errors import UsageError

    if observer_effect:
        _observe(pairs=pairs or 12, as_json=as_json, options=options)
        return
    given = [name for name, value in (("--pairs", pairs), *_measured(options)) if value]
    if given:
        raise UsageError(f"{', '.join(given)}: only --observer-effect measures anything; add it, or leave this out")
    _check(as_json=as_json, options=options)


def _measured(options: dict[str, Any]) -> list[tuple[str, object]]:
    names = (("--suite", "suite"), ("--case", "patterns"), ("--budget", "budget_s"))
    return [(option, options[name]) for option, name in names]


def _check(*, as_json: bool, options: dict[str, Any]) -> None:
    from perfguard.cli.diagnostics import reader_may_leave
    from perfguard.codec import to_json
    from perfguard.errors import ExitCode
    from perfguard.records.machine.fingerprint import CheckStatus
    from perfguard.runner.doctor import check_host

    checks = check_host(load(options))
    with reader_may_leave():  # the exit code stands, whoever reads
        if as_json:
            click.echo(to_json(checks, indent=1))
        else:
            from perfguard.cli.output import print_checks

            print_checks(checks)
    if any(check.status is CheckStatus.FAIL for check in checks):
        raise click.exceptions.Exit(int(ExitCode.INFRASTRUCTURE))


def _observe(*, pairs: int, as_json: bool, options: dict[str, Any]) -> None:
    """Rounds with a TUI attached, in a terminal that nobody sees, against rounds without."""
    from perfguard.cli.measuring import build_request
    from perfguard.cli.watching import require_textual
    from perfguard.codec import to_json
    from perfguard.gate.observer_effect import measure_observer_effect
    from perfguard.gate.observer_reader import TerminalReader
    from perfguard.report.terminal.observer import observer_lines
    from perfguard.runner.arms.arm_spec import parse_arm

    require_textual()
    loaded = load(options)
    request = build_request("doctor", loaded, options)
    effect = measure_observer_effect(request, parse_arm("dir:."), TerminalReader(loaded.project), pairs=pairs)
    if as_json:
        click.echo(to_json(effect, indent=1))
    else:
        for line in observer_lines(effect):
            click.echo(line)
