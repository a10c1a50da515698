"""`perfguard doctor`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.option("--cpus", metavar="LIST", help="CPUs to measure on, such as 2-5,8.")
@click.option("--threads", type=int, metavar="N", help="How many of the CPUs to use.")
@click.option("--numa", metavar="NODE", help="NUMA node to measure on.")
@click.option("--env-profile", type=click.Choice(["stable", "production"]), help="Environment to measure in.")
def command(*, as_json: bool, **options: Any) -> None:
    """Check the host for sources of noise: what was found, why it matters, and the command that fixes it.

    Exits with 3 if a check fails; warnings alone exit with 0.
    """
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
